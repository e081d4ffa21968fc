"""A small static-graph training job, collective: the program is built once, then run.

    python examples/static_graph.py                                      one process, on this machine
    clusterkit launch inventory.ini examples/static_graph.py --steps 60  every rank of every host

The program averages the gradients over all ranks by operators of its own; the rest is what one process would
run. The data is made up, so nothing has to be downloaded. examples/train.py is the dynamic-graph counterpart,
with checkpoints. On CPUs this needs PaddlePaddle 3.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist

FEATURES = 16


def say(text: str) -> None:
    """Print one line that carries this rank and the world size, at once: a log is read while it grows."""
    print(f"rank {dist.get_rank()}/{dist.get_world_size()} {text}", flush=True)


def build_model() -> tuple[Any, Any]:
    """The loss and the weights of a linear model, in the default program."""
    inputs = paddle.static.data("inputs", [None, FEATURES], "float32")
    targets = paddle.static.data("targets", [None, 1], "float32")
    layer = paddle.nn.Linear(FEATURES, 1)
    loss = paddle.mean(paddle.nn.functional.square_error_cost(layer(inputs), targets))
    return loss, layer.weight


def samples(numbers: Any, weights: Any, count: int) -> dict[str, Any]:
    """`count` points of a linear function."""
    inputs = numbers.standard_normal((count, FEATURES)).astype("float32")
    return {"inputs": inputs, "targets": inputs @ weights}


def averaged(gradient: Any) -> Any:
    """The gradient's mean over all ranks: an all-reduce that becomes a part of the program."""
    if dist.get_world_size() > 1:
        dist.all_reduce(gradient)
    return gradient / dist.get_world_size()


def train(options: argparse.Namespace) -> None:
    """Afterwards the model has been trained; every rank has its own part of the data and the same weights."""
    loss, weight = build_model()
    optimizer = paddle.optimizer.SGD(options.learning_rate)
    gradients = optimizer.backward(loss)
    optimizer.apply_gradients([(parameter, averaged(gradient)) for parameter, gradient in gradients])
    place = paddle.CUDAPlace(dist.ParallelEnv().device_id) if on_gpu() else paddle.CPUPlace()
    executor = paddle.static.Executor(place)
    executor.run(paddle.static.default_startup_program())
    weights = np.random.default_rng(options.seed).standard_normal((FEATURES, 1)).astype("float32")
    numbers = np.random.default_rng(options.seed + 1 + dist.get_rank())
    for step in range(1, options.steps + 1):
        feed = samples(numbers, weights, options.batch_size)
        program = paddle.static.default_main_program()
        value, learned = executor.run(program, feed=feed, fetch_list=[loss, weight])
        if step == 1 or step % options.log_every == 0 or step == options.steps:
            say(f"step {step} loss {float(np.mean(value)):.4f}")
    # Equal on all ranks to the last digit: that is what averaging the gradients is for.
    say(f"weights {float(np.abs(learned).sum()):.6f}")


def on_gpu() -> bool:
    """True if this rank has a GPU."""
    return bool(paddle.is_compiled_with_cuda() and paddle.device.cuda.device_count() > 0)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small static-graph model on made-up data.")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch-size", type=int, default=32, help="samples per rank and step")
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=2024)
    parser.add_argument("--log-every", type=int, default=20, metavar="STEPS")
    return parser.parse_args()


def main() -> int:
    options = parse_arguments()
    # The connections between the ranks are made before the program that uses them.
    if dist.get_world_size() > 1:
        dist.init_parallel_env()
    paddle.enable_static()
    paddle.seed(options.seed)
    train(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
