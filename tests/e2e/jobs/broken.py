"""Real training in which one rank breaks: its connections go first, so its peers have failed when it ends.

broken.py RANK:CODE
"""

import contextlib
import os
import signal
import socket
import sys
import time
import traceback
from pathlib import Path

import paddle
import paddle.distributed as dist


def hang_up() -> None:
    """What the end of a process does to its peers, before it has an exit code (with a GPU, for seconds)."""
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            socket.socket(fileno=os.dup(int(path.name))).shutdown(socket.SHUT_RDWR)


who, code = (int(text) for text in sys.argv[1].split(":"))
dist.init_parallel_env()
rank = dist.get_rank()
value = paddle.to_tensor([1.0])
try:
    for step in range(100_000):
        dist.all_reduce(value)
        if step == 3:
            print(f"rank {rank} is in step {step}", flush=True)
            if rank == who:
                break
except RuntimeError:
    traceback.print_exc()
    sys.stderr.flush()
    os._exit(1)
print("the disk is full", flush=True)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
hang_up()
time.sleep(1.0)
os._exit(code)
