"""The smallest training job: an all-reduce, its result and time checked. Runs on the hosts.

Each rank prints one line that `clusterkit.smoke` reads. A rank that hangs ends itself with its stack.
"""

import faulthandler
import json
import sys
import time

MARK = "clusterkit-smoke"
# Enough that the wire counts and not the start of the operation; gloo on CPUs is slower by far than NCCL.
GPU_BYTES = 256 << 20
CPU_BYTES = 8 << 20
WARM_UP = 2
REPEATED = 5


def main() -> int:
    """Take part; 0 if the sum is right."""
    faulthandler.dump_traceback_later(float(sys.argv[1]), exit=True)
    import paddle
    import paddle.distributed as dist

    gpu = paddle.is_compiled_with_cuda() and paddle.device.cuda.device_count() > 0
    dist.init_parallel_env()
    rank, world = dist.get_rank(), dist.get_world_size()
    size = GPU_BYTES if gpu else CPU_BYTES
    seconds, correct = [], True
    for turn in range(WARM_UP + REPEATED):
        values = paddle.full([size // 4], float(rank + 1), dtype="float32")
        if gpu:
            paddle.device.cuda.synchronize()
        began = time.perf_counter()
        dist.all_reduce(values)
        if gpu:
            paddle.device.cuda.synchronize()
        if turn >= WARM_UP:
            seconds.append(time.perf_counter() - began)
        ends = (float(values[0]), float(values[-1]))
        correct = correct and ends == (world * (world + 1) / 2,) * 2
    best = min(seconds)
    said = {
        "rank": rank,
        "world_size": world,
        "correct": correct,
        "device": "GPU" if gpu else "CPU",
        "bytes": size,
        "seconds": best,
        # The share of the data that crosses each link of a ring, whatever the number of ranks (nccl-tests).
        "bus_bytes_per_s": size / best * 2 * (world - 1) / world,
    }
    print(MARK, json.dumps(said), flush=True)
    return 0 if correct else 1


if __name__ == "__main__":
    sys.exit(main())
