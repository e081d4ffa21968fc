"""Which command line follows from which PaddlePaddle version, held against the parsers of these versions."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clusterkit.errors import InputError
from clusterkit.planning.dialects import Call, for_version, oldest, table, takes_address_from_name

LAUNCHERS = Path(__file__).parent / "cases" / "launchers"
CALL = Call(
    master="10.0.0.1:29401",
    node_rank=1,
    node_ip="10.0.0.2",
    node_ips=("10.0.0.1", "10.0.0.2"),
    rank_counts=(2, 2),
    first_port=29402,
    devices=(0, 3),
    processes=2,
    job_id="r1",
    log_dir="/l",
)
ALIASES = ("gpu01", "gpu02")
SCRIPT = ("train.py", "--workers", "4", "--master", "x", "--nnodes=9", "last")

MASTER = "--master 10.0.0.1:29401 --nnodes 2 --rank 1 --host 10.0.0.2 --devices 0,3 --job_id r1 --log_dir /l"
COMMANDS = {
    "1.8": "--cluster_node_ips 10.0.0.1,10.0.0.2 --node_ip 10.0.0.2 --started_port 29402 --selected_gpus 0,3 "
    "--log_dir /l",
    "2.0": "--ips 10.0.0.1,10.0.0.2 --gpus 0,3 --log_dir /l",
    "2.1": "--ips 10.0.0.1,10.0.0.2 --run_mode collective --gpus 0,3 --log_dir /l",
    "2.2": "--ips 10.0.0.1,10.0.0.2 --host 10.0.0.2 --run_mode collective --gpus 0,3 --log_dir /l",
    "2.3": MASTER,
    "2.4": MASTER,
}
VERSIONS = {
    "1.8": ["1.8", "1.8.5", "1.8.5.post97"],
    "2.0": ["2.0.0", "2.0.2"],
    "2.1": ["2.1.3", "2.1.3.post112"],
    "2.2": ["2.2.2", "2.2.2.post101"],
    "2.3": ["2.3", "2.3.0", "2.3.2.post112"],
    "2.4": ["2.4.2", "2.6.2", "2.10.0", "3.0.0b1", "3.0.0rc0", "3.3.1", "3.3.1.dev20250101", "4.0", "10.1"],
}


@pytest.mark.parametrize(
    ("name", "version"), [(name, each) for name, all_ in VERSIONS.items() for each in all_]
)
def test_the_command_of_each_version(name: str, version: str) -> None:
    dialect = for_version(version, "h")
    assert dialect.name == name
    assert " ".join(dialect.options(CALL)) == COMMANDS[name]


def recorded(version: str) -> tuple[argparse.ArgumentParser, bool]:
    """The parser of a release's launcher, and whether it refuses words that it does not know."""
    said = json.loads((LAUNCHERS / f"{version}.json").read_text())
    parser = argparse.ArgumentParser()
    for argument in said["arguments"]:
        keywords: dict[str, Any] = {
            key: argument[key] for key in ("action", "nargs", "dest") if key in argument
        }
        if argument.get("type") == "int":
            keywords["type"] = int
        parser.add_argument(*argument["names"], **keywords)
    return parser, said["parser"] == "strict"


def parsed(version: str, words: list[str]) -> argparse.Namespace:
    parser, strict = recorded(version)
    if strict:
        return parser.parse_args(words)
    known, unknown = parser.parse_known_args(words)
    assert unknown == []
    return known


@pytest.mark.parametrize("version", [path.stem for path in sorted(LAUNCHERS.glob("*.json"))])
def test_the_launcher_understands_what_is_meant(version: str) -> None:
    """Every option is taken for what it says, and the script for the script, whatever its own words are."""
    dialect = for_version(version, "h")
    found = parsed(version, [*dialect.options(CALL), "/run/agent.pyz", "rank", "/run", *SCRIPT])
    assert found.training_script == "/run/agent.pyz"
    assert found.training_script_args == ["rank", "/run", *SCRIPT]
    devices = {"1.8": "selected_gpus", "2.0": "gpus", "2.1": "gpus", "2.2": "gpus"}.get(
        dialect.name, "devices"
    )
    assert getattr(found, devices) == "0,3"
    assert found.log_dir == "/l"
    if dialect.meets:
        assert (found.master, str(found.nnodes), found.rank, found.host) == (
            "10.0.0.1:29401",
            "2",
            1,
            "10.0.0.2",
        )
    else:
        nodes = found.cluster_node_ips if dialect.name == "1.8" else found.ips
        assert nodes == "10.0.0.1,10.0.0.2"


def test_every_dialect_has_a_recorded_launcher() -> None:
    assert {for_version(path.stem, "h").name for path in LAUNCHERS.glob("*.json")} == set(COMMANDS)
    assert {dialect.name for dialect in table()} == set(COMMANDS)


@pytest.mark.parametrize(("version", "port"), [("2.0.2", True), ("2.1.3", True), ("2.2.2", True)])
def test_the_port_is_a_variable_where_no_option_says_it(version: str, port: bool) -> None:
    assert for_version(version, "h").variables(CALL) == {"FLAGS_START_PORT": "29402"}


@pytest.mark.parametrize("version", ["1.5.0", "0.15.0", "1.7.2"])
def test_older_is_refused_with_the_reason_and_the_host(version: str) -> None:
    with pytest.raises(InputError) as caught:
        for_version(version, "gpu07")
    assert caught.value.message.startswith(f"host gpu07: PaddlePaddle {version} cannot be launched: ")
    assert f"{oldest()} or newer" in caught.value.hint


@pytest.mark.parametrize("version", ["none", "unknown", "three.two", "3", "-1.2"])
def test_no_version_is_refused(version: str) -> None:
    with pytest.raises(InputError, match=r"host gpu07: .* is no PaddlePaddle version"):
        for_version(version, "gpu07")


def test_no_paddle_at_all_is_called_that() -> None:
    with pytest.raises(InputError, match=r"host gpu07: no PaddlePaddle was found there"):
        for_version("", "gpu07")


@pytest.mark.parametrize("version", ["0.0.0", "0.0.0.post0"])
def test_a_build_from_source_says_nothing(version: str) -> None:
    with pytest.raises(InputError) as caught:
        for_version(version, "gpu07")
    assert "PADDLE_VERSION" in caught.value.hint


# --- what a version cannot do ----------------------------------------------------------------------


def refusal(version: str, call: Call, words: tuple[str, ...] = ("train.py",)) -> str:
    """Why this is refused; "" if it is not."""
    try:
        for_version(version, "h").refuse(version, call, ALIASES, words)
    except InputError as error:
        return error.message
    return ""


@pytest.mark.parametrize(
    ("version", "refused"),
    [("1.8.5", True), ("2.0.2", True), ("2.1.3", True), ("2.2.2", True), ("2.3.2", False), ("3.3.1", False)],
)
def test_unequal_counts(version: str, refused: bool) -> None:
    message = refusal(version, replace(CALL, rank_counts=(2, 1)))
    assert bool(message) is refused
    if refused:
        assert message.startswith(f"PaddlePaddle {version} cannot start unequal numbers of ranks")
        assert "(gpu01 2, gpu02 1)" in message
    assert refusal(version, CALL) == ""


@pytest.mark.parametrize(
    ("version", "several", "one"),
    [("1.8.5", True, True), ("2.1.3", True, False), ("2.2.2", True, False), ("2.4.2", False, False)],
)
def test_cpus(version: str, several: bool, one: bool) -> None:
    on_cpus = replace(CALL, devices=None)
    alone = replace(on_cpus, node_ips=("10.0.0.1",), rank_counts=(2,), node_rank=0)
    assert ("cannot train on the CPUs of 2 nodes" in refusal(version, on_cpus)) is several
    assert ("cannot train on the CPUs of 1 node:" in refusal(version, alone)) is one


@pytest.mark.parametrize(("version", "refused"), [("2.3.2", True), ("2.4.2", False)])
def test_several_ranks_on_a_cpu(version: str, refused: bool) -> None:
    on_cpus = replace(CALL, devices=None)
    assert ("cannot start 2 ranks on the CPU of one node" in refusal(version, on_cpus)) is refused
    assert refusal(version, replace(on_cpus, rank_counts=(1, 1))) == ""
    assert refusal(version, CALL) == ""


@pytest.mark.parametrize(("version", "refused"), [("2.0.2", True), ("2.1.3", True), ("2.2.2", False)])
def test_several_nodes_on_one_machine_where_the_name_is_the_address(version: str, refused: bool) -> None:
    here = replace(CALL, node_ips=("127.0.0.1", "127.0.0.2"), node_ip="127.0.0.2")
    assert ("cannot be several nodes on one machine" in refusal(version, here)) is refused
    assert takes_address_from_name(version) is refused


def test_words_that_2_0_takes_for_its_own() -> None:
    assert "takes --workers of the script" in refusal("2.0.2", CALL, ("train.py", "--workers", "4"))
    assert "takes --num--servers=3" in refusal("2.0.2", CALL, ("train.py", "--num--servers=3", "x"))
    assert refusal("2.0.2", CALL, ("train.py", "--lr", "4")) == ""
    assert refusal("2.1.3", CALL, ("train.py", "--workers", "4")) == ""


def test_without_devices_the_ranks_run_on_the_cpu() -> None:
    given = for_version("3.3.1", "h").options(replace(CALL, devices=None, processes=5))
    assert "--devices" not in given
    assert given[given.index("--nproc_per_node") + 1] == "5"


def test_an_empty_device_list_is_not_no_device_list() -> None:
    """`--devices ''` would make the launcher count devices itself; the topology never gives an empty list."""
    assert "--nproc_per_node" not in for_version("3.3.1", "h").options(replace(CALL, devices=(0,)))


def test_the_table_is_sorted_newest_first() -> None:
    releases = [entry.since for entry in table()]
    assert releases == sorted(releases, reverse=True)
