"""Up, up again, side by side, down, and after a crash."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from clusterkit.errors import ClusterkitError
from clusterkit.sandbox import Sandbox, SandboxSpec, host, lifecycle, network, processes, state
from tests.sandbox.naming import Make, unique

pytestmark = pytest.mark.hosts


def leftovers(name: str) -> list[object]:
    """Everything in the kernel that is that sandbox's."""
    names = lifecycle.names_of(name)
    directory = str(state.directory(name))
    found: list[object] = [
        *network.links_of(names),
        *network.netns_of(names),
        *host.inits_of(Path(directory)),
    ]
    found += [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if directory in line]
    found += [pid for pid in processes.pids() if directory in " ".join(processes.argv(pid))]
    found += list(Path("/sys/fs/cgroup").rglob(f"*{name}*"))
    return found


def test_up_twice_is_up_once(make: Make) -> None:
    first = make(2, "twice")
    inits = [first.init(name) for name in first.hosts]
    second = make(2, "twice")
    assert (first.created, second.created) == (True, False)
    assert [second.init(name) for name in second.hosts] == inits
    assert second.notes == ()


def test_up_with_other_arguments_says_what_differs(make: Make) -> None:
    make(2, "other")
    with pytest.raises(ClusterkitError, match="it has 2 hosts, not 3; gpus of node01") as caught:
        make(3, "other", gpus=8)
    assert f"sandbox down --name {unique('other')}" in caught.value.hint


def test_up_again_restores_what_was_killed_and_cut(make: Make) -> None:
    sandbox = make(3, "again")
    sandbox.kill("node01")
    sandbox.cut("node02")
    processes.end([sandbox.init("node03")])
    restored = make(3, "again")
    assert restored.notes == ("started node01 node03 again", "mended node02")
    assert {one.condition for one in restored.status()} == {"running"}


def test_down_leaves_nothing_and_keeps_keys_and_addresses(make: Make) -> None:
    sandbox = make(2, "down", networks=2, shared_home=True)
    addresses, known = sandbox.addresses("node02"), sandbox.known_hosts.read_text()
    inventory = sandbox.inventory
    sandbox.sh("node01", "(setsid sleep 300 >/dev/null 2>&1 &)")
    stray = subprocess.Popen(
        ["ip", "netns", "exec", lifecycle.names_of(sandbox.name).netns("node01"), "sleep", "300"]
    )
    assert sandbox.down() == ()
    assert stray.wait(5) == -signal.SIGKILL
    assert leftovers(sandbox.name) == []
    assert not inventory.exists()
    assert sandbox.down() == (f"sandbox {sandbox.name} was down already",)
    again = make(2, "down", networks=2, shared_home=True)
    assert (again.addresses("node02"), again.known_hosts.read_text()) == (addresses, known)


def test_forget_removes_the_keys_too(make: Make) -> None:
    sandbox = make(1, "forget")
    directory = sandbox.directory
    sandbox.down(forget=True)
    assert not directory.exists()
    assert leftovers(sandbox.name) == []


def test_two_sandboxes_side_by_side(make: Make) -> None:
    one, two = make(2, "side-a"), make(2, "side-b")
    assert one.state.subnets != two.state.subnets
    one.down()
    assert {host.condition for host in two.status()} == {"running"}
    assert two.sh("node01", "true").returncode == 0


def test_a_context_manager_takes_it_down(state_home: Path, tmp_path: Path) -> None:
    with Sandbox.up(SandboxSpec.of(1, name=unique("with")), tmp_path / "sandbox.ini") as sandbox:
        assert sandbox.sh("node01", "hostname").stdout == "node01\n"
    assert leftovers(sandbox.name) == []


@pytest.mark.parametrize("moment", ["a namespace", "a host", "a state"])
def test_what_a_crash_left_is_removed_by_the_next_up(moment: str, make: Make, tmp_path: Path) -> None:
    name = unique("crash")
    lifecycle.down(name)
    code = (
        "import sys; from clusterkit.sandbox import *; "
        f"Sandbox.up(SandboxSpec.of(12, name={name!r}), {str(tmp_path / 'x.ini')!r})"
    )
    doomed = subprocess.Popen([sys.executable, "-c", code])
    reached: Callable[[], object] = {
        "a namespace": lambda: network.netns_of(lifecycle.names_of(name)),
        "a host": lambda: host.inits_of(state.directory(name)),
        "a state": lambda: (found := state.load(name)) is not None and found.phase == "starting",
    }[moment]
    deadline = time.monotonic() + 20
    while not reached():
        assert time.monotonic() < deadline
        assert doomed.poll() is None
    doomed.kill()
    doomed.wait(10)
    sandbox = make(2, "crash")
    assert sandbox.created
    assert sandbox.notes == () or "had left" in sandbox.notes[0]
    assert len(host.inits_of(sandbox.directory)) == 2
    assert len(network.netns_of(lifecycle.names_of(name))) == 2
    sandbox.down()
    assert leftovers(name) == []


def test_a_failed_start_leaves_nothing(state_home: Path, tmp_path: Path) -> None:
    spec = SandboxSpec.of(2, name=unique("fails"), sshd_config=("NoSuchKeyword yes",))
    with pytest.raises(ClusterkitError, match=r"sshd ended at once.*Bad configuration option: NoSuchKeyword"):
        Sandbox.up(spec, tmp_path / "sandbox.ini")
    assert leftovers(spec.name) == []
    lifecycle.down(spec.name, forget=True)


def test_a_bridge_of_another_owner_is_not_touched(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = make(1, "owner")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with pytest.raises(ClusterkitError, match="belongs to something else"):
        Sandbox.up(SandboxSpec.of(1, name=sandbox.name), tmp_path / "sandbox.ini")
    monkeypatch.undo()
    assert {one.condition for one in sandbox.status()} == {"running"}


def test_two_commands_at_once_are_refused(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "LOCK_LIMIT", 0.1)
    sandbox = make(1, "lock")
    with state.locked(sandbox.name), pytest.raises(ClusterkitError, match="another command is working"):
        sandbox.kill("node01")


def sleeps(pid: int) -> bool:
    """Whether the shell, or what it has become or started, is `sleep`."""
    return any(processes.argv(one)[:1] == ("sleep",) for one in (pid, *processes.children(pid)))


def test_a_killed_commands_programs_keep_the_lock(state_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "LOCK_LIMIT", 0.1)
    code = (
        "from clusterkit.sandbox import state, commands\n"
        f"with state.locked({unique('orphan')!r}):\n"
        "    print('locked', flush=True)\n"
        "    commands.run(['sh', '-c', 'echo $$ >&2; sleep 20 2>&-'])\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as doomed:
        assert doomed.stdout is not None
        assert doomed.stdout.readline() == "locked\n"
        # Until it sleeps: before that it would die of its own words, which nobody reads any more.
        while not (started := processes.children(doomed.pid)) or not sleeps(started[0]):
            time.sleep(0.01)
        doomed.kill()
        doomed.wait(5)
        with pytest.raises(ClusterkitError, match="another command"), state.locked(unique("orphan")):
            pass
        below = [
            one for pid in (*started, *processes.children(started[0])) if (one := processes.identity(pid))
        ]
        processes.end(below)
        with state.locked(unique("orphan")):
            pass


def test_a_firewall_between_the_hosts_is_named(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "filter").write_text("1\n")
    monkeypatch.setattr(network, "BRIDGE_FILTER", tmp_path / "filter")
    make(2, "filtered").down()
    monkeypatch.setattr(host, "reaches", lambda *_: False)
    with pytest.raises(ClusterkitError, match="node01 cannot reach node02: this machine's firewall"):
        make(2, "filtered")
    assert leftovers(unique("filtered")) == []
