"""What a program said about its own failure, found in the end of its log."""

from __future__ import annotations

from clusterkit.diagnosis.text import lines, raised, windows

PLAIN = """\
step 1
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    import requests
ModuleNotFoundError: No module named 'requests'
"""
CHAINED = """\
Traceback (most recent call last):
  File "train.py", line 3, in read
    open(path)
FileNotFoundError: [Errno 2] No such file or directory: '/data/x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "train.py", line 9, in <module>
    read()
RuntimeError: no data
"""
PADDLE = """\
Traceback (most recent call last):
  File "train.py", line 9, in <module>
    paddle.ones([1 << 40])
RuntimeError:

--------------------------------------
C++ Traceback (most recent call last):
--------------------------------------
0   paddle::experimental::full()

----------------------
Error Message Summary:
----------------------
ResourceExhaustedError: Fail to alloc memory of 4398046511104 size.
  [Hint: Expected posix_memalign == 0.]
"""


def test_the_last_traceback_and_its_error() -> None:
    said = raised(lines("Traceback (most recent call last):\n  old\nValueError: old\n" + PLAIN + "bye\n"))
    assert said.first_error == "ModuleNotFoundError: No module named 'requests'"
    assert said.traceback == tuple(PLAIN.splitlines()[1:])


def test_of_a_chain_the_first_error_is_the_reason() -> None:
    said = raised(lines(CHAINED))
    assert said.first_error.startswith("FileNotFoundError")
    assert said.traceback == tuple(CHAINED.splitlines())


def test_paddle_says_the_reason_below_its_traceback() -> None:
    said = raised(lines(PADDLE))
    assert (
        said.first_error
        == "RuntimeError: ResourceExhaustedError: Fail to alloc memory of 4398046511104 size."
    )


def test_without_a_traceback_the_first_line_that_speaks_of_an_error() -> None:
    said = raised(lines("step 1\nfatal: the table is empty\nabort\n"))
    assert (said.traceback, said.first_error) == ((), "fatal: the table is empty")
    assert raised(lines("step 1\nstep 2\n")).first_error == ""


def test_a_traceback_that_is_cut_off() -> None:
    said = raised(lines('Traceback (most recent call last):\n  File "x"\n'))
    assert said.traceback[0].startswith("Traceback")


def test_colours_and_noise_are_no_text() -> None:
    assert lines("\x1b[31mred\x1b[0m\ta\x00\x01b\r\n10%\r20%") == ["red\tab", "10%", "20%"]


def test_windows_cover_a_long_line_and_overlap() -> None:
    line = "".join(f"{number:06d}" for number in range(3000))
    pieces = list(windows(line))
    assert max(map(len, pieces)) <= 2048
    assert all(any(line[at : at + 500] in piece for piece in pieces) for at in range(0, len(line) - 500, 97))
    assert list(windows("short")) == ["short"]
