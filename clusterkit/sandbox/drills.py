"""What breaks on real clusters, on purpose: power cuts, pulled cables, an sshd that is gone or hangs."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from clusterkit.errors import HostError, HostTimeout
from clusterkit.sandbox import containers, disks, host, keys, network, processes, state
from clusterkit.sandbox.lifecycle import names_of, start
from clusterkit.sandbox.processes import Identity
from clusterkit.sandbox.rootfs import HOST_KEY
from clusterkit.sandbox.spec import SandboxSpec
from clusterkit.sandbox.state import SandboxState

SshdAction = Literal["stop", "start", "restart", "pause", "resume"]
SSHD_LIMIT = 10.0


def kill(there: SandboxState, name: str) -> SandboxState:
    """The host has lost its power: its peers got neither FIN nor RST, and nothing of it runs.

    The cable goes first. Were init killed first, the kernel would close its connections in order.
    """
    init = running(there, name)
    names, number = names_of(there.name), _number(there, name)
    network.unplug(names, number, len(there.subnets))
    processes.end([init])
    network.remove_host(names, number, name, len(there.subnets))
    there = there.with_host(replace(there.host(name), init=None))
    state.save(there)
    return there


def revive(there: SandboxState, spec: SandboxSpec, name: str, *, fresh: bool) -> SandboxState:
    """A killed host runs again as before the power cut, or with `fresh` as installed anew.

    A running one is left alone.
    """
    one = there.host(name)
    if one.init is not None and processes.alive(one.init):
        return there
    if fresh:
        disks.erase(state.directory(there.name), name)
        containers.erase(state.directory(there.name), name)
    return start(there, spec, [name])


def set_cables(there: SandboxState, name: str, position: Literal["up", "down"], which: int | None) -> None:
    """All cables of the host, or that of network `which` (0 leads to the controller), are pulled or back."""
    running(there, name)
    names, number = names_of(there.name), _number(there, name)
    for index in range(len(there.subnets)) if which is None else (which,):
        network.set_cable(names, number, index, position)


def set_controller(there: SandboxState, name: str, reachable: bool) -> None:
    """This machine cannot reach the host, as behind a firewall that drops; the hosts reach each other."""
    running(there, name)
    names = names_of(there.name)
    if reachable:
        network.unblock_controller(names, name)
    else:
        network.block_controller(names, name, there.subnets[0])


def sshd(there: SandboxState, name: str, action: SshdAction) -> None:
    """The listening sshd is as asked when this returns; sessions that are open go on."""
    init = running(there, name)
    if action in ("stop", "restart"):
        os.kill(init.pid, signal.SIGUSR2)
        _wait(name, "sshd to stop", lambda: host.sshd_of(init) is None)
    if action in ("start", "restart"):
        os.kill(init.pid, signal.SIGUSR1)
        _wait(name, "sshd to listen", lambda: _listens(init))
    if action in ("pause", "resume"):
        _signal_sshd(name, init, signal.SIGSTOP if action == "pause" else signal.SIGCONT)


def new_host_key(there: SandboxState, name: str) -> None:
    """sshd shows a key that no known_hosts file has, as after a reinstallation."""
    init = running(there, name)
    key = keys.new_key(state.directory(there.name) / "keys", name)
    for source, target, mode in (
        (key, HOST_KEY, 0o600),
        (key.with_name(f"{key.name}.pub"), f"{HOST_KEY}.pub", 0o644),
    ):
        path = f"/proc/{init.pid}/root{target}"
        with open(os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CREAT, mode), "w") as file:
            file.write(source.read_text())
    sshd(there, name, "restart")


def running(there: SandboxState, name: str) -> Identity:
    """The host's init; HostError where the host is killed or has died."""
    init = there.host(name).init
    if init is None or not processes.alive(init):
        raise HostError(
            name,
            f"{name} is not running",
            f"bring it back with `clusterkit sandbox start {name} --name {there.name}`",
        )
    return init


def _number(there: SandboxState, name: str) -> int:
    return [one.name for one in there.hosts].index(name) + 1


def _signal_sshd(name: str, init: Identity, number: signal.Signals) -> None:
    listener = host.sshd_of(init)
    if listener is None:
        raise HostError(
            name, f"{name}: no sshd runs", f"start it with `clusterkit sandbox sshd {name} start`"
        )
    os.kill(listener.pid, number)


def _listens(init: Identity) -> bool:
    """Whether a TCP socket of sshd's port listens, read from the host's own /proc/net."""
    listener = host.sshd_of(init)
    if listener is None:
        return False
    return any("[listener]" in part for part in processes.argv(listener.pid))


def _wait(name: str, what: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SSHD_LIMIT
    while not holds():
        if time.monotonic() > deadline:
            raise HostTimeout(
                name,
                f"{name}: waited {SSHD_LIMIT:g} s for {what}",
                f"read its log: `clusterkit sandbox sh {name} -- tail /var/log/sshd.log`",
            )
        time.sleep(0.01)
