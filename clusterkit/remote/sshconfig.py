"""What ssh_config says about one host: asked of the ssh client (`ssh -G`), else of Paramiko's parser."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path


class ConfigRefused(Exception):
    """The ssh client cannot read the configuration; the text is its own last line."""


@dataclass(frozen=True)
class Asked:
    """One question to ssh_config. `args` are ssh's own command line arguments."""

    host: str
    port: int | None = None
    user: str | None = None
    identity: str | None = None
    args: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """ssh_config's answer: lower-case keyword → values, and what could not be read."""

    values: dict[str, list[str]]
    warnings: tuple[str, ...] = field(default=())

    def first(self, keyword: str, default: str = "") -> str:
        """The keyword's value; `none` counts as not set."""
        found = self.values.get(keyword, [])
        return default if not found or found[0].lower() == "none" else found[0]

    def every(self, keyword: str) -> list[str]:
        """All values of a keyword that may be repeated."""
        return [value for value in self.values.get(keyword, []) if value.lower() != "none"]

    def yes(self, keyword: str, default: bool) -> bool:
        """A keyword that is on or off."""
        return self.first(keyword, "yes" if default else "no").lower() in ("yes", "true")


def look_up(asked: Asked, timeout: float) -> Answer:
    """What ssh_config says about a host. Raises ConfigRefused, TimeoutError."""
    client = shutil.which("ssh")
    return _ask_client(client, asked, timeout) if client else _parse(asked)


def _ask_client(client: str, asked: Asked, timeout: float) -> Answer:
    command = [client, "-G", *_options(asked), *asked.args, "--", asked.host]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError from None
    except OSError as error:
        raise ConfigRefused(str(error)) from error
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise ConfigRefused(said[-1].strip() if said else f"exit status {done.returncode}")
    return Answer(_keywords(done.stdout.decode("utf-8", "surrogateescape").splitlines()))


def _options(asked: Asked) -> list[str]:
    """The inventory's own values come first: ssh keeps the first that it obtains, as Ansible relies on."""
    options = []
    if asked.port is not None:
        options.append(f"Port={asked.port}")
    if asked.user is not None:
        options.append(f"User={_quoted(asked.user)}")
    if asked.identity is not None:
        options.append(f"IdentityFile={_quoted(asked.identity.replace('%', '%%'))}")
    return [part for option in options for part in ("-o", option)]


def _quoted(value: str) -> str:
    return (
        '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        if set(value) & set(" \t\"\\'#")
        else value
    )


def _keywords(lines: Sequence[str]) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {}
    for line in lines:
        keyword, _, value = line.strip().partition(" ")
        if keyword:
            values.setdefault(keyword.lower(), []).append(value.strip())
    return values


def _parse(asked: Asked) -> Answer:
    """Paramiko's parser knows Host, Match and the keywords, but no Include, IdentityAgent and the like."""
    import paramiko

    given, path, ignored = _read_args(asked.args)
    files = [path] if path else [Path.home() / ".ssh/config", Path("/etc/ssh/ssh_config")]
    text = "\n".join([*_lines(asked), *given, *(_text_of(file) for file in files)])
    try:
        found = paramiko.SSHConfig.from_text(text).lookup(asked.host)
    except Exception as error:  # its parser lets errors of every kind through
        raise ConfigRefused(str(error)) from error
    values = {key: list(value) if isinstance(value, list) else [value] for key, value in dict(found).items()}
    warning = f"no ssh client on this machine: of {files[0]}, Include and some keywords are not understood"
    lost = f"without an ssh client these ssh arguments are ignored: {shlex.join(ignored)}"
    return Answer(values, (warning, lost) if ignored else (warning,))


def _lines(asked: Asked) -> list[str]:
    return [option.replace("=", " ", 1) for option in _options(asked)[1::2]]


def _text_of(path: Path) -> str:
    try:
        return path.expanduser().read_text("utf-8", "surrogateescape")
    except OSError:
        return ""


_KEYWORD_OF = {"-p": "Port", "-l": "User", "-i": "IdentityFile", "-J": "ProxyJump"}


def _read_args(args: Sequence[str]) -> tuple[list[str], Path | None, list[str]]:
    """ssh's arguments as ssh_config lines, the file of `-F`, and what has no keyword."""
    lines: list[str] = []
    path: Path | None = None
    ignored: list[str] = []
    words = iter(args)
    for word in words:
        flag, value = word[:2], word[2:]
        if flag not in ("-o", "-F", *_KEYWORD_OF):
            ignored.append(word)
            continue
        value = value or next(words, "")
        if flag == "-F":
            path = Path(value)
        elif flag == "-o":
            lines.append(value if "=" not in value else value.replace("=", " ", 1))
        else:
            lines.append(f"{_KEYWORD_OF[flag]} {value}")
    return lines, path, ignored


def config_file(args: Sequence[str]) -> tuple[str, ...]:
    """`-F FILE` of ssh's arguments: ssh passes it on to its bastions, and nothing else."""
    _, path, _ = _read_args(args)
    return ("-F", str(path)) if path else ()
