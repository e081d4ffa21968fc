"""What a wheel and a source archive of the project hold."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from email.message import Message
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parent.parent
JUNK = {"__pycache__", ".git", ".venv", ".mypy_cache", ".pytest_cache", ".ruff_cache", "checkpoints"}


def build(kind: str, folder: Path) -> Path:
    """Build a `wheel` or an `sdist` into an empty folder with the build back end alone: no network."""
    program = f"import hatchling.build, sys; hatchling.build.build_{kind}(sys.argv[1])"
    command = [sys.executable, "-c", program, str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert built.returncode == 0, built.stderr
    (archive,) = folder.iterdir()
    return archive


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    """The built wheel, open."""
    with zipfile.ZipFile(build("wheel", tmp_path_factory.mktemp("wheel"))) as opened:
        yield opened


@pytest.fixture(scope="module")
def archive_names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The files of the source archive, without its top folder."""
    with tarfile.open(build("sdist", tmp_path_factory.mktemp("sdist"))) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


def in_wheel(wheel: zipfile.ZipFile, suffix: str) -> str:
    (name,) = [name for name in wheel.namelist() if name.endswith(suffix)]
    return wheel.read(name).decode()


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    """The wheel's core metadata."""
    return message_from_bytes(in_wheel(wheel, ".dist-info/METADATA").encode())


def test_every_template_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    here = {path.relative_to(ROOT).as_posix() for path in (ROOT / "templates").rglob("*") if path.is_file()}
    assert here
    assert {f"clusterkit/{name}" for name in here} <= set(wheel.namelist())


def test_the_tables_that_a_site_may_edit_are_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    assert {"clusterkit/data/drivers.toml", "clusterkit/data/xids.toml"} <= set(wheel.namelist())


def test_every_module_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "clusterkit").rglob("*.py")}
    assert modules <= set(wheel.namelist())


def test_the_wheel_holds_the_package_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0].partition("-")[0] for name in wheel.namelist()}
    assert tops == {"clusterkit"}
    assert not [name for name in wheel.namelist() if JUNK & set(PurePosixPath(name).parts)]


def test_the_command_is_installed(wheel: zipfile.ZipFile) -> None:
    assert "clusterkit = clusterkit.__main__:main" in in_wheel(wheel, "entry_points.txt")


def test_the_licence_travels(wheel: zipfile.ZipFile, metadata: Message) -> None:
    assert metadata["License-Expression"] == "Apache-2.0"
    assert in_wheel(wheel, "/LICENSE") == (ROOT / "LICENSE").read_text()


def test_no_test_tool_becomes_a_dependency(metadata: Message) -> None:
    needed = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert not [line for line in needed if line.startswith(("ansible", "pytest", "paddle"))]
    assert {"cpu", "gpu"} <= set(metadata.get_all("Provides-Extra", []))


@pytest.mark.parametrize(
    "name",
    [
        *("LICENSE", "Makefile", "README.md", "README.zh-CN.md", "pyproject.toml", "clusterkit/errors.py"),
        *("examples/train.py", "tests/test_packaging.py", "scripts/debian-packages"),
    ],
)
def test_the_source_archive_is_complete(archive_names: set[str], name: str) -> None:
    assert name in archive_names


def test_the_source_archive_has_no_junk(archive_names: set[str]) -> None:
    assert not [name for name in archive_names if JUNK & set(PurePosixPath(name).parts)]
