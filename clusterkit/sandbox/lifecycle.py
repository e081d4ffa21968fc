"""Bring a sandbox up, start a host again, take everything down; also what a crashed predecessor left."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from clusterkit.errors import ClusterkitError
from clusterkit.sandbox import (
    access,
    containers,
    disks,
    host,
    keys,
    network,
    processes,
    requirements,
    rootfs,
    state,
    visibility,
)
from clusterkit.sandbox.network import Names
from clusterkit.sandbox.processes import Identity
from clusterkit.sandbox.spec import SandboxSpec, differences
from clusterkit.sandbox.state import HostState, SandboxState

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Outcome:
    """What `up` or `down` has done, as sentences."""

    state: SandboxState
    notes: tuple[str, ...] = ()
    created: bool = False


def names_of(name: str) -> Names:
    """What the sandbox's parts are called in the kernel."""
    return Names(name, str(state.directory(name)))


def up(spec: SandboxSpec, inventory: Path) -> Outcome:
    """Every host runs and answers, and the inventory names it; nothing is left where that failed."""
    requirements.check(spec)
    access.check_inventory_path(inventory)
    with state.locked(spec.name):
        there = state.load(spec.name)
        if there is not None and there.phase == "up" and _is_whole(there):
            return _keep_up(there, spec, inventory)
        notes = _clean(spec.name, there)
        try:
            made = _create(spec, there)
        except BaseException:
            _clean(spec.name, state.load(spec.name))
            raise
        return Outcome(_write_access(made, spec, inventory), notes, created=True)


def down(name: str, *, forget: bool = False) -> Outcome:
    """Nothing of the sandbox is left but its keys and addresses; with `forget` they go too."""
    requirements.check()
    if not state.directory(name).is_dir() and not _left_over(name):
        return Outcome(SandboxState(name, "down"), (f"there is no sandbox {name}",))
    with state.locked(name):
        there = state.load(name) if not forget else _load_anyhow(name)
        was_up = there is not None and there.phase != "down"
        notes = _clean(name, there)
        kept = access.remove_inventory(there) if there is not None else None
        after = SandboxState(name, "down", there.subnets if there is not None else ())
        if forget:
            shutil.rmtree(state.directory(name))
        else:
            state.save(after)
    if not was_up and not notes:
        notes = (f"sandbox {name} was down already",)
    return Outcome(after, (*notes, kept) if kept else notes)


def start(there: SandboxState, spec: SandboxSpec, names: Sequence[str]) -> SandboxState:
    """The hosts of those names, which do not run, run again with the disks that they had."""
    return _start_hosts(there, spec, [spec.host(name).name for name in names])


def _is_whole(there: SandboxState) -> bool:
    """Whether the kernel still has what the state says: after a reboot it has nothing."""
    names = names_of(there.name)
    bridges = {network_name for network_name in network.links_of(names) if "-b" in network_name}
    alive = [one for one in there.hosts if one.init is not None and processes.alive(one.init)]
    return len(bridges) == len(there.subnets) and (
        bool(alive) or all(one.init is None for one in there.hosts)
    )


def _keep_up(there: SandboxState, spec: SandboxSpec, inventory: Path) -> Outcome:
    found = there.spec
    assert found is not None
    different = differences(found, spec)
    if different:
        raise ClusterkitError(
            f"sandbox {spec.name} is up already, but not as asked: {'; '.join(different)}",
            f"run `clusterkit sandbox down --name {spec.name}` first, or choose another --name",
        )
    notes = []
    ended = [one.name for one in there.hosts if one.init is None or not processes.alive(one.init)]
    if ended:
        there = start(there, spec, ended)
        notes.append(f"started {' '.join(ended)} again")
    mended = _mend_all(there)
    if mended:
        notes.append(f"mended {' '.join(mended)}")
    return Outcome(_write_access(there, spec, inventory), tuple(notes))


def _mend_all(there: SandboxState) -> tuple[str, ...]:
    names = names_of(there.name)
    down_now = network.cables_down(names)
    mended = []
    for number, one in enumerate(there.hosts, 1):
        for index in range(len(there.subnets)):
            if names.cable(number, index) in down_now:
                network.set_cable(names, number, index, "up")
                mended.append(one.name)
    return tuple(dict.fromkeys(mended))


def _create(spec: SandboxSpec, before: SandboxState | None) -> SandboxState:
    names = names_of(spec.name)
    with state.machine_locked():
        wanted = before.subnets if before is not None else ()
        subnets = network.choose_subnets(wanted, spec.networks, network.taken_subnets())
        hosts = tuple(
            HostState(one.name, tuple(network.host_address(subnet, number) for subnet in subnets))
            for number, one in enumerate(spec.hosts, 1)
        )
        made = SandboxState(spec.name, "starting", subnets, spec, hosts)
        state.save(made)
        network.make_bridges(names, subnets)
    disks.mount(state.directory(spec.name))
    made = _start_hosts(made, spec, [one.name for one in spec.hosts])
    _check_between(made, spec)
    made = replace(made, phase="up")
    state.save(made)
    return made


def _check_between(made: SandboxState, spec: SandboxSpec) -> None:
    """Docker's firewall rules drop what crosses a bridge, where the kernel shows them bridged packets."""
    if len(made.hosts) < 2 or not network.bridges_are_filtered():
        return
    one, two = made.hosts[:2]
    assert one.init is not None
    if not host.reaches(one.init, two.addresses[-1], spec.hosts[1].port):
        bridge = names_of(spec.name).bridge(len(made.subnets) - 1)
        raise ClusterkitError(
            f"{one.name} cannot reach {two.name}: this machine's firewall drops what crosses {bridge}",
            f"allow it with `iptables -I FORWARD -i {bridge} -j ACCEPT`, or take bridges out of the firewall "
            "with `sysctl net.bridge.bridge-nf-call-iptables=0`",
        )


def _start_hosts(there: SandboxState, spec: SandboxSpec, wanted: Sequence[str]) -> SandboxState:
    names = names_of(spec.name)
    numbers = {one.name: number for number, one in enumerate(spec.hosts, 1)}
    for name in wanted:
        network.remove_host(names, numbers[name], name, spec.networks)
    network.plug_in(names, [(numbers[name], name, there.host(name).addresses) for name in wanted])
    around = surroundings(there, spec)
    directory = state.directory(spec.name)

    def start_one(name: str) -> HostState:
        key = keys.ensure_key(directory / "keys", name)
        netns = str(network.NETNS_DIRECTORY / names.netns(name))
        plan = rootfs.make_plan(spec.host(name), netns, disks.of_host(directory, name), key, around)
        return replace(there.host(name), init=host.start_init(plan, directory))

    for started in _in_parallel(start_one, wanted):
        there = there.with_host(started)
    state.save(there)

    def await_one(name: str) -> None:
        one = there.host(name)
        assert one.init is not None
        host.wait_for_sshd(name, one.addresses[0], spec.host(name).port, one.init)
        if spec.host(name).behind is not None:
            network.block_controller(names, name, there.subnets[0])

    _in_parallel(await_one, wanted)
    return there


def surroundings(there: SandboxState, spec: SandboxSpec) -> rootfs.Surroundings:
    """What all hosts of the sandbox share, read from this machine now."""
    directory = state.directory(spec.name)
    hide = visibility.hidden_directories(visibility.controllers_own(state.home()))
    shared = disks.shared_home(directory) if spec.shared_home else ()
    # A home over an interpreter in it would hide it: what lies inside is bound later.
    binds = (*shared, *visibility.interpreter_binds(spec.python, hide), *spec.binds)
    return rootfs.Surroundings(
        sandbox=f"{os.uname().nodename} {directory}",
        directory=directory,
        mark=host.mark_of(directory),
        hide=hide,
        binds=binds,
        empty=(str(visibility.package_directory()),),
        addresses={one.name: one.addresses[-1] for one in there.hosts},
        user_key=keys.public(keys.ensure_key(directory / "keys", "user")),
        python=spec.python[0] if spec.python else "/usr/bin/python3",
        texts={name: Path("/etc", name).read_text() for name in ("passwd", "shadow", "group")},
    )


def _write_access(there: SandboxState, spec: SandboxSpec, inventory: Path) -> SandboxState:
    directory = state.directory(spec.name)
    access.write_files(there, spec, directory)
    text = access.inventory_text(there, spec, directory)
    inventory.write_text(text)
    there = replace(there, inventory=str(inventory), inventory_digest=access.digest(text))
    state.save(there)
    return there


def _left_over(name: str) -> bool:
    names = names_of(name)
    return bool(network.links_of(names) or network.netns_of(names))


def _load_anyhow(name: str) -> SandboxState | None:
    try:
        return state.load(name)
    except ClusterkitError:
        return None


def _clean(name: str, there: SandboxState | None) -> tuple[str, ...]:
    """Everything with this sandbox's names is gone; a sentence where it had been left by a crash."""
    names = names_of(name)
    network.links_of(names)  # refuses before anything is killed where the names are somebody else's
    inits = host.inits_of(state.directory(name))
    for number, one in enumerate(there.hosts if there is not None else (), 1):
        if Path("/sys/class/net", names.cable(number, 0)).exists() and one.init is not None:
            network.unplug(names, number, 1)
    processes.end(list(inits))
    strays = _strays(names)
    processes.end(strays)
    removed = network.remove_everything(names)
    disk = disks.unmount(state.directory(name))
    containers.remove(state.directory(name), host.mark_of(state.directory(name)))
    if (inits or strays or removed or disk) and (there is None or there.phase != "up"):
        parts = [
            (len(inits), "hosts"),
            (len(strays), "other processes"),
            (len(removed), "interfaces and namespaces"),
        ]
        shown = ", ".join(f"{kind}: {count}" for count, kind in parts if count) or "its disk"
        return (f"removed what an interrupted sandbox {name} had left ({shown})",)
    return ()


def _strays(names: Names) -> list[Identity]:
    """Processes that entered a host's network only, such as `ip netns exec` of a person."""
    files = [network.NETNS_DIRECTORY / netns for netns in network.netns_of(names)]
    return list(processes.in_networks(frozenset(path.stat().st_ino for path in files)))


def _in_parallel(function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """All results in order; the first failure is raised once every one has ended."""
    with ThreadPoolExecutor(max_workers=2 * (os.cpu_count() or 1) + 2) as pool:
        return list(pool.map(function, items))
