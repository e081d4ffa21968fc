"""Stands in for Paddle's launcher: the same variables, sessions, files and way to stop, without Paddle.

usage: fake_launcher.py OPTIONS_JSON COMMAND…   (COMMAND is the rank entry with the script)
"""

import json
import os
import signal
import subprocess
import sys
import time
from types import FrameType


def main() -> int:
    options = json.loads(sys.argv[1])
    command = sys.argv[2:]
    sys.stderr.write(f"LAUNCH INFO fake launcher of node {options['node_rank']}\n")
    sys.stderr.flush()
    time.sleep(options.get("delay", 0))
    if options.get("exit") is not None:
        sys.stderr.write("launcher says why\n")
        return int(options["exit"])
    if options.get("hang"):
        time.sleep(600)
    ranks = options["ranks"]
    children = []
    for local, rank in enumerate(ranks):
        environ = dict(
            os.environ,
            PADDLE_TRAINER_ID=str(rank),
            PADDLE_TRAINERS_NUM=str(options["world_size"]),
            PADDLE_RANK_IN_NODE=str(local),
            PADDLE_LOCAL_RANK=str(local),
        )
        with open(f"{options['log_dir']}/workerlog.{local}", "ab") as log:
            children.append(
                subprocess.Popen(command, env=environ, stdout=log, stderr=log, start_new_session=True)
            )
    stopped: list[int] = []

    def stop(signum: int, _frame: "FrameType | None") -> None:
        stopped.append(signum)

    signal.signal(signal.SIGTERM, stop)
    while True:
        codes = [child.poll() for child in children]
        failed = [code for code in codes if code]
        if stopped or failed:
            _end(children, options.get("kill_after", 30.0 if stopped else 3.0))
            return stopped[0] if stopped else failed[0] & 0xFF
        if all(code == 0 for code in codes):
            return 0
        time.sleep(0.05)


def _end(children: "list[subprocess.Popen[bytes]]", kill_after: float) -> None:
    for child in children:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGTERM)
    end = time.monotonic() + kill_after
    while time.monotonic() < end and any(child.poll() is None for child in children):
        time.sleep(0.05)
    for child in children:
        if child.poll() is None:
            child.kill()


if __name__ == "__main__":
    sys.exit(main())
