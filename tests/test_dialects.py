"""Which command line follows from which PaddlePaddle version."""

from __future__ import annotations

import pytest

from clusterkit.errors import InputError
from clusterkit.planning.dialects import Call, for_version, table

CALL = Call(
    master="10.0.0.1:29401",
    node_count=2,
    node_rank=1,
    node_ip="10.0.0.2",
    devices=(0, 3),
    processes=2,
    job_id="r1",
    log_dir="/l",
)


@pytest.mark.parametrize(
    "version",
    [
        "2.3",
        "2.3.0",
        "2.3.2.post112",
        "2.4.2",
        "2.6.2",
        "2.10.0",
        "3.0.0b1",
        "3.0.0rc0",
        "3.3.1",
        "3.3.1.dev20250101",
        "4.0",
        "10.1",
    ],
)
def test_collective_from_2_3_on(version: str) -> None:
    options = for_version(version, "h").options
    assert options is not None
    assert " ".join(options(CALL)) == (
        "--master 10.0.0.1:29401 --nnodes 2 --rank 1 --host 10.0.0.2 --devices 0,3 --job_id r1 --log_dir /l"
    )


@pytest.mark.parametrize("version", ["1.5.0", "1.8.5", "2.0.2", "2.1.3", "2.2.2", "2.2.2.post101", "0.15.0"])
def test_older_is_refused_with_the_reason_and_the_host(version: str) -> None:
    with pytest.raises(InputError) as caught:
        for_version(version, "gpu07")
    assert caught.value.message.startswith(f"host gpu07: PaddlePaddle {version} cannot be launched: ")
    assert "2.3 or newer" in caught.value.hint


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


def test_without_devices_the_ranks_run_on_the_cpu() -> None:
    options = for_version("3.3.1", "h").options
    assert options is not None
    given = options(Call(**{**CALL.__dict__, "devices": None, "processes": 5}))
    assert "--devices" not in given
    assert given[given.index("--nproc_per_node") + 1] == "5"


def test_an_empty_device_list_is_not_no_device_list() -> None:
    """`--devices ''` would make the launcher count devices itself; the topology never gives an empty list."""
    options = for_version("3.3.1", "h").options
    assert options is not None
    assert "--nproc_per_node" not in options(Call(**{**CALL.__dict__, "devices": (0,)}))


def test_the_table_is_sorted_newest_first() -> None:
    releases = [entry.since for entry in table()]
    assert releases == sorted(releases, reverse=True)
    assert all(entry.options is not None or entry.reason for entry in table())
