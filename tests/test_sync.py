"""The code sync: which folder, which files (git is the judge), what is refused, and bringing it to a host."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import select
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from clusterkit import agent, sync
from clusterkit.errors import ClusterkitError, CommandFailed, HostTimeout, InputError, NotFound, Unreachable
from clusterkit.remote.protocol import Result
from clusterkit.sync import collecting
from clusterkit.sync.roots import script_in
from clusterkit.sync.sizes import biggest, human

IGNORE_CASES = Path(__file__).parent / "cases" / "ignore"


def tree(root: Path, *paths: str, **texts: str) -> Path:
    """Files with a little content, each with its own; a path that ends in a slash is a folder."""
    for path in paths:
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if path.endswith("/"):
            place.mkdir(exist_ok=True)
        else:
            place.write_text(f"content of {path}\n")
    for name, text in texts.items():
        (root / name).write_text(text)
    return root


def paths(manifest: sync.Manifest) -> list[str]:
    return [entry.path for entry in manifest.entries]


# --- the root ---


def test_the_root_is_where_we_are_if_the_script_lies_under_it(tmp_path: Path) -> None:
    tree(tmp_path, "proj/tools/train.py")
    proj = tmp_path / "proj"
    assert sync.sync_root(Path("tools/train.py"), proj) == proj
    assert sync.sync_root(proj / "tools/train.py", proj) == proj
    assert sync.sync_root(Path("../tools/train.py"), proj / "tools") == proj / "tools"
    assert script_in(Path("tools/train.py"), proj, proj) == "tools/train.py"


def test_else_it_is_the_folder_of_the_script(tmp_path: Path) -> None:
    tree(tmp_path, "proj/train.py", "else/where/")
    root = sync.sync_root(Path("../../proj/train.py"), tmp_path / "else/where")
    assert root == tmp_path / "proj"
    assert script_in(Path("../../proj/train.py"), tmp_path / "else/where", root) == "train.py"


def test_a_folder_that_only_begins_with_the_same_name_is_another_one(tmp_path: Path) -> None:
    tree(tmp_path, "proj/", "proj-old/train.py")
    assert sync.sync_root(tmp_path / "proj-old/train.py", tmp_path / "proj") == tmp_path / "proj-old"


def test_links_to_a_folder_are_resolved_and_a_script_that_is_a_link_is_not(tmp_path: Path) -> None:
    tree(tmp_path, "real/a/train.py", "shared/common.py")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "real/linked.py").symlink_to(tmp_path / "shared/common.py")
    assert sync.sync_root(Path("a/train.py"), tmp_path / "link") == tmp_path / "real"
    assert sync.sync_root(tmp_path / "link/a/train.py", tmp_path / "real") == tmp_path / "real"
    assert sync.sync_root(Path("linked.py"), tmp_path / "real") == tmp_path / "real"


@pytest.mark.parametrize("cwd", ["home", "", "home/proj"])
def test_the_home_and_what_is_above_it_are_never_sent(cwd: str, tmp_path: Path) -> None:
    home = tree(tmp_path, "home/train.py", "home/proj/x.py").joinpath("home")
    with pytest.raises(InputError) as caught:
        sync.sync_root(home / "train.py", tmp_path / cwd, home)
    assert "would be sent to the hosts" in caught.value.message
    assert "a folder of its own" in caught.value.hint
    assert sync.sync_root(home / "proj/x.py", home / "proj", home) == home / "proj"


def test_what_is_not_sent_may_be_the_home(tmp_path: Path) -> None:
    tree(tmp_path, "train.py")
    assert sync.sync_root(Path("train.py"), tmp_path, tmp_path, sent=False) == tmp_path


def test_the_root_directory_is_never_sent(tmp_path: Path) -> None:
    tree(tmp_path, "home/", "train.py")
    inside = Path(os.path.relpath(tmp_path / "train.py", "/"))
    with pytest.raises(InputError, match="all of / would be sent"):
        sync.sync_root(inside, Path("/"), tmp_path / "home")


def test_a_script_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"no such script: train\.py"):
        sync.sync_root(Path("train.py"), tmp_path)
    with pytest.raises(InputError, match="is a folder, not a script"):
        sync.sync_root(Path(), tmp_path)


def test_the_name_of_a_root(tmp_path: Path) -> None:
    name = sync.sync_name(tmp_path / "My Proj (1)")
    assert name == sync.sync_name(tmp_path / "My Proj (1)")
    assert name.rpartition("-")[0] == "My_Proj__1_"
    assert len({sync.sync_name(Path(each)) for each in ("/a/p", "/b/p", "/a/p2", "/a/.p", "/数据")}) == 5
    assert sync.sync_name(Path("/x/..hidden")).startswith("hidden-")


# --- which files ---


def git(root: Path, *words: str) -> bytes:
    clean = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        "LC_ALL": "C.UTF-8",
    }
    return subprocess.run(
        ["git", "-C", str(root), *words], env=clean, check=True, capture_output=True, timeout=60
    ).stdout


def judged_by_git(root: Path) -> list[str]:
    """What git would add: the files of `root` that no .gitignore leaves out."""
    listed = git(root, "ls-files", "-z", "--others", "--exclude-standard").split(b"\0")
    return sorted(os.fsdecode(each) for each in listed if each)


@pytest.mark.skipif(not shutil.which("git"), reason="git, the judge of this test, is not installed")
@pytest.mark.parametrize("case", sorted(IGNORE_CASES.glob("*.json")), ids=lambda path: path.stem)
def test_ignore_files_mean_what_they_mean_to_git(case: Path, tmp_path: Path) -> None:
    told = json.loads(case.read_text())
    tree(tmp_path, *told["files"])
    for path, lines in told["ignore"].items():
        (tmp_path / path).write_text("\n".join(lines) + "\n")
    git(tmp_path, "init", "-q")
    assert paths(sync.collect(tmp_path)) == judged_by_git(tmp_path)


@pytest.mark.skipif(not shutil.which("git"), reason="git, the judge of this test, is not installed")
@pytest.mark.parametrize("seed", range(12))
def test_random_ignore_files_mean_what_they_mean_to_git(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    names = ["a", "b", "c.py", "d.log", "data", "out"]
    files = {"/".join(chance.choices(names, k=chance.randint(1, 4))) for _ in range(40)}
    files = {file for file in files if not any(other.startswith(file + "/") for other in files)}
    shapes = [
        "{0}",
        "/{0}",
        "{0}/",
        "{0}/{1}",
        "**/{0}",
        "{0}/**",
        "{0}/*",
        "*.py",
        "*.log",
        "!{0}",
        "!{0}/",
        "!/{0}/{1}",
        "!*.py",
    ]
    tree(tmp_path, *files)
    folders = [tmp_path, *(path for path in sorted(tmp_path.rglob("*")) if path.is_dir())]
    for folder in chance.sample(folders, min(3, len(folders))):
        lines = [
            chance.choice(shapes).format(*chance.choices(names, k=2)) for _ in range(chance.randint(1, 5))
        ]
        (folder / ".gitignore").write_text("\n".join(lines) + "\n")
    git(tmp_path, "init", "-q")
    assert paths(sync.collect(tmp_path)) == judged_by_git(tmp_path)


def test_clusterkitignore_goes_before_gitignore(tmp_path: Path) -> None:
    tree(tmp_path, "train.py", "data/big", "config.yml", "sub/keep.log", "sub/other.log", "notes.txt")
    (tmp_path / ".gitignore").write_text("config.yml\n")
    (tmp_path / "sub/.gitignore").write_text("*.log\n")
    (tmp_path / ".clusterkitignore").write_text("data/\n!config.yml\n!sub/keep.log\nnotes.txt\n.*ignore\n")
    assert paths(sync.collect(tmp_path)) == ["config.yml", "sub/keep.log", "train.py"]


def test_the_rules_of_the_repository_above_hold_too(tmp_path: Path) -> None:
    tree(
        tmp_path,
        "repo/.git/config",
        "repo/a/b/train.py",
        "repo/a/b/x.log",
        "repo/a/b/out/y",
        "repo/a/b/z.tmp",
    )
    tree(tmp_path, "repo/a/b/sub/w.tmp")
    (tmp_path / ".gitignore").write_text("*.py\n")
    (tmp_path / "repo/.gitignore").write_text("*.log\n/a/b/out\n")
    (tmp_path / "repo/a/.gitignore").write_text("*.tmp\n")
    (tmp_path / "repo/a/b/sub/.gitignore").write_text("!w.tmp\n")
    assert paths(sync.collect(tmp_path / "repo/a/b")) == ["sub/.gitignore", "sub/w.tmp", "train.py"]


def test_a_root_that_the_repository_ignores_was_chosen_on_purpose(tmp_path: Path) -> None:
    tree(tmp_path, "repo/.git/config", "repo/runs/today/train.py")
    (tmp_path / "repo/.gitignore").write_text("runs/\n")
    assert paths(sync.collect(tmp_path / "repo/runs/today")) == ["train.py"]


def test_what_never_travels(tmp_path: Path) -> None:
    tree(
        tmp_path,
        "train.py",
        ".git/config",
        "sub/.git",
        "__pycache__/a.pyc",
        "b.pyc",
        "venv/pyvenv.cfg",
        "venv/lib/x",
    )
    tree(
        tmp_path,
        "conda/conda-meta/h",
        "conda/bin/python",
        ".mypy_cache/x",
        ".ipynb_checkpoints/x",
        ".DS_Store",
    )
    tree(tmp_path, ".hidden", "node_modules/x/y", "keep/pycache/x")
    (tmp_path / ".clusterkitignore").write_text("!.git\n!venv\n")
    assert paths(sync.collect(tmp_path)) == [".clusterkitignore", ".hidden", "keep/pycache/x", "train.py"]


def test_the_file_of_env_file_never_travels(tmp_path: Path) -> None:
    tree(tmp_path, "train.py", "job.env")
    (tmp_path / "link.env").symlink_to("job.env")
    assert "job.env" not in paths(sync.collect(tmp_path, without=[tmp_path / "job.env"]))


def test_a_script_that_is_left_out_is_an_error(tmp_path: Path) -> None:
    tree(tmp_path, "train.py", "a.py")
    (tmp_path / ".gitignore").write_text("train.py\n")
    with pytest.raises(InputError) as caught:
        sync.collect(tmp_path, needed="train.py")
    assert "train.py would not be sent" in caught.value.message
    assert "!train.py" in caught.value.hint
    assert sync.collect(tmp_path, needed="a.py").entries


def test_an_entry_says_everything_about_a_file(tmp_path: Path) -> None:
    tree(tmp_path, "a b/ü.py", empty="")
    (tmp_path / "a b/ü.py").chmod(0o755)
    manifest = sync.collect(tmp_path)
    text = b"content of a b/\xc3\xbc.py\n"
    assert manifest.rows() == [
        ["a b/ü.py", 0o755, len(text), hashlib.sha256(text).hexdigest()],
        ["empty", stat.S_IMODE((tmp_path / "empty").stat().st_mode), 0, hashlib.sha256().hexdigest()],
    ]
    assert manifest.size == len(text)
    assert b"".join(manifest.content(manifest.entries[0])) == text


def test_many_files_are_hashed_in_order(tmp_path: Path) -> None:
    tree(tmp_path, *(f"d{number % 7}/f{number}" for number in range(300)))
    manifest = sync.collect(tmp_path)
    assert paths(manifest) == sorted(paths(manifest))
    for entry in manifest.entries:
        assert entry.sha256 == hashlib.sha256((tmp_path / entry.path).read_bytes()).hexdigest()


def test_links(tmp_path: Path) -> None:
    root = tree(tmp_path, "proj/a/file", "proj/b/", "outside/secret").joinpath("proj")
    (root / "inside").symlink_to("a/file")
    (root / "b/up").symlink_to("../a/file")
    (root / "absolute").symlink_to(root / "a")
    (root / "b/around").symlink_to("../../proj/a/file")
    (root / "dangling").symlink_to("a/not-yet")
    (root / "loop").symlink_to(".")
    (root / "out").symlink_to("../outside/secret")
    (root / "out-folder").symlink_to(tmp_path / "outside")
    (root / "hop").symlink_to("out-folder/secret")
    manifest = sync.collect(root)
    links = {entry.path: entry.target for entry in manifest.entries if entry.is_link}
    assert links == {
        "inside": "a/file",
        "b/up": "../a/file",
        "absolute": "a",
        "b/around": "../a/file",
        "dangling": "a/not-yet",
        "loop": ".",
    }
    assert [entry.path for entry in manifest.entries if not entry.is_link] == ["a/file"]
    for entry in manifest.entries:
        if entry.is_link:
            assert entry.mode == 0o120777
            assert b"".join(manifest.content(entry)) == (entry.target or "").encode()
    assert sorted(warning.split()[2] for warning in manifest.warnings) == ["hop", "out", "out-folder"]
    assert all("mount it on the hosts" in warning for warning in manifest.warnings)


def test_a_link_as_a_root_is_followed(tmp_path: Path) -> None:
    tree(tmp_path, "real/train.py")
    (tmp_path / "link").symlink_to("real")
    assert paths(sync.collect(tmp_path / "link")) == ["train.py"]


def test_what_is_no_file_is_left_out_with_a_warning(tmp_path: Path) -> None:
    tree(tmp_path, "train.py")
    os.mkfifo(tmp_path / "pipe")
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as listener:
        here = Path.cwd()
        os.chdir(tmp_path)  # a socket's path must be short
        try:
            listener.bind("sock")
        finally:
            os.chdir(here)
    (Path(os.fsdecode(os.fsencode(tmp_path) + b"/bad-\xff"))).write_text("x")
    manifest = sync.collect(tmp_path)
    assert paths(manifest) == ["train.py"]
    assert len(manifest.warnings) == 3
    json.dumps(manifest.warnings).encode("utf-8")
    assert [
        word for word in ("pipe", "sock", "bad-\ufffd") if not any(word in text for text in manifest.warnings)
    ] == []


# Root can read everything, so this is asked as somebody else. Libraries are loaded while they can be.
COLLECT_AS_NOBODY = """
import os, sys
from pathlib import Path
import pathspec
from clusterkit import sync
from clusterkit.errors import InputError
sync.collect(Path(sys.argv[2]))
if os.geteuid() == 0:
    os.setuid(65534)
try:
    sync.collect(Path(sys.argv[1]))
except InputError as error:
    sys.exit(error.message)
"""


@pytest.mark.parametrize("name", ["secret", "folder", ".gitignore"])
def test_what_cannot_be_read_is_an_error(name: str, tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as place:
        root = tree(Path(place), "train.py", "secret", "folder/x", ".gitignore")
        root.chmod(0o755)
        (root / name).chmod(0)
        words = [sys.executable, "-c", COLLECT_AS_NOBODY, place, str(tree(tmp_path, "a/b.py", ".gitignore"))]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
        (root / name).chmod(0o700)
    assert done.stderr == f"{Path(place).resolve() / name} cannot be read: Permission denied\n"


# --- how much ---


def sparse(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)


def test_too_much_names_the_biggest_folders(tmp_path: Path) -> None:
    tree(tmp_path, "train.py")
    sparse(tmp_path / "runs/old/model.pdparams", 300_000_000)
    sparse(tmp_path / "data/train/x", 60_000_000)
    sparse(tmp_path / "data/test/x", 50_000_000)
    sparse(tmp_path / "video.mp4", 70_000_000)
    with pytest.raises(InputError) as caught:
        sync.collect(tmp_path)
    assert "480 MB in 5 files" in caught.value.message
    assert "200 MB (--sync-limit) is the limit" in caught.value.message
    assert caught.value.message.endswith(
        "the biggest: runs/old/ 300 MB, data/ 110 MB, video.mp4 70.0 MB, train.py 20 B"
    )
    assert ".clusterkitignore" in caught.value.hint
    assert "--no-sync" in caught.value.hint
    (tmp_path / ".clusterkitignore").write_text("runs\n/data\n")
    assert sync.collect(tmp_path).size < 200_000_000


def test_the_limit_itself_is_allowed(tmp_path: Path) -> None:
    sparse(tmp_path / "x", 1000)
    assert sync.collect(tmp_path, limit=1000).size == 1000
    with pytest.raises(InputError):
        sync.collect(tmp_path, limit=999)


def test_too_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "FILE_LIMIT", 20)
    tree(tmp_path, *(f"d/{number}" for number in range(21)))
    with pytest.raises(InputError, match=r"in 21 files .* 20 files is the limit"):
        sync.collect(tmp_path)


def test_looking_around_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "LOOK_AROUND_S", -1.0)
    for number in range(5):
        sparse(tmp_path / f"f{number}", 1000)
    with pytest.raises(InputError, match=r"has more than 2\.0 kB in 2 files"):
        sync.collect(tmp_path, limit=1500)


def test_sizes_in_words() -> None:
    assert [
        human(size) for size in (0, 999, 1000, 1234, 99_949, 99_950, 999_499, 999_500, 12_345_678_901)
    ] == [*("0 B", "999 B", "1.0 kB", "1.2 kB", "99.9 kB", "100 kB", "999 kB", "1.0 MB", "12.3 GB")]
    assert biggest([("a/b/c", 95), ("a/x", 5), ("d", 50), ("e/f", 10), ("e/g", 10)]) == [
        *(("a/b/", 100), ("d", 50), ("e/", 20))
    ]


# --- to a host ---


class LocalStream:
    """A script on this machine behind the Stream protocol."""

    def __init__(self, script: str, home: Path) -> None:
        environment = {"PATH": os.environ["PATH"], "HOME": str(home)}
        self._process = subprocess.Popen(
            ["sh", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd="/",
            bufsize=0,
        )

    def send(self, data: bytes) -> None:
        assert self._process.stdin is not None
        view = memoryview(data)
        try:
            while view:
                view = view[self._process.stdin.write(view) :]
        except BrokenPipeError:
            raise Unreachable("h", "connection", "gone") from None

    def finish(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
            self._process.stdin = None

    def read(self, size: int, timeout: float | None = None) -> bytes:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], timeout)[0]:
            raise HostTimeout("h", "no answer")
        return os.read(self._process.stdout.fileno(), size)

    def wait(self, timeout: float) -> Result:
        out, err = self._process.communicate(timeout=timeout)
        return Result(self._process.returncode, out, err)

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        self._process.kill()
        self._process.wait(10)


@dataclass
class Node:
    alias: str
    run_dir: str
    workdir: str
    log_dir: str


NODE = Node("gpu01", "~/ck/gpu01/runs/r 1", "~/ck/gpu01/code/p-1", "~/ck/gpu01/runs/r 1/logs")
FILES = {"plan.json": '{"é": 1}\n', "node.sh": "true\n", "channel.key": "ab" * 32}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "host home").mkdir()
    return tmp_path / "host home"


@contextlib.contextmanager
def staging(
    home: Path, package: bytes, node: Node = NODE, python: str = sys.executable
) -> Iterator[LocalStream]:
    stream = LocalStream(sync.bootstrap(python, node.run_dir, len(package)), home)
    try:
        with contextlib.suppress(Unreachable):
            stream.send(package)
        yield stream
    finally:
        stream.close()


def stage(
    home: Path, manifest: sync.Manifest | None, package: bytes | None = None, node: Node = NODE
) -> sync.StageResult:
    with staging(home, package or agent.build(), node) as stream:
        result = sync.send(stream, node, FILES, manifest, timeout=20)
        assert stream.wait(10).status == 0
    return result


def double(*lines: str) -> bytes:
    """An agent that reads a header and says these lines, each once the one before was answered."""
    says = json.dumps(lines)
    return (
        "import sys, json, time\n"
        "header = json.loads(sys.stdin.buffer.readline().decode())\n"
        f"for line in json.loads({says!r}):\n"
        "    sys.stdout.write(line); sys.stdout.flush()\n"
    ).encode()


def test_the_run_and_the_code_are_on_the_host(tmp_path: Path, home: Path) -> None:
    root = tree(tmp_path, "proj/a/train.py", "proj/run.sh").joinpath("proj")
    (root / "run.sh").chmod(0o755)
    (root / "big").write_bytes(os.urandom(3_000_001))
    (root / "empty").write_bytes(b"")
    (root / "link").symlink_to("a/train.py")
    manifest = sync.collect(root)
    result = stage(home, manifest)
    run, code = home / "ck/gpu01/runs/r 1", home / "ck/gpu01/code/p-1"
    assert result == {"received_bytes": manifest.size, "run_dir": str(run), "workdir": str(code)}
    assert {name: (run / name).read_text() for name in FILES} == FILES
    for name in (*FILES, "agent.pyz"):
        assert stat.S_IMODE((run / name).stat().st_mode) == 0o600
    for folder in (run, run.parent, run.parent.parent, home / "ck"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert (run / "agent.pyz").read_bytes() == agent.build()
    assert (run / "logs").is_dir()
    for entry in manifest.entries:
        assert (code / entry.path).read_bytes() == (root / entry.path).read_bytes()
    assert os.access(code / "run.sh", os.X_OK)
    assert (code / "link").readlink() == Path("a/train.py")


def test_the_second_time_only_what_changed_travels(tmp_path: Path, home: Path) -> None:
    root = tree(tmp_path, "proj/a.py", "proj/b.py", "proj/c.py").joinpath("proj")
    stage(home, sync.collect(root))
    code = home / "ck/gpu01/code/p-1"
    (code / "result.txt").write_text("of the job")
    (root / "b.py").write_text("changed\n")
    (root / "c.py").unlink()
    again = Node("gpu01", "~/ck/gpu01/runs/r2", NODE.workdir, "~/ck/gpu01/runs/r2/logs")
    assert stage(home, sync.collect(root), node=again)["received_bytes"] == len("changed\n")
    assert sorted(path.name for path in code.iterdir()) == ["a.py", "b.py", "result.txt"]
    assert stage(home, sync.collect(root), node=again)["received_bytes"] == 0


def test_without_sync_only_the_run_travels(home: Path) -> None:
    (home / "shared").mkdir()
    node = Node("gpu01", NODE.run_dir, "~/shared", NODE.log_dir)
    result = stage(home, None, node=node)
    assert result["received_bytes"] == 0
    assert result["workdir"] == str(home / "shared")
    with pytest.raises(CommandFailed, match="is not a folder on this host"):
        stage(home, None, node=Node("gpu01", NODE.run_dir, "/no/such/mount", NODE.log_dir))
    assert not (home / "ck/gpu01/code").exists()


def test_progress_is_told(tmp_path: Path, home: Path) -> None:
    root = tree(tmp_path, "proj/a.py").joinpath("proj")
    (root / "big").write_bytes(bytes(2_500_000))
    manifest, pieces = sync.collect(root), list[int]()
    with staging(home, agent.build()) as stream:
        sync.send(stream, NODE, FILES, manifest, timeout=20, progress=pieces.append)
    assert sum(pieces) == manifest.size
    assert len(pieces) > 2


def test_a_file_that_shrinks_or_goes_meanwhile(tmp_path: Path, home: Path) -> None:
    for change in ("shrink", "go"):
        root = tree(tmp_path, "proj/log.txt").joinpath("proj")
        manifest = sync.collect(root)
        if change == "shrink":
            (root / "log.txt").write_text("x")
        else:
            (root / "log.txt").unlink()
        with (
            staging(home, agent.build()) as stream,
            pytest.raises(InputError, match=r"log\.txt changed while"),
        ):
            sync.send(stream, NODE, FILES, manifest, timeout=20)


def test_a_file_that_changes_its_content_meanwhile(tmp_path: Path, home: Path) -> None:
    root = tree(tmp_path, "proj/log.txt").joinpath("proj")
    manifest = sync.collect(root)
    (root / "log.txt").write_text("C" + (root / "log.txt").read_text()[1:])
    with staging(home, agent.build()) as stream, pytest.raises(CommandFailed, match=r"log\.txt changed"):
        sync.send(stream, NODE, FILES, manifest, timeout=20)


def test_what_the_host_says_is_passed_on(home: Path) -> None:
    package = double('{"error": "/data: No space left on device"}\n')
    with staging(home, package) as stream, pytest.raises(CommandFailed) as caught:
        sync.send(stream, NODE, FILES, None, timeout=20)
    assert caught.value.host == "gpu01"
    assert caught.value.message == "staging failed: /data: No space left on device"


def test_what_the_host_says_in_the_middle_beats_the_broken_connection(tmp_path: Path, home: Path) -> None:
    root = tree(tmp_path, "proj/").joinpath("proj")
    (root / "big").write_bytes(bytes(5_000_000))
    package = double('{"need": [0]}\n', '{"error": "disk full"}\n')
    with staging(home, package) as stream, pytest.raises(CommandFailed, match="staging failed: disk full"):
        sync.send(stream, NODE, FILES, sync.collect(root), timeout=20)


@pytest.mark.parametrize(
    "line",
    [
        '{"need": [1]}\n',
        '{"need": [-1]}\n',
        '{"need": "all"}\n',
        '{"need": [true]}\n',
        "{}\n",
        "hello\n",
        "[1]\n",
        "\xff\n",
    ],
)
def test_an_answer_that_is_none(line: str, tmp_path: Path, home: Path) -> None:
    root = tree(tmp_path, "proj/a").joinpath("proj")
    with staging(home, double(line)) as stream, pytest.raises(CommandFailed, match="an answer that is none"):
        sync.send(stream, NODE, FILES, sync.collect(root), timeout=20)


def test_an_end_without_an_answer(home: Path) -> None:
    with (
        staging(home, b"import sys; sys.exit('Traceback: something')\n") as stream,
        pytest.raises(CommandFailed) as caught,
    ):
        sync.send(stream, NODE, FILES, None, timeout=20)
    assert caught.value.message == "staging ended early: Traceback: something"


def test_no_interpreter(home: Path) -> None:
    with staging(home, b"x" * 10, python="python9") as stream, pytest.raises(CommandFailed) as caught:
        sync.send(stream, NODE, FILES, None, timeout=20)
    assert caught.value.message == "staging ended early: there is no python9"
    assert "`python`" in caught.value.hint


def test_a_host_that_says_nothing(home: Path) -> None:
    began = time.monotonic()
    with staging(home, b"import time; time.sleep(30)\n") as stream, pytest.raises(ClusterkitError) as caught:
        sync.send(stream, NODE, FILES, None, timeout=0.5)
    assert time.monotonic() - began < 10
    assert isinstance(caught.value, HostTimeout)


def test_a_slow_dribble_is_no_answer_either(home: Path) -> None:
    package = b"import sys, time\nwhile True: sys.stdout.write('x'); sys.stdout.flush(); time.sleep(0.1)\n"
    with (
        staging(home, package) as stream,
        pytest.raises(HostTimeout, match="waited 1 s for the list of files"),
    ):
        sync.send(stream, NODE, FILES, None, timeout=1)


def test_a_connection_that_ends_too_early_leaves_no_agent(home: Path) -> None:
    stream = LocalStream(sync.bootstrap(sys.executable, NODE.run_dir, 1000), home)
    stream.send(b"x" * 999)
    stream.finish()
    result = stream.wait(10)
    stream.close()
    assert result.status == 1
    assert b"ended before the agent had arrived" in result.stderr
    assert not (home / "ck/gpu01/runs/r 1/agent.pyz").exists()


@pytest.mark.parametrize("run_dir", ["~/a b/$x;`id`'\"", "/{home}/abs", "~/ü", "~/-x"])
def test_any_run_dir_is_quoted(run_dir: str, home: Path) -> None:
    run_dir = run_dir.replace("{home}", str(home)[1:])
    package = (
        b"import os, sys; print(os.path.dirname(os.path.abspath(sys.argv[0])) + '|' + '|'.join(sys.argv[1:]))"
    )
    with staging(home, package, Node("h", run_dir, "", "")) as stream:
        stream.finish()
        result = stream.wait(10)
    place = run_dir.replace("~", str(home), 1)
    assert result.text == f"{place}|stage\n"
    stream = LocalStream(sync.agent_script(sys.executable, run_dir, "stop", "--grace", "4 0"), home)
    result = stream.wait(10)
    stream.close()
    assert result.text == f"{place}|stop|{place}|--grace|4 0\n"


def test_a_run_that_is_not_there(home: Path) -> None:
    for script in (
        sync.agent_script("python3", "~/no such", "state"),
        sync.attach_script("python3", "~/no such", "attach"),
    ):
        stream = LocalStream(script, home)
        result = stream.wait(10)
        stream.close()
        assert result.status == 66
        assert f"there is no {home}/no such/agent.pyz" in result.stderr.decode()


def test_removal_takes_the_run_and_its_logs_and_nothing_else(tmp_path: Path, home: Path) -> None:
    logs = tmp_path / "var/gpu01/r 1/logs"
    node = Node("gpu01", NODE.run_dir, NODE.workdir, str(logs))
    root = tree(tmp_path, "proj/a.py").joinpath("proj")
    stage(home, sync.collect(root), node=node)
    (home / "ck/gpu01/runs/r 1/plan.json").unlink()
    (tmp_path / "var/gpu01/other/logs").mkdir(parents=True)
    for _ in range(2):
        stream = LocalStream(sync.removal(sys.executable, node.run_dir, node.log_dir), home)
        result = stream.wait(60)
        stream.close()
        assert result.status == 0, result.stderr
    assert not (home / "ck/gpu01/runs/r 1").exists()
    assert (home / "ck/gpu01/runs").is_dir()
    assert (home / "ck/gpu01/code/p-1/a.py").exists()
    assert [path.name for path in (tmp_path / "var/gpu01").iterdir()] == ["other"]


def test_removal_never_takes_a_folder_that_is_not_the_runs(tmp_path: Path, home: Path) -> None:
    tree(tmp_path, "var/logs/x")
    stream = LocalStream(sync.removal(sys.executable, "~/ck/gpu01/runs/r1", str(tmp_path / "var/logs")), home)
    assert stream.wait(10).status == 0
    stream.close()
    assert (tmp_path / "var/logs/x").exists()


@pytest.mark.parametrize("run_dir", ["~/.clusterkit/gpu01/runs/r1", "/a b/it's", "~"])
def test_shells_accept_the_scripts(run_dir: str) -> None:
    scripts = [
        sync.bootstrap("~/venv/bin/python", run_dir, 10),
        sync.agent_script("python3", run_dir, "stop", "--grace", "40"),
        sync.attach_script("/opt/py thon", run_dir, "start"),
        sync.removal("python3", run_dir, "/var/tmp/x/logs"),
    ]
    for script in scripts:
        for shell in _shells():
            subprocess.run([*shell, "-n"], input=script.encode(), check=True, timeout=30)
        if shutil.which("shellcheck"):
            done = subprocess.run(
                ["shellcheck", "-s", "sh", "-"], input=script.encode(), capture_output=True, timeout=30
            )
            assert done.returncode == 0, done.stdout.decode()


def _shells() -> Sequence[tuple[str, ...]]:
    found = [(shell,) for shell in ("sh", "dash", "bash") if shutil.which(shell)]
    return [*found, ("busybox", "sh")] if shutil.which("busybox") else found


@pytest.mark.parametrize("script", ["bootstrap", "agent"])
def test_the_last_command_is_exec(script: str) -> None:
    text = (
        sync.bootstrap("python3", "~/r", 1)
        if script == "bootstrap"
        else sync.attach_script("python3", "~/r", "attach")
    )
    assert "\nexec " in text
