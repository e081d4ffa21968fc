"""Tables that a site may edit: which driver CUDA needs, and what an NVIDIA driver's error numbers mean.

Shipped as TOML in `clusterkit/data/`; `driver_table` and `xid_table` of `clusterkit.toml` name files in the
same format, whose entries replace ours one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from clusterkit.errors import InputError
from clusterkit.inventory.toml import read_toml

DATA = Path(__file__).parent / "data"
XidStatus = Literal["failed", "warning", "ok"]


@dataclass(frozen=True)
class Xid:
    """What one error number means for a job, and what a person does about it."""

    code: int
    status: XidStatus
    advice: str


@dataclass(frozen=True)
class Drivers:
    """Driver versions by CUDA version (`minimum` also by major version), dropped architectures by major."""

    minimum: Mapping[str, str]
    own: Mapping[str, str]
    dropped: Mapping[str, tuple[str, ...]]

    def oldest(self, cuda: str) -> str | None:
        """The oldest driver on which programs built for this CUDA run; None if the table does not know it."""
        release = _release(cuda)
        return self.minimum.get(release) or self.minimum.get(_major(cuda))

    def toolkit(self, cuda: str) -> str | None:
        """The driver that came with this CUDA; None if the table does not know it."""
        return self.own.get(_release(cuda))

    def runs_on(self, cuda: str, architecture: str) -> bool:
        """Whether this CUDA still knows GPUs of that architecture ("Volta")."""
        return architecture not in self.dropped.get(_major(cuda), ())


@dataclass(frozen=True)
class Tables:
    """All of them."""

    drivers: Drivers
    xids: Mapping[int, Xid]
    # By number, or by the driver's own word for it: `fatal`, `corrected`.
    switches: Mapping[int | str, Xid]

    def xid(self, code: int) -> Xid:
        """What the error number means; a number that is in no table is worth a look."""
        return self.xids.get(code) or Xid(
            code, "warning", "not in the table: look it up in NVIDIA's XID catalogue"
        )

    def sxid(self, code: int, *, fatal: bool) -> Xid:
        """The same for the error of an NVSwitch, which the driver itself calls fatal or not."""
        return replace(self.switches.get(code) or self.switches["fatal" if fatal else "corrected"], code=code)


def load(driver_table: Path | None = None, xid_table: Path | None = None) -> Tables:
    """The shipped tables with a site's own entries over them.

    Raises InputError, naming the file and the entry, for a file that cannot be used.
    """
    drivers = _drivers(DATA / "drivers.toml")
    xids, switches = _xids(DATA / "xids.toml", {}), _switches(DATA / "xids.toml", {})
    if driver_table:
        own = _drivers(driver_table)
        drivers = Drivers(
            {**drivers.minimum, **own.minimum}, {**drivers.own, **own.own}, {**drivers.dropped, **own.dropped}
        )
    if xid_table:
        xids = {**xids, **_xids(xid_table, _advice(DATA / "xids.toml", "classes"))}
        switches = {**switches, **_switches(xid_table, _advice(DATA / "xids.toml", "switch"))}
    return Tables(drivers, xids, switches)


def _release(cuda: str) -> str:
    """`12.4.131` is a build of 12.4."""
    return ".".join(cuda.split(".")[:2])


def _major(cuda: str) -> str:
    return cuda.partition(".")[0]


def _drivers(path: Path) -> Drivers:
    said = read_toml(path)
    for name in said:
        if name not in ("minimum", "own", "dropped"):
            raise _wrong(path, name, "it has [minimum], [own] and [dropped]")
    minimum, own, dropped = (_table(path, said, name) for name in ("minimum", "own", "dropped"))
    for name, versions in (("minimum", minimum), ("own", own)):
        for cuda, driver in versions.items():
            if not isinstance(driver, str) or not driver.replace(".", "").isdigit():
                raise _wrong(path, f"{name}.{cuda!r}", 'a driver version is a text: "12.4" = "550.54.14"')
    for cuda, names in dropped.items():
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise _wrong(path, f"dropped.{cuda!r}", 'a list of architectures: "13" = ["Volta"]')
    return Drivers(minimum, own, {cuda: tuple(names) for cuda, names in dropped.items()})


def _xids(path: Path, advice: Mapping[str, str]) -> dict[int, Xid]:
    """Every number of every class; a class without words of its own keeps those of the shipped table."""
    found: dict[int, Xid] = {}
    for _, codes, meaning in _classes(path, "classes", advice):
        found.update({code: replace(meaning, code=code) for code in codes})
    return found


def _switches(path: Path, advice: Mapping[str, str]) -> dict[int | str, Xid]:
    """The same for NVSwitches; `fatal` and `corrected` are for the numbers that no class has."""
    found: dict[int | str, Xid] = {}
    for name, codes, meaning in _classes(path, "switch", advice):
        if not codes and name not in ("fatal", "corrected"):
            raise _wrong(path, f"switch.{name}", "a class of your own needs numbers: codes = [12028]")
        keys: list[int | str] = [*codes] or [name]
        found.update(dict.fromkeys(keys, meaning))
    return found


def _classes(path: Path, table: str, advice: Mapping[str, str]) -> Iterator[tuple[str, list[int], Xid]]:
    """Each class: its name, its numbers, and what they mean."""
    for name, entry in _table(path, read_toml(path), table).items():
        if not isinstance(entry, dict) or entry.get("status") not in get_args(XidStatus):
            raise _wrong(path, f"{table}.{name}", 'status is "failed", "warning" or "ok"')
        codes = entry.get("codes", [])
        if not isinstance(codes, list) or not all(isinstance(code, int) for code in codes):
            raise _wrong(path, f"{table}.{name}", "codes is a list of numbers: codes = [79, 95]")
        yield name, codes, Xid(0, entry["status"], str(entry.get("advice", advice.get(name, ""))))


def _advice(path: Path, table: str) -> dict[str, str]:
    return {name: str(entry.get("advice", "")) for name, entry in read_toml(path)[table].items()}


def _table(path: Path, said: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = said.get(name, {})
    if not isinstance(found, dict):
        raise _wrong(path, name, f"it is a table: [{name}]")
    return found


def _wrong(path: Path, entry: str, hint: str) -> InputError:
    return InputError(f"{path}: {entry} cannot be used", hint)
