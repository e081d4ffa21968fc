"""Frames as text: what a channel brings in any pieces, and what shells make of our scripts."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from clusterkit.remote.frames import Frame, kill_text, new_token, open_text, run_text, sudo_text

TOKEN = new_token()


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_any_pieces_give_the_same_frame(size: int) -> None:
    data = f"noise {TOKEN[:9]}{TOKEN}:begin:4711\nout{TOKEN[:20]}put{TOKEN}:end:3\nlogout".encode()
    frame = Frame(TOKEN.encode())
    for at in range(0, len(data), size):
        frame.feed(data[at : at + size])
    assert (bytes(frame.data), frame.first_word, frame.last_word) == (
        f"out{TOKEN[:20]}put".encode(),
        b"4711",
        b"3",
    )


def test_without_an_end_everything_is_kept() -> None:
    frame = Frame(TOKEN.encode())
    frame.feed(f"{TOKEN}:begin\npart".encode())
    assert (bytes(frame.data), frame.begun, frame.ended) == (b"part", True, False)
    frame.keep(2)
    frame.feed(b"!")
    assert bytes(frame.data) == b"rt!"


@pytest.mark.parametrize("shell", ["sh", "dash", "bash", "busybox", "zsh", "ksh"])
def test_every_shell_reads_them(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    command = ["busybox", "sh", "-s"] if shell == "busybox" else [shell, "-s"]
    script = "echo \"it's $HOME\" 'and so on'\nexit 9"
    done = subprocess.run(command, input=run_text(TOKEN, script), capture_output=True, check=False)
    frame, errors = Frame(TOKEN.encode()), Frame(TOKEN.encode())
    frame.feed(done.stdout)
    errors.feed(done.stderr)
    assert (done.returncode, frame.last_word, errors.ended) == (9, b"9", True)
    assert bytes(frame.data).startswith(b"it's /")
    opened = subprocess.run(command, input=open_text(TOKEN, "exit 4"), capture_output=True, check=False)
    assert opened.returncode == 4
    for text in (run_text(TOKEN, "x"), open_text(TOKEN, "x"), kill_text(1).encode()):
        assert subprocess.run([*command[:-1], "-n", "-s"], input=text, check=False).returncode == 0
    for has_password in (True, False):
        text = sudo_text(TOKEN, "o'brien", has_password=has_password)
        assert subprocess.run([*command[:-1], "-n", "-s"], input=text, check=False).returncode == 0
