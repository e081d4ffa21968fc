"""Takes the options that templates/torchrun.sh.j2 gives to torchrun, and starts ranks as torchrun does.

It is not torchrun, and no result obtained with it is one of PyTorch's, whose wheel for Linux is gigabytes.
What it shares with torchrun is what a launcher has to share with clusterkit: it gets a master and a node's
place on its command line, starts a program so many times with RANK, WORLD_SIZE and LOCAL_RANK, keeps no log
of it, ends the others when one fails, and stops them when it is told to.
"""

import argparse
import os
import signal
import subprocess
import sys
import time


def main() -> int:
    parser = argparse.ArgumentParser()
    for name in ("--nnodes", "--node_rank", "--nproc_per_node", "--master_port", "--max_restarts"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--master_addr", required=True)
    parser.add_argument("--no_python", action="store_true", required=True)
    parser.add_argument("program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    size = given.nnodes * given.nproc_per_node
    ranks = []
    for local in range(given.nproc_per_node):
        rank = given.node_rank * given.nproc_per_node + local
        world = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": local, "MASTER_PORT": given.master_port}
        environ = {**os.environ, **{name: str(value) for name, value in world.items()}}
        environ["MASTER_ADDR"] = given.master_addr
        ranks.append(subprocess.Popen([given.program, *given.arguments], env=environ))
    signal.signal(signal.SIGTERM, lambda *_: end(ranks))
    while any(rank.poll() is None for rank in ranks):
        if any(rank.poll() for rank in ranks):
            end(ranks)
        time.sleep(0.05)
    return 1 if any(rank.returncode for rank in ranks) else 0


def end(ranks: "list[subprocess.Popen[bytes]]") -> None:
    for rank in ranks:
        rank.terminate()


if __name__ == "__main__":
    sys.exit(main())
