"""One sandbox as an object: what the command line and the tests use."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal

from clusterkit.errors import NotFound
from clusterkit.sandbox import drills, entry, host, lifecycle, network, processes, state
from clusterkit.sandbox.drills import SshdAction
from clusterkit.sandbox.processes import HostProcess, Identity
from clusterkit.sandbox.spec import SandboxSpec
from clusterkit.sandbox.state import SandboxState

Condition = Literal["running", "cut", "killed", "died"]


@dataclass(frozen=True)
class HostStatus:
    """A host as it is now. `cut`: the networks whose cable is pulled. Process numbers are this machine's."""

    name: str
    address: str
    node_ip: str
    condition: Condition
    cut: tuple[int, ...]
    init_pid: int | None
    sshd_pid: int | None


class Sandbox:
    """A sandbox that is up. As a context manager it is taken down at the end."""

    def __init__(self, name: str, notes: tuple[str, ...] = (), created: bool = False) -> None:
        self.name = name
        self.notes = notes
        self.created = created

    @classmethod
    def up(cls, spec: SandboxSpec, inventory: Path | str = "sandbox.ini") -> Sandbox:
        """Every host runs and answers; `notes` says what else was done. See `lifecycle.up`."""
        outcome = lifecycle.up(spec, Path(inventory).absolute())
        return cls(spec.name, outcome.notes, outcome.created)

    @classmethod
    def open(cls, name: str = "sandbox") -> Sandbox:
        """The sandbox of that name; NotFound where it is not up."""
        found = cls(name)
        _ = found.state
        return found

    @property
    def state(self) -> SandboxState:
        """The state as last saved; NotFound where the sandbox is not up."""
        found = state.load(self.name)
        if found is None or found.phase != "up":
            raise NotFound(
                f"sandbox {self.name} is not up", f"run `clusterkit sandbox up --hosts N --name {self.name}`"
            )
        return found

    @property
    def spec(self) -> SandboxSpec:
        """What it was made from."""
        found = self.state.spec
        assert found is not None
        return found

    @property
    def directory(self) -> Path:
        """Where its keys, known_hosts and ssh_config are."""
        return state.directory(self.name)

    @property
    def inventory(self) -> Path:
        """The inventory that `up` wrote."""
        return Path(self.state.inventory or "")

    @property
    def ssh_config(self) -> Path:
        """For `ssh -F`."""
        return self.directory / "ssh_config"

    @property
    def known_hosts(self) -> Path:
        """The hosts' keys as they were at `up`."""
        return self.directory / "known_hosts"

    @property
    def private_key(self) -> Path:
        """The key that every host's login accepts."""
        return self.directory / "keys" / "user"

    @property
    def controller(self) -> str:
        """This machine's address in the sandbox."""
        return network.controller_address(self.state.subnets[0])

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts' names in the order of the inventory."""
        return tuple(one.name for one in self.state.hosts)

    def addresses(self, name: str) -> tuple[str, ...]:
        """The host's address in each network."""
        return self.state.host(name).addresses

    def init(self, name: str) -> Identity:
        """The host's init; HostError where it does not run."""
        return drills.running(self.state, name)

    def status(self) -> tuple[HostStatus, ...]:
        """Every host as it is now."""
        there = self.state
        names = lifecycle.names_of(self.name)
        down = network.cables_down(names)
        found = []
        for number, one in enumerate(there.hosts, 1):
            cut = tuple(index for index in range(len(there.subnets)) if names.cable(number, index) in down)
            alive = one.init is not None and processes.alive(one.init)
            sshd = host.sshd_of(one.init) if alive and one.init is not None else None
            condition: Condition = "cut" if cut else "running"
            if not alive:
                condition = "killed" if one.init is None else "died"
            found.append(
                HostStatus(
                    one.name,
                    one.addresses[0],
                    one.addresses[-1],
                    condition,
                    cut,
                    one.init.pid if alive and one.init is not None else None,
                    sshd.pid if sshd is not None else None,
                )
            )
        return tuple(found)

    def kill(self, name: str) -> None:
        """Power cut: peers see neither FIN nor RST, and nothing of the host runs when this returns."""
        self._change(lambda there: drills.kill(there, name))

    def start(self, name: str, *, fresh: bool = False) -> None:
        """A killed host runs again: same address, key and files; no files of its own if `fresh`."""
        self._change(lambda there: drills.revive(there, self.spec, name, fresh=fresh))

    def cut(self, name: str, network: int | None = None) -> None:
        """The host's cables (or the one of that network) are pulled; everything on it runs on."""
        drills.set_cables(self.state, name, "down", network)

    def mend(self, name: str, network: int | None = None) -> None:
        """The cables are back."""
        drills.set_cables(self.state, name, "up", network)

    def block_controller(self, name: str) -> None:
        """This machine's packets get no answer from the host any more; the other hosts' do."""
        drills.set_controller(self.state, name, reachable=False)

    def unblock_controller(self, name: str) -> None:
        """The host answers this machine again."""
        drills.set_controller(self.state, name, reachable=True)

    def sshd(self, name: str, action: SshdAction) -> None:
        """Stop, start, restart, pause (SIGSTOP) or resume the listening sshd; open sessions go on."""
        drills.sshd(self.state, name, action)

    def new_host_key(self, name: str) -> None:
        """sshd has another host key than known_hosts says."""
        drills.new_host_key(self.state, name)

    def sh(
        self, name: str, command: Sequence[str] | str, *, stdin: str = "", timeout: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a command (words) or a script (text, for /bin/sh) as root on the host, without ssh."""
        return entry.run_on(name, self.init(name), command, stdin=stdin, timeout=timeout)

    def read(self, name: str, path: str) -> bytes:
        """A file of the host. `path` is absolute; the last links of it are followed on this machine."""
        return Path(f"/proc/{self.init(name).pid}/root{path}").read_bytes()

    def processes(self, name: str) -> tuple[HostProcess, ...]:
        """Every process on the host, its init first; none for a host that does not run."""
        init = self.state.host(name).init
        return processes.on_host(init) if init is not None and processes.alive(init) else ()

    def down(self, *, forget: bool = False) -> tuple[str, ...]:
        """Nothing of it is left (with `forget` no keys either); what else there is to say."""
        return lifecycle.down(self.name, forget=forget).notes

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    def _change(self, change: Callable[[SandboxState], SandboxState]) -> None:
        with state.locked(self.name):
            change(self.state)
