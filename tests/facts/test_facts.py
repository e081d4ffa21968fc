"""The engine: what the script prints in every shell, however badly a probe behaves."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterkit.errors import CommandFailed, HostError
from clusterkit.facts import Clock, Facts, Output, Probe, ProbeFailed, gather, interpret, offset, read, script
from clusterkit.inventory.model import Settings
from clusterkit.probes import LAUNCH
from clusterkit.remote.protocol import Result, Stream
from tests.facts.shells import Shell

HERE = Settings("here", "127.0.0.1", connection="local")
ODD = Settings(
    "odd",
    "10.0.0.9",
    python="~/my env/bin/py'thon",
    remote_dir="/data/$(touch /tmp/x)/`id`/it's",
    node_ip="10.0.0.9",
)


def text(name: str, shell: str, timeout: int = 5, accepts: tuple[int, ...] = (0,)) -> Probe[str]:
    return Probe(name, shell, lambda output: output.stdout, timeout, accepts)


def leftovers(shell: Shell) -> list[Path]:
    (token,) = (text.split("token=")[1].split()[0] for text in shell.scripts)
    places = (Path("/dev/shm"), Path("/tmp"), Path.home())
    return [path for place in places for path in place.glob(f"clusterkit-facts-{token}*")]


# --- in every shell -------------------------------------------------------------------------------------


def test_values_and_failures_side_by_side(shell: Shell) -> None:
    good = text("good", "echo one; echo two")
    missing = text("missing", "exec no-such-program-anywhere")
    wrong = text("wrong", "echo a reason >&2; exit 3")
    facts = gather(shell, HERE, [good, missing, wrong])
    assert facts[good] == "one\ntwo\n"
    with pytest.raises(ProbeFailed) as failed:
        facts[missing]
    assert (failed.value.host, failed.value.status) == ("here", 127)
    reason = facts.failure(wrong)
    assert reason is not None
    assert (reason.status, reason.message) == (3, "wrong: a reason")
    assert facts.get(wrong) is None
    assert facts.failure(good) is None


def test_one_round_trip(shell: Shell) -> None:
    gather(shell, HERE, LAUNCH)
    assert len(shell.scripts) == 1


def commands() -> Iterator[bytes]:
    """The command line of every process, as far as it lives long enough to be read."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield path.read_bytes()


def test_a_probe_that_hangs_is_ended_with_all_that_it_started(shell: Shell) -> None:
    mark = f"9{os.getpid()}.7"
    hangs = text("hangs", f"echo before; sh -c 'sleep 3{mark}; :'; :", timeout=1)
    began = time.monotonic()
    facts = gather(shell, HERE, [hangs, text("good", "echo fine")])
    assert 0.9 < time.monotonic() - began < 15
    failed = facts.failure(hangs)
    assert failed is not None
    assert (failed.status, failed.message) == (124, "hangs: no answer within 1 s")
    assert facts[text("good", "")] == "fine\n"
    assert not any(mark.encode() in command for command in commands())


def test_a_process_that_escapes_does_not_hold_us(shell: Shell, tmp_path: Path) -> None:
    """As one in uninterruptible sleep would: it outlives the probe and keeps what the probe had open."""
    pid = tmp_path / "pid"
    escapes = text("escapes", f"(setsid sh -c 'echo $$ >{pid}; exec sleep 40' &) ; sleep 40", timeout=1)
    began = time.monotonic()
    try:
        facts = gather(shell, HERE, [escapes])
    finally:
        os.kill(int(pid.read_text()), 9)
    assert time.monotonic() - began < 15
    failed = facts.failure(escapes)
    assert failed is not None
    assert failed.status == 124


def test_probes_run_side_by_side(shell: Shell) -> None:
    began = time.monotonic()
    gather(shell, HERE, [text(f"slow{number}", "sleep 2") for number in range(10)])
    assert time.monotonic() - began < 15


def test_stdin_is_closed_for_each_probe(shell: Shell) -> None:
    eats = text("eats", "cat; echo nothing left")
    later = text("later", "echo here")
    facts = gather(shell, HERE, [eats, later])
    assert facts[eats] == "nothing left\n"
    assert facts[later] == "here\n"


def test_any_bytes_come_back(shell: Shell) -> None:
    binary = text("binary", r"printf 'a\0b\377\n\r%s' '*'; printf 'x\ny' >&2")
    long = text("long", "i=0; while [ $i -lt 20000 ]; do echo 0123456789; i=$((i+1)); done")
    facts = gather(shell, HERE, [binary, long])
    assert facts[binary] == "a\0b\ufffd\n\r*"
    assert facts[long] == "0123456789\n" * 20000


def test_endless_output_is_cut_off(shell: Shell) -> None:
    endless = text("endless", "exec yes", timeout=10)
    failed = gather(shell, HERE, [endless]).failure(endless)
    assert failed is not None
    assert failed.message == "endless: printed more than 1 MB"


def test_nothing_is_left_behind(shell: Shell) -> None:
    gather(shell, HERE, [text("good", "echo fine"), text("hangs", "sleep 5", timeout=1)])
    assert not leftovers(shell)


def test_what_the_login_prints_is_dropped(shell: Shell) -> None:
    noisy = Shell(shell.command, before="echo Welcome; printf 'status good 1\\nno newline'")
    good = text("good", "echo fine")
    assert gather(noisy, HERE, [good])[good] == "fine\n"


def test_every_launch_probe_answers_here(shell: Shell) -> None:
    facts = gather(shell, HERE, LAUNCH)
    failed = [facts.failure(probe) for probe in LAUNCH]
    assert not [failure.message for failure in failed if failure and failure.probe != "gpus"]


def test_the_clock_is_this_machines_own(shell: Shell) -> None:
    clock = gather(shell, HERE, [text("good", "sleep 0.3")]).clock
    assert clock is not None
    assert clock.error_s < 1.6
    assert abs(clock.offset_s) <= clock.error_s + 0.01


# --- the text that travels ------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [HERE, ODD], ids=["plain", "odd"])
@pytest.mark.parametrize("command", ["sh -n", "dash -n", "bash --posix -n", "busybox sh -n"])
def test_the_script_parses(settings: Settings, command: str) -> None:
    program, *rest = command.split()
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    for text in [script(settings, LAUNCH, "t0k3n"), *(probe.text(settings) for probe in LAUNCH)]:
        subprocess.run([program, *rest], input=text, text=True, check=True, capture_output=True)


@pytest.mark.parametrize("settings", [HERE, ODD], ids=["plain", "odd"])
def test_shellcheck_agrees(settings: Settings, tmp_path: Path) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    given = "who=''; machine=''\n"
    files = {"whole": script(settings, LAUNCH, "t0k3n"), **{p.name: given + p.text(settings) for p in LAUNCH}}
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    # SC2034: `read` names fields that are not used. SC2016: each probe is one quoted word.
    command = ["shellcheck", "--shell=dash", "--exclude=SC2034,SC2016", *files]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


def test_values_of_the_inventory_are_never_executed(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    evil = f"/nowhere/$(touch {canary})/`touch {canary}`/'; touch {canary}; '"
    settings = Settings("evil", "127.0.0.1", remote_dir=evil, python=evil, node_ip=f"$(touch {canary})")
    gather(Shell(), settings, LAUNCH)
    assert not canary.exists()


# --- what comes back ------------------------------------------------------------------------------------


class Answers:
    """A Remote that answers each script with what a function makes of it."""

    alias = "gpu01"

    def __init__(self, *answers: Result) -> None:
        self.answers = list(answers)

    def run(self, script: str, *, timeout: float, sudo: bool = False, doing: str = "command") -> Result:
        answer = self.answers.pop(0)
        token = script.split("token=", 1)[-1].split()[0] if "token=" in script else script.split()[-3]
        return Result(answer.status, answer.stdout.replace(b"TOKEN", token.encode()), answer.stderr)

    def open(self, script: str, *, timeout: float, sudo: bool = False, doing: str = "command") -> Stream:
        raise NotImplementedError

    def close(self) -> None: ...


def test_a_script_that_did_not_get_to_its_end_is_an_error() -> None:
    cut = Result(1, b"TOKEN start 1790000000.5\nTOKEN status good 0\n", b"Killed\n")
    with pytest.raises(CommandFailed, match="the facts of gpu01 could not be read: Killed") as failed:
        gather(Answers(cut), HERE, [text("good", "")])
    assert "POSIX shell" in failed.value.hint


def test_the_scripts_own_reason_is_shown() -> None:
    refused = Result(1, b"TOKEN error no directory for temporary files can be written\n", b"")
    with pytest.raises(CommandFailed, match="no directory for temporary files"):
        gather(Answers(refused), HERE, [])


def test_a_loose_clock_is_measured_once_more() -> None:
    now = time.time() + 100
    loose = f"TOKEN start {now - 3:.6f}\nTOKEN end {now:.6f}\n".encode()
    sharp = f"TOKEN start {now:.6f}\n".encode()
    clock = gather(Answers(Result(0, loose, b""), Result(0, sharp, b"")), HERE, []).clock
    assert clock is not None
    assert clock.offset_s == pytest.approx(100, abs=0.2)
    assert clock.error_s < 0.2


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("t status good 0", True),
        (" t status good 0", False),
        ("xt status good 0", False),
        ("t state good 0", False),
        ("other status good 0", False),
    ],
)
def test_only_whole_lines_with_the_token_count(line: str, kept: bool) -> None:
    assert bool(read(f"banner\n{line}\ntail".encode(), "t").outputs) is kept


def test_each_stream_keeps_its_own_bytes() -> None:
    sent = b"t status good 3\n\nt stdout good\n\nx\n\nt stderr good\ny\nt stdout other\n\nt end 1.5\n"
    assert read(sent, "t").outputs == {"good": Output(3, "\nx\n", "y")}


def test_what_is_not_asked_is_empty(shell: Shell) -> None:
    nothing: Probe[str] = Probe("nothing", lambda settings: "", lambda output: f"<{output.stdout}>")
    assert gather(shell, HERE, [nothing])[nothing] == "<>"
    assert "nothing" not in shell.scripts[0]


def test_a_probe_without_an_answer_is_a_failure_not_a_bug() -> None:
    probe = text("lost", "")
    value = interpret("gpu01", {}, [probe])["lost"]
    assert isinstance(value, ProbeFailed)
    assert value.message == "lost: the host sent no answer"


def test_an_answer_that_is_not_understood_keeps_its_text_to_itself() -> None:
    probe: Probe[dict[str, str]] = Probe("env", "", lambda output: {"HOME": output.pairs()["HOME"]})
    value = interpret("gpu01", {"env": Output(0, "TOKEN=s3cret\n")}, [probe])["env"]
    assert isinstance(value, HostError)
    assert "not understood" in value.message
    assert "s3cret" not in value.message


def test_facts_do_not_show_values() -> None:
    assert "s3cret" not in repr(Facts("gpu01", {"env": "s3cret"}))


def test_a_probe_that_was_not_asked_is_a_bug() -> None:
    with pytest.raises(KeyError):
        Facts("gpu01", {})[text("never", "")]


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        # (sent, started, ended, received): equal clocks; ours 3 s behind; whole seconds only
        ((10.0, (10.1, 0.0), (10.3, 0.0), 10.4), (0.0, 0.1)),
        ((10.0, (13.1, 0.0), (13.3, 0.0), 10.4), (3.0, 0.1)),
        ((10.9, (10.0, 1.0), (11.0, 1.0), 11.2), (-0.05, 0.15)),
    ],
)
def test_clock_offset(
    times: tuple[float, tuple[float, float], tuple[float, float], float], expected: tuple[float, float]
) -> None:
    clock = offset(*times)
    assert (clock.offset_s, clock.error_s) == pytest.approx(expected)


def test_only_what_is_certain_counts() -> None:
    assert Clock(0.7, 0.3).certain_s == pytest.approx(0.4)
    assert Clock(-0.2, 0.3).certain_s == 0.0
