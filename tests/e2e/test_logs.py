"""Any rank's log by its global number: while the job runs, after it, and after its host has died."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster, Running
from tests.e2e.terminal import COLUMNS, on_terminal

pytestmark = [pytest.mark.hosts, pytest.mark.paddle, pytest.mark.timeout(240)]

# Ranks 0-2 are on node01, 3 is on node02, 4 and 5 are on node03.
WORLD = 6


def started(cluster: Cluster, *options: str) -> Running:
    """A drill that goes on, once every rank has written some lines."""
    running = cluster.start("launch", *options, "INVENTORY", "drill.py", "300")
    for rank in range(WORLD):
        running.until(f"rank {rank} line 15\n", 90)
    return running


def counted(text: str, rank: int) -> list[int]:
    """The numbers of a rank's counted lines in what was shown."""
    return [int(number) for number in re.findall(rf"rank {rank} line (\d+)\n", text)]


def test_logs_while_the_job_runs_and_after_it(unequal: Cluster, tmp_path: Path) -> None:
    running = started(unequal)
    one = unequal.run("logs", "--rank", "3")
    assert one.out.startswith("rank 3 of 6\n")
    assert counted(one.out, 3) == list(range(len(counted(one.out, 3))))
    assert len(counted(one.out, 3)) > 10
    some = unequal.run("logs", "--rank", "0,3-4", "--tail", "2")
    for rank, host in ((0, "node01"), (3, "node02"), (4, "node03")):
        first, second = re.findall(rf"^\[{rank} {host}\] rank {rank} line (\d+)$", some.out, re.M)
        assert int(second) == int(first) + 1
    assert some.out.count("\n") == 6
    node = unequal.run("logs", "--node", "node03", "--rank", "all", "--tail", "1")
    assert sorted(re.findall(r"^\[(\d \w+)\]", node.out, re.M)) == ["4 node03", "5 node03"]
    follower = unequal.start("logs", "--follow", "--rank", "3")
    everything = unequal.start("logs", "--follow", "--tail", "all", "--rank", "5")
    begun = counted(follower.until(r"rank 3 line \d+\n"), 3)[0]
    follower.until(rf"rank 3 line {begun + 30}\n")
    seen = counted(follower.out, 3)
    assert seen == list(range(seen[0], seen[-1] + 1)), "no line is left out or doubled"
    everything.until(r"\Arank 5 of 6\n(?s:.*)rank 5 line 30\n", 60)
    follower.send(signal.SIGINT)
    left = follower.wait()
    assert left.code == 130
    assert "which goes on by itself" in left.last_line
    assert unequal.run("logs", "--output", str(tmp_path / "early")).code == 0
    assert len(list((tmp_path / "early").iterdir())) == WORLD
    assert unequal.run("stop", "--grace", "2").code == 0
    assert running.wait().code == 143
    assert everything.wait().code == 0, "following ends with the run"

    again = unequal.run("logs", "--follow", "--rank", "3", "--rank", "3")
    assert again.code == 0
    assert len(again.out.splitlines()) == 10
    assert unequal.run("logs", "--output", str(tmp_path / "logs")).code == 0
    for rank, host in enumerate(("node01",) * 3 + ("node02",) + ("node03",) * 2):
        log = unequal.status()["ranks"][rank]["log"]
        gathered = (tmp_path / "logs" / f"rank-{rank:04d}.log").read_bytes()
        assert gathered == unequal.sandbox.read(host, log)
        assert gathered.startswith((tmp_path / "early" / f"rank-{rank:04d}.log").read_bytes())


def test_when_each_line_was_written(unequal: Cluster) -> None:
    begun = time.time()
    running = unequal.start("launch", "INVENTORY", "drill.py", "25")
    running.until("rank 5 line 60\n", 120)
    late = unequal.start("logs", "--follow", "--since", "2s", "--rank", "3", "--timestamps")
    assert running.wait().code == 0
    assert late.wait().code == 0
    first = re.match(r"(\S+)Z rank 3 line (\d+)\n", late.out)
    assert first, late.out[:200]
    assert int(first[2]) > 20, "it began with what was two seconds old"
    ended = time.time()
    shown = unequal.run("logs", "--timestamps", "--rank", "0,5").out
    found = re.findall(r"^\[([05]) \w+\] (\S+)Z rank \d line (\d+)$", shown, re.M)
    assert len(found) > 200
    for rank in ("0", "5"):
        at = [datetime.fromisoformat(f"{each[1]}+00:00").timestamp() for each in found if each[0] == rank]
        assert at == sorted(at)
        assert begun < at[0] < at[-1] < ended
        # Ten lines a second for 25 s.
        assert at[-1] - at[0] > 15
        assert len(set(at)) > 10


def test_equal_lines_of_all_ranks_are_folded_while_they_come(unequal: Cluster) -> None:
    running = unequal.start("launch", "INVENTORY", "drill.py", "25", "--steps", "1000")
    running.until("all 3 nodes joined", 90)
    follower = unequal.start("logs", "--follow", "--fold", "--grep", "loss")
    follower.until(r"\n\[0-5 node\[01-03\]\] epoch 1 step \d+/1000 loss 0\.5\n", 60)
    assert running.wait().code == 0
    assert follower.wait().code == 0
    assert "line" not in follower.out
    whole = unequal.run("logs", "--fold", "--grep", "loss").out
    assert whole.count("[0-5 node[01-03]] epoch 1 step ") > 50


def test_the_newest_run_unless_another_is_named(unequal: Cluster) -> None:
    first = unequal.launch("odd_bytes.py", "0")
    second = unequal.launch("drill.py", "0.1")
    assert first.code == second.code == 0, first.err + second.err
    (older,) = re.findall(r"run (\S+) succeeded", first.err)
    assert "rank 1 done after" in unequal.run("logs", "--rank", "1").out
    assert "no newline at the end" in unequal.run("logs", "--rank", "1", "--run", older).out
    silent = unequal.run("logs", "--rank", "0", "--run", older)
    assert (silent.code, silent.out) == (1, "")
    assert silent.err == "rank 0 on node01 wrote nothing\n"
    several = unequal.run("logs", "--rank", "0-1", "--tail", "1", "--run", older)
    assert several.code == 0
    assert several.out.startswith("[1 node01] no newline at the end")

    (unequal.state / "clusterkit" / "runs" / older / "logs" / "rank-0003.log").unlink()
    (log,) = [rank["log"] for rank in unequal.status()["ranks"] if rank["rank"] == 3]
    newest = unequal.status()["run_id"]
    unequal.sandbox.sh("node02", ["rm", log.replace(newest, older)])
    gone = unequal.run("logs", "--rank", "3", "--run", older)
    assert (gone.code, gone.out) == (1, "")
    assert f"rank 3 on node02: its log {log.replace(newest, older)} has gone" in gone.err

    objects = unequal.run("logs", "--json", "--rank", "0-1", "--tail", "2", "--run", older)
    events = [json.loads(line) for line in objects.out.splitlines()]
    assert [(event["event"], event.get("rank"), event.get("line")) for event in events] == [
        ("notice", None, None),
        ("line", 1, "rank 1 line 19"),
        ("line", 1, "no newline at the end \ufffd"),
    ]

    unknown = unequal.run("logs", "--rank", "6")
    assert unknown.code == 2
    assert "there is no rank 6: the run has 6 ranks, 0 to 5" in unknown.err
    nowhere = unequal.run("logs", "--node", "node04")
    assert nowhere.code == 2
    assert "has no node `node04`" in nowhere.err


def test_what_was_gathered_of_a_host_that_died(unequal: Cluster, tmp_path: Path) -> None:
    running = started(unequal, "--node-timeout", "5")
    unequal.sandbox.kill("node02")
    tail = unequal.run("logs", "--rank", "3", "--tail", "2")
    assert tail.code == 4
    assert len(counted(tail.out, 3)) == 2
    assert "rank 3 on node02: this is what was gathered before" in tail.err
    assert "the host does not answer" in tail.err
    follower = unequal.start("logs", "--follow", "--rank", "2-3", "--tail", "3")
    follower.until(r"\[3 node02\] rank 3 line \d+\n", 60)
    assert running.wait().code == 4
    assert follower.wait().code == 4
    assert "rank 3 on node02: this is what was gathered before" in follower.err

    after = unequal.run("logs", "--rank", "3")
    assert after.code == 4
    numbers = counted(after.out, 3)
    assert numbers == list(range(len(numbers)))
    assert "rank 3 on node02: this is what was gathered before" in after.err
    exported = unequal.run("logs", "--output", str(tmp_path / "logs"))
    assert exported.code == 4
    assert (tmp_path / "logs" / "rank-0003.log").read_text() == after.out
    assert len(exported.out.splitlines()) == WORLD
    run_id = unequal.status()["run_id"]
    (unequal.state / "clusterkit" / "runs" / run_id / "logs" / "rank-0003.log").unlink()
    nothing = unequal.run("logs", "--rank", "3")
    assert (nothing.code, nothing.out) == (4, "")
    assert "rank 3 on node02: nothing was gathered and the host does not answer now (" in nothing.err


def measured(cluster: Cluster, *arguments: str, out: int) -> tuple[int, float, float]:
    """Run a command; its exit code, its peak of memory in MB and the seconds that it took."""
    words = [str(cluster.sandbox.inventory) if word == "INVENTORY" else word for word in arguments]
    begun = time.monotonic()
    with open(cluster.folder.parent / "err", "ab") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "clusterkit", *words],
            cwd=cluster.folder,
            env=cluster.env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
        )
        peak = 0
        # Not ru_maxrss: that of a child begins with what its parent had before exec.
        while process.poll() is None:
            with contextlib.suppress(OSError):
                found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
                peak = max(peak, int(found[1]) if found else 0)
            time.sleep(0.05)
    return process.returncode, peak / 1024, time.monotonic() - begun


def test_a_log_of_200_megabytes_whose_reader_leaves(unequal: Cluster, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    with open(reading, "rb") as pipe:
        first = subprocess.Popen(["head", "-1"], stdin=pipe, stdout=subprocess.PIPE)
    code, memory, _ = measured(unequal, "launch", "INVENTORY", "flood.py", "3", "200", out=writing)
    os.close(writing)
    said = (tmp_path / "err").read_text()
    assert code == 0, said
    assert first.communicate(timeout=10)[0].endswith(b"begins\n")
    assert "nobody reads the output any more; the job goes on" in said
    assert "Traceback" not in said
    assert memory < 200, "it does not grow with the log"
    code, memory, seconds = measured(unequal, "logs", "--rank", "3", "--tail", "5", out=subprocess.DEVNULL)
    assert code == 0
    assert memory < 100
    assert seconds < 8, "the end is read, not the whole"
    code, memory, _ = measured(
        unequal, "logs", "--rank", "3", "--output", str(tmp_path / "logs"), out=subprocess.DEVNULL
    )
    assert code == 0
    assert memory < 200
    ours = hashlib.sha256((tmp_path / "logs" / "rank-0003.log").read_bytes()).hexdigest()
    there = unequal.sandbox.sh("node02", ["sha256sum", unequal.status()["ranks"][3]["log"]]).stdout
    assert there.split()[0] == ours
    assert (tmp_path / "logs" / "rank-0003.log").stat().st_size > 199_000_000


def piped(cluster: Cluster, command: str) -> subprocess.CompletedProcess[bytes]:
    """A shell line in which `clusterkit` is ours; its status is the first command's."""
    line = f"set -o pipefail; clusterkit() {{ '{sys.executable}' -m clusterkit \"$@\"; }}; {command}"
    return subprocess.run(
        ["bash", "-c", line],
        cwd=cluster.folder,
        env=cluster.env,
        capture_output=True,
        timeout=60,
        check=False,
    )


def test_a_launch_and_its_logs_on_a_terminal(unequal: Cluster) -> None:
    screen = on_terminal(unequal, "launch", "INVENTORY", "odd_bytes.py", "3")
    assert screen.code == 0, screen.text
    assert any(
        re.match(r"(reading the hosts|staging|starting|joining).* \(\d+ s\)$", text) for text in screen.wiped
    )
    assert max(len(text) for text in screen.wiped) < COLUMNS
    for rank, host in ((0, "node01"), (2, "node01"), (5, "node03")):
        assert f"[{rank} {host}] rank {rank} of 6" in screen.lines
        assert f"\x1b[{(36, 32, 33, 35, 34, 31)[rank]}m[{rank} {host}]\x1b[0m " in screen.text
        assert f"[{rank} {host}] caf\ufffd \ufffd\ufffd\x00 10%\r20%\r" in screen.lines
    assert re.fullmatch(r"run \S+ succeeded", screen.lines[-2])

    plain = piped(unequal, "clusterkit logs --rank 4 | head -1")
    assert (plain.returncode, plain.stdout, plain.stderr) == (0, b"rank 4 of 6\n", b"")
    assert piped(unequal, "clusterkit logs | head -1").returncode == 0
    raw = piped(unequal, "clusterkit logs --rank 4").stdout
    assert raw == unequal.sandbox.read("node03", unequal.status()["ranks"][4]["log"])
    assert b"caf\xe9 \xff\xfe\x00 10%\r20%\r\n" in raw
    prefixed = piped(unequal, "clusterkit logs --rank 4-5 --tail 2").stdout
    assert b"[4 node03] rank 4 line 19\n[4 node03] no newline at the end \xf0\x9f\n[5 node03]" in prefixed

    shown = on_terminal(unequal, "logs", "--rank", "4")
    assert "caf\ufffd \ufffd\ufffd\x00 10%\r20%\r" in shown.lines
    assert "語" * 200_000 in shown.lines, "no character is cut"
    assert shown.text.endswith("no newline at the end \ufffd")
    assert "\x1b" not in shown.text
    coloured = on_terminal(unequal, "logs", "--rank", "4-5", "--tail", "1")
    assert "\x1b[34m[4 node03]\x1b[0m no newline at the end \ufffd\n" in coloured.text
    sober = on_terminal(unequal, "logs", "--rank", "4-5", "--tail", "1", env={"NO_COLOR": "1"})
    assert "[4 node03] no newline at the end \ufffd\n" in sober.text
    assert "\x1b[34m" not in sober.text
    narrow = on_terminal(unequal, "logs", "--rank", "4", env={"LC_ALL": "C", "PYTHONIOENCODING": "ascii"})
    assert narrow.code == 0, "a terminal that lacks a character gets another one"
