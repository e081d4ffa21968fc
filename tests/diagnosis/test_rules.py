"""The shipped rules, each held against its own samples; a site's rules; and files that cannot be used."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from clusterkit.cli.session import site_rules
from clusterkit.diagnosis import rules, text
from clusterkit.diagnosis.matching import Source, find
from clusterkit.diagnosis.rules import Rule
from clusterkit.errors import InputError

SHIPPED = rules.load()
SAMPLES = [
    pytest.param(rule, sample, id=f"{rule.name}-{number}")
    for rule in SHIPPED
    for number, sample in enumerate(rule.samples)
]


def found(sample: str, where: rules.Where, known: tuple[Rule, ...] = SHIPPED) -> set[str]:
    return {match.rule.name for match in find(known, Source(where, "gpu01", text.lines(sample)))}


@pytest.mark.parametrize(("rule", "sample"), SAMPLES)
def test_a_sample_is_found_by_its_rule_and_by_no_other(rule: Rule, sample: str) -> None:
    assert set().union(*(found(sample, where) for where in rule.where)) == {rule.name}


@pytest.mark.parametrize("rule", SHIPPED, ids=lambda rule: rule.name)
def test_a_rule_reads_as_the_others_do(rule: Rule) -> None:
    assert len({pattern.pattern for pattern in rule.patterns}) == len(rule.patterns)
    assert rule.cure[0] == "{" or rule.cure[0].islower() or rule.cure[0] == "`"
    assert rule.meaning.endswith(".")
    assert "  " not in rule.meaning + rule.cure


@pytest.mark.parametrize(
    ("name", "sample", "words"),
    [
        ("connection-refused", 0, {"peer": "10.0.0.12", "gloo_port": "5524"}),
        ("connection-timed-out", 1, {"peer": "10.0.0.12", "port": "46315"}),
        ("address-in-use", 1, {"port": "18766"}),
        ("address-in-use", 2, {"port": "29500"}),
        ("missing-module", 0, {"module": "requests"}),
        ("missing-module", 1, {"module": "paddle"}),
        ("missing-library", 0, {"library": "libgomp.so.1"}),
        ("disk-full", 1, {"path": "/data/checkpoints/step-100.pdparams"}),
        ("cuda-out-of-memory", 0, {"gpu": "0", "wanted": "128.000000MB", "free": "97.625000MB"}),
        ("out-of-memory-kill-cgroup", 0, {"pid": "23793", "program": "python3", "size": "506500kB"}),
        ("xid", 0, {"kind": "Xid", "pci": "0000:3b:00", "xid": "79"}),
        ("wrong-interface", 0, {"interface": "eth9"}),
        ("version-mismatch", 0, {"package": "paddle.base.core", "name": "CommContext"}),
        ("waiting-peer", 0, {"time": "20 s", "joined": "node01, node02"}),
        ("world-size", 0, {"where": "node02", "detail": "world size 1 instead of 4"}),
        ("held", 0, {"what": "GPU 0", "holder": "20261130-213826-k3fz", "owner": "ann@laptop"}),
    ],
)
def test_the_evidence_is_taken_out_of_the_line(name: str, sample: int, words: dict[str, str]) -> None:
    rule = next(rule for rule in SHIPPED if rule.name == name)
    lines = text.lines(rule.samples[sample])
    matches = [match for where in rule.where for match in find([rule], Source(where, "gpu01", lines))]
    assert matches
    assert all(words.items() <= match.values.items() for match in matches)


HARMLESS = """\
LAUNCH INFO 2026-11-30 21:40:00,123 Waiting peer start...
W1130 21:40:01.000000 4711 gpu_resources.cc:119] Please NOTE: device: 0, GPU Compute Capability: 9.0
rank 3 step 120/1000 loss 0.4121 errors 0 lr 1e-4
gpu01:4711:4711 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.11<0>
NCCL version 2.19.3+cuda11.8
I1130 21:40:02.000000 4711 tcp_store.cc:293] receive shutdown event and so quit from MasterDaemon run loop
connected to 10.0.0.12:29400
the signal 9 of the sensor and exit code 7 of the tool are in the table
saved to /dev/shm/cache and /data/out; no space was left unused
memory: 12 GiB of 80 GiB, port 8080, killed 0 workers
"""


@pytest.mark.parametrize("where", ["rank", "launcher", "kernel", "end", "reason"])
def test_ordinary_output_is_no_failure(where: rules.Where) -> None:
    assert found(HARMLESS, where) == set()


HARD = (
    "connect [10.0.0.1]:1 Out of memory error on GPU 0. Cannot allocate 1MB memory remote=[10.0.0.1]:1",
    "x",
    "1",
    "a1.-",
    "lib.so",
)


@pytest.mark.parametrize("text_", HARD, ids=["begun", "x", "1", "a1.-", "lib.so"])
def test_the_time_grows_with_a_line_s_length_alone(text_: str) -> None:
    """Processor time, the best of three: ten times the line may take thirty times as long, not a hundred."""
    patterns = [pattern for rule in SHIPPED for pattern in rule.patterns]

    def seconds(size: int) -> float:
        line = (text_ * (size // len(text_) + 1))[:size]
        return min(spent(lambda: find(SHIPPED, Source("rank", "gpu01", [line]))) for _ in range(3))

    assert seconds(200_000) < 30 * seconds(20_000)
    # A pattern that begins with `\S+` tries every length at every place of a window: a thousand times more.
    piece = (text_ * 2048)[:2048]
    searches = {each.pattern: partial(each.search, piece) for each in patterns}
    slow = [each for each, search in searches.items() if min(spent(search) for _ in range(3)) > 0.05]
    assert not slow


def spent(what: Callable[[], object]) -> float:
    """Seconds of processor time."""
    begun = time.process_time()
    what()
    return time.process_time() - begun


def test_a_failure_is_found_in_a_long_line_and_among_noise() -> None:
    said = " OSError: [Errno 28] No space left on device "
    long = "x" * 700_000 + said + "y" * 300_000
    assert found(long, "rank") == {"disk-full"}
    noise = (
        bytes(range(256)) * 2000
        + b"\n\x1b[31mModuleNotFoundError: No module named 'requests'\x1b[0m\r\n\x00\xff"
    )
    assert found(noise.decode("utf-8", "replace"), "rank") == {"missing-module"}
    bar = "10%\r20%\rOSError: [Errno 24] Too many open files\r30%"
    assert found(bar, "rank") == {"too-many-open-files"}


# --- A site's file --------------------------------

OWN = """
[ours]
where = ["rank"]
patterns = ['''licence server (?P<server>\\S+) says no''', '''no licence''']
meaning = "{host} got no licence from {server|the server}."
cure = "call Ann"
samples = ["licence server lic1 says no"]
"""


def test_a_site_adds_a_rule_and_replaces_one(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(OWN.replace("[ours]", "[disk-full]") + OWN)
    known = rules.load(tmp_path / "own.toml")
    assert [rule.name for rule in known[:2]] == ["disk-full", "ours"]
    assert len(known) == len(SHIPPED) + 1
    assert found("no licence", "rank", known) == {"disk-full", "ours"}
    assert found("OSError: [Errno 28] No space left on device", "rank", known) == set()


def test_the_project_names_the_site_s_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "clusterkit.toml").write_text('diagnoses = "site/own.toml"\n')
    (tmp_path / "site").mkdir()
    (tmp_path / "site/own.toml").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    assert site_rules()[0].name == "ours"


def test_places_in_a_sentence() -> None:
    assert rules.fill("{host} asked {server|the server}", {"host": "a", "server": "b"}) == "a asked b"
    assert rules.fill("{host} asked {server|the server}", {"host": "a"}) == "a asked the server"
    assert rules.fill("CUDA {cuda|} of this", {}) == "CUDA of this"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('where = ["rank"]', 'where = ["ranks"]'), "ours.where cannot be used: `ranks` is none of rank,"),
        (('where = ["rank"]', ""), "ours.where cannot be used: it is a list of texts"),
        (("no licence'''", "(no licence'''"), r"ours.patterns cannot be used: `\(no licence` is no regular"),
        (("no licence'''", "(no licence)?'''"), "ours.patterns cannot be used: .* is found in every line"),
        (("cure =", "cures ="), "ours.cures cannot be used: did you mean `cure`?"),
        (('cure = "call Ann"', 'cure = ""'), "ours.cure cannot be used: it is a sentence"),
        (('cure = "call Ann"', "cure = 3"), "ours.cure cannot be used: it is a sentence"),
        (("{server|the server}", "{server}"), "ours.meaning cannot be used: say what stands for `server`"),
        (("{server|the server}", "{name|x}"), "ours.meaning cannot be used: no pattern has a group"),
        (("lic1 says no", "lic1 says yes"), "ours.samples cannot be used: no pattern is found in"),
        (
            ('samples = ["', 'symptom = "yes"\nsamples = ["'),
            "ours.symptom cannot be used: it is true or false",
        ),
        (('samples = ["', 'also = ["disks"]\nsamples = ["'), "ours.also cannot be used: `disks` is none of"),
        (("[ours]", 'ours = "x"\n[other]'), "own.toml: ours cannot be used: a rule is a table"),
        (("[ours]", "[ours"), "not valid TOML"),
    ],
)
def test_a_file_that_cannot_be_used_names_rule_and_key(
    tmp_path: Path, change: tuple[str, str], words: str
) -> None:
    assert change[0] in OWN
    (tmp_path / "own.toml").write_text(OWN.replace(*change))
    with pytest.raises(InputError, match=words) as raised:
        rules.load(tmp_path / "own.toml")
    assert "own.toml" in raised.value.message
    assert raised.value.hint


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        rules.load(tmp_path / "none.toml")
