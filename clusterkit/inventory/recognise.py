"""What kind of file an inventory is: INI is read, every other kind is refused by name."""

from __future__ import annotations

import os
import re
from pathlib import Path

from clusterkit.errors import InputError, InventoryError, NotFound

_YAML_BEGINS = re.compile(r"(---|%YAML|\{|[\w.-]+:(\s|$))")
_FORMAT = "write its hosts in Ansible's INI format: [GROUP], then one host a line (docs/inventory.md)"


def read_lines(path: Path) -> list[str]:
    """The lines of an INI inventory.

    Raises NotFound if there is no such file, InventoryError if it is a directory, a program, YAML, JSON,
    TOML, or not UTF-8; InputError if it cannot be read.
    """
    if path.is_dir():
        raise InventoryError(
            path, None, "this is a directory, and clusterkit reads one inventory file", "name a file in it"
        )
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise NotFound(f"{path}: there is no such inventory file") from None
    except OSError as error:
        raise InputError(f"{path}: the inventory cannot be read: {os.strerror(error.errno or 0)}") from None
    _refuse_programs(path, data)
    lines = decoded(path, data)
    _refuse_other_formats(path, lines)
    return lines


def decoded(path: Path, data: bytes) -> list[str]:
    """UTF-8 text as lines; other bytes are allowed in comments only. Raises InventoryError."""
    try:
        return data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        return [_decoded_line(path, number, line) for number, line in enumerate(data.splitlines(), start=1)]


def _decoded_line(path: Path, number: int, line: bytes) -> str:
    if line[:1] in (b"#", b";"):
        return ""
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise InventoryError(path, number, "this line is not UTF-8 text", "save the file as UTF-8") from None


def _refuse_programs(path: Path, data: bytes) -> None:
    if data.startswith(b"#!") or b"\0" in data:
        raise InventoryError(
            path,
            None,
            "this is a program (a dynamic inventory), and clusterkit does not run inventories",
            f"see what it yields with `ansible-inventory -i {path} --list`, and write the hosts as INI",
        )


def _refuse_other_formats(path: Path, lines: list[str]) -> None:
    number, first = next(
        (
            (number, line)
            for number, line in enumerate(lines, start=1)
            if line.strip()[:1] not in ("", "#", ";")
        ),
        (1, ""),
    )
    if path.suffix == ".toml":
        raise InventoryError(path, None, "this is a TOML file, not an INI inventory", _FORMAT)
    if _YAML_BEGINS.match(first.strip()):
        kind = "JSON" if first.strip().startswith("{") else "YAML"
        raise InventoryError(
            path, number, f"this is a {kind} inventory, and clusterkit reads INI only", _FORMAT
        )
