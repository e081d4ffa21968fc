"""A small sparse model on parameter servers, written to be read from top to bottom.

    clusterkit launch --run-mode ps --servers 2 --trainers 3 inventory.ini examples/sparse.py --steps 60

The same script runs as every server and every trainer; the launcher tells each process through the
environment which it is. The table of embeddings lives on the servers, each of which has a part of it; a
trainer fetches the rows that its samples name, and sends back gradients, without waiting for the other
trainers. The data is made up, so nothing has to be downloaded.

It needs a PaddlePaddle that was built with its parameter servers: 2.6 has them, the wheels of 3.x have not.
"""

from __future__ import annotations

import argparse
import socket
import sys
import time
from typing import Any

import numpy as np
import paddle
import paddle.distributed.fleet as fleet

FIELDS = 4
IDENTIFIERS = 500
WIDTH = 8


def say(text: str) -> None:
    """Print one line at once: a log is read while it grows."""
    print(text, flush=True)


def build_model() -> tuple[list[Any], Any]:
    """The program: `FIELDS` sparse inputs, each looked up in one table, and a small network over them."""
    inputs = [
        paddle.static.data(f"field{number}", [None, 1], "int64", lod_level=1) for number in range(FIELDS)
    ]
    rows = [
        paddle.static.nn.sparse_embedding(
            each, size=[IDENTIFIERS, WIDTH], param_attr=paddle.ParamAttr(name="table")
        )
        for each in inputs
    ]
    pooled = [paddle.static.nn.sequence_lod.sequence_pool(row, pool_type="sum") for row in rows]
    hidden = paddle.static.nn.fc(paddle.concat(pooled, axis=1), 16, activation="relu")
    predicted = paddle.static.nn.fc(hidden, 1)
    target = paddle.static.data("target", [None, 1], "float32")
    loss = paddle.mean(paddle.nn.functional.square_error_cost(predicted, target))
    return [*inputs, target], loss


def samples(numbers: Any, count: int) -> tuple[Any, Any]:
    """`count` samples: identifiers, and how many of them are odd."""
    identifiers = numbers.integers(0, IDENTIFIERS, (count, FIELDS))
    return identifiers, (identifiers % 2).sum(1, keepdims=True).astype("float32")


def feed(identifiers: Any, targets: Any) -> dict[str, Any]:
    """What the executor takes: for each field one identifier a sample."""
    lengths = [[1] * len(identifiers)]
    place = paddle.CPUPlace()
    columns = {
        f"field{number}": paddle.base.create_lod_tensor(
            np.ascontiguousarray(identifiers[:, number : number + 1]), lengths, place
        )
        for number in range(FIELDS)
    }
    return {**columns, "target": targets}


def await_servers(limit: float) -> None:
    """Every server listens, which it does once it has come to run_server(); SystemExit after `limit` seconds.

    A trainer that pushes to a server before that is aborted by Paddle.
    """
    end = time.monotonic() + limit
    for endpoint in fleet.server_endpoints():
        host, _, port = endpoint.rpartition(":")
        while True:
            try:
                socket.create_connection((host, int(port)), 2).close()
                break
            except OSError as error:
                if time.monotonic() > end:
                    raise SystemExit(f"the server at {endpoint} does not listen: {error}") from None
                time.sleep(0.2)


def train(options: argparse.Namespace, loss: Any) -> None:
    """As trainer: `--steps` steps, each of which fetches rows from the servers and sends gradients back."""
    executor = paddle.static.Executor(paddle.CPUPlace())
    executor.run(paddle.static.default_startup_program())
    await_servers(120)
    fleet.init_worker()
    name = f"trainer {fleet.worker_index()}/{fleet.worker_num()}"
    numbers = np.random.default_rng(options.seed + fleet.worker_index())
    for step in range(1, options.steps + 1):
        identifiers, targets = samples(numbers, options.batch_size)
        program = paddle.static.default_main_program()
        (value,) = executor.run(program, feed=feed(identifiers, targets), fetch_list=[loss])
        if step == 1 or step % options.log_every == 0:
            say(f"{name} step {step} loss {float(np.mean(value)):.4f}")
    # The servers are told that this trainer has done its part.
    fleet.stop_worker()
    say(f"{name} done")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small sparse model on parameter servers.")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=128, help="samples per trainer and step")
    parser.add_argument("--learning-rate", type=float, default=0.02)
    parser.add_argument("--seed", type=int, default=2024)
    parser.add_argument("--log-every", type=int, default=20, metavar="STEPS")
    return parser.parse_args()


def main() -> int:
    options = parse_arguments()
    paddle.enable_static()
    fleet.init()
    _, loss = build_model()
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = True
    optimizer = fleet.distributed_optimizer(paddle.optimizer.Adam(options.learning_rate), strategy)
    optimizer.minimize(loss)
    if fleet.is_server():
        say(f"server {fleet.server_index()}/{fleet.server_num()} serves")
        fleet.init_server()
        fleet.run_server()
    else:
        train(options, loss)
    return 0


if __name__ == "__main__":
    sys.exit(main())
