"""The layer rule of docs/architecture.md, read from the imports themselves."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "clusterkit"

# The rooms of each layer, top first. A room is a file or folder directly under clusterkit/.
LAYERS = (
    {"__main__"},
    {"cli", "report"},
    {
        *{
            "between",
            "diagnose",
            "finding",
            "fleet",
            "job",
            "launch",
            "lockwait",
            "logs",
            "observe",
            "on_end",
            "paced",
        },
        *{"preflight", "prepare", "proving", "pruning", "replacing", "reset", "smoke", "stacks"},
        *{"staging", "stop"},
    },
    {"agent", "diagnosis", "interrupts", "planning", "runs", "smoke_job", "steps", "sync", "tables"},
    {"facts", "probes"},
    {"remote", "inventory", "errors"},
)
DEPTH = {room: depth for depth, rooms in enumerate(LAYERS) for room in rooms}
APART = {"node", "sandbox"}


SSH_LIBRARIES = {"fabric", "paramiko", "invoke"}
SLOW_LIBRARIES = {*SSH_LIBRARIES, "jinja2", "yaml", "pathspec", "dotenv"}
TERMINAL = {"print", "sys.stdout.write", "sys.stdout.buffer.write", "sys.stderr.write", "typer.echo"}


@dataclass(frozen=True)
class Import:
    """One import statement: which file under clusterkit/ imports what. It reads as a failure message."""

    file: Path
    line: int
    module: str
    for_types: bool = False
    """True under `if TYPE_CHECKING:`: the import does not happen when the program runs."""

    def __str__(self) -> str:
        return f"clusterkit/{self.file}:{self.line} imports {self.module}"

    @property
    def importer(self) -> str:
        return room_of(self.file)

    @property
    def library(self) -> str:
        return self.module.split(".")[0]

    @property
    def imported(self) -> str | None:
        """The room of ours that is imported; None for a library, and for the package itself."""
        first, _, rest = self.module.partition(".")
        return rest.split(".")[0] or None if first == "clusterkit" else None


def room_of(file: Path) -> str:
    return file.parts[0].removesuffix(".py")


def imports_of(file: Path, source: str) -> Iterator[Import]:
    """Every import of a file, wherever it stands in it, relative ones made absolute."""
    package = ("clusterkit", *file.parent.parts)
    tree = ast.parse(source)
    for_types = statements_for_types(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for name in modules_of(node, package):
                yield Import(file, node.lineno, name, node in for_types)


def statements_for_types(tree: ast.Module) -> set[ast.stmt]:
    blocks = (node for node in ast.walk(tree) if isinstance(node, ast.If))
    return {
        one for block in blocks if ast.unparse(block.test).endswith("TYPE_CHECKING") for one in block.body
    }


def modules_of(node: ast.Import | ast.ImportFrom, package: tuple[str, ...]) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    above = package[: len(package) - node.level + 1] if node.level else ()
    base = ".".join((*above, *filter(None, [node.module])))
    # `from clusterkit import plan` means the module plan; `from clusterkit.planning.plan import Plan` too.
    return [f"{base}.{alias.name}" for alias in node.names] if base == "clusterkit" else [base]


def sources() -> dict[Path, str]:
    return {path.relative_to(PACKAGE): path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}


@pytest.fixture(scope="module")
def imports() -> list[Import]:
    """All imports of the package."""
    return [found for file, source in sources().items() for found in imports_of(file, source)]


def lines(found: list[Import]) -> str:
    return "\n".join(str(one) for one in found)


def test_every_module_has_a_room() -> None:
    rooms = {room_of(file) for file in sources()} - {"__init__"}
    unknown = rooms - DEPTH.keys() - APART
    assert not unknown, "give it a layer here and a line in docs/architecture.md"


def test_imports_point_down(imports: list[Import]) -> None:
    wrong = [
        found
        for found in imports
        if found.importer in DEPTH
        and found.imported in DEPTH
        and DEPTH[found.imported] < DEPTH[found.importer]
    ]
    assert not wrong, lines(wrong)


def test_imports_make_no_circle(imports: list[Import]) -> None:
    needs: dict[str, set[str]] = {}
    for found in imports:
        if found.imported in DEPTH and found.imported != found.importer and not found.for_types:
            needs.setdefault(found.importer, set()).add(found.imported)
    assert tuple(graphlib.TopologicalSorter(needs).static_order())


def test_only_remote_knows_fabric_and_paramiko(imports: list[Import]) -> None:
    wrong = [found for found in imports if found.library in SSH_LIBRARIES and found.importer != "remote"]
    assert not wrong, lines(wrong)


def test_what_runs_on_hosts_needs_only_python(imports: list[Import]) -> None:
    siblings = {path.stem for path in (PACKAGE / "node").glob("*.py")}
    wrong = [
        found
        for found in imports
        if found.importer == "node"
        and found.imported != "node"
        and found.library not in sys.stdlib_module_names
        and found.library not in siblings
    ]
    assert not wrong, lines(wrong)


def test_the_sandbox_stands_apart(imports: list[Import]) -> None:
    wrong = [
        found
        for found in imports
        if found.importer == "sandbox" and found.imported not in (None, "errors", "sandbox")
    ]
    assert not wrong, lines(wrong)


def test_only_cli_and_report_print() -> None:
    may_print = {"cli", "report", "node"}
    # Two programs of their own, which answer the one that started them, and a question to the person.
    answers = {
        Path("sandbox/init.py"),
        Path("sandbox/nvidia_smi.py"),
        Path("remote/terminal.py"),
        Path("smoke_job.py"),
    }
    wrong = [
        f"clusterkit/{file}:{node.lineno} {ast.unparse(node.func)}"
        for file, source in sources().items()
        if room_of(file) not in may_print and file not in answers
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in TERMINAL
    ]
    assert not wrong, "\n".join(wrong)


def test_help_imports_no_slow_library() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "clusterkit", "--help"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert "launch" in ran.stdout
    imported = {line.rpartition("|")[2].strip() for line in ran.stderr.splitlines() if "|" in line}
    assert "typer" in imported
    assert not imported & SLOW_LIBRARIES


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("import clusterkit.launch", "clusterkit.launch"),
        ("from clusterkit.launch import Launch", "clusterkit.launch"),
        ("from clusterkit import launch", "clusterkit.launch"),
        ("from .. import launch", "clusterkit.launch"),
        ("from ..launch import Launch", "clusterkit.launch"),
        ("from .mounts import Mount", "clusterkit.steps.mounts"),
        ("def later():\n    import paramiko", "paramiko"),
    ],
)
def test_every_form_of_import_is_seen(source: str, module: str) -> None:
    (found,) = imports_of(Path("steps/driver.py"), source)
    assert (found.importer, found.module, found.for_types) == ("steps", module, False)


def test_an_import_for_types_alone_is_told_apart() -> None:
    typed, real = imports_of(Path("plan.py"), "if TYPE_CHECKING:\n    import a\nelse:\n    import b\n")
    assert (typed.for_types, real.for_types) == (True, False)


def test_every_room_is_in_the_page() -> None:
    page = (PACKAGE.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    rooms = {
        path.name for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert not sorted(room for room in rooms if not room.startswith("__") and f"`{room}" not in page)
