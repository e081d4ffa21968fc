"""Following logs, as bytes and through `attach`."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from clusterkit.node import control, follow
from clusterkit.node.follow import Log, start_of_last_lines
from clusterkit.node.plan import open_run

from .loopback import Cluster, cluster, wait_for


def rest(log: Log) -> bytes:
    """Everything that is there now."""
    data = b""
    while (piece := log.read()) is not None:
        data += piece.data
    return data


@pytest.mark.parametrize(
    ("text", "lines", "expected"),
    [
        (b"", 10, b""),
        (b"one\n", 10, b"one\n"),
        (b"one\ntwo\nthree\n", 2, b"two\nthree\n"),
        (b"one\ntwo\nthree", 2, b"two\nthree"),
        (b"one\ntwo\n\n", 1, b"\n"),
        (b"\n\n\n", 2, b"\n\n"),
        (b"one\ntwo\n", 0, b""),
        (b"no newline at all", 1, b"no newline at all"),
    ],
)
def test_the_last_lines(tmp_path: Path, text: bytes, lines: int, expected: bytes) -> None:
    (tmp_path / "log").write_bytes(text)
    assert rest(Log(lambda: str(tmp_path / "log"), {"tail": lines})) == expected


def test_the_last_lines_of_any_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the simple way, with blocks so small that lines lie across them."""
    monkeypatch.setattr(follow, "_BLOCK", 7)
    rng = random.Random(3)
    for _ in range(300):
        text = bytes(rng.choice(b"ab\n\xff") for _ in range(rng.randint(0, 60)))
        (tmp_path / "log").write_bytes(text)
        count = rng.randint(1, 12)
        with open(tmp_path / "log", "rb") as file:
            begin = start_of_last_lines(file, len(text), count)
        assert text[begin:] == b"".join(text.splitlines(keepends=True)[-count:] if text else [])


def test_a_log_that_grows_is_read_from_where_it_was_left(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = Log(lambda: str(path), {"offset": 0})
    assert log.read() is None
    path.write_bytes(b"abc")
    assert log.read() == (0, b"abc", False, [])
    assert log.read() is None
    with open(path, "ab") as file:
        file.write(b"\xff\x00d")
    assert log.read() == (3, b"\xff\x00d", False, [])
    assert rest(Log(lambda: str(path), {"offset": 4})) == b"\x00d"


def test_a_log_that_does_not_exist_yet_is_new_from_its_first_byte(tmp_path: Path) -> None:
    log = Log(lambda: str(tmp_path / "log"), {"tail": 1})
    assert log.read() is None
    (tmp_path / "log").write_bytes(b"one\ntwo\n")
    assert rest(log) == b"one\ntwo\n"


def test_a_truncated_log_is_read_again_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a long first text\n")
    log = Log(lambda: str(path), {"offset": 0})
    rest(log)
    path.write_bytes(b"new\n")
    assert log.read() == (0, b"new\n", True, [])
    assert log.read() is None
    path.write_bytes(b"")
    assert log.read() == (0, b"", True, [])
    assert log.read() is None


def test_a_piece_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"x" * 600_000)
    log = Log(lambda: str(tmp_path / "log"), {"offset": 0})
    sizes = []
    while (piece := log.read()) is not None:
        sizes.append(len(piece.data))
    assert sum(sizes) == 600_000
    assert max(sizes) == 256 * 1024


BINARY = "#!/bin/sh\nprintf 'a\\377\\000b\\n'; sleep 0.4; printf '\\303'; sleep 0.3; printf '\\244\\n'\n"


def test_any_bytes_arrive_as_they_are(tmp_path: Path) -> None:
    with cluster(tmp_path, BINARY, ranks_per_node=(2,)) as run:
        node = run.go()[0]
        node.wait_end(10)
        assert node.logs == {"0": b"a\xff\x00b\n\xc3\xa4\n", "1": b"a\xff\x00b\n\xc3\xa4\n"}


def test_a_run_that_has_ended_is_read_from_its_files(tmp_path: Path) -> None:
    with cluster(tmp_path, "#!/bin/sh\nfor i in 1 2 3; do echo $i; done\n", ranks_per_node=(2,)) as run:
        run.go()[0].wait_end(10)
        for wait in (True, False):
            late = run.attach(0, wait=wait, follow={"1": {"tail": 2}, "launcher": {"offset": 0}})
            state = late.wait_end(5)
            assert state["state"] == "ended"
            assert late.logs["1"] == b"2\n3\n"
            assert b"LAUNCH INFO fake launcher of node 0" in late.logs["launcher"]


def test_a_look_without_waiting_ends_while_the_run_goes_on(tmp_path: Path) -> None:
    with cluster(tmp_path, "#!/bin/sh\necho here; sleep 30\n", ranks_per_node=(1,)) as run:
        run.go()
        wait_for(lambda: run.log(0).exists() and run.log(0).stat().st_size, 5, "a first line")
        look = run.attach(0, wait=False, follow={"0": {"offset": 0}})
        assert look.wait_end(5)["state"] == "running"
        assert look.logs == {"0": b"here\n"}


def test_states_come_at_every_change_and_every_five_seconds(tmp_path: Path) -> None:
    with cluster(tmp_path, "#!/bin/sh\nsleep 30\n", ranks_per_node=(1,)) as run:
        node = run.go()[0]
        wait_for(lambda: node.state["state"] == "running", 5, "running")
        seen = len(node.states)
        wait_for(lambda: len(node.states) > seen, 7, "a state without a change")
        states = [state["state"] for state in node.states]
        # `prepared` may pass within one look of a single node.
        assert [state for i, state in enumerate(states) if state not in states[:i]][-2:] == [
            "starting",
            "running",
        ]


def test_a_rank_of_another_node_is_an_error(tmp_path: Path) -> None:
    with cluster(tmp_path, "#!/bin/sh\nsleep 30\n", ranks_per_node=(1, 1)) as run:
        run.go()
        look = run.attach(0, wait=False, follow={"1": {"offset": 0}})
        look.wait_end(5)
        assert look.errors == ["there is no log '1' on gpu00: it has the ranks [0]"]


@pytest.mark.parametrize("line", [b"{nonsense\n", b"[]\n", b"\xff\n"])
def test_a_request_that_makes_no_sense_is_answered(tmp_path: Path, line: bytes) -> None:
    with cluster(tmp_path, "#!/bin/sh\n", ranks_per_node=(1,)) as run:
        made = subprocess.run(
            run.agent(0, "attach"), input=line, stdout=subprocess.PIPE, check=False, timeout=20
        )
        frame = json.loads(made.stdout.splitlines()[0])
        assert frame["frame"] == "error"
        assert "cannot be understood" in frame["message"]
        assert made.returncode == 1


def test_a_run_that_was_never_started_says_so(tmp_path: Path) -> None:
    with cluster(tmp_path, "#!/bin/sh\n", ranks_per_node=(1,)) as run:
        look = run.attach(0, wait=True)
        wait_for(lambda: look.ended, 5, "the end")
        assert look.errors == [f"{run.run_id} has never been started on gpu00"]


def test_a_supervisor_that_has_not_spoken_yet_is_waited_for(tmp_path: Path) -> None:
    with cluster(tmp_path, "#!/bin/sh\n", ranks_per_node=(1,)) as run:
        plan = open_run(str(run.run_dir(0)))[1]
        with socket.socket(socket.AF_UNIX) as supervisor:
            supervisor.bind(control.address(plan))
            supervisor.listen()
            look = run.attach(0, wait=True)
            connection, _ = supervisor.accept()
            with connection:
                assert connection.recv(100) == b'{"ask": "watch"}\n'
                time.sleep(0.5)
                assert look.errors == []
                connection.sendall(b'{"state": {"state": "gate"}}\n')
                wait_for(lambda: look.states, 5, "the first state")
        assert look.errors == []


def test_a_directory_without_a_plan_is_an_error_frame(tmp_path: Path) -> None:
    with cluster(tmp_path, "#!/bin/sh\n", ranks_per_node=(1,)) as run:
        (run.run_dir(0) / "plan.json").unlink()
        look = run.attach(0, wait=True)
        wait_for(lambda: look.ended, 5, "the end")
        assert look.errors == [f"{run.run_dir(0)}/plan.json: No such file or directory"]


def attach_slowly(run: Cluster) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(run.agent(0, "attach"), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b'{"follow": {"0": {"offset": 0}}, "wait": true}\n')
    process.stdin.flush()
    return process


def finish(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    assert process.stdout is not None
    process.wait(5)
    process.stdout.close()


def test_a_controller_that_takes_nothing_costs_no_memory_and_is_still_heard(tmp_path: Path) -> None:
    with cluster(tmp_path, "#!/bin/sh\nexec sleep 60\n", ranks_per_node=(1,)) as run:
        node = run.go()[0]
        with open(run.log(0), "ab") as log:
            log.truncate(200_000_000)
        process = attach_slowly(run)
        try:
            time.sleep(1.5)
            status = Path(f"/proc/{process.pid}/status").read_text()
            resident = int(status.partition("VmRSS:")[2].split()[0])
            assert resident < 60_000, f"{resident} kB"
            # Commands pass though nothing is taken; a closed stdin ends it.
            assert process.stdin is not None
            process.stdin.write(b'{"command": "stop", "grace": 0}\n')
            process.stdin.flush()
            assert node.process.poll() is None
            wait_for(lambda: run.state(0)["state"] == "ended", 10, "the stop was heard")
        finally:
            finish(process)


def test_attach_ends_when_its_controller_closes(tmp_path: Path) -> None:
    with cluster(tmp_path, "#!/bin/sh\nexec sleep 60\n", ranks_per_node=(1,)) as run:
        run.go()
        process = attach_slowly(run)
        time.sleep(0.3)
        finish(process)
        assert process.returncode == 0
        assert run.state(0)["state"] == "running"


def test_attach_carries_no_mark_and_outlives_the_jobs_end(tmp_path: Path) -> None:
    with cluster(tmp_path, "#!/bin/sh\nsleep 1\n", ranks_per_node=(1,)) as run:
        node = run.go()[0]
        environ = Path(f"/proc/{node.process.pid}/environ").read_bytes()
        assert b"CLUSTERKIT_RUN_ID" not in environ
        assert node.process.pid not in run.left()
        node.wait_end(10)


def test_following_a_hundred_megabytes_stays_small(tmp_path: Path) -> None:
    code = (
        "import sys, runpy\n"
        "sys.argv = sys.argv[1:]\n"
        "try:\n    runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "finally:\n    sys.stderr.write(open('/proc/self/status').read())\n"
    )
    with cluster(tmp_path, "#!/bin/sh\n", ranks_per_node=(1,)) as run:
        run.log(0).write_bytes(os.urandom(1 << 20) * 100)
        (run.run_dir(0) / "state.json").write_text(json.dumps(_ended()))
        command = [sys.executable, "-c", code, *run.agent(0, "attach")[2:]]
        request = b'{"follow": {"0": {"offset": 0}}, "wait": false}\n'
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdin.write(request)
            process.stdin.flush()
            received = 0
            while data := process.stdout.read(1 << 20):
                received += len(data)
            assert received > 100 << 20
            peak = int(process.stderr.read().partition(b"VmHWM:")[2].split()[0])
            assert peak < 60_000, f"{peak} kB"


def _ended() -> dict[str, Any]:
    return {"state": "ended", "ranks": [], "decision": {"phase": "done"}}
