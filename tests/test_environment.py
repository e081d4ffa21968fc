"""The environment firewall: what reaches a job, who wins, what is refused, and that no value shows."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from clusterkit.errors import InputError, NotFound
from clusterkit.inventory.model import PortRange, Secret
from clusterkit.planning import envfile
from clusterkit.planning.environment import MASK, Environment, Wishes, firewall, masked
from clusterkit.planning.topology import Node, Topology
from clusterkit.planning.variables import OVERRIDES, is_proxy, kept_names

NODES = (
    Node("gpu01", 0, "10.0.0.1", "eth1", (0, 1), (0, 1), "python3"),
    Node("gpu02", 1, "10.0.0.2", "bond0", (2,), (0,), "python3"),
)
TOPOLOGY = Topology(
    NODES, PortRange(29400, 29420), 29400, 29401, (PortRange(29402, 29410), PortRange(29411, 29420))
)

CASES = Path(__file__).parent / "cases" / "environment"
OVERRIDING = [
    name for name in (CASES / "overriding.txt").read_text().splitlines() if not name.startswith("#")
]
PROXIES = ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]


def made(
    login: Mapping[str, str] | None = None,
    declared: Mapping[str, str] | None = None,
    node: Node = NODES[0],
    **wishes: Any,
) -> Environment:
    return firewall(
        TOPOLOGY, node, run_id="r1", login=login or {}, declared=declared or {}, wishes=Wishes(**wishes)
    )


def test_our_own_variables() -> None:
    assert dict(made().set) == {
        "CLUSTERKIT_RUN_ID": "r1",
        "CLUSTERKIT_ATTEMPT": "0",
        "CLUSTERKIT_DEVICES": "0,1",
        "GLOO_SOCKET_IFNAME": "eth1",
        "NCCL_SOCKET_IFNAME": "=eth1",
        "PORT_RANGE": "29402:29410",
        "PYTHONUNBUFFERED": "1",
    }


def test_each_node_has_its_own_interface_and_ports() -> None:
    second = made(node=NODES[1]).set
    assert second["GLOO_SOCKET_IFNAME"] == "bond0"
    assert second["NCCL_SOCKET_IFNAME"] == "=bond0"
    assert second["PORT_RANGE"] == "29411:29420"


def test_only_the_allow_list_passes() -> None:
    keep = made(login={"HOME": "/h", "SECRET_TOKEN": "x", "LD_PRELOAD": "/x.so"}).keep
    assert {"HOME", "PATH", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR"} <= set(keep)
    assert {"LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "XDG_RUNTIME_DIR", "PYTHONPATH"} <= set(keep)
    assert not {"SECRET_TOKEN", "LD_PRELOAD", "SSH_AUTH_SOCK"} & set(keep)
    assert not [name for name in keep if "*" in name]


def test_nothing_that_passes_overrides_the_launcher() -> None:
    assert not set(kept_names()) & set(OVERRIDES)
    assert not [name for name in kept_names() if is_proxy(name)]


@pytest.mark.parametrize("name", OVERRIDING)
def test_a_leftover_in_the_login_environment_is_removed_with_its_reason(name: str) -> None:
    environment = made(login={name: "1", "HOME": "/h"})
    assert list(environment.removed) == [name]
    assert environment.removed[name]
    assert name not in environment.keep
    assert environment.set.get(name) != "1"


@pytest.mark.parametrize("name", OVERRIDING)
@pytest.mark.parametrize("way", ["declared", "given", "secrets"])
def test_the_user_cannot_override_the_launcher(name: str, way: str) -> None:
    ways: dict[str, Any] = {way: {name: Secret("hidden-value") if way == "secrets" else "hidden-value"}}
    with pytest.raises(InputError) as caught:
        made(**ways)
    assert name in caught.value.message
    assert "hidden-value" not in caught.value.message + caught.value.hint
    assert f"take {name} out" in caught.value.hint
    assert ("gpu01" in caught.value.message) is (way == "declared")


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("PADDLE_DEVICES", "--devices"),
        ("CUDA_VISIBLE_DEVICES", "--devices"),
        ("POD_IP", "node_ip"),
        ("PORT_RANGE", "port_range"),
        ("PADDLE_NNODES", "--limit"),
        ("PADDLE_NPROC_PER_NODE", "--nproc-per-node"),
        ("PADDLE_MAX_RESTART", "--max-restarts"),
    ],
)
def test_the_refusal_names_the_option_to_use(name: str, option: str) -> None:
    with pytest.raises(InputError) as caught:
        made(given={name: "1"})
    assert option in caught.value.hint


@pytest.mark.parametrize("name", ["CLUSTERKIT_RUN_ID", "CLUSTERKIT_ANYTHING", "A-B", "1A", "", "A B", "Ä"])
def test_other_names_that_are_refused(name: str) -> None:
    with pytest.raises(InputError):
        made(given={name: "1"})


def test_every_variable_of_the_installed_launcher_is_known() -> None:
    """Read, not imported: PaddlePaddle takes seconds to import."""
    found = importlib.util.find_spec("paddle")
    if found is None or found.origin is None:
        pytest.skip("PaddlePaddle is not installed here")
    text = (Path(found.origin).parent / "distributed/launch/context/args_envs.py").read_text()
    names = re.findall(r"""^    ['"]([A-Z_]+)['"]: \(""", text, re.MULTILINE)
    assert len(names) >= 20
    assert not set(names) - set(OVERRIDES)


def test_precedence() -> None:
    login = {"PYTHONUNBUFFERED": "login", "TZ": "login", "LANG": "login", "NCCL_SOCKET_IFNAME": "login"}
    declared = {"NCCL_SOCKET_IFNAME": "ib0", "TZ": "inventory", "B": "inventory"}
    given = {"TZ": "option", "B": "option"}
    environment = made(login, declared, given=given, secrets={"B": Secret("file"), "C": Secret("file")})
    assert environment.set["PYTHONUNBUFFERED"] == "1"
    assert environment.set["NCCL_SOCKET_IFNAME"] == "ib0"
    assert environment.set["GLOO_SOCKET_IFNAME"] == "eth1"
    assert environment.set["TZ"] == "option"
    assert environment.set["B"] == "option"
    assert "LANG" in environment.keep
    assert "TZ" not in environment.keep
    assert dict(environment.secrets) == {"C": "file"}


def test_the_file_beats_the_inventory_for_the_ranks() -> None:
    environment = made(declared={"B": "inventory"}, secrets={"B": Secret("file")})
    assert environment.set["B"] == "inventory"
    assert json.loads(environment.secrets_json) == {"B": "file"}


@pytest.mark.parametrize("name", PROXIES)
def test_a_proxy_of_the_host_is_removed(name: str) -> None:
    environment = made(login={name: "http://u:p@proxy:1", "NO_PROXY": "x"})
    assert list(environment.removed) == [name]
    assert "--keep-proxy" in environment.removed[name]
    assert not [
        each for each in (*environment.set, *environment.secrets, *environment.keep) if is_proxy(each)
    ]


@pytest.mark.parametrize("name", PROXIES)
def test_a_kept_proxy_reaches_the_ranks_alone_and_never_catches_a_node(name: str) -> None:
    login = {name: "http://u:p@proxy:1", "no_proxy": "example.com, 10.0.0.1"}
    environment = made(login=login, keep_proxy=True)
    assert not environment.removed
    assert name not in environment.set
    assert name not in environment.keep
    assert json.loads(environment.secrets_json) == {name: "http://u:p@proxy:1"}
    assert environment.set["NO_PROXY"] == environment.set["no_proxy"]
    assert environment.set["no_proxy"] == "example.com,10.0.0.1,localhost,127.0.0.1,10.0.0.2"


@pytest.mark.parametrize("way", ["inventory", "option", "file"])
def test_a_proxy_that_the_user_gave_reaches_the_ranks_alone(way: str) -> None:
    value = {"HTTPS_PROXY": "http://u:p@proxy:1", "NO_PROXY": "a.b"}
    if way == "inventory":
        environment = made(declared=value)
    elif way == "option":
        environment = made(given=value)
    else:
        environment = made(secrets={name: Secret(text) for name, text in value.items()})
    assert "HTTPS_PROXY" not in environment.set
    assert json.loads(environment.secrets_json) == {"HTTPS_PROXY": "http://u:p@proxy:1"}
    assert environment.set["NO_PROXY"] == "a.b,localhost,127.0.0.1,10.0.0.1,10.0.0.2"


def test_exceptions_from_a_proxy_of_the_script_s_own_are_kept_and_masked() -> None:
    environment = made(given={"NO_PROXY": "internal.example"})
    assert environment.set["no_proxy"] == "internal.example,localhost,127.0.0.1,10.0.0.1,10.0.0.2"
    assert environment.shown(show_env=False)["no_proxy"] == MASK
    assert not environment.secrets
    assert made(login={"NO_PROXY": "x"}).set.get("NO_PROXY") is None


def test_what_a_container_may_see_is_no_business_of_the_launcher() -> None:
    assert made(given={"NVIDIA_VISIBLE_DEVICES": "0"}).set["NVIDIA_VISIBLE_DEVICES"] == "0"


def test_tuning_on_one_host_is_reported_unless_the_user_set_it() -> None:
    login = {"NCCL_IB_HCA": "mlx5_0", "FLAGS_x": "1", "NCCL_DEBUG": "INFO", "EDITOR": "vi"}
    environment = made(login=login, given={"NCCL_DEBUG": "WARN"})
    assert sorted(environment.removed) == ["FLAGS_x", "NCCL_IB_HCA"]
    assert "env_NCCL_IB_HCA" in environment.removed["NCCL_IB_HCA"]


def test_what_the_user_wrote_is_masked_and_what_is_ours_is_not() -> None:
    environment = made(declared={"A": "value-a"}, given={"B": "value-b"}, secrets={"C": Secret("value-c")})
    shown = environment.shown(show_env=False)
    assert shown["A"] == shown["B"] == MASK == masked("anything") == masked("")
    assert shown["GLOO_SOCKET_IFNAME"] == "eth1"
    assert environment.shown(show_env=True)["A"] == "value-a"
    assert "C" not in environment.shown(show_env=True)
    assert "value-" not in repr(environment)


def test_assignments() -> None:
    found = envfile.parse_assignments(["A=1", "B=", "C=x=y z", "A=2", "D=line\nline"])
    assert found == {"A": "2", "B": "", "C": "x=y z", "D": "line\nline"}
    with pytest.raises(InputError, match="--env A: no value given"):
        envfile.parse_assignments(["A"])


def test_dotenv_rules(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text(
        "\ufeff# comment\n\nA=1\nexport B='two words' # x\nC=\"tab\\tq\\\"\"\nD='raw\\t'\nE=${A}-$HOME\n"
        'F="two\nlines"\nG=\nA=last\nH=a=b # c\n',
        encoding="utf-8",
    )
    assert {name: value.reveal() for name, value in envfile.read(file).items()} == {
        "A": "last",
        "B": "two words",
        "C": 'tab\tq"',
        "D": "raw\\t",
        "E": "${A}-$HOME",
        "F": "two\nlines",
        "G": "",
        "H": "a=b",
    }


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("A=1\nB='open\n", 2),
        ("\n\n# c\nA 'hidden'\n", 4),
        ("A=1\n\n\n'x' hidden\n", 4),
        ("A=1\nJUST_A_NAME\n", 2),
        ("A=1\n\n\nJUST_A_NAME\n", 4),
        ('A="hidden" trailing\n', 1),
    ],
)
def test_a_bad_line_is_named_and_never_shown(tmp_path: Path, text: str, line: int) -> None:
    file = tmp_path / "job.env"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        envfile.read(file)
    assert caught.value.message.startswith(f"{file}:{line}: ")
    assert "hidden" not in caught.value.message + caught.value.hint


def test_a_file_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no such file"):
        envfile.read(tmp_path / "missing")
    (tmp_path / "latin").write_bytes(b"A=\xe4\n")
    with pytest.raises(InputError, match="not a UTF-8 text"):
        envfile.read(tmp_path / "latin")
    with pytest.raises(InputError):
        envfile.read(tmp_path)
