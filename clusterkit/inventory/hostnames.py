"""The first word of a host line: ranges, and a port behind a colon, as Ansible reads them."""

from __future__ import annotations

import ipaddress
import itertools
import re
import string

_BRACKETED = re.compile(r"\[(?P<name>.+)\](?::(?P<port>[0-9]+))?$")
_WITH_PORT = re.compile(r"(?P<name>(?:[^:\[\]]|\[[^\]]*\])*):(?P<port>[0-9]+)$")
_RANGE = re.compile(r"\[([^\[\]]*)\]")
# What a name has to look like for a `:port` behind it to be one: labels, ranges already replaced by a letter.
_DNS_NAME = re.compile(r"\w(?:[\w-]*[^\W_])?(?:\.\w(?:[\w-]*[^\W_])?)*$")

MOST_HOSTS = 65536


class BadName(Exception):
    """The word does not name hosts; `hint` says how it is meant to be written."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def expand(word: str) -> tuple[list[str], int | None]:
    """The host names that `word` stands for, in order, and the port written behind them.

    `gpu[01:03]:2222` gives gpu01, gpu02 and gpu03 with port 2222. Raises BadName.
    """
    if not _BRACKETED.match(word):
        _check_brackets(word, word)
    name, port = _split_port(word)
    if is_ipv6(name):
        return [name], port
    _check_brackets(word, name)
    parts = _RANGE.split(name)
    choices = [[part] if index % 2 == 0 else _counted(part) for index, part in enumerate(parts)]
    if _size(choices) > MOST_HOSTS:
        raise BadName(f"{word!r} stands for more than {MOST_HOSTS} hosts", "check the ends of the range")
    return ["".join(pieces) for pieces in itertools.product(*choices)], port


def _check_brackets(word: str, name: str) -> None:
    if re.search(r"[\[\]]", _RANGE.sub("", name)):
        raise BadName(f"{word!r} has a bracket without its partner", "a range is written [01:16]")


def is_ipv6(text: str) -> bool:
    """True if `text` is an IPv6 address without brackets (a zone such as %eth0 may follow)."""
    if ":" not in text:
        return False
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def _size(choices: list[list[str]]) -> int:
    size = 1
    for choice in choices:
        size *= len(choice)
    return size


def _split_port(word: str) -> tuple[str, int | None]:
    if not word:
        raise BadName("a host name is empty", "a line begins with the host's name, then NAME=VALUE")
    if "://" in word:
        raise BadName(
            f"{word!r} is a URL, and a host line begins with a plain name", "write NAME or NAME:PORT"
        )
    if word == "---":
        raise BadName("'---' begins a YAML file", "clusterkit reads inventories in Ansible's INI format")
    if word.endswith(":"):
        raise BadName(f"{word!r} ends in a colon with no port behind it", "write NAME or NAME:PORT")
    match = _BRACKETED.match(word)
    if match and (match["port"] or _looks_ipv6(match["name"])):
        name = match["name"]
        if not (_looks_ipv6(name) or _looks_named(name)):
            raise BadName(f"{name!r} in brackets is neither an IPv6 address nor a host name")
        return name, _port(word, match["port"])
    match = _WITH_PORT.match(word)
    if match and not match["name"]:
        raise BadName(f"{word!r} has no host name before the port", "write NAME:PORT")
    if match:
        if not _looks_named(match["name"]):
            raise BadName(
                f"{match['name']!r} is not a host name, so ':{match['port']}' behind it is not its port",
                "host names have letters, digits, dots and hyphens; or use ansible_host= and ansible_port=",
            )
        return match["name"], _port(word, match["port"])
    outside = _RANGE.sub("0", word)
    if ":" in outside and not _looks_ipv6(word):
        rest = outside.split(":", 1)[1]
        raise BadName(
            f"{word!r}: {rest!r} is not a port", "a port is a number; IPv6 with a port is [2001:db8::1]:22"
        )
    return word, None


def _port(word: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not 1 <= int(text) <= 65535:
        raise BadName(
            f"{word!r}: port {text} is not between 1 and 65535", "ssh listens on 22 unless set otherwise"
        )
    return int(text)


def _looks_named(text: str) -> bool:
    return _DNS_NAME.match(_RANGE.sub("0", text)) is not None


def _looks_ipv6(text: str) -> bool:
    return is_ipv6(_RANGE.sub("1", text))


def _counted(bounds: str) -> list[str]:
    """`01:05:2` → 01, 03, 05; `a:d` → a, b, c, d."""
    first, last, step = _bounds(bounds)
    if first in string.ascii_letters and last in string.ascii_letters and len(first) == len(last) == 1:
        begin, end = string.ascii_letters.index(first), string.ascii_letters.index(last)
        _check_order(bounds, begin, end)
        return list(string.ascii_letters[begin : end + 1 : step])
    if not re.fullmatch("[0-9]+", first) or not re.fullmatch("[0-9]+", last):
        raise BadName(
            f"range [{bounds}]: the ends are numbers or single letters", "for example [01:16] or [a:d]"
        )
    padded = len(first) > 1 and first[0] == "0"
    if padded and len(first) != len(last):
        raise BadName(
            f"range [{bounds}]: {first!r} has leading zeros, so both ends need the same number of digits",
            f"write [{first}:{last.zfill(len(first))}]"
            if len(last) < len(first)
            else f"write [{first.zfill(len(last))}:{last}]",
        )
    _check_order(bounds, int(first), int(last))
    numbers = range(int(first), int(last) + 1, step)
    if len(numbers) > MOST_HOSTS:
        raise BadName(
            f"range [{bounds}] stands for more than {MOST_HOSTS} hosts", "check the ends of the range"
        )
    return [str(number).zfill(len(first) if padded else 0) for number in numbers]


def _bounds(bounds: str) -> tuple[str, str, int]:
    fields = bounds.split(":")
    if len(fields) not in (2, 3):
        raise BadName(f"range [{bounds}] is not [FIRST:LAST] or [FIRST:LAST:STEP]", _meant(bounds))
    first, last = fields[0] or "0", fields[1]
    if not last:
        raise BadName(f"range [{bounds}] has no last value", "write [FIRST:LAST], both ends are included")
    step = fields[2] if len(fields) == 3 else "1"
    if not re.fullmatch("[0-9]+", step) or int(step) == 0:
        raise BadName(f"range [{bounds}]: the step {step!r} is not a number above 0", "for example [0:10:2]")
    return first, last, int(step)


def _check_order(bounds: str, begin: int, end: int) -> None:
    if begin > end:
        raise BadName(f"range [{bounds}] begins after its end", "write the smaller end first")


def _meant(bounds: str) -> str:
    dashed = re.fullmatch(r"(\w+)-(\w+)", bounds)
    if dashed:
        return f"write [{dashed[1]}:{dashed[2]}]"
    if "," in bounds:
        return "a list is not a range: write one host line for each"
    return "for example [01:16], [a:d] or [0:10:2]"
