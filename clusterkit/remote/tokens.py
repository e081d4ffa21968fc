"""The `%h`, `~` and `${NAME}` of ssh_config values (ssh_config(5), TOKENS)."""

from __future__ import annotations

import hashlib
import os
import pwd
import re
import shlex
import socket
from collections.abc import Mapping
from pathlib import Path

_TOKEN = re.compile(r"%(.)")
_VARIABLE = re.compile(r"\$\{(\w+)\}")


def local_user() -> str:
    """Who runs this, as ssh finds it out; the number where the machine has no name for it."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def known_tokens(
    *, host: str, name: str, port: int, user: str, alias: str | None, jump: str = ""
) -> dict[str, str]:
    """What each percent letter stands for; `name` is what was asked for, `host` what it resolved to."""
    here = socket.gethostname()
    fingerprint = hashlib.sha1(f"{here}{host}{port}{user}{jump}".encode(), usedforsecurity=False).hexdigest()
    return {
        "%": "%",
        "C": fingerprint,
        "d": str(Path.home()),
        "h": host,
        "i": str(os.getuid()),
        "j": jump,
        "k": alias or name,
        "L": here.partition(".")[0],
        "l": here,
        "n": name,
        "p": str(port),
        "r": user,
        "u": local_user(),
    }


def expand_path(value: str, tokens: Mapping[str, str]) -> Path:
    """A file name with its tokens, variables and `~` replaced."""
    text = _TOKEN.sub(lambda found: tokens.get(found[1], found[0]), value)
    text = _VARIABLE.sub(lambda found: os.environ.get(found[1], ""), text)
    return Path(text).expanduser()


def expand_command(value: str, tokens: Mapping[str, str]) -> str:
    """A ProxyCommand with its tokens replaced, each quoted where a shell would not read it as one word."""
    return _TOKEN.sub(lambda found: shlex.quote(tokens[found[1]]) if found[1] in tokens else found[0], value)
