"""A look at a running node for `state --live`: the end and the age of each rank's log, and the GPUs' use."""

import os
import subprocess
import time
from typing import Any, Dict, List, Optional

from .files import last_bytes

# Enough for some lines of any training log; a fleet's answers stay small.
TAIL = 4096
# nvidia-smi of a GPU in trouble may never answer.
GPU_LIMIT = 5.0
_ASKED = "index,utilization.gpu,memory.used,memory.total"


def of(state: Dict[str, Any]) -> Dict[str, Any]:
    """What `state` calls `live`: `logs` by rank (`age_s`, `tail`), and `gpus`, None where none answers."""
    return {"logs": {str(rank["rank"]): _log(rank["log"]) for rank in state["ranks"]}, "gpus": gpus()}


def _log(path: str) -> Dict[str, Any]:
    try:
        age = max(0.0, time.time() - os.stat(path).st_mtime)
    except OSError:
        return {"age_s": None, "tail": ""}
    return {"age_s": round(age, 1), "tail": last_bytes(path, TAIL).decode("utf-8", "replace")}


def gpus() -> Optional[List[Dict[str, Any]]]:
    """Each GPU's number, use in percent, and memory in MiB."""
    command = ["nvidia-smi", "--query-gpu=" + _ASKED, "--format=csv,noheader,nounits"]
    try:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    except OSError:
        return None
    try:
        out, _ = child.communicate(timeout=GPU_LIMIT)
    except subprocess.TimeoutExpired:
        _abandon(child)
        return None
    if child.returncode != 0:
        return None
    rows = [line.split(",") for line in out.decode("utf-8", "replace").splitlines()]
    return [_gpu(row) for row in rows if len(row) == 4]


def _abandon(child: "subprocess.Popen[bytes]") -> None:
    """Kill it, and wait a moment only: it may hang in the driver, where no signal reaches it."""
    child.kill()
    if child.stdout:
        child.stdout.close()
    try:
        child.wait(1.0)
    except subprocess.TimeoutExpired:
        pass


def _gpu(row: List[str]) -> Dict[str, Any]:
    index, used, memory_used, memory_total = [int(cell) if cell.strip().isdigit() else None for cell in row]
    return {"index": index, "used_percent": used, "memory_used_mib": memory_used, "memory_mib": memory_total}
