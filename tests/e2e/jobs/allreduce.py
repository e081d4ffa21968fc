"""Every rank says who it is, and proves by a sum over all ranks that they are one world."""

import os

import paddle
import paddle.distributed as dist

dist.init_parallel_env()
rank, world = dist.get_rank(), dist.get_world_size()
print(f"rank {rank} of {world}", flush=True)
assert rank == int(os.environ["PADDLE_TRAINER_ID"])
value = paddle.to_tensor([float(rank + 1)])
dist.all_reduce(value)
expected = world * (world + 1) // 2
print(f"sum {int(value.item())} expected {expected}", flush=True)
assert int(value.item()) == expected
