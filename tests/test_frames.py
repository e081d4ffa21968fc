"""Stacks as faulthandler and py-spy print them → frames; ranks that stand at the same place together."""

from __future__ import annotations

import pytest

from clusterkit.runs import frames
from clusterkit.runs.frames import Frame, Thread, grouped, main, threads

FAULTHANDLER = """\
Thread 0x00007fc7ba9cb6c0 (most recent call first):
  File "/code/train.py", line 2 in waits
  File "/usr/lib/python3.11/threading.py", line 982 in run

Thread 0x00007fc7ba9cb6c1 (most recent call first):
  <no Python frame>

Current thread 0x00007fc7bb612b80 (most recent call first):
  File "/opt/lib/site-packages/paddle/distributed/all_reduce.py", line 80 in all_reduce
  File "/code/train.py", line ??? in step
  File "/code/train.py", line 88 in <module>

"""
NEWER = 'Current thread 0x00007f12 [python] (most recent call first):\n  File "/code/a b.py", line 7 in f\n'
PY_SPY = """\
Process 20155: /opt/bin/python /code/train.py
Python v3.11.7 (/opt/bin/python3.11)

Thread 20155 (idle): "MainThread"
    load (/code/data (old)/dataset.py:88)
    main (/code/train.py:7)
    <module> (/code/train.py:8)
Thread 20156 (active+gil): "Thread-1 (waits)"
    Thread.run (/usr/lib/python3.11/threading.py:982)
"""


def test_faulthandler() -> None:
    found = threads(FAULTHANDLER, "/code")
    assert [len(thread.frames) for thread in found] == [2, 0, 3]
    assert main(found).frames[:2] == (
        Frame("site-packages/paddle/distributed/all_reduce.py", 80, "all_reduce"),
        Frame("train.py", 0, "step"),
    )
    assert main(threads(NEWER, "/code/")).frames == (Frame("a b.py", 7, "f"),)


def test_py_spy() -> None:
    found = threads(PY_SPY, "/other")
    assert [thread.heading for thread in found] == [
        'Thread 20155 (idle): "MainThread"',
        'Thread 20156 (active+gil): "Thread-1 (waits)"',
    ]
    assert main(found).frames[-1] == Frame("/code/train.py", 8, "<module>")
    assert found[1].frames == (Frame("/usr/lib/python3.11/threading.py", 982, "Thread.run"),)


@pytest.mark.parametrize("text", ["", "Segmentation fault\n  File x\n", "\x00\xff"])
def test_what_is_no_stack(text: str) -> None:
    assert threads(text, "") == ()
    assert main(()).frames == ()


@pytest.mark.parametrize(
    ("file", "own"),
    [
        ("/code/train.py", True),
        ("train.py", True),
        ("site-packages/paddle/x.py", False),
        ("/code/site-packages.py", True),
        ("/opt/venv/lib/python3.11/site-packages/paddle/x.py", False),
        ("/usr/lib/python3/dist-packages/numpy/x.py", False),
        ("/usr/lib64/python3.9/threading.py", False),
        ("<frozen runpy>", False),
        ("<string>", False),
    ],
)
def test_the_jobs_own_code(file: str, own: bool) -> None:
    assert Frame(file, 1, "f").own is own


def stack(*calls: str) -> tuple[Thread, ...]:
    """`file:line:function`, the innermost first."""
    made = (call.rsplit(":", 2) for call in calls)
    return (Thread("main", tuple(Frame(file, int(line), function) for file, line, function in made)),)


REDUCE = "/opt/site-packages/paddle/reduce.py:{}:all_reduce"


def test_the_odd_one_is_a_group_of_its_own_and_the_most_come_first() -> None:
    stacks = {
        rank: stack(REDUCE.format(80 + rank % 2), "/code/train.py:88:step") for rank in range(6) if rank != 2
    }
    stacks[2] = stack(
        "/usr/lib/python3.11/random.py:3:sample", "/code/dataset.py:9:load", "/code/train.py:70:step"
    )
    stacks[-1] = stack(REDUCE.format(80), "/code/train.py:91:step")
    found = grouped(stacks)
    assert [(group.processes, group.where) for group in found] == [
        ((0, 1, 3, 4, 5), "all_reduce, from train.py:88"),
        ((2,), "sample, from dataset.py:9"),
        ((-1,), "all_reduce, from train.py:91"),
    ]


def test_where_a_stack_stands() -> None:
    (group,) = grouped({0: stack("/code/dataset.py:88:load", "/code/train.py:7:main")})
    assert group.where == "dataset.py:88 (load)"
    (group,) = grouped({0: stack("/usr/lib/python3.11/runpy.py:3:run")})
    assert group.where == "runpy.py:3 (run)"
    (group,) = grouped({0: (), 1: ()})
    assert (group.processes, group.where) == ((0, 1), "no Python code")


def test_many_ranks_with_deep_stacks_are_grouped_at_once() -> None:
    deep = [f"/code/m{number}.py:{number}:f{number}" for number in range(200)]
    stacks = {rank: stack(*deep) for rank in range(2048)}
    assert [len(group.processes) for group in frames.grouped(stacks)] == [2048]
