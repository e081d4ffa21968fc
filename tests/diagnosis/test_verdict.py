"""What failed first, who followed and why, and which known failure it was: from records, without any host."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from clusterkit.diagnosis import rules, verdict
from clusterkit.diagnosis.remains import Remains, failed_at
from clusterkit.probes.gpu_processes import GpuProcess
from clusterkit.probes.kernel_log import KernelLine
from clusterkit.report.diagnose import diagnosis_lines, short_lines
from clusterkit.runs.record import RunRecord
from clusterkit.tables import load
from tests.diagnosis.runs import AT, FOLLOWED, RUN_ID, ended, failed, rank_failed
from tests.schemas import validate

MISSING = """\
Traceback (most recent call last):
  File "/home/ann/train.py", line 1, in <module>
    import requests
ModuleNotFoundError: No module named 'requests'
"""
OUT_OF_MEMORY = "Out of memory: Killed process 4711 (python3) total-vm:9kB, anon-rss:61234567kB, file-rss:0kB"


def diagnose(record: RunRecord, **more: Any) -> dict[str, Any]:
    document = verdict.diagnosis(record, Remains(record.status, **more), rules.load(), load())
    validate("diagnose", document)
    assert diagnosis_lines(document)
    return document


def known(document: dict[str, Any]) -> list[str]:
    return [each["rule"] for each in document["known"]]


def test_a_missing_module_is_explained_with_evidence_and_cure() -> None:
    logs = {3: MISSING, **dict.fromkeys((0, 1, 4, 5), FOLLOWED)}
    document = diagnose(rank_failed(3), logs=logs)
    assert (document["ok"], document["exit_code"]) == (True, 0)
    assert known(document) == ["missing-module"]
    evidence = document["known"][0]["evidence"]
    assert (evidence["rank"], evidence["host"], evidence["where"]) == (3, "gpu02", "rank")
    assert evidence["line"] == "ModuleNotFoundError: No module named 'requests'"
    assert document["summary"] == "the Python of gpu02 has no module requests."
    root = document["root"]
    assert (root["rank"], root["host"], root["exit_code"]) == (3, "gpu02", 1)
    assert root["traceback"] == MISSING.splitlines()
    assert {each["rank"]: each["why"] for each in document["followed"]} == {
        0: "lost a peer", 1: "lost a peer", 2: "stopped", 4: "lost a peer", 5: "lost a peer"
    }  # fmt: skip
    assert document["followed"][0]["after_s"] == 0.2
    shown = "\n".join(diagnosis_lines(document))
    assert "first to fail: rank 3 on gpu02, exit 1 at 21:40:00.000 UTC" in shown
    assert "  rank 3 on gpu02 in its log: ModuleNotFoundError: No module named 'requests'" in shown
    assert "ranks 0-1,4-5 on gpu[01,03] lost the connection to a rank that was gone: RuntimeError" in shown
    assert "rank 2 on gpu02 ended with the job" in shown


def test_a_node_s_address_is_shown_with_its_name_and_the_pair_with_its_port() -> None:
    refused = "RuntimeError: [pair.cc:784] connect [10.0.0.11]:5524: Connection refused\n"
    (first, *_) = diagnose(rank_failed(3), logs={3: refused})["known"]
    assert first["rule"] == "connection-refused"
    assert "gpu02 was refused by gpu01 (10.0.0.11) on port 37909" in first["meaning"]
    assert first["evidence"]["values"] == {"peer": "10.0.0.11", "gloo_port": "5524"}


@pytest.mark.parametrize(("printed", "port"), [("5524", "37909"), ("53657", "39377"), ("33921", "33156")])
def test_gloo_prints_ports_with_their_bytes_swapped(printed: str, port: str) -> None:
    refused = f"connect [10.0.0.11]:{printed}: Connection refused\n"
    assert f"port {port}:" in diagnose(rank_failed(3), logs={3: refused})["summary"]


def test_what_later_ranks_show_as_a_matter_of_course_is_no_reason() -> None:
    later = "connect [10.0.0.12]:5524: Connection refused\nFatalError: `Termination signal` is detected\n"
    assert known(diagnose(rank_failed(3), logs={3: "RuntimeError: loss is NaN\n", 0: later})) == []
    assert known(diagnose(rank_failed(3), logs={3: later})) == ["connection-refused"]


def test_what_is_not_known_is_said_with_the_first_error() -> None:
    log = "step 1\nTraceback (most recent call last):\n  File 'x'\nRuntimeError: loss is NaN\nbye\n"
    document = diagnose(rank_failed(3), logs={3: log})
    assert (document["ok"], document["exit_code"], document["known"]) == (False, 1, [])
    assert document["first_error"] == {
        "rank": 3, "who": "rank 3", "host": "gpu02", "line": "RuntimeError: loss is NaN"
    }  # fmt: skip
    assert (
        "no known failure; the first error of rank 3 on gpu02: RuntimeError: loss is NaN"
        in document["summary"]
    )
    assert "this is no failure that clusterkit knows" in "\n".join(diagnosis_lines(document))


def test_a_rank_without_a_word_of_an_error_leaves_its_last_line() -> None:
    document = diagnose(rank_failed(3, exit_code=7), logs={3: "step 1\nstep 2\n"})
    assert document["first_error"]["line"] == "step 2"


def test_a_log_that_is_gone_leaves_the_lines_of_the_record() -> None:
    record = rank_failed(3, tail="step 9\nOSError: [Errno 28] No space left on device\n")
    unread = ("the log of rank 3: gpu02: the run's directory does not answer",)
    document = diagnose(record, unread=unread)
    assert known(document) == ["disk-full"]
    assert document["root"]["lines"][-1].startswith("OSError")
    assert f"not read: {unread[0]}" in diagnosis_lines(document)


def test_the_cause_nearest_to_the_first_failure_comes_first() -> None:
    logs = {3: "OSError: [Errno 98] Address already in use\n", 4: MISSING}
    assert known(diagnose(rank_failed(3), logs=logs)) == ["address-in-use", "missing-module"]


def test_of_several_lines_the_last_explains_the_end() -> None:
    log = "ConnectionRefusedError: [Errno 111] Connection refused, trying again\nstep 1\nMemoryError\n"
    document = diagnose(rank_failed(3), logs={3: log})
    assert known(document) == ["host-memory", "connection-refused"]


def test_a_symptom_gives_way_to_a_cause_anywhere() -> None:
    logs = {3: "ncclRemoteError: A call failed possibly due to a network error\n"}
    assert known(diagnose(rank_failed(3), logs=logs)) == ["nccl-remote-error"]
    logs[0] = (
        "Out of memory error on GPU 0. Cannot allocate 1.0GB memory on GPU 0, available memory is only 2.0MB."
    )
    assert known(diagnose(rank_failed(3), logs=logs)) == ["cuda-out-of-memory"]


# --- Signals and the kernel log --------------------------------


def test_a_kill_that_nothing_explains() -> None:
    document = diagnose(rank_failed(3, exit_code=None, signal=9), logs={3: "step 1\n"})
    assert known(document) == ["killed"]
    assert document["known"][0]["symptom"]
    assert document["known"][0]["meaning"].startswith("rank 3 on gpu02 was killed with SIGKILL")


def test_a_kill_behind_a_shell_is_one_too() -> None:
    assert known(diagnose(rank_failed(3, exit_code=137), logs={3: "step 1\n"})) == ["killed"]


def test_the_kernel_s_word_explains_a_kill() -> None:
    kernel = {"gpu02": (KernelLine(AT - 1, OUT_OF_MEMORY.replace("4711", "99")),)}
    document = diagnose(rank_failed(3, exit_code=None, signal=9), kernel=kernel)
    assert known(document) == ["out-of-memory-kill"]
    assert (document["known"][0]["evidence"]["where"], document["known"][0]["symptom"]) == ("kernel", False)


def test_another_program_s_kill_is_no_reason_for_an_error_of_ours() -> None:
    kernel = {"gpu02": (KernelLine(AT - 1, OUT_OF_MEMORY.replace("4711", "99")),)}
    assert known(diagnose(rank_failed(3), logs={3: MISSING}, kernel=kernel)) == ["missing-module"]
    alone = diagnose(rank_failed(3), logs={3: "RuntimeError: loss is NaN\n"}, kernel=kernel)
    assert alone["known"][0]["symptom"]


@pytest.mark.parametrize("log", ["RuntimeError: DataLoader 1 workers exit unexpectedly, pids: 99\n"])
def test_a_worker_that_the_kernel_killed(log: str) -> None:
    kernel = {"gpu02": (KernelLine(AT - 1, OUT_OF_MEMORY.replace("4711", "99")),)}
    assert known(diagnose(rank_failed(3), logs={3: log}, kernel=kernel)) == ["out-of-memory-kill"]


@pytest.mark.parametrize(
    ("code", "expected"), [(79, [("xid", False)]), (31, [("xid", True)]), (43, []), (9999, [("xid", True)])]
)
def test_a_gpu_error_in_the_same_minute(code: int, expected: list[tuple[str, bool]]) -> None:
    """By the site's table: one that breaks a host, one of a program, a harmless one, an unknown one."""
    kernel = {
        "gpu03": (KernelLine(AT - 9, f"NVRM: Xid (PCI:0000:3b:00): {code}, pid=1, name=python3, words"),)
    }
    document = diagnose(rank_failed(3), logs={3: "RuntimeError: loss is NaN\n"}, kernel=kernel)
    assert [(each["rule"], each["symptom"]) for each in document["known"]] == expected
    if code == 79:
        assert document["known"][0]["cure"].startswith("reboot the host")


@pytest.mark.parametrize(("grade", "symptom"), [("Fatal", False), ("Non-fatal", True)])
def test_an_error_of_a_switch_between_gpus(grade: str, symptom: bool) -> None:
    line = f"nvidia-nvswitch3: SXid (PCI:0000:c7:00.0): 20034, {grade}, Link 30 LTSSM Fault Up"
    document = diagnose(rank_failed(3), logs={3: "x\n"}, kernel={"gpu02": (KernelLine(AT, line),)})
    (found,) = document["known"]
    assert (found["rule"], found["symptom"]) == ("xid", symptom)
    assert "SXid 20034" in found["meaning"]


def test_who_else_is_on_the_gpu() -> None:
    logs = {3: "OSError: (External) CUDA error(2), out of memory. \n"}
    gpus = {
        "gpu02": (GpuProcess(77, "GPU-1", "bob", "python3 other.py", 30000),),
        "gpu01": (GpuProcess(78, "GPU-2", "bob", "python3 far.py", 30000),),
    }
    document = diagnose(rank_failed(3), logs=logs, gpus=gpus)
    assert [each["pid"] for each in document["gpu_processes"]] == [77]
    assert "  on gpu02 pid 77 of bob computes on a GPU now (30000 MiB): python3 other.py" in diagnosis_lines(
        document
    )
    assert diagnose(rank_failed(3), logs={3: MISSING}, gpus=gpus)["gpu_processes"] == []


# --- Where no rank is to blame --------------------------------


@pytest.mark.parametrize(
    ("cause", "outcome", "rule", "words"),
    [
        (
            {"kind": "join", "alias": "gpu03", "detail": "after 20 s missing: gpu03; joined: gpu01, gpu02"},
            "failed", "waiting-peer", "these did not come: gpu03",
        ),
        (
            {"kind": "world size", "alias": "gpu02", "detail": "world size 1 instead of 6"},
            "failed", "world-size", "gpu02 formed another world than planned: world size 1 instead of 6",
        ),
        (
            {"kind": "lost", "alias": "gpu03", "detail": "nothing heard from it since 21:39:40 UTC"},
            "lost", "node-lost", "gpu03 fell silent",
        ),
        ({"kind": "hang", "alias": "gpu01", "detail": "ranks 0-5 wrote nothing"}, "failed", "hang", "0-5"),
        ({"kind": "supervisor", "alias": "gpu02", "detail": "killed"}, "lost", "supervisor-died", "gpu02"),
        (
            {"kind": "gpu", "alias": "gpu02", "detail": "Xid 79 at PCI 3b:00: GPU has fallen off the bus"},
            "lost", "gpu-unfit", "error 79",
        ),
        ({"kind": "launcher", "alias": "gpu02", "detail": "exit 1"}, "failed", "launcher-failed", "gpu02"),
    ],
)  # fmt: skip
def test_what_ended_the_run_itself(cause: dict[str, Any], outcome: str, rule: str, words: str) -> None:
    document = diagnose(failed({}, {"node_rank": 1, "rank": None, **cause}, outcome))
    assert known(document) == [rule]
    assert words in document["known"][0]["meaning"]
    assert document["root"] is None


def test_a_launcher_s_own_log_is_read_where_no_rank_failed() -> None:
    cause = {
        "kind": "launcher",
        "alias": "gpu02",
        "node_rank": 1,
        "rank": None,
        "detail": "ended with exit code 1",
    }
    launchers = {"gpu02": "/usr/bin/python3: No module named paddle\n"}
    assert known(diagnose(failed({}, cause), launchers=launchers)) == ["missing-module"]
    assert known(diagnose(rank_failed(3), logs={3: "x\n"}, launchers=launchers)) == []


def test_a_server_that_failed_first() -> None:
    record = rank_failed(3)
    server = {
        "server": 0,
        "role": "server",
        "host": "gpu02",
        "node_rank": 1,
        "log": "/l/serverlog.0",
        "bytes": 1,
    }
    status = {
        **record.status,
        "servers": [{**server, "exit_code": 1, "signal": None, "ended_at": None, "pid": 1}],
        "root": {"rank": None, "server": 0, "host": "gpu02", "exit_code": 1, "signal": None, "lines": []},
    }
    nodes = tuple(replace(node, servers=(0,) if node.host == "gpu02" else ()) for node in record.nodes)
    document = diagnose(replace(record, status=status, nodes=nodes), logs={-1: MISSING})
    assert known(document) == ["missing-module"]
    assert "server 0 on gpu02 in its log" in "\n".join(diagnosis_lines(document))


# --- Runs that did not fail --------------------------------


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({"state": "succeeded"}, "succeeded: nothing to explain"),
        (
            {
                "state": "succeeded",
                "attempts": [
                    {"attempt": 0, "state": "failed", "reason": "rank 3 on gpu02 exited with 1"},
                    {"attempt": 1, "state": "succeeded", "reason": ""},
                ],
            },
            "(attempt 0 failed: rank 3 on gpu02 exited with 1)",
        ),
        (
            {"state": "stopped", "cause": "user", "reason": "interrupted by the user"},
            "was ended by a person (interr",
        ),
        ({"state": "running"}, "is running, and nothing has failed so far"),
        (
            {"state": "running", "hang": {"ranks": "0-5", "since": "2026-11-30T21:30:00+00:00"}},
            "hangs: ranks 0-5 have",
        ),
        (
            {"state": "starting", "ranks": [{"rank": 4, "host": "gpu03", "joined": False}]},
            "it waits for rank 4 on gpu03 to start",
        ),
    ],
)
def test_a_run_that_did_not_fail(status: dict[str, Any], words: str) -> None:
    document = diagnose(replace(rank_failed(3), status=status))
    assert (document["exit_code"], document["known"]) == (0, [])
    assert words in document["summary"]
    assert diagnosis_lines(document)[0] == document["summary"]


def test_a_running_run_of_which_a_host_does_not_answer() -> None:
    nodes = [{"host": "gpu03", "error": "timed out"}, {"host": "gpu01", "error": ""}]
    document = diagnose(replace(rank_failed(3), status={"state": "running", "nodes": nodes}))
    assert (document["exit_code"], document["away"]) == (4, {"gpu03": "timed out"})
    assert diagnosis_lines(document)[-1] == "not asked: gpu03: timed out"


def test_a_host_that_does_not_answer_is_named_and_the_rest_is_explained() -> None:
    document = diagnose(rank_failed(3), logs={3: MISSING}, away={"gpu03": "gpu03 (10.0.0.13): timed out"})
    assert (document["ok"], document["exit_code"]) == (False, 4)
    assert known(document) == ["missing-module"]
    assert "not asked: gpu03 (10.0.0.13): timed out" in diagnosis_lines(document)


def test_when_it_happened() -> None:
    assert failed_at(rank_failed(3).status) == AT
    lost = failed({}, {"kind": "lost", "alias": "gpu03", "node_rank": 2, "rank": None}, "lost")
    assert failed_at(lost.status) == AT + 1
    assert failed_at({"state": "failed"}) is None


def test_a_rank_that_failed_for_a_reason_of_its_own() -> None:
    ends = {3: ended(exit_code=1), 4: ended(exit_code=3, ended_at=AT + 2)}
    cause = {"kind": "rank", "rank": 3, "alias": "gpu02", "node_rank": 1, "exit_code": 1, "signal": None}
    document = diagnose(failed(ends, cause), logs={3: MISSING, 4: "ValueError: bad\n"})
    (other,) = document["failed_too"]
    assert (other["rank"], other["exit_code"], other["after_s"]) == (4, 3, 2.0)


def test_what_a_launch_says() -> None:
    document = diagnose(rank_failed(3), logs={3: MISSING})
    first, second = short_lines(document["known"][0], RUN_ID)
    assert first == "diagnosis (missing-module): the Python of gpu02 has no module requests."
    assert second.startswith("  → install it")
    assert f"clusterkit diagnose {RUN_ID}" in short_lines(None, RUN_ID)[0]
