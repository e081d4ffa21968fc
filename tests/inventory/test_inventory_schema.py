"""Our variables: what fits, what does not, which name wins, and what is said about it."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from clusterkit.errors import InventoryError
from clusterkit.inventory import load, settings
from clusterkit.inventory.model import Mount, PortRange, Secret, Settings
from clusterkit.inventory.thresholds import THRESHOLDS
from clusterkit.inventory.variables import VARIABLES


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def read(line: str = "", group: str = "", yaml: str = "") -> tuple[Settings, list[str]]:
    """The settings of host h1 in group g, from its line, `[g:vars]` and `group_vars/g.yml`."""
    Path("i.ini").write_text(f"[g]\nh1 {line}\n[g:vars]\n{group}\n")
    if yaml:
        Path("group_vars").mkdir(exist_ok=True)
        Path("group_vars/g.yml").write_text(yaml)
    inventory = load(Path("i.ini"))
    return settings(inventory, inventory.hosts["h1"])


def refused(line: str = "", group: str = "", yaml: str = "") -> InventoryError:
    with pytest.raises(InventoryError) as caught:
        read(line, group, yaml)
    return caught.value


def test_a_bare_host_has_the_defaults() -> None:
    assert read() == (Settings(alias="h1", address="h1"), [])


def test_every_variable_sets_a_field_or_is_part_of_mounts() -> None:
    fields = {field.name for field in dataclasses.fields(Settings)}
    assert {variable.setting for variable in VARIABLES} - fields == {"nfs_source", "nfs_path", "nfs_options"}
    assert fields - {variable.setting for variable in VARIABLES} == {"alias", "env", "thresholds"}


# line of [g:vars], field, value
FITTING: list[tuple[str, str, Any]] = [
    ("ansible_host=10.0.0.1", "address", "10.0.0.1"),
    ("ansible_host=[2001:db8::1]", "address", "2001:db8::1"),
    ("ansible_ssh_host=10.0.0.2", "address", "10.0.0.2"),
    ("ansible_port=2222", "port", 2222),
    ("ansible_ssh_port=2223", "port", 2223),
    ("ansible_port=2222 # ours", "port", 2222),
    ("ansible_user=me", "user", "me"),
    ("ansible_ssh_user=me.too@realm", "user", "me.too@realm"),
    ("ansible_ssh_user=me", "user", "me"),
    ("ansible_password=12345", "password", Secret("12345")),
    ("ansible_ssh_pass='p w'", "password", Secret("p w")),
    ("ansible_ssh_private_key_file=~/.ssh/k", "private_key_file", "~/.ssh/k"),
    ("ansible_private_key_file=/k", "private_key_file", "/k"),
    ("ansible_ssh_common_args=-o ProxyJump=b -C", "ssh_common_args", "-o ProxyJump=b -C"),
    ("ansible_ssh_extra_args='-4'", "ssh_extra_args", "-4"),
    ("ansible_connection=local", "connection", "local"),
    ("ansible_connection=smart", "connection", "ssh"),
    ("ansible_connection=ansible.builtin.ssh", "connection", "ssh"),
    ("ansible_become=yes", "become", True),
    ("ansible_become=True", "become", True),
    ("ansible_become=0", "become", False),
    ("ansible_sudo=true", "become", True),
    ("ansible_become_user=admin", "become_user", "admin"),
    ("ansible_become_pass=x", "become_password", Secret("x")),
    ("ansible_become_password=x", "become_password", Secret("x")),
    ("ansible_sudo_pass=x", "become_password", Secret("x")),
    ("node_ip=10.0.0.1", "node_ip", "10.0.0.1"),
    ("node_ip=127.0.0.2", "node_ip", "127.0.0.2"),
    ("network=10.0.0.0/24", "network", "10.0.0.0/24"),
    ("network=10.0.0.7/24", "network", "10.0.0.0/24"),
    ("interface=ib0", "interface", "ib0"),
    ("interface=enp96s0f0np0", "interface", "enp96s0f0np0"),
    ("devices=all", "devices", None),
    ("devices=0,1,2,3", "devices", (0, 1, 2, 3)),
    ("devices=3, 1", "devices", (3, 1)),
    ("devices=2", "devices", (2,)),
    ("devices=[0, 2]", "devices", (0, 2)),
    ('devices="0,1"', "devices", (0, 1)),
    ("nproc_per_node=2", "nproc_per_node", 2),
    ("driver_min=550.54.14", "driver_min", "550.54.14"),
    ("driver_min=550.90", "driver_min", "550.90"),
    ("gpu_count=8", "gpu_count", 8),
    ("gpu_model=NVIDIA H100 80GB HBM3", "gpu_model", "NVIDIA H100 80GB HBM3"),
    (
        "image=reg.example.com:5000/a/b:1.0-gpu@sha256:00",
        "image",
        "reg.example.com:5000/a/b:1.0-gpu@sha256:00",
    ),
    ("container_runtime=Podman", "container_runtime", "podman"),
    ("shm_size=64G", "shm_size", "64g"),
    ("shm_size=512mb", "shm_size", "512m"),
    ("shm_size=1073741824", "shm_size", "1073741824"),
    ('volumes=["/a:/b:ro", "name:/c"]', "volumes", ("/a:/b:ro", "name:/c")),
    ("volumes=['/a:/b']", "volumes", ("/a:/b",)),
    ("volumes=/a:/b", "volumes", ("/a:/b",)),
    (
        "container_args=--ulimit memlock=-1 --label 'a b'",
        "container_args",
        ("--ulimit", "memlock=-1", "--label", "a b"),
    ),
    ('container_args=["--cap-add", "IPC_LOCK"]', "container_args", ("--cap-add", "IPC_LOCK")),
    ("container_user=1000:1000", "container_user", "1000:1000"),
    ("container_user=0", "container_user", "0"),
    ("python=/opt/venv/bin/python", "python", "/opt/venv/bin/python"),
    ("python=python3.11", "python", "python3.11"),
    ("remote_dir=/scratch/ck/", "remote_dir", "/scratch/ck"),
    ("remote_dir=~/runs", "remote_dir", "~/runs"),
    ("port_range=40000-41000", "port_range", PortRange(40000, 41000)),
    ("port_range=30000:65535", "port_range", PortRange(30000, 65535)),
    ("data_path=/data/imagenet", "data_path", "/data/imagenet"),
    (
        'mounts=[{"source": "nas:/a", "path": "/a"}, '
        '{"source": "//srv/s", "path": "/b/", "type": "cifs", "options": "ro"}]',
        "mounts",
        (Mount("nas:/a", "/a", "nfs4", ""), Mount("//srv/s", "/b", "cifs", "ro")),
    ),
]


@pytest.mark.parametrize(("line", "field", "value"), FITTING)
def test_a_fitting_value_is_typed(line: str, field: str, value: Any) -> None:
    found, warnings = read(group=line)
    assert getattr(found, field) == value
    assert type(getattr(found, field)) is type(value)
    assert warnings == []


# variable, value that does not fit, what is said
MISFITS = [
    ("node_ip", "10.0.0.300", "an IPv4 address such as 10.0.0.1"),
    ("node_ip", "2001:db8::1", "an IPv4 address such as 10.0.0.1"),
    ("node_ip", "0.0.0.0", "an IPv4 address of the host itself"),
    ("network", "10.0.0.1", "an IPv4 network such as 10.0.0.0/24"),
    ("network", "10.0.0.0/99", "an IPv4 network such as 10.0.0.0/24"),
    ("interface", "eth0 eth1", "the name of one network interface such as ib0 or eth1"),
    ("interface", "-x", "the name of one network interface such as ib0 or eth1"),
    ("devices", "gpu0", "all, or different device numbers such as 0,1,2,3"),
    ("devices", "0,0", "all, or different device numbers such as 0,1,2,3"),
    ("devices", "0,,1", "all, or different device numbers such as 0,1,2,3"),
    ("nproc_per_node", "0", "a whole number from 1 to 1024"),
    ("nproc_per_node", "auto", "a whole number from 1 to 1024"),
    ("driver_min", "latest", "a version such as 535.104.05 (in YAML between quotes)"),
    ("gpu_count", "-1", "a whole number from 0 to 1024"),
    ("image", "two words", "the name of an image such as registry/name:tag"),
    ("image", "--privileged", "the name of an image such as registry/name:tag"),
    ("container_runtime", "containerd", "docker, podman or none"),
    ("shm_size", "big", "a size such as 8g or 512m"),
    ("shm_size", "0", "a size such as 8g or 512m"),
    ("volumes", "[1", "a JSON list"),
    ("volumes", "data", "a list of volumes such as /data:/data:ro"),
    ("container_args", "'open", "a list of arguments (a quote is not closed)"),
    ("container_user", "a b", "a user, or UID:GID"),
    ("python", "3.9", "the name or path of an interpreter"),
    ("remote_dir", "/", "an absolute path, or one that begins with ~/"),
    ("remote_dir", "~", "an absolute path, or one that begins with ~/"),
    ("remote_dir", "runs", "an absolute path, or one that begins with ~/"),
    ("remote_dir", "/a/../..", "an absolute path, or one that begins with ~/"),
    ("port_range", "any", "two ports such as 30000-65535, the lower first, from 1024 to 65535"),
    ("nfs_source", "nas", "SERVER:/EXPORT"),
    ("nfs_path", "data", "an absolute path such as /data"),
    ("nfs_options", "rw, soft", "mount options such as vers=4.2,noatime, without spaces"),
    ("mounts", "nas:/a", "a JSON list"),
    ("mounts", '[{"source": "nas:/a"}]', "each mount as {source, path, type, options}, the first two always"),
    ("mounts", '[{"source": "/dev/sdb", "path": "/b"}]', "SERVER:/EXPORT"),
]


@pytest.mark.parametrize("options", ["username=u,password=hunter2", "pass=hunter2", "secret=hunter2"])
def test_a_password_among_mount_options_is_refused_and_not_shown(options: str) -> None:
    """They stand in `ps`, in /etc/fstab and in reports."""
    mount = f'mounts=\'[{{"source": "//nas/x", "path": "/x", "type": "cifs", "options": "{options}"}}]\''
    for line in (f"nfs_source=nas:/a nfs_path=/a nfs_options={options}", mount):
        found, warnings = read(line)
        text = " ".join(warnings)
        assert "write credentials=FILE" in text
        assert "hunter2" not in text + repr(found)
        assert all("password" not in each.options for each in found.mounts)
    error = refused(f"clusterkit_nfs_source=nas:/a clusterkit_nfs_path=/a clusterkit_nfs_options={options}")
    assert "hunter2" not in error.message
    assert read("nfs_source=nas:/a nfs_path=/a nfs_options=credentials=/root/.smb")[0].mounts


@pytest.mark.parametrize(("name", "value", "expected"), MISFITS)
def test_a_bare_misfit_is_ignored_with_a_warning_and_a_prefixed_one_is_refused(
    name: str, value: str, expected: str
) -> None:
    found, warnings = read(group=f"{name}={value}")
    assert found == Settings(alias="h1", address="h1")
    assert warnings == [
        f"i.ini:4: {name} is {value!r}, but it has to be {expected}; not used. If another tool reads it, "
        f"write ours as clusterkit_{name}"
    ]
    error = refused(group=f"clusterkit_{name}={value}")
    assert error.message == f"i.ini:4: clusterkit_{name} is {value!r}, but it has to be {expected}"


@pytest.mark.parametrize("value", ["40000", "65535-30000", "30000-70000", "22-1000", "30000,65535", "30000-"])
def test_a_wrong_bare_port_range_is_refused_since_the_default_would_be_opened_instead(value: str) -> None:
    assert refused(group=f"port_range={value}").message == (
        f"i.ini:4: port_range is {value!r}, but it has to be two ports such as 30000-65535, the lower first, "
        "from 1024 to 65535"
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("ansible_port=ssh", "ansible_port is 'ssh', but it has to be a whole number from 1 to 65535"),
        ("ansible_port=0", "ansible_port is '0', but it has to be a whole number from 1 to 65535"),
        (
            "ansible_host=-oProxyCommand=x",
            "ansible_host is '-oProxyCommand=x', but it has to be a host name or IP address",
        ),
        ("ansible_user=-l", "ansible_user is '-l', but it has to be a user name"),
        ("ansible_become=maybe", "ansible_become is 'maybe', but it has to be true or false"),
        (
            "ansible_connection=docker",
            "ansible_connection is 'docker', but it has to be ssh or local, the connections that "
            "clusterkit has",
        ),
    ],
)
def test_a_wrong_value_of_ansibles_own_names_is_refused(line: str, message: str) -> None:
    assert refused(line=f"'{line}'").message == f"i.ini:2: {message}"


def test_the_prefixed_name_wins_and_can_take_a_bare_one_back() -> None:
    found, warnings = read(
        line="devices=0 clusterkit_image= image=other/tools:1",
        group='clusterkit_devices=1,2\nclusterkit_ansible_user=ours\nansible_user=theirs\ninterface=["a"]\nclusterkit_interface=ib0',
    )
    assert (found.devices, found.user, found.interface) == ((1, 2), "ours", "ib0")
    assert (found.image, found.container_runtime) == (None, "none")
    assert warnings == []


def test_an_empty_value_is_not_set() -> None:
    found, warnings = read(
        line="image= ansible_ssh_common_args='' node_ip=", yaml="gpu_model:\ndevices: null\n"
    )
    assert found == Settings(alias="h1", address="h1")
    assert warnings == []


def test_the_runtime_is_docker_as_soon_as_there_is_an_image() -> None:
    assert read(line="image=a/b:1")[0].container_runtime == "docker"
    assert read(line="image=a/b:1 container_runtime=podman")[0].container_runtime == "podman"
    assert read(line="image=a/b:1 container_runtime=none")[0].container_runtime == "none"


def test_the_special_ssh_name_wins_as_in_ansible() -> None:
    found, _ = read(
        line="ansible_host=a ansible_ssh_host=b ansible_port=1 ansible_ssh_port=2",
        group="ansible_user=c\nansible_ssh_user=d",
    )
    assert (found.address, found.port, found.user) == ("b", 2, "d")


def test_the_special_sudo_name_wins_as_in_ansible() -> None:
    found, _ = read(
        line="ansible_become_user=a ansible_sudo_user=b ansible_become_password=c ansible_become_pass=d",
    )
    assert (found.become_user, found.become_password) == ("b", Secret("d"))


def test_a_user_in_front_of_the_address_is_the_login_user() -> None:
    found, _ = read(line="ansible_host=root@10.0.0.1")
    assert (found.address, found.user) == ("10.0.0.1", "root")
    assert read(line="ansible_host=root@10.0.0.1 ansible_user=me")[0].user == "me"
    Path("i.ini").write_text("root@10.0.0.2\n")
    inventory = load(Path("i.ini"))
    found, _ = settings(inventory, inventory.hosts["root@10.0.0.2"])
    assert (found.alias, found.address, found.user) == ("root@10.0.0.2", "10.0.0.2", "root")


@pytest.mark.parametrize("name", ["a/b", "..", "/chroot", "-x"])
def test_a_name_that_cannot_name_a_directory_is_refused(name: str) -> None:
    Path("i.ini").write_text(f"{name}\n")
    inventory = load(Path("i.ini"))
    with pytest.raises(InventoryError, match="clusterkit names directories by a host's name"):
        settings(inventory, inventory.hosts[name])


# YAML


def test_yaml_gives_lists_numbers_and_truth() -> None:
    found, warnings = read(
        yaml="""
devices: [0, 1]
nproc_per_node: 4
ansible_port: 2222
ansible_become: true
volumes:
  - /a:/a
  - /b:/b:ro
container_args: [--ulimit, memlock=-1, --cpus, 4]
mounts:
  - source: nas:/a
    path: /a
    options: [vers=3, ro]
driver_min: "550.90"
port_range: 30000-30999
container_user: 1000
ansible_password: 123456
"""
    )
    assert warnings == []
    assert (found.devices, found.nproc_per_node, found.port, found.become) == ((0, 1), 4, 2222, True)
    assert found.volumes == ("/a:/a", "/b:/b:ro")
    assert found.container_args == ("--ulimit", "memlock=-1", "--cpus", "4")
    assert found.mounts == (Mount("nas:/a", "/a", "nfs", "vers=3,ro"),)
    assert (found.driver_min, found.port_range) == ("550.90", PortRange(30000, 30999))
    assert (found.container_user, found.password) == ("1000", Secret("123456"))


@pytest.mark.parametrize(
    "yaml",
    [
        "driver_min: 550.90\n",
        "devices: {gpu: 0}\n",
        "devices: [a]\n",
        "devices: true\n",
        "interface: [eth0, eth1]\n",
        "image: {name: x}\n",
        "volumes: [{source: a, target: b}]\n",
        "nproc_per_node: 2.5\n",
        "port_range: {from: 1}\n",
        "gpu_model: true\n",
        "python: 3.9\n",
        "mounts: {a: b}\n",
    ],
)
def test_what_other_roles_mean_by_a_name_is_left_alone(yaml: str) -> None:
    found, warnings = read(yaml=yaml)
    assert found == Settings(alias="h1", address="h1")
    assert len(warnings) == 1
    assert warnings[0].startswith("group_vars/g.yml:1: ")
    assert "not used" in warnings[0]


# Mounts


def test_the_three_nfs_variables_are_one_mount_before_the_others() -> None:
    found, _ = read(
        group="nfs_source=nas:/v\nnfs_path=/mnt/v\nnfs_options=noatime",
        yaml="mounts: [{source: nas:/w, path: /w}]\n",
    )
    assert found.mounts == (Mount("nas:/v", "/mnt/v", "nfs4", "noatime"), Mount("nas:/w", "/w", "nfs4", ""))


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ("vers=3", "nfs"),
        ("ro,nfsvers=3,soft", "nfs"),
        ("vers=4.2", "nfs4"),
        ("", "nfs4"),
        ("rsize=3", "nfs4"),
    ],
)
def test_version_3_is_mounted_as_nfs(options: str, kind: str) -> None:
    found, _ = read(group=f"nfs_source=nas:/v\nnfs_path=/v\nnfs_options={options}")
    assert found.mounts == (Mount("nas:/v", "/v", kind, options),)


def test_half_a_mount_is_no_mount() -> None:
    found, warnings = read(group="nfs_source=nas:/v")
    assert found.mounts == ()
    assert warnings == ["i.ini:4: nfs_source without a usable nfs_path mounts nothing; set nfs_path too"]
    assert refused(group="clusterkit_nfs_path=/v").message == (
        "i.ini:4: clusterkit_nfs_path without a usable nfs_source mounts nothing"
    )


# Environment


def test_env_variables_are_text_and_the_prefixed_one_wins() -> None:
    found, warnings = read(
        line="env_A=1 env_B='two words' env_EMPTY= clusterkit_env_C=ours env_C=theirs",
        group="env_H={{ inventory_hostname }}",
        yaml="env_T: true\nenv_F: 0.5\nenv_I: 3\nenv_N:\n",
    )
    assert warnings == []
    assert found.env == {
        "A": "1",
        "B": "two words",
        "C": "ours",
        "EMPTY": "",
        "F": "0.5",
        "H": "h1",
        "I": "3",
        "N": "",
        "T": "true",
    }


def test_thresholds_are_numbers_and_the_prefixed_one_wins() -> None:
    found, warnings = read(
        line="threshold_clock_warn_s=2 clusterkit_threshold_clock_warn_s=0.25",
        group="threshold_disk_warn_gib=100",
        yaml="threshold_gpu_held_mib: 0\n",
    )
    assert warnings == []
    assert found.thresholds == {"clock_warn_s": 0.25, "disk_warn_gib": 100.0, "gpu_held_mib": 0.0}
    assert found.threshold("disk_warn_gib") == 100.0
    assert found.threshold("clock_fail_s") == 5.0


@pytest.mark.parametrize("value", ["soon", "-1", "nan", "1e3", "[1]", "true"])
def test_a_threshold_that_is_no_number_is_refused(value: str) -> None:
    """Never ignored: whoever writes one means something by it."""
    with pytest.raises(InventoryError, match=r"threshold_clock_warn_s is .* has to be a number from 0 up"):
        read(yaml=f"threshold_clock_warn_s: {value}\n")


def test_a_threshold_that_there_is_not_is_named() -> None:
    _, warnings = read(line="threshold_clock_warn=2")
    (warning,) = warnings
    assert warning.endswith(
        "there is no threshold threshold_clock_warn; did you mean threshold_clock_warn_s?"
    )


def test_every_threshold_is_in_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "inventory.md").read_text()
    rows = re.findall(r"^\| `threshold_(\w+)` \| ([\d.,]+) \| (.*) \|$", page, re.MULTILINE)
    assert [(name, float(value.replace(",", "")), why) for name, value, why in rows] == [
        (each.name, each.default, each.why) for each in THRESHOLDS
    ]


def test_an_env_variable_that_is_no_text_is_left_out() -> None:
    found, warnings = read(yaml="env_list: [1]\n")
    assert found.env == {}
    assert warnings == ["group_vars/g.yml:1: env_list has to be text or a number; not used"]
    assert refused(yaml="clusterkit_env_X: {}\n").message == (
        "group_vars/g.yml:1: clusterkit_env_X has to be text or a number"
    )


# Near misses


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("node_pi", "node_ip"),
        ("nodeip", "node_ip"),
        ("node-ip", "node_ip"),
        ("Node_IP", "node_ip"),
        ("nproc_per_nodes", "nproc_per_node"),
        ("nproc_pernode", "nproc_per_node"),
        ("devcies", "devices"),
        ("imgae", "image"),
        ("port_ranges", "port_range"),
        ("container_runtine", "container_runtime"),
        ("ansible_hots", "ansible_host"),
        ("ansible_usr", "ansible_user"),
        ("ansible_become_passwd", "ansible_become_pass"),
        ("ansible_ssh_private_keyfile", "ansible_ssh_private_key_file"),
        ("shm_sise", "shm_size"),
        ("cpu_count", None),
        ("networks", None),
        ("volume", None),
        ("http_port", None),
        ("ansible_python_interpreter", None),
        ("ansible_become_method", None),
        ("ansible_ssh_args", None),
        ("ansible_ssh_pipelining", None),
        ("ansible_become_flags", None),
        ("ansible_shell_type", None),
        ("x", None),
        ("nodes", None),
    ],
)
def test_a_near_miss_is_warned_about_with_the_name_that_was_meant(name: str, meant: str | None) -> None:
    _, warnings = read(group=f"{name}=1")
    assert warnings == ([f"i.ini:4: {name} is not read; did you mean {meant}?"] if meant else [])


def test_an_unknown_name_with_our_prefix_is_an_error_in_words() -> None:
    _, warnings = read(group="clusterkit_node_pi=1\nclusterkit_zzzzzz=1")
    assert warnings == [
        "i.ini:4: error: there is no variable clusterkit_node_pi; did you mean clusterkit_node_ip?",
        "i.ini:5: error: there is no variable clusterkit_zzzzzz; the names are in docs/inventory.md",
    ]


def test_warnings_of_a_group_are_the_same_for_all_its_hosts() -> None:
    Path("i.ini").write_text("[g]\nh[1:3]\n[g:vars]\ndevices=x\nnode_pi=1\n")
    inventory = load(Path("i.ini"))
    assert len({tuple(settings(inventory, host)[1]) for host in inventory.hosts.values()}) == 1


# Jinja and vaults


def test_plain_references_are_filled_in_through_chains() -> None:
    found, warnings = read(
        line="number=7 ansible_host='{{ inventory_hostname }}.{{domain}}'",
        group=(
            "domain={{ site }}.example.com\nsite=lab\nnode_ip=10.0.0.{{ number }}\n"
            "ansible_ssh_private_key_file={{ inventory_dir }}/key"
        ),
        yaml='all_devices: [0, 1]\ndevices: "{{ all_devices }}"\n'
        'mounts: [{source: "nas:/{{ site }}", path: /s}]\n',
    )
    assert (found.address, found.node_ip, found.devices) == ("h1.lab.example.com", "10.0.0.7", (0, 1))
    assert found.private_key_file == f"{Path.cwd()}/key"
    assert found.mounts == (Mount("nas:/lab", "/s", "nfs4", ""),)
    assert warnings == []


@pytest.mark.parametrize(
    ("group", "message"),
    [
        (
            "devices={{ groups['x'] | length }}",
            "i.ini:4: devices needs Jinja that clusterkit does not evaluate: it fills in {{ VARIABLE }} only",
        ),
        (
            "node_ip={% if true %}10.0.0.1{% endif %}",
            "i.ini:4: node_ip needs Jinja that clusterkit does not evaluate: it fills in {{ VARIABLE }} only",
        ),
        (
            "image={{ a }}\na={{ b }}-x\nb={{ a }}",
            "i.ini:5: a refers to itself: a → b → a",
        ),
        ("image={{ image }}", "i.ini:4: image refers to itself: image → image"),
        ("image={{ nowhere }}:1", "i.ini:4: image refers to nowhere, which is not set for h1"),
        (
            "image=a\nenv_X={{ lookup('env', 'X') }}",
            "i.ini:5: env_X needs Jinja that clusterkit does not evaluate: it fills in {{ VARIABLE }} only",
        ),
    ],
)
def test_other_jinja_in_our_variables_is_refused(group: str, message: str) -> None:
    error = refused(group=group)
    assert error.message == message
    assert error.hint


def test_the_remedy_is_a_plain_value_under_our_own_prefix() -> None:
    jinja = "devices={{ gpus | map('int') | list }}"
    assert refused(group=jinja).hint == "write a plain value as clusterkit_devices, which wins"
    assert read(group=f"{jinja}\nclusterkit_devices=0,1")[0].devices == (0, 1)


def test_jinja_and_vaults_of_other_tools_are_left_alone() -> None:
    found, warnings = read(
        group="motd={{ lookup('file', 'x') }}\nloop={{ loop }}",
        yaml="token: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n",
    )
    assert found == Settings(alias="h1", address="h1")
    assert warnings == []


def test_a_vaulted_value_that_we_need_is_refused() -> None:
    error = refused(yaml="x: 1\nimage: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  6231\n")
    assert error.message == (
        "group_vars/g.yml:2: image is encrypted with ansible-vault, and clusterkit needs it"
    )
    assert error.hint == "write a plain value as clusterkit_image, which wins"


def test_the_tag_alone_makes_a_vault() -> None:
    assert "is encrypted with ansible-vault" in refused(yaml="image: !vault looks-plain\n").message


@pytest.mark.parametrize(
    "yaml",
    [
        "ansible_become_password: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  6231\n",
        'ansible_become_password: "{{ vault_become_password }}"\n',
        "ansible_become_password: \"{{ lookup('env', 'PW') }}\"\n",
    ],
)
def test_a_password_that_cannot_be_read_can_be_asked_for(yaml: str) -> None:
    found, warnings = read(yaml=yaml)
    assert found.become_password is None
    assert len(warnings) == 1
    assert warnings[0].startswith("group_vars/g.yml:1: ansible_become_password ")
    assert warnings[0].endswith("; not used, --ask-become-pass asks for it")


def test_unsafe_text_is_no_template() -> None:
    assert read(yaml='ansible_password: !unsafe "a{{b"\n')[0].password == Secret("a{{b")


# Secrets


def test_no_message_and_no_repr_shows_a_password() -> None:
    found, _ = read(line="ansible_password=hunter2 ansible_become_pass=hunter2")
    assert "hunter2" not in repr(found) + str(found.password) + f"{found.become_password}"
    assert found.password is not None
    assert found.password.reveal() == "hunter2"
    error = refused(yaml="ansible_password: [hunter2]\n")
    assert "hunter2" not in error.message
    assert error.message == (
        "group_vars/g.yml:1: ansible_password has to be a password as text (put quotes around it)"
    )
