"""The agent as one file: what is in it, and that old interpreters can run it."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import clusterkit.node
from clusterkit import agent
from clusterkit.node import listeners, master, rank
from clusterkit.node import plan as planning

from .loopback import cluster

SOURCES = sorted(Path(clusterkit.node.__file__).parent.glob("*.py"))


def other_pythons() -> list[str]:
    """Interpreters of other versions on this machine: by name, and where pyenv keeps them."""
    found = [shutil.which(f"python3.{minor}") for minor in (6, 7, 8, 9)]
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found += [str(path) for path in sorted(kept.glob("3.[6-9].*/bin/python3"))]
    return [path for path in found if path and runs(path)]


def runs(python: str) -> bool:
    made = subprocess.run([python, "-c", "import ctypes"], capture_output=True, check=False)
    return made.returncode == 0


OTHERS = other_pythons()


def test_the_same_source_gives_the_same_bytes() -> None:
    assert agent.build() == agent.build()


def test_the_agent_holds_every_file_of_the_node_and_nothing_else() -> None:
    with zipfile.ZipFile(io.BytesIO(agent.build())) as archive:
        names = sorted(archive.namelist())
    assert names == sorted(["__main__.py", *(f"clusterkit_node/{source.name}" for source in SOURCES)])


def test_the_agent_says_what_it_can_do(tmp_path: Path) -> None:
    packed = tmp_path / "agent.pyz"
    packed.write_bytes(agent.build())
    made = subprocess.run([sys.executable, packed], capture_output=True, text=True, check=False)
    assert made.returncode == 2
    assert made.stderr.startswith("usage: agent.pyz stage |")


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_the_source_is_python_3_6(source: Path) -> None:
    text = source.read_text(encoding="utf-8")
    tree = ast.parse(text, feature_version=(3, 6))
    modules = {
        (node.module if isinstance(node, ast.ImportFrom) and not node.level else name.name).split(".")[0]  # type: ignore[union-attr]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and not node.level)
        for name in node.names
    }
    assert modules <= set(sys.stdlib_module_names) - {"dataclasses", "contextvars", "graphlib", "zoneinfo"}
    # What `ast` takes for 3.6 though it is newer.
    assert "from __future__ import annotations" not in text
    assert not re.search(r"f\"[^\"]*\{[^}\"]*=\}", text)
    assert not re.search(r"\b(list|dict|set|tuple|type)\[", _annotations(tree))
    assert "capture_output" not in text
    assert "text=True" not in text


def _annotations(tree: ast.AST) -> str:
    """Annotations that are evaluated when the module is imported."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            found += [argument.annotation for argument in node.args.args if argument.annotation]
            found += [node.returns] if node.returns else []
        elif isinstance(node, ast.ClassDef):
            found += [line.annotation for line in node.body if isinstance(line, ast.AnnAssign)]
    return "\n".join(ast.unparse(annotation) for annotation in found)


@pytest.mark.parametrize(
    "python", OTHERS[:1] or [pytest.param("", marks=pytest.mark.skip("no older Python here"))]
)
def test_a_run_under_an_older_python(tmp_path: Path, python: str) -> None:
    script = "#!/bin/sh\nif [ $PADDLE_TRAINER_ID = 1 ]; then sleep 0.3; exit 7; fi\nexec sleep 60\n"
    with cluster(tmp_path, script, ranks_per_node=(1, 1), python=python) as run:
        nodes = run.go(20)
        states = [node.wait_end(15) for node in nodes]
        assert [state["decision"]["cause"]["exit_code"] for state in states] == [7, 7]
        assert run.stop(0)["was"] == "ended"
        assert run.left() == {}


def test_states_hold_no_secret(tmp_path: Path) -> None:
    with cluster(tmp_path, "#!/bin/sh\nsleep 1\n", ranks_per_node=(1,)) as run:
        node = run.go()[0]
        arguments = "".join(run.left().values())
        node.wait_end(10)
        written = "".join(
            path.read_text(errors="replace")
            for path in run.run_dir(0).rglob("*")
            if path.suffix in (".json", ".log")
        )
        for secret in (run.key, "a secret"):
            assert secret not in written
            assert secret not in arguments


def test_the_master_s_answer_names_the_node_ranks() -> None:
    body = {f"/job/info/{n}": json.dumps({"name": "x", "rank": n, "endpoints": ""}) for n in (2, 0)}
    assert master.registered_ranks(json.dumps(body).encode()) == [0, 2]
    assert master.registered_ranks(b"not JSON") == []
    assert master.registered_ranks(b'{"/job/info/0": "not JSON"}') == []


def test_nobody_holds_a_free_port() -> None:
    assert listeners.who_listens("127.0.0.1", 1) == ""


@pytest.mark.parametrize(
    ("environ", "local"),
    [
        ({"PADDLE_RANK_IN_NODE": "2", "PADDLE_LOCAL_RANK": "1"}, 2),
        ({"PADDLE_LOCAL_RANK": "1"}, 1),
        ({"PADDLE_RANK_IN_NODE": ""}, 0),
        ({"PADDLE_TRAINER_ID": "5"}, 1),
        ({"PADDLE_TRAINER_ID": "0"}, 0),
        ({}, 0),
    ],
)
def test_the_local_rank_is_the_launchers(environ: dict[str, str], local: int) -> None:
    """A launcher of 1.8 gives global ranks only."""
    described = {
        "run_id": "r",
        "alias": "b",
        "node_rank": 1,
        "node_ip": "10.0.0.2",
        "ranks": [4, 5],
        "world_size": 6,
        "nodes": [{"alias": name, "node_ip": "10.0.0.1", "ranks": []} for name in "ab"],
        "channel_port": 1,
        "master_port": 2,
        "job_id": "r",
        "workdir": "/w",
        "log_dir": "/l",
        "keep_environment": [],
    }
    assert rank.local_rank(environ, planning.parse(described)) == local
