"""Which inventory a command means when it names none, and which of its hosts take part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from clusterkit.errors import InputError, NotFound
from clusterkit.inventory import nearness
from clusterkit.inventory.patterns import DEFAULT
from clusterkit.inventory.toml import read_toml

VARIABLE = "CLUSTERKIT_INVENTORY"
PROJECT_FILE = "clusterkit.toml"
KNOWN = ("inventory", "hosts", "driver_table", "xid_table", "diagnoses")

_NOT_INVENTORIES = (".md", ".txt", ".bak", ".orig", ".retry", ".rst")


@dataclass(frozen=True)
class Found:
    """An inventory file that exists, and what named it."""

    path: Path
    how: str


def find(argument: str | None, cwd: Path, environ: Mapping[str, str]) -> Found:
    """The inventory of a command, from the first of these that there is.

    `argument`; CLUSTERKIT_INVENTORY; `inventory` in `clusterkit.toml`; `inventory.ini`; the only file in
    `inventories/`, all relative to `cwd`. Raises NotFound if the file that was named is not there, or with
    the list of what was looked for; InputError if `clusterkit.toml` cannot be used.
    """
    for name, how in _named(argument, cwd, environ):
        path = cwd / Path(name).expanduser()
        if not path.exists():
            raise NotFound(f"{name}: there is no such inventory file ({how})", _host_list_hint(name))
        return Found(_shown(path, cwd), how)
    return _found_here(cwd)


def members_pattern(cwd: Path) -> str:
    """The pattern of the hosts that take part: `hosts` in `clusterkit.toml`, else `all:!spares`.

    Raises InputError if `clusterkit.toml` cannot be used.
    """
    return _project(cwd).get("hosts", DEFAULT)


def project_file(cwd: Path, key: str) -> Path | None:
    """The file that `clusterkit.toml` names by this key, relative to it; None if it names none.

    Raises InputError if `clusterkit.toml` cannot be used.
    """
    named = _project(cwd).get(key)
    return cwd / Path(named).expanduser() if named else None


def _named(argument: str | None, cwd: Path, environ: Mapping[str, str]) -> list[tuple[str, str]]:
    if argument:
        return [(argument, "named on the command line")]
    if environ.get(VARIABLE):
        return [(environ[VARIABLE], f"named by {VARIABLE}")]
    project = _project(cwd)
    return [(project["inventory"], f"named by {PROJECT_FILE}")] if "inventory" in project else []


def _found_here(cwd: Path) -> Found:
    usual = cwd / "inventory.ini"
    if usual.is_file():
        return Found(_shown(usual, cwd), "./inventory.ini")
    several = _files(cwd / "inventories")
    if len(several) == 1:
        return Found(_shown(several[0], cwd), "the only file in ./inventories")
    if several:
        names = ", ".join(f"inventories/{path.name}" for path in several)
        raise NotFound(
            f"which inventory? ./inventories has several: {names}",
            f"name one on the command line, in {VARIABLE} or in {PROJECT_FILE}",
        )
    state = "without `inventory`" if (cwd / PROJECT_FILE).is_file() else "not there"
    raise NotFound(
        f"no inventory: looked for an argument, {VARIABLE} (not set), {PROJECT_FILE} ({state}), "
        "./inventory.ini and a file in ./inventories",
        "write inventory.ini with one host a line (docs/inventory.md), or name a file",
    )


def _files(directory: Path) -> list[Path]:
    if not directory.is_dir():
        return []
    return [
        path
        for path in sorted(directory.iterdir())
        if path.is_file()
        and not path.name.startswith(".")
        and not path.name.endswith("~")
        and path.suffix not in _NOT_INVENTORIES
    ]


def _shown(path: Path, cwd: Path) -> Path:
    """The path as a person in `cwd` would write it, if the process is there too; else the path itself."""
    if cwd.absolute() != Path.cwd():
        return path
    return path.relative_to(cwd) if path.is_relative_to(cwd) else path


def _host_list_hint(name: str) -> str:
    if "," in name:
        return "a list of hosts is not an inventory here: write them to inventory.ini, one a line"
    return "write one host a line into it (docs/inventory.md), or name another file"


def _project(cwd: Path) -> dict[str, str]:
    """What `clusterkit.toml` says, checked; empty without one."""
    path = cwd / PROJECT_FILE
    if not path.is_file():
        return {}
    settings = read_toml(path, PROJECT_FILE, 'texts need quotes: inventory = "inventory.ini"')
    for key, value in settings.items():
        if key not in KNOWN:
            meant = nearness.slip_of(key, KNOWN)
            raise InputError(
                f"{PROJECT_FILE}: {key!r} is not known here",
                f"did you mean {meant!r}?" if meant else f"known are: {', '.join(KNOWN)}",
            )
        if not isinstance(value, str) or not value.strip():
            raise InputError(
                f"{PROJECT_FILE}: {key!r} has to be a text", f'for example {key} = "{_EXAMPLES[key]}"'
            )
    return settings


_EXAMPLES: Mapping[str, str] = {
    "inventory": "inventory.ini",
    "hosts": DEFAULT,
    "driver_table": "site/drivers.toml",
    "xid_table": "site/xids.toml",
    "diagnoses": "site/diagnoses.toml",
}
