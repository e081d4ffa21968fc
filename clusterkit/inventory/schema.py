"""One host's variables, typed: a Settings, and warnings for what was not understood."""

from __future__ import annotations

import re
from typing import Any

from clusterkit.errors import InventoryError
from clusterkit.inventory import expressions, kinds, nearness, thresholds
from clusterkit.inventory.expressions import Opaque
from clusterkit.inventory.kinds import Misfit, SecretMisfit
from clusterkit.inventory.model import Host, Inventory, Mount, Settings, Value
from clusterkit.inventory.variables import ENVIRONMENT, NAMES, PREFIX, VARIABLES, Variable, meant_by


def settings(inventory: Inventory, host: Host) -> tuple[Settings, list[str]]:
    """The host's settings, and warnings (one line each with file and line, equal for all hosts of a group).

    `clusterkit_NAME` wins over NAME. A bare value of the wrong kind is warned about and not used; under
    `clusterkit_`, and for Ansible's own names, it is an InventoryError with file and line, as is Jinja that
    would have to be evaluated. Nothing (`NAME=`) means not set.
    """
    reader = _Reader(inventory, host)
    return reader.settings(), reader.warnings


class _Reader:
    def __init__(self, inventory: Inventory, host: Host) -> None:
        self.inventory = inventory
        self.host = host
        self.warnings: list[str] = []

    def settings(self) -> Settings:
        self._check_alias()
        found = {variable.setting: self._typed(variable) for variable in VARIABLES}
        given = {setting: value for setting, value in found.items() if value is not None}
        mounts = (*self._nfs(given), *given.pop("mounts", ()))
        self._split_user(given)
        if "image" in given:
            given.setdefault("container_runtime", "docker")
        environment, limits = self._environment(), self._thresholds()
        self._look_for_slips()
        return Settings(
            alias=self.host.name,
            address=given.pop("address", self.host.name),
            mounts=mounts,
            env=environment,
            thresholds=limits,
            **given,
        )

    def _check_alias(self) -> None:
        name = self.host.name
        if "/" in name or name in (".", "..") or name.startswith("-"):
            raise InventoryError(
                self.inventory.path,
                None,
                f"host {name!r}: clusterkit names directories by a host's name, and this one cannot be used",
                f"write a plain name and ansible_host={name.lstrip('-')}",
            )

    # One variable

    def _typed(self, variable: Variable) -> Any:
        for name in (*(PREFIX + name for name in variable.names), *variable.names):
            if name not in self.host.variables:
                continue
            try:
                raw = expressions.rendered(self.inventory, self.host, name)
            except Opaque as error:
                self._opaque(variable, error)
                return None
            if not self._is_unset(raw):
                return self._fitting(variable, name, raw)
            if name.startswith(PREFIX):
                return None  # clusterkit_NAME= takes a bare NAME back
        return None

    def _is_unset(self, raw: Any) -> bool:
        return raw is None or (isinstance(raw, str) and not raw.strip())

    def _opaque(self, variable: Variable, error: Opaque) -> None:
        """A password that cannot be read can be asked for; anything else has to be known."""
        if not variable.secret:
            raise error
        option = "--ask-become-pass" if variable.setting == "become_password" else "--ask-pass"
        self.warnings.append(f"{error.message}; not used, {option} asks for it")

    def _fitting(self, variable: Variable, name: str, raw: Any) -> Any:
        try:
            return variable.kind(raw)
        except Misfit as misfit:
            value = self.host.variables[name]
            hidden = variable.secret or isinstance(misfit, SecretMisfit)
            shown = "" if hidden else f" is {_brief(raw)}, but it"
            message = f"{name}{shown} has to be {misfit}"
            if variable.strict or name.startswith(PREFIX) or _is_wrong_port_range(variable, raw):
                raise InventoryError(value.source.path, value.source.line, message) from None
            self.warnings.append(
                f"{value.source}: {message}; not used. If another tool reads it, write ours as {PREFIX}{name}"
            )
            return None

    # What is made of several variables

    def _split_user(self, given: dict[str, Any]) -> None:
        """`root@10.0.0.1` as a host's name is what ssh takes, and so does Ansible."""
        user, at, address = given.get("address", self.host.name).rpartition("@")
        if at:
            given["address"] = address
            given.setdefault("user", user)

    def _nfs(self, given: dict[str, Any]) -> list[Mount]:
        source, path = given.pop("nfs_source", None), given.pop("nfs_path", None)
        options = given.pop("nfs_options", "")
        if source and path:
            return [Mount(source, path, kinds.nfs_type(options), options)]
        if source or path:
            there, missing = ("nfs_source", "nfs_path") if source else ("nfs_path", "nfs_source")
            self._half_a_mount(there, missing)
        return []

    def _half_a_mount(self, there: str, missing: str) -> None:
        name = next(name for name in (PREFIX + there, there) if name in self.host.variables)
        source = self.host.variables[name].source
        message = f"{name} without a usable {missing} mounts nothing"
        if name.startswith(PREFIX):
            raise InventoryError(source.path, source.line, message, f"set {missing} too")
        self.warnings.append(f"{source}: {message}; set {missing} too")

    def _environment(self) -> dict[str, str]:
        found: dict[str, str] = {}
        strongest_last = sorted(self.host.variables, key=lambda name: name.startswith(PREFIX))
        for name in strongest_last:
            match = ENVIRONMENT.fullmatch(name)
            if match and not self._is_overridden(name):
                value = self._environment_value(name, self.host.variables[name])
                if value is not None:
                    found[match["name"]] = value
        return dict(sorted(found.items()))

    def _is_overridden(self, name: str) -> bool:
        return not name.startswith(PREFIX) and PREFIX + name in self.host.variables

    def _environment_value(self, name: str, value: Value) -> str | None:
        try:
            return kinds.environment_value(expressions.rendered(self.inventory, self.host, name))
        except Misfit as misfit:
            message = f"{name} has to be {misfit}"
            if name.startswith(PREFIX):
                raise InventoryError(value.source.path, value.source.line, message) from None
            self.warnings.append(f"{value.source}: {message}; not used")
            return None

    def _thresholds(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for name in sorted(self.host.variables, key=lambda name: name.startswith(PREFIX)):
            match = thresholds.PATTERN.fullmatch(name)
            if match is None or self._is_overridden(name):
                continue
            value = self.host.variables[name]
            if match["name"] not in thresholds.DEFAULTS:
                self._no_such_threshold(name, match["name"], value)
                continue
            try:
                found[match["name"]] = kinds.amount(expressions.rendered(self.inventory, self.host, name))
            except Misfit as misfit:
                message = f"{name} is {_brief(value.raw)}, but it has to be {misfit}"
                raise InventoryError(value.source.path, value.source.line, message) from None
        return dict(sorted(found.items()))

    def _no_such_threshold(self, name: str, bare: str, value: Value) -> None:
        near = nearness.near(bare, sorted(thresholds.DEFAULTS))
        prefix = name.removesuffix(bare)
        hint = f"did you mean {prefix}{near[0]}?" if near else "docs/inventory.md lists them"
        self.warnings.append(f"{value.source}: there is no threshold {name}; {hint}")

    # Names that are nearly ours

    def _look_for_slips(self) -> None:
        for name, value in self.host.variables.items():
            if ENVIRONMENT.fullmatch(name) or thresholds.PATTERN.fullmatch(name):
                continue
            if name.startswith(PREFIX):
                self._check_prefixed(name, value)
            else:
                meant = meant_by(name)
                if meant:
                    self.warnings.append(f"{value.source}: {name} is not read; did you mean {meant}?")

    def _check_prefixed(self, name: str, value: Value) -> None:
        bare = name.removeprefix(PREFIX)
        if bare in NAMES:
            return
        near = nearness.near(bare, sorted(NAMES))
        hint = f"did you mean {PREFIX}{near[0]}?" if near else "the names are in docs/inventory.md"
        self.warnings.append(f"{value.source}: error: there is no variable {name}; {hint}")


def _is_wrong_port_range(variable: Variable, raw: Any) -> bool:
    """What is plainly meant as ports is refused, not ignored: ignoring it would open the default range."""
    return variable.setting == "port_range" and re.fullmatch(r"[\s0-9:,-]+", str(raw)) is not None


def _brief(raw: Any) -> str:
    shown = repr(raw) if not isinstance(raw, str) else f"{str(raw)!r}"
    return shown if len(shown) <= 60 else shown[:56] + "…" + shown[-1]
