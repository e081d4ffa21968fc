"""16 nodes start within 50 ms of each other: the spread of `started_at`, from `status --json`.

    python -m tests.bench.start_spread [HOSTS]

The launchers compete for the processor as soon as they run, so the fewer cores, the harder.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path

from clusterkit.sandbox.sandbox import Sandbox
from clusterkit.sandbox.spec import SandboxSpec

BUDGET_S = 0.050
SCRIPT = "import time; time.sleep(1)\n"


def main(hosts: int = 16) -> None:
    """Print the spread of one launch on that many sandbox hosts, one rank each."""
    if os.geteuid() != 0 or sys.platform != "linux":
        print("start spread: skipped, sandbox hosts need Linux and root")
        return
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder) / "project"
        project.mkdir()
        (project / "job.py").write_text(SCRIPT)
        spec = SandboxSpec.of(hosts, name="bench-spread", nproc=1, python=(sys.executable,))
        with Sandbox.up(spec, Path(folder) / "sandbox.ini") as sandbox:
            started = starts(sandbox, project, {**os.environ, "XDG_STATE_HOME": folder})
    spread = max(started) - min(started)
    print(
        f"start spread: {len(started)} nodes within {spread * 1000:.1f} ms on {os.cpu_count()} cores, "
        f"{spread / BUDGET_S:.2f} of the budget of {BUDGET_S * 1000:.0f} ms"
    )


def starts(sandbox: Sandbox, project: Path, environ: dict[str, str]) -> list[float]:
    """When each node's launcher was started, in Unix seconds, corrected by the measured clock offsets."""
    clusterkit = [sys.executable, "-m", "clusterkit"]
    subprocess.run(
        [*clusterkit, "launch", "--quiet", str(sandbox.inventory), "job.py"],
        cwd=project,
        env=environ,
        check=True,
        timeout=300,
    )
    told = subprocess.run([*clusterkit, "status", "--json"], env=environ, capture_output=True, check=True)
    return [
        datetime.fromisoformat(node["started_at"]).timestamp() for node in json.loads(told.stdout)["nodes"]
    ]


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
