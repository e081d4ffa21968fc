"""What Docker and Podman need of a host: control groups and a disk, both gone with the sandbox."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterkit.sandbox import containers, state
from tests.sandbox.naming import Make
from tests.sandbox.test_sandbox_lifecycle import leftovers

pytestmark = pytest.mark.hosts

# A process of the host in control groups of its own, as a container's: one below the other.
CONTAINER = """
place=$(sed -n 's/.*"cgroup-parent": "\\([^"]*\\)".*/\\1/p' /etc/docker/daemon.json)
sleep 986 >/dev/null 2>&1 & pid=$!
for hierarchy in /sys/fs/cgroup /sys/fs/cgroup/*; do
    [ -e "$hierarchy/cgroup.procs" ] || continue
    mkdir -p "$hierarchy$place/one/two" || exit 1
    case $hierarchy in */cpuset) continue ;; esac
    echo "$pid" >"$hierarchy$place/one/two/cgroup.procs" || exit 1
done
cat "/proc/$pid/cgroup"
"""


def test_a_host_has_control_groups_and_a_disk_and_takes_both_with_it(make: Make) -> None:
    sandbox = make(2, "containers", containers=True)
    said = sandbox.sh("node01", CONTAINER)
    assert said.returncode == 0, said.stderr
    assert f"/clusterkit-sandbox/{sandbox.name}@" in said.stdout
    assert "/node01/one/two" in said.stdout
    stores = state.directory(sandbox.name) / "containers"
    for target in containers.STORES:
        assert sandbox.sh("node01", f"echo layer >{target}/layer").returncode == 0
        assert sandbox.sh("node02", f"test -e {target}/layer").returncode == 1
    assert len(list(stores.rglob("layer"))) == len(containers.STORES)
    sandbox.kill("node01")
    sandbox.start("node01")
    assert sandbox.sh("node01", "cat /var/lib/docker/layer").stdout == "layer\n"
    sandbox.kill("node01")
    sandbox.start("node01", fresh=True)
    assert sandbox.sh("node01", "ls /var/lib/docker").stdout == ""
    assert sandbox.sh("node01", CONTAINER).returncode == 0
    sandbox.down()
    assert leftovers(sandbox.name) == []
    assert not stores.exists()


def test_an_ordinary_host_has_neither(make: Make) -> None:
    sandbox = make(1, "plain")
    assert sandbox.sh("node01", "ls /sys/fs/cgroup").stdout == ""
    assert not Path(state.directory(sandbox.name), "containers").exists()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (
            "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu",
            containers.ControlGroups("/sys/fs/cgroup/cpu", "cgroup", "cpu"),
        ),
        (
            "40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd",
            containers.ControlGroups("/sys/fs/cgroup/systemd", "cgroup", "xattr,name=systemd"),
        ),
        (
            "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate",
            containers.ControlGroups("/sys/fs/cgroup", "cgroup2", ""),
        ),
        ("31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755", None),
        ("99 23 0:28 / /var/lib/other rw - cgroup2 cgroup2 rw", None),
    ],
)
def test_hierarchies_are_read_from_the_mount_table(
    line: str, found: containers.ControlGroups | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "read_text", lambda self: f"{line}\n")
    assert containers.hierarchies() == ((found,) if found else ())


def test_of_both_versions_side_by_side_the_hosts_get_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    both = (
        "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
        "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    )
    monkeypatch.setattr(Path, "read_text", lambda self: both)
    assert [one.path for one in containers.hierarchies()] == ["/sys/fs/cgroup/cpu"]
