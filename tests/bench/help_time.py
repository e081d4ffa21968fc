"""How long `clusterkit --help` takes, against the floor of the library that it is built on.

Budget: at most twice `python -c "import typer"`. Runs alternate, so a busy machine slows both.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

RUNS = 15
BUDGET = 2.0
HELP = [sys.executable, "-m", "clusterkit", "--help"]
FLOOR = [sys.executable, "-c", "import typer"]


def seconds(command: list[str]) -> float:
    """Wall time of one run, in seconds."""
    begun = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=60)
    return time.perf_counter() - begun


def main() -> int:
    """Print one line, and return 0 if the budget is kept."""
    seconds(HELP), seconds(FLOOR)  # the first runs write the byte code
    pairs = [(seconds(HELP), seconds(FLOOR)) for _ in range(RUNS)]
    helped, floor = (statistics.median(times) for times in zip(*pairs, strict=True))
    ratio = helped / floor
    print(
        f"clusterkit --help: {helped * 1000:.0f} ms, import typer: {floor * 1000:.0f} ms, "
        f"ratio {ratio:.2f} (budget {BUDGET}, median of {RUNS})"
    )
    return 0 if ratio <= BUDGET else 1


if __name__ == "__main__":
    sys.exit(main())
