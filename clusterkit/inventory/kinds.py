"""The kinds of value that our variables have: what fits, and what a fitting value means.

Each kind is a function from a raw value (text from INI; text, numbers, lists and mappings from YAML) to the
typed one. It raises Misfit, whose text says what was expected and never shows the value.
"""

from __future__ import annotations

import ast
import ipaddress
import json
import re
import shlex
from collections.abc import Callable
from typing import Any, Literal

from clusterkit.inventory.model import Mount, PortRange, Secret

Kind = Callable[[Any], Any]


class Misfit(Exception):
    """The value is not of the kind that the variable has; the text completes "expected …"."""


class SecretMisfit(Misfit):
    """The same of a value that is not to be shown."""


_TRUE = frozenset({"true", "yes", "on", "y", "t", "1"})
_FALSE = frozenset({"false", "no", "off", "n", "f", "0"})
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def text(raw: Any) -> str:
    """One line of text; a whole number of YAML is one too."""
    if isinstance(raw, bool) or not isinstance(raw, str | int):
        raise Misfit("text")
    if _CONTROL.search(str(raw)):
        raise Misfit("one line of text")
    return str(raw)


def matching(pattern: str, expected: str) -> Kind:
    """Text that the whole of `pattern` matches."""
    whole = re.compile(pattern)

    def kind(raw: Any) -> str:
        if isinstance(raw, bool) or not isinstance(raw, str | int) or not whole.fullmatch(str(raw)):
            raise Misfit(expected)
        return str(raw)

    return kind


def secret(raw: Any) -> Secret:
    """A password. YAML's fractions and truth values are refused: their spelling is lost."""
    if isinstance(raw, bool) or not isinstance(raw, str | int):
        raise Misfit("a password as text (put quotes around it)")
    return Secret(raw)


def whole_number(least: int, most: int | None = None) -> Kind:
    """A whole number within both ends."""
    expected = f"a whole number from {least}" + (f" to {most}" if most is not None else " up")

    def kind(raw: Any) -> int:
        if isinstance(raw, bool) or not isinstance(raw, str | int) or not re.fullmatch("[0-9]+", str(raw)):
            raise Misfit(expected)
        number = int(raw)
        if number < least or (most is not None and number > most):
            raise Misfit(expected)
        return number

    return kind


def amount(raw: Any) -> float:
    """A number that is not negative."""
    expected = "a number from 0 up, such as 0.5"
    if isinstance(raw, bool) or not isinstance(raw, str | int | float):
        raise Misfit(expected)
    if not re.fullmatch(r"[0-9]+(\.[0-9]*)?|\.[0-9]+", str(raw).strip()):
        raise Misfit(expected)
    return float(raw)


def truth(raw: Any) -> bool:
    """True or false in any of the spellings that Ansible knows."""
    word = str(raw).strip().lower()
    if not isinstance(raw, str | int) or word not in _TRUE | _FALSE:
        raise Misfit("true or false")
    return word in _TRUE


def one_of(*words: str) -> Kind:
    """One of the words, in any case."""

    def kind(raw: Any) -> str:
        if not isinstance(raw, str) or raw.lower() not in words:
            raise Misfit(f"{', '.join(words[:-1])} or {words[-1]}")
        return raw.lower()

    return kind


def connection(raw: Any) -> Literal["ssh", "local"]:
    """Ansible's names for ssh in its several implementations, and for this machine itself."""
    word = raw.removeprefix("ansible.builtin.").lower() if isinstance(raw, str) else ""
    if word == "local":
        return "local"
    if word in ("ssh", "smart", "paramiko", "paramiko_ssh"):
        return "ssh"
    raise Misfit("ssh or local, the connections that clusterkit has")


def address(raw: Any) -> str:
    """A host name or IP address that ssh can be given (`user@` in front is split off elsewhere)."""
    word = text(raw).strip()
    if word.startswith("[") and word.endswith("]"):
        word = word[1:-1]
    if not word or word.startswith("-") or re.search(r"\s", word):
        raise Misfit("a host name or IP address")
    return word


user = matching(r"[^-\s:@/][^\s:/]*", "a user name")


def ipv4(raw: Any) -> str:
    """An IPv4 address that a host can have."""
    try:
        found = ipaddress.IPv4Address(raw if isinstance(raw, str) else "")
    except ValueError:
        raise Misfit("an IPv4 address such as 10.0.0.1") from None
    if found.is_unspecified or found.is_multicast or str(found) == "255.255.255.255":
        raise Misfit("an IPv4 address of the host itself")
    return str(found)


def network(raw: Any) -> str:
    """An IPv4 network; host bits may be set, as `ip addr` shows them."""
    if not isinstance(raw, str) or "/" not in raw:
        raise Misfit("an IPv4 network such as 10.0.0.0/24")
    try:
        return str(ipaddress.IPv4Network(raw, strict=False))
    except ValueError:
        raise Misfit("an IPv4 network such as 10.0.0.0/24") from None


interface = matching(
    r"(?!\.{1,2}$)[^\s/:-][^\s/:]{0,14}", "the name of one network interface such as ib0 or eth1"
)


def devices(raw: Any) -> tuple[int, ...] | None:
    """The numbers of the devices to use, in this order; None for `all`."""
    if isinstance(raw, str) and raw.strip().lower() == "all":
        return None
    expected = "all, or different device numbers such as 0,1,2,3"
    items = [raw] if isinstance(raw, int) and not isinstance(raw, bool) else raw
    if isinstance(items, str):
        items = _list(items) if items.lstrip().startswith("[") else items.split(",")
    if not isinstance(items, list | tuple) or not items:
        raise Misfit(expected)
    try:
        numbers = tuple(whole_number(0)(item.strip() if isinstance(item, str) else item) for item in items)
    except Misfit:
        raise Misfit(expected) from None
    if len(set(numbers)) != len(numbers):
        raise Misfit(expected)
    return numbers


version = matching(r"[0-9]+(\.[0-9]+)*", "a version such as 535.104.05 (in YAML between quotes)")

image = matching(r"[A-Za-z0-9][\w.:/@+-]*", "the name of an image such as registry/name:tag")

container_user = matching(r"[\w.][\w.-]*(:[\w.][\w.-]*)?", "a user, or UID:GID")

python = matching(r"(?=.*[A-Za-z/])[~\w/.][^\s]*", "the name or path of an interpreter")


def size(raw: Any) -> str:
    """An amount of memory as Docker writes it: `8g`, `512m`, or bytes."""
    word = str(raw).strip().lower() if isinstance(raw, str | int) and not isinstance(raw, bool) else ""
    if (
        not re.fullmatch(r"[0-9]+(\.[0-9]+)?([kmgt]?b|[kmgt])?", word)
        or float(re.sub("[a-z]+$", "", word)) == 0
    ):
        raise Misfit("a size such as 8g or 512m")
    return word.removesuffix("b") if word[-2:-1].isalpha() else word


def directory(raw: Any) -> str:
    """The path of a directory on a host: absolute, or below a home (`~`); never `/` or a home itself."""
    path = text(raw).rstrip("/")
    if not re.fullmatch(r"(/|~[\w.-]*/)[^/].*", path) or _climbs(path):
        raise Misfit("an absolute path, or one that begins with ~/")
    return path


def mount_point(raw: Any) -> str:
    """An absolute path below `/`."""
    path = text(raw).rstrip("/")
    if not path.startswith("/") or _climbs(path):
        raise Misfit("an absolute path such as /data")
    return path


def _climbs(path: str) -> bool:
    return ".." in path.split("/")


def words(raw: Any) -> tuple[str, ...]:
    """Arguments of a command: a list, or one text that is split as a shell splits."""
    if isinstance(raw, str) and not raw.lstrip().startswith("["):
        try:
            return tuple(shlex.split(raw))
        except ValueError:
            raise Misfit("a list of arguments (a quote is not closed)") from None
    return tuple(_texts(raw, "a list of arguments"))


def volumes(raw: Any) -> tuple[str, ...]:
    """What a container sees of the host, as Docker writes it: `/data:/data:ro`; one text is one volume."""
    expected = "a list of volumes such as /data:/data:ro"
    items = [raw] if isinstance(raw, str) and not raw.lstrip().startswith("[") else _texts(raw, expected)
    if any(
        not re.fullmatch(r"[^\s:,][^\x00-\x1f,]*:/[^\x00-\x1f,]*|/[^\x00-\x1f:,]+", item) for item in items
    ):
        raise Misfit(expected)
    return tuple(items)


def _texts(raw: Any, expected: str) -> list[str]:
    items = _list(raw) if isinstance(raw, str) else raw
    if not isinstance(items, list | tuple):
        raise Misfit(expected)
    try:
        return [text(item) for item in items]
    except Misfit:
        raise Misfit(expected) from None


def _list(written: str) -> list[Any]:
    """A list written as JSON, or with Python's quotes as Ansible also reads it."""
    for read in (json.loads, ast.literal_eval):
        try:
            found = read(written)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
        if isinstance(found, list | tuple):
            return list(found)
    raise Misfit("a JSON list")


def port_range(raw: Any) -> PortRange:
    """`30000-65535` or `30000:65535`, both ends included, from 1024 up."""
    expected = "two ports such as 30000-65535, the lower first, from 1024 to 65535"
    match = re.fullmatch(r"\s*([0-9]{1,5})\s*[-:]\s*([0-9]{1,5})\s*", raw) if isinstance(raw, str) else None
    if not match:
        raise Misfit(expected)
    first, last = int(match[1]), int(match[2])
    if not 1024 <= first <= last <= 65535:
        raise Misfit(expected)
    return PortRange(first, last)


def nfs_source(raw: Any) -> str:
    """`SERVER:/EXPORT`."""
    source = text(raw)
    if not re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^-\s:/\[][^\s:/]*):/\S*", source):
        raise Misfit("SERVER:/EXPORT")
    return source


def mount_options(raw: Any) -> str:
    """Options as mount(8) takes them, from a text or a list."""
    options = ",".join(_texts(raw, "mount options")) if isinstance(raw, list) else text(raw)
    if re.search(r"(^|,)\s*(pass(word)?2?|secret)=", options):
        raise SecretMisfit(
            "without a password, which everybody sees: write credentials=FILE, or secretfile=FILE"
        )
    if re.search(r"\s", options) or options.startswith("-"):
        raise Misfit("mount options such as vers=4.2,noatime, without spaces")
    return options


def nfs_type(options: str) -> str:
    """`nfs` where the options ask for version 2 or 3, which mount.nfs4 refuses; else `nfs4`."""
    return "nfs" if re.search(r"(^|,)(nfs)?vers=[23](\.|,|$)", options) else "nfs4"


def mounts(raw: Any) -> tuple[Mount, ...]:
    """Mappings of `source` and `path`, with `type` and `options` where they are needed."""
    items = _list(raw) if isinstance(raw, str) else raw
    if not isinstance(items, list | tuple):
        raise Misfit("a list of {source, path, type, options}")
    return tuple(_mount(item) for item in items)


def _mount(item: Any) -> Mount:
    fields = {"source", "path", "type", "options"}
    if not isinstance(item, dict) or not {"source", "path"} <= item.keys() <= fields:
        raise Misfit("each mount as {source, path, type, options}, the first two always")
    options = mount_options(item.get("options") or "")
    source = matching(r"[^-\s]\S*", "a mount's source without spaces")(item["source"])
    kind = item.get("type")
    if not kind:
        nfs_source(source)
        kind = nfs_type(options)
    return Mount(
        source,
        mount_point(item["path"]),
        matching(r"[a-z][\w.-]*", "a mount's type such as nfs4")(kind),
        options,
    )


def environment_value(raw: Any) -> str:
    """Text, or a number or truth value of YAML (`true`, `false`) as text; nothing is the empty text."""
    if raw is None:
        return ""
    if isinstance(raw, bool):
        return str(raw).lower()
    if not isinstance(raw, str | int | float) or "\0" in str(raw):
        raise Misfit("text or a number")
    return str(raw)
