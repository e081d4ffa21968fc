"""Staging: what travels, what is removed, what is left alone, and what is refused."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from clusterkit import agent
from clusterkit.node import stage

Files = Mapping[str, tuple[int, bytes]]


def entry(path: str, mode: int, data: bytes) -> list[Any]:
    return [path, mode, len(data), hashlib.sha256(data).hexdigest()]


class Answers(io.BytesIO):
    """The agent's stdout; what the controller would send is chosen when `need` has come."""

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.getvalue().splitlines()]


class Source(io.BytesIO):
    """The agent's stdin: the header, then the bytes of the files that it asked for."""

    def __init__(self, header: dict[str, Any], contents: list[bytes], answers: Answers, cut: int = 0) -> None:
        super().__init__(json.dumps(header).encode() + b"\n")
        self._contents = contents
        self._answers = answers
        self._cut = cut
        self._body: io.BytesIO | None = None

    def read(self, size: int | None = -1) -> bytes:
        if self._body is None:
            body = b"".join(self._contents[index] for index in self._answers.lines[0]["need"])
            self._body = io.BytesIO(body[: len(body) - self._cut])
        return self._body.read(size)


class Host:
    """A host's `remote_dir`, staged again and again."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.root = base / "code" / "proj-1a2b"
        self.run_dir = base / "runs" / "r1"
        self.need: list[str] = []

    def stage(self, code: Files, *, cut: int = 0, wrong: bytes | None = None, **more: Any) -> dict[str, Any]:
        manifest = [entry(path, mode, data) for path, (mode, data) in code.items()]
        header = {
            "run_dir": str(self.run_dir),
            "files": {"plan.json": "{}\n", "channel.key": "00ff"},
            "log_dir": str(self.run_dir / "logs"),
            "workdir": str(self.root),
            "sync": {"root": str(self.root), "manifest": manifest},
            **more,
        }
        answers = Answers()
        contents = [data if wrong is None else wrong for _, data in code.values()]
        status = stage.main(Source(header, contents, answers, cut), answers)
        lines = answers.lines
        if "need" in lines[0]:
            self.need = [manifest[index][0] for index in lines[0]["need"]]
        assert status == (1 if "error" in lines[-1] else 0)
        return lines[-1]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "host")


def mode_of(path: Path) -> int:
    return path.lstat().st_mode & 0o7777


FIRST: Files = {
    "train.py": (0o644, b"print(1)\n"),
    "run.sh": (0o755, b"#!/bin/sh\n"),
    "pkg/deep/empty": (0o644, b""),
    "link": (0o120777, b"pkg/deep"),
}


def test_everything_travels_once(host: Host) -> None:
    answer = host.stage(FIRST)
    size = sum(len(data) for _, data in FIRST.values())
    assert answer == {
        "staged": True,
        "received_bytes": size,
        "run_dir": str(host.run_dir),
        "workdir": str(host.root),
    }
    assert (host.root / "train.py").read_bytes() == b"print(1)\n"
    assert mode_of(host.root / "run.sh") == 0o755
    assert mode_of(host.root / "train.py") == 0o644
    assert (host.root / "pkg/deep/empty").read_bytes() == b""
    assert (host.root / "link").readlink() == Path("pkg/deep")
    assert mode_of(host.run_dir) == 0o700
    assert mode_of(host.run_dir / "channel.key") == 0o600
    assert mode_of(host.run_dir / "logs") == 0o700
    assert (host.run_dir / "plan.json").read_text() == "{}\n"
    assert host.stage(FIRST)["received_bytes"] == 0
    assert host.need == []


def test_only_what_differs_travels_again(host: Host) -> None:
    host.stage(FIRST)
    changed = {**FIRST, "train.py": (0o644, b"print(2)\n"), "link": (0o120777, b"pkg"), "new": (0o600, b"x")}
    host.stage(changed)
    assert sorted(host.need) == ["link", "new", "train.py"]
    assert (host.root / "train.py").read_bytes() == b"print(2)\n"
    assert (host.root / "link").readlink() == Path("pkg")


def test_a_mode_alone_is_changed_without_a_byte(host: Host) -> None:
    host.stage(FIRST)
    assert host.stage({**FIRST, "train.py": (0o755, b"print(1)\n")})["received_bytes"] == 0
    assert mode_of(host.root / "train.py") == 0o755


def test_a_file_that_the_job_changed_is_put_right(host: Host) -> None:
    host.stage(FIRST)
    before = (host.root / "train.py").stat()
    (host.root / "train.py").write_bytes(b"print(9)\n")
    os.utime(host.root / "train.py", ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    host.stage(FIRST)
    assert host.need == ["train.py"]
    assert (host.root / "train.py").read_bytes() == b"print(1)\n"


def test_what_is_gone_here_goes_there_and_what_the_job_wrote_stays(host: Host) -> None:
    host.stage(FIRST)
    (host.root / "pkg" / "checkpoint.bin").write_bytes(b"of the job")
    host.stage({"train.py": FIRST["train.py"]})
    assert sorted(str(path.relative_to(host.root)) for path in host.root.rglob("*")) == [
        "pkg",
        "pkg/checkpoint.bin",
        "train.py",
    ]
    # A file that was never sent is not ours to remove, not even under a name that was ours once.
    (host.root / "run.sh").write_bytes(b"now of the job")
    host.stage({"train.py": FIRST["train.py"]})
    assert (host.root / "run.sh").read_bytes() == b"now of the job"


def test_a_file_becomes_a_folder_and_back(host: Host) -> None:
    host.stage({"thing": (0o644, b"a file")})
    host.stage({"thing/inside": (0o644, b"in a folder")})
    assert (host.root / "thing/inside").read_bytes() == b"in a folder"
    host.stage({"thing": (0o644, b"a file")})
    assert (host.root / "thing").read_bytes() == b"a file"


def test_a_link_becomes_a_folder(host: Host, tmp_path: Path) -> None:
    host.stage({"data": (0o120777, str(tmp_path).encode())})
    host.stage({"data/x": (0o644, b"1")})
    assert not (host.root / "data").is_symlink()
    assert not (tmp_path / "x").exists()


def test_nothing_is_written_through_a_link_of_the_job(host: Host, tmp_path: Path) -> None:
    host.stage(FIRST)
    (host.root / "data").symlink_to(tmp_path)
    answer = host.stage({**FIRST, "data/x": (0o644, b"1")})
    assert "lies behind a symbolic link" in answer["error"]
    assert not (tmp_path / "x").exists()


def test_a_folder_of_the_job_in_a_files_place_is_not_touched(host: Host) -> None:
    (host.root / "train.py" / "deep").mkdir(parents=True)
    answer = host.stage(FIRST)
    assert answer["error"] == f"{host.root}/train.py is a folder on this host; remove it"


@pytest.mark.parametrize("path", ["/etc/x", "../x", "a/../../x", "a//b", "", ".", "a/./b", "a/", "a\0b"])
def test_a_path_that_leaves_the_root_is_refused(host: Host, path: str) -> None:
    assert "is not a path inside the synced folder" in host.stage({path: (0o644, b"x")})["error"]
    assert not host.root.exists()


def test_a_device_is_refused(host: Host) -> None:
    assert "neither a file nor a symbolic link" in host.stage({"x": (0o020666, b"")})["error"]


@pytest.mark.parametrize("name", ["../x", "a/b", "/x", "..", ""])
def test_a_run_file_with_a_path_is_refused(host: Host, name: str) -> None:
    assert "is not a file name" in host.stage({}, files={name: "x"})["error"]


def test_setuid_bits_do_not_travel(host: Host) -> None:
    host.stage({"x": (0o104777, b"x")})
    assert mode_of(host.root / "x") == 0o755


def test_a_file_that_changed_on_the_way_is_refused_and_the_old_one_stays(host: Host) -> None:
    host.stage(FIRST)
    answer = host.stage({"train.py": (0o644, b"print(3)\n")}, wrong=b"PRINT(3)\n")
    assert answer["error"] == "train.py changed while it was being sent; launch again"
    assert (host.root / "train.py").read_bytes() == b"print(1)\n"
    assert not list(host.root.glob("*.part"))


def test_a_connection_that_ends_early_leaves_no_piece(host: Host) -> None:
    answer = host.stage({"train.py": (0o644, b"print(1)\n")}, cut=4)
    assert answer["error"] == "the connection ended after 5 of 9 bytes of train.py"
    assert list(host.root.iterdir()) == []
    # The next stage begins where this one could not.
    assert host.stage(FIRST)["staged"]


def test_what_an_interrupted_stage_sent_is_still_known(host: Host) -> None:
    host.stage({"a": (0o644, b"1"), "b": (0o644, b"2345")}, cut=2)
    assert (host.root / "a").exists()
    host.stage({"c": (0o644, b"3")})
    assert [path.name for path in host.root.iterdir()] == ["c"]


def test_without_sync_the_working_directory_must_be_there(host: Host, tmp_path: Path) -> None:
    answer = host.stage({}, sync=None, workdir=str(tmp_path))
    assert answer["workdir"] == str(tmp_path)
    missing = str(tmp_path / "not mounted")
    assert host.stage({}, sync=None, workdir=missing)["error"] == (
        f"{missing} is not a folder on this host, and --no-sync sends no code: mount it there"
    )


def test_the_home_is_found_on_the_host(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    answer = host.stage({}, run_dir="~/ck/runs/r2", log_dir="~/ck/runs/r2/logs", sync=None, workdir="~")
    assert (answer["run_dir"], answer["workdir"]) == (str(tmp_path / "ck/runs/r2"), str(tmp_path))
    assert (tmp_path / "ck/runs/r2/logs").is_dir()


@pytest.mark.parametrize("header", [b"", b"{}\n", b"[]\n", b"nonsense\n", b"\xff\n"])
def test_a_header_that_makes_no_sense_is_answered(header: bytes) -> None:
    answers = Answers()
    assert stage.main(io.BytesIO(header), answers) == 1
    assert answers.lines[-1]["error"].startswith("the header cannot be understood")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_is_said_before_a_byte_travels(small_disk: Path) -> None:
    host = Host(small_disk)
    answer = host.stage({"big": (0o644, b"x" * 1_000_000)})
    assert answer["error"].startswith(f"{host.root}: no space left: 1000000 bytes are to come, ")
    assert host.need == []


def test_a_disk_that_fills_up_meanwhile_is_named(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage.Sync, "_check_space", lambda *_: None)
    host = Host(small_disk)
    answer = host.stage({"big": (0o644, b"x" * 1_000_000)})
    assert answer["error"] == f"{host.root}/big: No space left on device"
    assert not list(host.root.glob("*.part"))


def test_a_read_only_place_is_named(small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert host_error(small_disk) == f"{small_disk}/runs: Read-only file system"


def host_error(base: Path) -> str:
    return str(Host(base).stage(FIRST)["error"])


def test_a_place_that_another_user_has_taken_is_refused(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("making another user's folder needs root")
    shared = tmp_path / "tmp"
    (shared / "clusterkit-0").mkdir(parents=True)
    shared.chmod(0o1777)
    os.chown(shared / "clusterkit-0", 12345, 12345)
    answer = Host(tmp_path / "host").stage(FIRST, log_dir=str(shared / "clusterkit-0" / "r1" / "logs"))
    assert answer["error"] == f"{shared}/clusterkit-0: belongs to another user"


def test_a_file_where_a_folder_should_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    assert host_error(tmp_path) == f"{tmp_path}/runs/r1: Not a directory"


def test_two_stages_of_the_same_code_wait_for_each_other(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "LOCK_LIMIT", 0.3)
    host.stage(FIRST)
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with stage._Lock(stage._beside(str(host.root), ".lock")):
            inside.set()
            leave.wait(10)

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        assert inside.wait(5)
        assert "another stage has held it" in host.stage(FIRST)["error"]
    finally:
        leave.set()
        holder.join()
    assert host.stage(FIRST)["staged"]


def test_the_packed_agent_stages_over_pipes(tmp_path: Path) -> None:
    packed = tmp_path / "agent.pyz"
    packed.write_bytes(agent.build())
    data = os.urandom(300_000)
    header = {
        "run_dir": str(tmp_path / "run"),
        "files": {"node.sh": "true\n"},
        "log_dir": str(tmp_path / "logs"),
        "workdir": str(tmp_path / "code" / "p"),
        "sync": {"root": str(tmp_path / "code" / "p"), "manifest": [entry("data.bin", 0o644, data)]},
    }
    with subprocess.Popen(
        [sys.executable, str(packed), "stage"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(header).encode() + b"\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline()) == {"need": [0]}
        process.stdin.write(data)
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["received_bytes"] == len(data)
        assert process.wait(10) == 0
    assert (tmp_path / "code/p/data.bin").read_bytes() == data
