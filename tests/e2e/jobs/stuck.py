"""An all-reduce, again and again, that one rank does not come to any more: stuck.py RANK SECONDS"""

import sys
import time

import paddle
import paddle.distributed as dist


def load_data(seconds: float) -> None:
    print("loading", flush=True)
    time.sleep(seconds)


dist.init_parallel_env()
odd, seconds = int(sys.argv[1]), float(sys.argv[2])
for step in range(1000):
    if step == 3 and dist.get_rank() == odd:
        load_data(seconds)
    dist.all_reduce(paddle.to_tensor([1.0]))
    print(f"step {step}", flush=True)
