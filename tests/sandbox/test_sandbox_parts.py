"""The parts that need neither root nor hosts: names, subnets, accounts, what may be hidden, texts."""

from __future__ import annotations

import ctypes
import ctypes.util
import ipaddress
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from clusterkit.errors import ClusterkitError
from clusterkit.sandbox import (
    HostSpec,
    SandboxSpec,
    User,
    access,
    accounts,
    keys,
    network,
    rootfs,
    visibility,
)
from clusterkit.sandbox.network import Names
from clusterkit.sandbox.state import HostState, SandboxState

needs_crypt = pytest.mark.skipif(
    ctypes.util.find_library("crypt") is None, reason="this system has no libcrypt"
)

PASSWD = "root:x:0:0:root:/root:/bin/bash\nbob:x:1000:1000::/home/bob:/bin/sh\n"


@pytest.mark.parametrize("name", ["a", "sandbox", "exactly8", "a-very-long-sandbox-name"])
def test_interface_names_fit_the_kernel_and_differ(name: str) -> None:
    names = Names(name, "/state")
    links = [names.cable(number, net) for number in (1, 250) for net in range(4)]
    links += [names.bridge(net) for net in range(4)]
    assert len(set(links)) == 12
    assert max(map(len, links)) <= 15
    assert all(network._is_ours(names, link) for link in links)


def test_a_longer_name_with_the_same_beginning_is_somebody_elses() -> None:
    mine, other = Names("a", ""), Names("a-b", "")
    assert not network._is_ours(mine, other.cable(1, 0))
    assert not network._is_ours(mine, other.bridge(0))
    assert not other.netns("node01").startswith(mine.netns_prefix)


def test_long_names_that_begin_alike_do_not_collide() -> None:
    assert Names("long-name-one", "").tag != Names("long-name-two", "").tag


def test_subnets_avoid_what_is_taken_and_stay_where_they_were() -> None:
    taken = [ipaddress.IPv4Network("10.77.0.0/24"), ipaddress.IPv4Network("10.77.1.5/32")]
    assert network.choose_subnets([], 2, taken) == ("10.77.2.0/24", "10.77.3.0/24")
    assert network.choose_subnets(["10.77.9.0/24"], 2, taken) == ("10.77.9.0/24", "10.77.2.0/24")
    assert network.choose_subnets(["10.77.1.0/24"], 1, taken) == ("10.77.2.0/24",)


def test_no_free_subnet_is_said() -> None:
    with pytest.raises(ClusterkitError, match="no free network"):
        network.choose_subnets([], 1, [network.RANGE])


def test_a_new_user_gets_the_first_free_number() -> None:
    assert accounts.account_of(User("alice"), PASSWD) == accounts.Account("alice", 1001, 1001, "/home/alice")
    assert accounts.account_of(User("bob"), PASSWD).uid == 1000
    assert accounts.account_of(None, PASSWD) == accounts.ROOT


def test_a_host_that_starts_again_keeps_its_account(tmp_path: Path) -> None:
    """Its home is of that number, whatever has become free on this machine since."""
    around = rootfs.Surroundings(
        "s", tmp_path, "mark", (), (), (), {}, "", "python", {"passwd": PASSWD, "shadow": "", "group": ""}
    )

    def uid() -> int:
        plan = rootfs.make_plan(
            HostSpec("node01", user=User("alice")), "s-1", tmp_path, tmp_path / "key", around
        )
        return next(one.uid for one in plan.directories if one.path == "/home/alice")

    for name in ("key", "key.pub"):
        (tmp_path / name).touch()
    assert uid() == 1001
    (tmp_path / "upper" / "etc").mkdir(parents=True)
    (tmp_path / "upper" / "etc" / "passwd").write_text(f"{PASSWD}alice:x:1011:1011::/home/alice:/bin/sh\n")
    assert uid() == 1011


def test_an_entry_is_replaced_not_doubled() -> None:
    text = accounts.with_account(PASSWD, "bob:x:1000:1000::/home/bob:/bin/bash")
    assert text.count(":1000:1000:") == 1
    assert text.endswith("/bin/bash\n")
    assert accounts.with_account(PASSWD, "root:*:").splitlines()[0] == "root:*:"


def test_root_has_no_password_and_is_not_locked() -> None:
    assert accounts.shadow_line("root", None).split(":")[1] == "*"


@needs_crypt
def test_hosts_that_are_made_at_once_have_their_own_passwords() -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(accounts.hashed, (f"secret{number % 4}" for number in range(64))))
    assert len(set(found)) == 64
    for number, each in enumerate(found):
        assert crypted(f"secret{number % 4}", each) == each


def crypted(password: str, setting: str) -> str:
    crypt = ctypes.CDLL(ctypes.util.find_library("crypt")).crypt
    crypt.restype = ctypes.c_char_p
    return str(crypt(password.encode(), setting.encode()).decode())


@needs_crypt
def test_a_password_is_hashed() -> None:
    found = accounts.hashed("secret")
    assert found.startswith("$6$")
    assert "secret" not in found


def test_known_hosts_names_the_port_only_where_it_is_unusual() -> None:
    assert keys.known_hosts_line("10.77.0.1", 22, "ssh-ed25519 AAAA me") == "10.77.0.1 ssh-ed25519 AAAA"
    assert keys.known_hosts_line("10.77.0.1", 2222, "ssh-ed25519 AAAA") == "[10.77.0.1]:2222 ssh-ed25519 AAAA"


def test_what_the_system_needs_is_never_hidden() -> None:
    extra = [Path(path) for path in ("/", "/usr", "/usr/lib", "/etc", "/etc/ssh", "/opt", "/var", "/var/lib")]
    hidden = {entry.path for entry in visibility.hidden_directories(extra)}
    assert not hidden & {str(path) for path in extra}
    assert {"/root", "/home", "/tmp"} <= hidden


def test_a_project_below_a_hidden_directory_needs_no_entry_of_its_own(tmp_path: Path) -> None:
    before = visibility.hidden_directories([])
    assert visibility.hidden_directories([Path("/tmp"), Path("/home")]) == before


def test_an_interpreter_of_the_system_needs_no_bind() -> None:
    if not Path("/usr/bin/python3").exists():
        pytest.skip("this system has no /usr/bin/python3")
    assert visibility.interpreter_binds(["/usr/bin/python3"], ()) == ()


def test_an_interpreter_that_does_not_run_is_refused() -> None:
    with pytest.raises(ClusterkitError, match="does not run"):
        visibility.interpreter_binds(["/nowhere/python"], ())


def test_sshd_keeps_its_defaults_and_extra_lines_win() -> None:
    text = rootfs.sshd_config(HostSpec("a", sshd_config=("MaxStartups 2",), environment={"A": "x y"}))
    assert text.splitlines()[0] == "MaxStartups 2"
    assert 'SetEnv A="x y"' in text
    assert "Max" not in rootfs.sshd_config(HostSpec("a"))


def test_the_own_name_is_loopback_where_asked() -> None:
    addresses = {"a": "10.77.0.1", "b": "10.77.0.2"}
    assert "127.0.1.1\ta\n10.77.0.2\tb\n" in rootfs.hosts_file(HostSpec("a", loopback_name=True), addresses)
    assert "10.77.0.1\ta\n10.77.0.2\tb\n" in rootfs.hosts_file(HostSpec("a"), addresses)


def test_machine_ids_differ_and_stay() -> None:
    assert rootfs.machine_id("s", "a") == rootfs.machine_id("s", "a") != rootfs.machine_id("s", "b")


def test_the_inventory_names_everything_that_ssh_needs(tmp_path: Path) -> None:
    spec = SandboxSpec.of(2, name="t", variables={"env_A": "a b#c"}).with_host("node02", gpus=8, port=2222)
    hosts = tuple(
        HostState(f"node0{number}", (f"10.77.0.{number}", f"10.77.1.{number}")) for number in (1, 2)
    )
    text = access.inventory_text(
        SandboxState("t", "up", ("10.77.0.0/24", "10.77.1.0/24"), spec, hosts), spec, tmp_path
    )
    first, second = [line for line in text.splitlines() if line.startswith("node0")]
    assert "ansible_host=10.77.0.1" in first
    assert "node_ip=10.77.1.1" in first
    assert "nproc_per_node=2" in first
    assert "env_A='a b#c'" in first
    assert "ansible_port=2222" in second
    assert "nproc" not in second
    assert f'UserKnownHostsFile={tmp_path}/known_hosts" -o StrictHostKeyChecking=yes' in text


def test_an_inventory_that_a_person_wrote_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "sandbox.ini"
    path.write_text("[gpu]\nreal01\n")
    with pytest.raises(ClusterkitError, match="no sandbox wrote it"):
        access.check_inventory_path(path)


def test_an_edited_inventory_stays(tmp_path: Path) -> None:
    path = tmp_path / "sandbox.ini"
    path.write_text("x")
    state = SandboxState("t", "up", inventory=str(path), inventory_digest=access.digest("x"))
    path.write_text("x, edited")
    assert access.remove_inventory(state) == f"{path} was edited and stays"
    path.write_text("x")
    assert access.remove_inventory(state) is None
    assert not path.exists()


def test_ssh_itself_reads_the_ssh_configuration(tmp_path: Path) -> None:
    spec = SandboxSpec.of(2, name="t").with_host("node02", behind="node01", port=2222)
    hosts = tuple(HostState(f"node0{number}", (f"10.77.0.{number}",)) for number in (1, 2))
    path = tmp_path / "ssh_config"
    path.write_text(
        access.ssh_config_text(SandboxState("t", "up", ("10.77.0.0/24",), spec, hosts), spec, tmp_path)
    )
    shown = subprocess.run(
        ["ssh", "-G", "-F", str(path), "node02"], capture_output=True, text=True, check=True
    ).stdout
    settings = dict(line.partition(" ")[::2] for line in shown.splitlines())
    assert settings["hostname"] == "10.77.0.2"
    assert settings["proxyjump"] == "node01"
    assert settings["port"] == "2222"
    assert settings["stricthostkeychecking"] in ("yes", "true")
