"""What reset found and what became of it: for people, and for programs; and the exit code."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from clusterkit.errors import HostTimeout, Unreachable
from clusterkit.report import reset as report
from clusterkit.report.terminal import Words
from clusterkit.reset import Reset, Undoing
from clusterkit.steps.applying import Applied
from tests.schemas import validate

GONE = Unreachable("gpu09", "tcp", "gpu09 (10.0.0.9): no answer on port 22 within 10 s", "is it up?")
LATE = HostTimeout("gpu02", "gpu02: facts took longer than 90 s", "look at gpu02")
FOUND: Mapping[str, Mapping[str, list[str]]] = {
    "gpu01": {"firewall": ["nft delete set"], "mounts": ["umount /data"]},
    "gpu02": {"firewall": ["nft delete set"]},
    "gpu03": {},
}
NOTHING: Mapping[str, Mapping[str, list[str]]] = {"gpu01": {}, "gpu02": {}, "gpu03": {}}


def shown(result: Reset, *, plan: bool = True) -> str:
    stream = io.StringIO()
    report.show(Words(stream), result, plan=plan)
    return stream.getvalue()


def document(result: Reset) -> dict[str, Any]:
    found = report.document(result)
    validate("reset", found)
    assert found["exit_code"] == result.exit_code
    return found


def statuses(found: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    return {
        host: {step["name"]: step["status"] for step in each["steps"]}
        for host, each in found["hosts"].items()
    }


def test_nothing_to_take_back() -> None:
    result = Reset(Undoing(NOTHING))
    assert shown(result) == "preflight has left nothing on the hosts\n"
    assert (document(result)["ok"], result.exit_code) == (True, 0)


def test_what_would_be_taken_back() -> None:
    result = Reset(Undoing(FOUND))
    assert shown(result) == (
        "would take back:\ngpu[01-02]: firewall\n    nft delete set\ngpu01: mounts\n    umount /data\n"
    )
    # A person who was asked has seen it.
    assert shown(result, plan=False) == ""
    found = document(result)
    assert (found["ok"], result.exit_code) == (False, 3)
    assert found["hosts"]["gpu01"]["steps"][1] == {
        "name": "mounts",
        "status": "pending",
        "commands": ["umount /data"],
        "message": "",
    }


def test_everything_was_taken_back() -> None:
    result = Reset(Undoing(FOUND), {"gpu01": Applied({}), "gpu02": Applied({})}, {}, Undoing(NOTHING))
    assert shown(result) == "taken back on gpu[01-02]\n"
    assert result.exit_code == 0
    assert statuses(document(result)) == {
        "gpu01": {"firewall": "changed", "mounts": "changed"},
        "gpu02": {"firewall": "changed"},
        "gpu03": {},
    }


def test_what_is_left_is_named_with_the_reason() -> None:
    left = {**NOTHING, "gpu01": {"mounts": ["umount /data"]}}
    done = {"gpu01": Applied({"mounts": "/data is in use by python (pid 7)"}), "gpu02": Applied({})}
    result = Reset(Undoing(FOUND), done, {}, Undoing(left))
    assert shown(result) == ("gpu01: mounts failed: /data is in use by python (pid 7)\ntaken back on gpu02\n")
    assert result.exit_code == 1
    assert statuses(document(result))["gpu01"] == {"firewall": "changed", "mounts": "failed"}
    silent = Reset(Undoing(FOUND), {"gpu01": Applied({}), "gpu02": Applied({})}, {}, Undoing(left))
    assert shown(silent).startswith("gpu01: mounts is still there\n")


def test_where_nobody_could_look_nothing_is_claimed() -> None:
    unread = {host: {"firewall": "only root can read this"} for host in ("gpu01", "gpu02")}
    result = Reset(Undoing(NOTHING, unread, {"gpu09": GONE}))
    assert shown(result) == (
        "gpu09 (10.0.0.9): no answer on port 22 within 10 s\n"
        "  → is it up?\n"
        "gpu[01-02]: firewall could not be looked for: only root can read this\n"
        "preflight has left nothing on the hosts that could be looked at\n"
    )
    found = document(result)
    assert result.exit_code == 4
    assert not found["hosts"]["gpu09"]["reachable"]
    assert found["hosts"]["gpu01"]["steps"] == [
        {"name": "firewall", "status": "unknown", "commands": [], "message": "only root can read this"}
    ]


def test_a_host_that_is_lost_on_the_way_is_not_called_clean() -> None:
    """The second reading decides; without one it is not known how the commands ended."""
    done = {"gpu01": Applied({}), "gpu02": Applied({})}
    without: Mapping[str, Mapping[str, list[str]]] = {"gpu01": {}, "gpu03": {}}
    result = Reset(Undoing(FOUND), done, {}, Undoing(without, {}, {"gpu02": LATE}))
    assert shown(result) == ("gpu02: facts took longer than 90 s\n  → look at gpu02\ntaken back on gpu01\n")
    assert result.exit_code == 4
    assert statuses(document(result)) == {
        "gpu01": {"firewall": "changed", "mounts": "changed"},
        "gpu02": {"firewall": "unknown"},
        "gpu03": {},
    }
    broken = Reset(Undoing(FOUND), {"gpu01": Applied({})}, {"gpu02": LATE}, Undoing(NOTHING))
    assert broken.taken_back == ["gpu01"]
    assert broken.exit_code == 1
    unread = Reset(Undoing(FOUND), done, {}, Undoing(NOTHING, {"gpu02": {"firewall": "no answer"}}))
    assert unread.taken_back == ["gpu01"]
    assert shown(unread).startswith("gpu02: firewall could not be looked for: no answer\n")
