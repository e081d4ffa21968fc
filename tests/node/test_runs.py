"""Whole runs of several nodes on loopback: what the supervisors do when all goes well, and when not."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from .loopback import Cluster, cluster, started, wait_for

SLEEP = "#!/bin/sh\necho rank $PADDLE_TRAINER_ID of $PADDLE_TRAINERS_NUM\nexec sleep 60\n"
FAILS = "#!/bin/sh\nif [ $PADDLE_TRAINER_ID = {rank} ]; then sleep 0.3; {how}; fi\nexec sleep 60\n"


def fails(rank: int, how: str) -> str:
    return FAILS.format(rank=rank, how=how)


def supervisor(node: Cluster, number: int) -> int:
    pid = node.state(number)["pid"]
    assert isinstance(pid, int)
    return pid


def test_all_ranks_succeed(tmp_path: Path) -> None:
    script = "#!/bin/sh\necho rank $PADDLE_TRAINER_ID of $PADDLE_TRAINERS_NUM, token $TOKEN\n"
    with cluster(tmp_path, script, ranks_per_node=(3, 1, 2)) as run:
        nodes = run.go()
        states = [node.wait_end(15) for node in nodes]
        for state in states:
            assert state["decision"]["outcome"] == "succeeded"
            assert state["state"] == "ended"
            assert state["launcher_exit"] == 0
            assert [rank["exit_code"] for rank in state["ranks"]] == [0] * len(state["ranks"])
            assert state["failure"] is None
        logs = {rank: log for node in nodes for rank, log in node.logs.items()}
        assert logs == {str(rank): b"rank %d of 6, token a secret\n" % rank for rank in range(6)}
        assert run.left() == {}
        assert not (run.run_dir(0) / "secrets.json").exists()
        starts = [state["started_at"] - state["clock_offset_s"] for state in states]
        assert max(starts) - min(starts) < 0.05
        # What a later controller reads is the same, without any supervisor.
        assert run.state(1)["decision"] == states[0]["decision"]


def test_a_rank_that_exits_7_ends_the_run_and_is_named(tmp_path: Path) -> None:
    with cluster(tmp_path, fails(3, "echo last words; exit 7")) as run:
        nodes = run.go()
        states = [node.wait_end(15) for node in nodes]
        for state in states:
            cause = state["decision"]["cause"]
            assert (state["decision"]["outcome"], cause["kind"]) == ("failed", "rank")
            assert (cause["rank"], cause["alias"], cause["exit_code"]) == (3, "gpu01", 7)
            assert "last words" in cause["detail"]
        rank = states[1]["ranks"][1]
        assert rank["tail"] == "last words\n"
        # The others were stopped at once, not after the grace.
        assert all(other["ended_at"] - rank["ended_at"] < 2 for state in states for other in state["ranks"])
        assert run.left() == {}


def test_a_rank_that_is_killed_is_named_with_its_signal(tmp_path: Path) -> None:
    with cluster(tmp_path, fails(0, "kill -SEGV $$")) as run:
        states = [node.wait_end(15) for node in run.go()]
        cause = states[1]["decision"]["cause"]
        assert (cause["kind"], cause["rank"], cause["signal"]) == ("rank", 0, signal.SIGSEGV)


def test_a_killed_rank_entry_counts_as_a_killed_rank(tmp_path: Path) -> None:
    with cluster(tmp_path, SLEEP) as run:
        nodes = run.go()
        script = nodes[1].state["ranks"][0]["pid"]
        entry = int(Path(f"/proc/{script}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(entry, signal.SIGKILL)
        cause = nodes[0].wait_end(15)["decision"]["cause"]
        assert (cause["kind"], cause["rank"], cause["signal"]) == ("rank", 2, signal.SIGKILL)
        assert run.left() == {}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT])
def test_a_killed_launcher_is_the_cause_not_its_ranks(tmp_path: Path, number: int) -> None:
    with cluster(tmp_path, SLEEP) as run:
        nodes = run.go()
        os.kill(launcher_of(run, 1), number)
        states = [node.wait_end(15) for node in nodes]
        cause = states[0]["decision"]["cause"]
        assert (cause["kind"], cause["alias"], cause["signal"]) == ("launcher", "gpu01", number)
        assert run.left() == {}


def launcher_of(run: Cluster, node: int) -> int:
    found = [pid for pid, command in run.left(node).items() if "fake_launcher.py" in command]
    assert len(found) == 1, run.left(node)
    return found[0]


def test_a_launcher_that_fails_before_any_rank_is_quoted(tmp_path: Path) -> None:
    with cluster(tmp_path, SLEEP, launcher={1: {"exit": 2}}) as run:
        nodes = run.start_all()
        nodes[0].say({"command": "go"})
        cause = nodes[0].wait_end(15)["decision"]["cause"]
        assert (cause["kind"], cause["alias"], cause["exit_code"]) == ("launcher", "gpu01", 2)
        assert "ranks 2, 3 never started" in cause["detail"]
        assert cause["detail"].endswith("launcher says why")


def test_a_launcher_that_ends_well_without_its_ranks_is_a_failure(tmp_path: Path) -> None:
    with cluster(tmp_path, "#!/bin/sh\nsleep 1\n", launcher={1: {"ranks": [2]}}) as run:
        nodes = run.start_all()
        nodes[0].say({"command": "go"})
        decision = nodes[0].wait_end(15)["decision"]
        assert (decision["outcome"], decision["cause"]["kind"]) == ("failed", "launcher")
        assert "rank 3 never started" in decision["cause"]["detail"]


def test_a_wrong_world_is_refused_before_the_script_runs(tmp_path: Path) -> None:
    with cluster(tmp_path, "#!/bin/sh\necho I ran\nsleep 20\n", launcher={1: {"world_size": 2}}) as run:
        nodes = run.start_all()
        nodes[0].say({"command": "go"})
        states = [node.wait_end(15) for node in nodes]
        cause = states[0]["decision"]["cause"]
        assert (cause["kind"], cause["alias"]) == ("world size", "gpu01")
        assert cause["detail"] == "the launcher formed a world of 2 ranks, planned are 4"
        # The launcher may end the slower one of the two before it has said why.
        said = b"".join(nodes[1].logs.get(str(rank), b"") for rank in run.ranks[1])
        assert b"I ran" not in said
        assert b"planned are 4" in said


def test_a_missing_script_is_said_in_the_ranks_log(tmp_path: Path) -> None:
    with cluster(tmp_path, SLEEP) as run:
        (run.workdir / "train.sh").unlink()
        nodes = run.start_all()
        nodes[0].say({"command": "go"})
        cause = nodes[0].wait_end(15)["decision"]["cause"]
        assert (cause["kind"], cause["exit_code"]) == ("rank", 127)
        assert "train.sh cannot be started" in cause["detail"]
        assert "No such file" in cause["detail"]


def test_a_killed_supervisor_makes_its_node_lost(tmp_path: Path) -> None:
    with cluster(tmp_path, SLEEP, timeouts={"node": 2}) as run:
        nodes = run.go()
        os.kill(supervisor(run, 1), signal.SIGKILL)
        at = time.monotonic()
        state = nodes[0].wait_end(15)
        assert time.monotonic() - at < 2 + 5
        decision = state["decision"]
        assert (decision["outcome"], decision["cause"]["kind"]) == ("lost", "lost")
        assert decision["cause"]["alias"] == "gpu01"
        # The launcher goes with its supervisor, and takes its ranks along.
        wait_for(lambda: run.left() == {}, 10, "nothing left")
        assert nodes[1].wait_end(5)["supervisor"] == "dead"
        assert run.state(1)["supervisor"] == "dead"
        assert run.stop(1) == {"stopped": True, "was": "dead", "killed": [], "left": []}
        assert run.state(1)["state"] == "ended"


def test_the_others_stop_when_node_0_is_gone(tmp_path: Path) -> None:
    with cluster(tmp_path, SLEEP, ranks_per_node=(1, 1, 1), timeouts={"node": 2}) as run:
        nodes = run.go()
        os.kill(supervisor(run, 0), signal.SIGKILL)
        for node in nodes[1:]:
            decision = node.wait_end(15)["decision"]
            assert (decision["outcome"], decision["cause"]["kind"]) == ("lost", "lost")
            assert (decision["cause"]["node_rank"], decision["cause"]["alias"]) == (0, "gpu00")
        wait_for(lambda: run.left() == {}, 10, "nothing left")


def test_a_stopped_supervisor_is_a_lost_node_and_ends_its_ranks_when_it_goes_on(tmp_path: Path) -> None:
    with cluster(tmp_path, SLEEP, timeouts={"node": 2}) as run:
        nodes = run.go()
        pid = supervisor(run, 1)
        os.kill(pid, signal.SIGSTOP)
        decision = nodes[0].wait_end(15)["decision"]
        assert (decision["outcome"], decision["cause"]["alias"]) == ("lost", "gpu01")
        assert run.left(0) == {}
        os.kill(pid, signal.SIGCONT)
        wait_for(lambda: run.left() == {}, 10, "nothing left")


def test_a_stopped_node_0_takes_the_blame_itself(tmp_path: Path) -> None:
    with cluster(tmp_path, SLEEP, timeouts={"node": 2}) as run:
        nodes = run.go()
        pid = supervisor(run, 0)
        os.kill(pid, signal.SIGSTOP)
        assert nodes[1].wait_end(15)["decision"]["cause"]["alias"] == "gpu00"
        os.kill(pid, signal.SIGCONT)
        decision = nodes[0].wait_end(15)["decision"]
        assert (decision["outcome"], decision["cause"]["node_rank"]) == ("lost", 0)
        assert run.left() == {}


def test_a_short_pause_of_a_supervisor_does_no_harm(tmp_path: Path) -> None:
    # Nodes speak once a second: what is left of the time is for a machine with much to do.
    with cluster(tmp_path, "#!/bin/sh\nsleep 9\n", timeouts={"node": 8}) as run:
        nodes = run.go()
        for number in (0, 1):
            pid = supervisor(run, number)
            os.kill(pid, signal.SIGSTOP)
            time.sleep(2.5)
            os.kill(pid, signal.SIGCONT)
        assert [node.wait_end(15)["decision"]["outcome"] for node in nodes] == ["succeeded"] * 2


def test_a_gate_without_a_word_ends_itself(tmp_path: Path) -> None:
    with cluster(tmp_path, SLEEP, timeouts={"gate": 1.5}) as run:
        nodes = run.start_all()
        states = [node.wait_end(10) for node in nodes]
        for state in states:
            assert state["decision"]["cause"]["kind"] == "gate"
            assert state["started_at"] is None
        assert run.left() == {}


def test_a_kept_gate_stays(tmp_path: Path) -> None:
    with cluster(tmp_path, SLEEP, timeouts={"gate": 3}) as run:
        nodes = run.start_all()
        for _ in range(10):
            time.sleep(0.4)
            nodes[0].say({"command": "keep"})
        assert {node.state["state"] for node in nodes} == {"gate"}


def test_go_with_a_node_missing_starts_nothing(tmp_path: Path) -> None:
    with cluster(tmp_path, SLEEP, ranks_per_node=(1, 1, 1), timeouts={"gate": 2}) as run:
        nodes = [run.start(0), run.start(1)]
        wait_for(lambda: nodes[0].states and nodes[0].state["peers"][0]["joined"], 10, "node 1 joined")
        nodes[0].say({"command": "go"})
        states = [node.wait_end(10) for node in nodes]
        for state in states:
            assert state["decision"]["cause"]["kind"] == "gate"
            assert state["decision"]["cause"]["alias"] == "gpu02"
            assert state["started_at"] is None


def test_a_node_that_cannot_reach_node_0_says_why(tmp_path: Path) -> None:
    with cluster(tmp_path, SLEEP) as run:
        node = run.start(1)
        wait_for(lambda: node.states and node.state["failure"], 5, "a reason")
        assert node.state["failure"]["kind"] == "channel"
        assert node.state["failure"]["detail"] == f"127.0.0.2:{run.port}: refused"
        # It was only too early: the reason goes away with the connection.
        first = run.start(0)
        wait_for(lambda: first.states and first.state["peers"][0]["joined"], 5, "joined")
        wait_for(lambda: node.state["failure"] is None, 5, "no failure any more")


def test_a_taken_channel_port_is_said_with_its_holder(tmp_path: Path) -> None:
    with cluster(tmp_path, SLEEP) as run:
        code = (
            "import socket,sys,time; s=socket.socket(); s.bind(('127.0.0.2', int(sys.argv[1]))); s.listen()"
        )
        command = [sys.executable, "-c", f"{code}; print(flush=True); time.sleep(60)", str(run.port)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
            assert holder.stdout is not None
            holder.stdout.readline()
            try:
                state = run.start(0).wait_end(10)
            finally:
                holder.kill()
        assert state["failure"]["kind"] == "channel"
        assert f"cannot listen on 127.0.0.2:{run.port}: Address already in use" in state["failure"]["detail"]
        assert f"held by pid {holder.pid}" in state["failure"]["detail"]
        assert state["decision"]["cause"]["kind"] == "channel"


def test_ranks_that_never_come_end_in_a_join_timeout(tmp_path: Path) -> None:
    with cluster(tmp_path, SLEEP, timeouts={"join": 2}, launcher={1: {"hang": True}}) as run:
        nodes = run.start_all()
        nodes[0].say({"command": "go"})
        cause = nodes[0].wait_end(15)["decision"]["cause"]
        assert (cause["kind"], cause["alias"]) == ("join", "gpu01")
        assert "missing: gpu01 (ranks 2, 3); joined: gpu00" in cause["detail"]
        assert run.left() == {}


def stubborn(seconds: int) -> str:
    return f"""#!/bin/sh
trap '' TERM
(trap '' TERM; setsid env -i sh -c 'trap "" TERM; sleep {seconds} & wait; wait' & ) &
while :; do sleep 1; done
"""


def test_stop_ends_what_ignores_sigterm_and_hides_from_the_mark(tmp_path: Path) -> None:
    # By this they are told from the sleepers of other tests.
    seconds = random.randint(10**6, 10**7)
    with cluster(tmp_path, stubborn(seconds)) as run:
        nodes = run.go()
        hidden = wait_for(lambda: sleepers(seconds), 5, "the hidden sleepers")
        nodes[0].say({"command": "stop", "grace": 0.5, "cause": {"kind": "user", "signal": 2}})
        states = [node.wait_end(15) for node in nodes]
        for state in states:
            assert state["decision"]["outcome"] == "stopped"
            assert (state["decision"]["cause"]["kind"], state["decision"]["cause"]["signal"]) == ("user", 2)
            assert state["left"] == []
        assert run.left() == {}
        assert not [pid for pid in hidden if Path(f"/proc/{pid}").exists()]


def sleepers(seconds: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and b"%d" % seconds in (entry / "cmdline").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def test_a_second_stop_shortens_the_grace(tmp_path: Path) -> None:
    with cluster(tmp_path, stubborn(60), timeouts={"grace": 60}) as run:
        nodes = run.go()
        nodes[0].say({"command": "stop", "cause": {"kind": "user"}})
        wait_for(lambda: all(node.state["state"] == "stopping" for node in nodes), 5, "stopping")
        nodes[0].say({"command": "stop", "grace": 0})
        for node in nodes:
            assert node.wait_end(10)["decision"]["cause"]["kind"] == "user"
        assert run.left() == {}


def test_a_stop_on_any_node_stops_all(tmp_path: Path) -> None:
    with cluster(tmp_path, SLEEP) as run:
        nodes = run.go()
        answer = run.stop(1)
        assert (answer["stopped"], answer["was"], answer["left"]) == (True, "running", [])
        for node in nodes:
            decision = node.wait_end(10)["decision"]
            assert (decision["outcome"], decision["cause"]["kind"]) == ("stopped", "stop")
        assert run.left() == {}
        assert run.stop(1)["was"] == "ended"


def test_a_stop_acts_at_once_where_node_0_is_gone(tmp_path: Path) -> None:
    with cluster(tmp_path, SLEEP, timeouts={"node": 60}) as run:
        run.go()
        os.kill(supervisor(run, 0), signal.SIGKILL)
        time.sleep(0.2)
        at = time.monotonic()
        assert run.stop(1)["stopped"]
        assert time.monotonic() - at < 10
        assert run.left(1) == {}


def test_sigterm_stops_and_sighup_does_nothing(tmp_path: Path) -> None:
    with cluster(tmp_path, SLEEP) as run:
        nodes = run.go()
        pid = supervisor(run, 0)
        os.kill(pid, signal.SIGHUP)
        time.sleep(0.3)
        assert nodes[0].state["state"] == "running"
        os.kill(pid, signal.SIGTERM)
        decision = nodes[1].wait_end(10)["decision"]
        assert (decision["outcome"], decision["cause"]["kind"]) == ("stopped", "stop")


def test_stop_works_without_a_supervisor(tmp_path: Path) -> None:
    with cluster(tmp_path, stubborn(60), ranks_per_node=(2,)) as run:
        run.go()
        os.kill(supervisor(run, 0), signal.SIGSTOP)
        answer = run.stop(0, grace=0.5)
        assert answer["stopped"]
        assert answer["left"] == []
        assert len(answer["killed"]) >= 3
        assert run.left() == {}


def test_the_job_does_not_notice_that_its_controllers_are_killed(tmp_path: Path) -> None:
    with cluster(tmp_path, "#!/bin/sh\nfor i in 1 2 3 4 5 6; do echo $i; sleep 0.3; done\n") as run:
        nodes = run.go()
        for node in nodes:
            node.process.kill()
        again = run.attach(1, follow={"3": {"offset": 2}, "2": {"tail": 1}})
        state = again.wait_end(10)
        assert state["decision"]["outcome"] == "succeeded"
        assert again.logs["3"] == b"2\n3\n4\n5\n6\n"
        assert again.logs["2"].endswith(b"5\n6\n")


def test_what_a_script_leaves_behind_is_ended_after_success(tmp_path: Path) -> None:
    script = "#!/bin/sh\nsetsid sleep 876543 >/dev/null 2>&1 &\nexit 0\n"
    with cluster(tmp_path, script, ranks_per_node=(1, 1)) as run:
        nodes = run.go()
        for node in nodes:
            assert node.wait_end(15)["decision"]["outcome"] == "succeeded"
        assert run.left() == {}


def test_what_is_written_meanwhile_lies_beside_the_logs(tmp_path: Path) -> None:
    """`remote_dir` may be on a file server that hangs; logs are then on a local disk."""
    local = tmp_path / "local"
    with cluster(tmp_path / "network", "#!/bin/sh\necho here\n", (1, 1), local=local) as run:
        before = {path.name for path in run.run_dir(1).iterdir()}
        nodes = run.go()
        for node in nodes:
            assert node.wait_end(15)["decision"]["outcome"] == "succeeded"
        assert {path.name for path in run.run_dir(1).iterdir()} == before - {"secrets.json"}
        assert {path.name for path in run.records(1).iterdir()} == {
            *("logs", "ranks", "site", "state.json", "supervisor.log")
        }
        assert run.state(1)["state"] == "ended"


@pytest.mark.parametrize("broken", [0, 1])
def test_a_supervisor_that_fails_itself_ends_its_job_and_says_why(tmp_path: Path, broken: int) -> None:
    with cluster(tmp_path, SLEEP, timeouts={"node": 3}) as run:
        packed = run.run_dir(broken) / "agent.pyz"
        break_life(packed, run.records(broken) / "break")
        nodes = run.go()
        (run.records(broken) / "break").touch()
        state = nodes[broken].wait_end(15)
        words = "the supervisor failed: RuntimeError: broken on purpose"
        assert (state["state"], state["failure"]["detail"]) == ("ended", words)
        assert run.left(broken) == {}
        cause = nodes[1 - broken].wait_end(15)["decision"]["cause"]
        if broken == 1:
            assert (cause["kind"], cause["alias"], cause["detail"]) == ("supervisor", "gpu01", words)
        else:
            assert (cause["kind"], cause["node_rank"]) == ("lost", 0)
        assert run.left() == {}


def break_life(packed: Path, signal_file: Path) -> None:
    """The agent fails in the midst of its work as soon as the file is there."""
    fault = (
        "\n_observe = Life.observe\n"
        "def _broken(self, now):\n"
        f"    if os.path.exists({str(signal_file)!r}):\n"
        "        raise RuntimeError('broken on purpose')\n"
        "    _observe(self, now)\n"
        "Life.observe = _broken\n"
    )
    with zipfile.ZipFile(packed) as old:
        sources = {name: old.read(name) for name in old.namelist()}
    sources["clusterkit_node/life.py"] += fault.encode()
    with zipfile.ZipFile(packed, "w") as new:
        for name, source in sources.items():
            new.writestr(name, source)


def test_two_runs_side_by_side_do_not_touch_each_other(tmp_path: Path) -> None:
    with cluster(tmp_path / "a", SLEEP) as first, cluster(tmp_path / "b", SLEEP) as second:
        ones, others = first.go(), second.go()
        first.stop(0, grace=1)
        assert first.left() == {}
        assert ones[0].wait_end(5)["decision"]["outcome"] == "stopped"
        assert {node.state["state"] for node in others} == {"running"}
        assert all(started(node.state) for node in others)
        assert second.stop(0)["was"] == "running"


def test_the_port_window_of_a_live_run_shows_in_the_kernels_list(tmp_path: Path) -> None:
    with cluster(tmp_path, SLEEP, ranks_per_node=(1,)) as run:
        run.go()
        name = f"@clusterkit/{run.run_id}/0/{run.port}-{run.port + 3}"
        assert name in Path("/proc/net/unix").read_text()


def test_a_run_is_started_once(tmp_path: Path) -> None:
    over = tmp_path / "over"
    script = f"#!/bin/sh\nwhile [ ! -e {over} ]; do sleep 0.1; done\n"
    with cluster(tmp_path, script, ranks_per_node=(1,)) as run:
        node = run.go()[0]
        pid = node.state["pid"]
        second = run.start(0)
        wait_for(lambda: second.states, 20, "a state")
        assert second.state["pid"] == pid
        over.touch()
        node.wait_end(20)
        late = run.start(0)
        wait_for(lambda: late.errors, 20, "an error")
        assert late.errors == ["this run has ended; a run is started once"]


def test_the_job_sees_only_what_it_is_meant_to_see(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDLE_NNODES", "9")
    monkeypatch.setenv("HOME", "/somewhere")
    with cluster(tmp_path, "#!/bin/sh\nenv | sort; umask; pwd\n", ranks_per_node=(1,)) as run:
        node = run.go()[0]
        node.wait_end(10)
        log = node.logs["0"].decode().splitlines()
        assert "HOME=/somewhere" in log
        assert not [line for line in log if line.startswith("PADDLE_NNODES")]
        assert f"CLUSTERKIT_RUN_ID={run.run_id}" in log
        # The supervisor's own files are private; the job's are as the user's umask says.
        umask = os.umask(0o022)
        os.umask(umask)
        assert f"{umask:04o}" in log
        assert str(run.workdir) in log


@pytest.mark.parametrize("name", ["train.py", "train.sh"])
def test_a_python_script_runs_unbuffered_with_the_hosts_python(tmp_path: Path, name: str) -> None:
    script = {"train.py": "import sys\nprint(sys.stdout.write_through, sys.argv[1:])\n", "train.sh": SLEEP}[
        name
    ]
    with cluster(tmp_path, script, ranks_per_node=(1,), script_name=name) as run:
        node = run.go()[0]
        if name == "train.py":
            node.wait_end(10)
            assert node.logs["0"] == b"True ['0']\n"
        else:
            os.kill(node.state["ranks"][0]["pid"], signal.SIGUSR1)
            assert node.wait_end(10)["decision"]["cause"]["signal"] == signal.SIGUSR1
