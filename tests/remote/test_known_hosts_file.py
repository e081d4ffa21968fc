"""known_hosts as text: what a line says, without a host."""

from __future__ import annotations

import base64
import multiprocessing
import subprocess
from pathlib import Path

import pytest

from clusterkit.remote.knownhosts import KnownHosts, fingerprint

KEY = base64.b64encode(b"\0\0\0\x0bssh-ed25519\0\0\0\x20" + b"k" * 32).decode()


def lines_about(tmp_path: Path, text: str, name: str) -> list[int]:
    path = tmp_path / "known_hosts"
    path.write_text(text)
    return [key.line for key in KnownHosts().about(name, [path])]


@pytest.mark.parametrize(
    ("names", "name", "matches"),
    [
        ("gpu01", "gpu01", True),
        ("GPU01", "gpu01", True),
        ("gpu01", "gpu011", False),
        ("a,gpu01,b", "gpu01", True),
        ("gpu*", "gpu01", True),
        ("gpu?1", "gpu01", True),
        ("gpu*,!gpu01", "gpu01", False),
        ("!gpu01", "gpu02", False),
        ("[gpu01]:2222", "[gpu01]:2222", True),
        ("[gpu01]:2222", "gpu01", False),
        ("[gpu*]:2222", "[gpu01]:2222", True),
        ("[gpu01]:*", "[gpu01]:2222", True),
        ("[::1]:2222", "[::1]:2222", True),
        ("*", "anything", True),
        ("|1|broken", "gpu01", False),
        ("|1|!!|!!", "gpu01", False),
    ],
)
def test_names(tmp_path: Path, names: str, name: str, matches: bool) -> None:
    assert lines_about(tmp_path, f"{names} ssh-ed25519 {KEY} comment\n", name) == ([1] if matches else [])


def test_what_is_no_key_is_passed_over(tmp_path: Path) -> None:
    broken = "# c\n\ngpu01\ngpu01 ssh-ed25519 not-base64!\n"
    text = f"{broken}  gpu01\tssh-ed25519  {KEY}\n@revoked gpu01 ssh-ed25519 {KEY}"
    assert lines_about(tmp_path, text, "gpu01") == [5, 6]
    assert KnownHosts().about("gpu01", [tmp_path / "missing"]) == []


def test_hashed_names_are_those_of_ssh_keygen(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    path.write_text(f"[gpu01]:2222 ssh-ed25519 {KEY}\ngpu02 ssh-ed25519 {KEY}\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", path], check=True, capture_output=True)
    assert "gpu" not in path.read_text()
    assert [key.line for key in KnownHosts().about("[gpu01]:2222", [path])] == [1]
    assert [key.line for key in KnownHosts().about("gpu02", [path])] == [2]
    assert KnownHosts().about("gpu03", [path]) == []


def test_a_file_that_changed_is_read_again(tmp_path: Path) -> None:
    path, files = tmp_path / "known_hosts", KnownHosts()
    path.write_text(f"gpu01 ssh-ed25519 {KEY}\n")
    assert files.about("gpu01", [path])
    path.write_text("")
    assert not files.about("gpu01", [path])


def _record(path: Path, start: int) -> None:
    """The same hosts as the others, at nearly the same time."""
    files = KnownHosts()
    for number in range(60):
        files.record(f"host{(number + start) % 60}", "ssh-ed25519", b"key" * 10, path, hashed=False)


def test_several_processes_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "known_hosts"
    workers = [multiprocessing.get_context("fork").Process(target=_record, args=(path, n)) for n in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(20)
    names = [line.split()[0] for line in path.read_text().splitlines()]
    assert sorted(names) == sorted(f"host{n}" for n in range(60))
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_the_fingerprint_is_that_of_ssh_keygen(tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "k"], check=True)
    shown = subprocess.run(["ssh-keygen", "-lf", tmp_path / "k"], capture_output=True, text=True, check=True)
    blob = base64.b64decode((tmp_path / "k.pub").read_text().split()[1])
    assert fingerprint(blob) == shown.stdout.split()[1]
