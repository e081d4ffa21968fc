"""A whole preflight as a person reads it: folded hosts, exceptions with what to do, a line that counts."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from clusterkit.between import Matrix, VoteEntry
from clusterkit.errors import HostError, HostTimeout, Unreachable
from clusterkit.preflight import Finding, Reading
from clusterkit.proving import Proofs, Result
from clusterkit.report import between
from clusterkit.report import preflight as report
from clusterkit.report.changes import plan_lines, undo_lines
from clusterkit.report.preflight import Details
from clusterkit.report.terminal import Words
from clusterkit.reset import Undoing
from clusterkit.smoke import Smoke
from clusterkit.steps import Fleet, Verdict, settled

HOSTS = ("gpu01", "gpu02", "gpu03", "gpu04")

FIREWALL = Verdict(
    "",
    "firewall",
    "pending",
    {"decided_by": "ufw", "closed": [], "kept_in": ["/etc/ufw/user.rules"]},
    {"decided_by": "ufw", "closed": ["30000-65535 from all other nodes"], "kept_in": []},
    ("closed", "kept_in"),
    "TCP 30000-65535 from nodes is dropped by `iptables -P INPUT DROP`",
    fix=("ufw allow proto tcp from 10.0.0.0/30 to any port 30000:65535 comment clusterkit",),
)
OPENED = replace(FIREWALL, status="ok", actual=FIREWALL.desired, changed_keys=(), message="", fix=())
LIMITS = Verdict(
    "",
    "limits",
    "warning",
    {"open_files": "at least 4096"},
    {"open_files": 1024},
    ("open_files",),
    "1024 open files are few for a job on many hosts",
    "raise nofile in /etc/security/limits.conf",
)
CLOCK = Verdict("", "clock", "ok", {"offset_s": "at most 0.5"}, {"offset_s": 0.01})
BARE = Verdict("", "image", "skipped", message="the inventory names no image")
QUIET = Verdict("", "firewall", "skipped", message="no firewall is active", told=True)
DRIVER = Verdict("", "driver", "failed", message="no answer in 10 s", hint="reboot it")


def on(hosts: Sequence[str], *verdicts: Verdict) -> tuple[Verdict, ...]:
    return tuple(replace(each, host=host) for host in hosts for each in verdicts)


def reading(
    *verdicts: Verdict, unreachable: Mapping[str, HostError] | None = None, problem: str = ""
) -> Reading:
    return Reading(Fleet({}, {}), verdicts, unreachable or {}, problem)


def shown(result: Result, **details: bool) -> str:
    stream = io.StringIO()
    report.show(Words(stream), result, Details(**details))
    return stream.getvalue()


def test_hosts_that_are_well_are_one_line() -> None:
    assert shown(Result(reading(*on(HOSTS, CLOCK, BARE)))) == (
        "gpu[01-04]  ok  1 check\n\nall 4 checks are ok\n"
    )


def test_exceptions_are_named_with_what_to_do_and_counted() -> None:
    verdicts = (*on(HOSTS[:2], CLOCK, LIMITS), *on(HOSTS[2:3], CLOCK, DRIVER), *on(HOSTS[3:], CLOCK, OPENED))
    assert shown(Result(reading(*verdicts))) == (
        "gpu[01-02]  warning  2 checks\n"
        "gpu03  failed  2 checks\n"
        "gpu04  ok  2 checks\n"
        "gpu[01-02]: limits warning: 1024 open files are few for a job on many hosts\n"
        "  → raise nofile in /etc/security/limits.conf\n"
        "gpu03: driver failed: no answer in 10 s\n"
        "  → reboot it\n"
        "\n"
        "1 failed, 2 warnings\n"
    )


def test_what_would_be_changed_is_said_and_diff_has_the_commands() -> None:
    result = Result(reading(*on(HOSTS[:3], FIREWALL, LIMITS)))
    pending = (
        "gpu[01-03]  pending  2 checks\n"
        "gpu[01-03]: firewall pending: TCP 30000-65535 from nodes is dropped by `iptables -P INPUT DROP`\n"
        "    would change closed: 30000-65535 from all other nodes → none; "
        "kept in: none → /etc/ufw/user.rules\n"
    )
    warning = (
        "gpu[01-03]: limits warning: 1024 open files are few for a job on many hosts\n"
        "  → raise nofile in /etc/security/limits.conf\n"
    )
    end = "\n3 changes pending, 3 warnings\n"
    assert shown(result) == pending + warning + end
    # No arrow where nothing is about to change.
    assert shown(result, diff=True, commands=True) == (
        f"{pending}    {FIREWALL.fix[0]}\n{warning}    open files: 1024, should be at least 4096\n{end}"
    )


def test_after_a_change_nothing_looks_as_if_it_were_still_to_do() -> None:
    before = on(HOSTS[:2], FIREWALL, LIMITS)
    after = settled(before, on(HOSTS[:2], OPENED, LIMITS))
    assert shown(Result(reading(*after)), diff=True, commands=True) == (
        "gpu[01-02]  changed  2 checks\n"
        "gpu[01-02]: firewall changed: closed: 30000-65535 from all other nodes → none; "
        "kept in: none → /etc/ufw/user.rules\n"
        "gpu[01-02]: limits warning: 1024 open files are few for a job on many hosts\n"
        "  → raise nofile in /etc/security/limits.conf\n"
        "    open files: 1024, should be at least 4096\n"
        "\n"
        "2 things changed, 2 warnings\n"
    )


def test_that_nothing_was_opened_is_said() -> None:
    assert shown(Result(reading(*on(HOSTS, CLOCK, QUIET, BARE)))) == (
        "gpu[01-04]  ok  1 check\n"
        "gpu[01-04]: firewall skipped: no firewall is active\n"
        "\n"
        "all 4 checks are ok\n"
    )


def test_every_check_of_every_host_when_it_is_asked_for() -> None:
    slow = replace(CLOCK, host="gpu04", actual={"offset_s": 0.3})
    verdicts = (*on(HOSTS[:3], CLOCK, BARE, QUIET), slow, *on(HOSTS[3:], LIMITS, BARE, QUIET))
    assert shown(Result(reading(*verdicts)), everything=True) == (
        "gpu[01-03]: clock ok: offset s 0.01\n"
        "gpu04: clock ok: offset s 0.3\n"
        "gpu04: limits warning: 1024 open files are few for a job on many hosts\n"
        "gpu[01-04]: skipped, since the inventory names no image: image\n"
        "gpu[01-04]: skipped, since no firewall is active: firewall\n"
        "\n"
        "gpu[01-03]  ok  1 check\n"
        "gpu04  warning  2 checks\n"
        "gpu04: limits warning: 1024 open files are few for a job on many hosts\n"
        "  → raise nofile in /etc/security/limits.conf\n"
        "gpu[01-04]: firewall skipped: no firewall is active\n"
        "\n"
        "1 warning\n"
    )


def test_hosts_that_do_not_answer_are_named_once_for_each_reason() -> None:
    gone = {
        host: Unreachable(
            host, "tcp", f"{host} (10.0.0.{number}): no answer on port 22 within 10 s", "power?"
        )
        for number, host in enumerate(HOSTS[1:3], 2)
    }
    late = {"gpu04": HostTimeout("gpu04", "facts of gpu04 took longer than 90 s", "look at gpu04")}
    assert shown(Result(reading(*on(HOSTS[:1], CLOCK), unreachable={**gone, **late}))) == (
        "gpu01  ok  1 check\n"
        "gpu[02-03]  unreachable  no answer on port 22 within 10 s\n"
        "  → power?\n"
        "gpu04  unreachable  facts of gpu04 took longer than 90 s\n"
        "  → look at gpu04\n"
        "\n"
        "3 hosts unreachable\n"
    )


def test_why_no_job_can_be_planned() -> None:
    problem = "gpu01 and gpu02 have the same node address 10.0.0.1"
    found = replace(reading(*on(HOSTS[:1], CLOCK), problem=problem), hint="every node needs its own")
    assert shown(Result(found)) == (
        f"gpu01  ok  1 check\nno job can be planned: {problem}\n  → every node needs its own\n"
        "\nno job can be planned\n"
    )


def test_which_hosts_cannot_take_part_in_a_job() -> None:
    unable = {
        host: HostError(host, "its GPUs could not be listed", f"run nvidia-smi on {host}")
        for host in HOSTS[1:3]
    }
    result = Result(replace(reading(*on(HOSTS[:3], CLOCK)), unable=unable))
    assert shown(result) == (
        "gpu[01-03]  ok  1 check\n"
        "gpu[02-03]: cannot take part in a job: its GPUs could not be listed\n"
        "  → run nvidia-smi on HOST\n"
        "\n"
        "2 hosts cannot take part in a job\n"
    )
    assert report.document(result, strict=False)["problem"] == "gpu[02-03]: its GPUs could not be listed"


def test_what_is_between_the_hosts() -> None:
    proofs = Proofs(
        (
            Finding("connect", "failed", "gpu01", "gpu03", "DROP", "open it"),
            Finding("connect", "failed", "gpu02", "gpu03", "DROP", "open it"),
            Finding("mtu", "ok", detail="every path carries 1500 bytes"),
            Finding("smoke", "skipped", detail="--check writes and loads nothing", hint="never shown"),
        ),
        (
            VoteEntry("driver", "550", {"gpu03": "535", "gpu04": "535"}, "warning", hint="install 550"),
            VoteEntry("kernel", "6.1", {"gpu03": "6.2"}, "ok"),
            VoteEntry("machine id", None, {"gpu01": "a", "gpu02": "a"}, "failed", unique=True),
        ),
        Matrix(("gpu01", "gpu02"), {("gpu01", "gpu02"): 1.25e9}),
        Smoke((), 4, 0.0213, 2.5e9),
    )
    assert shown(Result(reading(*on(HOSTS[:2], CLOCK)), proofs=proofs)) == (
        "gpu[01-02]  ok  1 check\n"
        "driver is odd on gpu[03-04] (535); the others have 550\n"
        "  → install 550\n"
        "machine id is the same on gpu[01-02] (a)\n"
        "gpu[01-02] → gpu03: connect failed: DROP\n"
        "  → open it\n"
        "mtu ok: every path carries 1500 bytes\n"
        "smoke skipped: --check writes and loads nothing\n"
        "Gbit/s  gpu01  gpu02\n"
        "gpu01   -      10.00\n"
        "gpu02   -      -\n"
        "smoke: all-reduce over 4 ranks in 21.3 ms, bus bandwidth 2.50 GB/s\n"
        "\n"
        "3 failed, 1 warning\n"
    )


@pytest.mark.parametrize(
    ("verdicts", "line"),
    [
        ((), "nothing was checked"),
        ((FIREWALL,), "1 change pending"),
        ((FIREWALL, replace(DRIVER, status="manual"), replace(DRIVER, status="unknown")), ""),
    ],
)
def test_one_and_many_are_told_apart(verdicts: tuple[Verdict, ...], line: str) -> None:
    expected = line or "1 unknown, 1 to do by hand, 1 change pending"
    assert report.summary(Result(reading(*on(HOSTS[:1], *verdicts)))) == expected


def test_a_connection_that_waits_for_a_change_is_no_change_of_its_own() -> None:
    waiting = Finding("connect", "pending", "gpu01", "gpu02", "DROP")
    result = Result(reading(*on(HOSTS[:1], FIREWALL)), proofs=Proofs((waiting, waiting)))
    assert report.summary(result) == "1 change pending"


def test_a_vote_without_a_majority_and_one_by_groups() -> None:
    tie = VoteEntry("driver", None, {"gpu01": "550", "gpu02": "535"}, "warning")
    groups = VoteEntry("GPU model", "H100", {"gpu04": "A40"}, "warning", "", {"old": "V100", "new": "H100"})
    assert between.vote_lines([tie, groups]) == [
        ("driver differs: gpu01 (550), gpu02 (535)", "yellow"),
        ("GPU model is odd on gpu04 (A40); most of old have V100, most of new have H100", "yellow"),
    ]


def test_pairs_that_wait_for_a_change_are_one_line() -> None:
    waiting = tuple(
        Finding("connect", "pending", source, to, f"DROP at {to}", "the pending firewall change opens it")
        for source, to in (("gpu01", "gpu02"), ("gpu03", "gpu02"), ("gpu02", "gpu01"))
    )
    assert between.finding_lines(waiting) == [
        (
            "gpu[01-03] → gpu[01-02]: connect pending: 3 ordered pairs wait for the pending firewall change",
            "yellow",
        )
    ]
    assert between.finding_lines(waiting[:1])[0][0].endswith(
        ": 1 ordered pair waits for the pending firewall change"
    )


def test_a_hint_that_names_one_pair_speaks_of_the_others_too() -> None:
    closed = tuple(
        Finding("connect", "failed", source, "gpu03", "DROP", f"ask about {source}") for source in HOSTS[:2]
    )
    assert between.finding_lines(closed) == [
        ("gpu[01-02] → gpu03: connect failed: DROP", "red"),
        ("  → ask about gpu01; so for the others", None),
    ]


def test_the_plan_says_what_and_why_and_with_diff_how() -> None:
    other = replace(FIREWALL, fix=("nft add rule",))
    verdicts = (*on(HOSTS[:2], FIREWALL, CLOCK), *on(HOSTS[2:], other, LIMITS))
    what = (
        ": firewall: closed: 30000-65535 from all other nodes → none; kept in: none → /etc/ufw/user.rules",
        "    because TCP 30000-65535 from nodes is dropped by `iptables -P INPUT DROP`",
    )
    assert plan_lines(verdicts, commands=False) == [f"gpu[01-04]{what[0]}", what[1]]
    assert plan_lines(verdicts, commands=True) == [
        f"gpu[01-02]{what[0]}",
        what[1],
        f"    {FIREWALL.fix[0]}",
        f"gpu[03-04]{what[0]}",
        what[1],
        "    nft add rule",
    ]


def test_what_would_be_taken_back() -> None:
    lines: dict[str, dict[str, list[str]]] = {
        "gpu01": {"firewall": ["nft -f - <<END\ndelete set\nEND"], "mounts": ["umount /data"]},
        "gpu02": {"firewall": ["nft -f - <<END\ndelete set\nEND"]},
        "gpu03": {},
    }
    assert undo_lines(Undoing(lines)) == [
        "gpu[01-02]: firewall",
        "    nft -f - <<END",
        "    delete set",
        "    END",
        "gpu01: mounts",
        "    umount /data",
    ]


def test_a_stream_that_lacks_a_character_still_gets_the_line() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", write_through=True)
    report.show(Words(stream), Result(reading(*on(HOSTS[:1], LIMITS))), Details())
    assert b"  ? raise nofile" in raw.getvalue()


def test_the_document_has_what_people_read() -> None:
    gone = {"gpu02": Unreachable("gpu02", "tcp", "gpu02: refused", "start it")}
    found = report.document(Result(reading(*on(HOSTS[:1], QUIET), unreachable=gone)), strict=False)
    hosts: Mapping[str, Any] = found["hosts"]
    assert hosts["gpu01"]["checks"][0]["message"] == "no firewall is active"
    assert hosts["gpu02"] == {"reachable": False, "error": "gpu02: refused", "hint": "start it", "checks": []}
    assert (found["ok"], found["exit_code"], found["summary"]) == (False, 4, {"skipped": 1})
