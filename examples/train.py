"""A small, real PaddlePaddle training job, written to be read from top to bottom.

    python examples/train.py                                        one process, on this machine
    clusterkit launch inventory.ini examples/train.py --steps 200   every rank of every host

Nothing in it knows clusterkit. It shows what a training script has to do on several machines: find out its
rank, give every rank its own part of the data, let DataParallel average the gradients, save from rank 0
only, and go on from the last checkpoint after an interruption. The data is made up from `--seed`, so every
run sees the same numbers and nothing has to be downloaded.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

warnings.filterwarnings(
    "ignore", message="No ccache found"
)  # a hint for who compiles C++, in every rank's log
import paddle  # noqa: E402
import paddle.distributed as dist  # noqa: E402

FEATURES = 32
SAMPLES = 4096
DEFAULT_STEPS = 60
CHECKPOINT_NAME = re.compile(r"step-(\d+)\.ckpt")


def say(text: str) -> None:
    """Print one line that carries this rank and the world size, at once: a log is read while it grows."""
    print(f"rank {dist.get_rank()}/{dist.get_world_size()} {text}", flush=True)


# --- Data ---------------------------------------------------------------------------------------------------


class Measurements(paddle.io.Dataset):  # type: ignore[misc]
    """`SAMPLES` points of a curved function of `FEATURES` numbers; every host makes the same ones."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        numbers = np.random.default_rng(seed)
        self.inputs = numbers.standard_normal((SAMPLES, FEATURES)).astype("float32")
        weights = numbers.standard_normal((FEATURES, 1)).astype("float32") / np.sqrt(FEATURES)
        self.targets = np.tanh(self.inputs @ weights).astype("float32")

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.inputs[index], self.targets[index]

    def __len__(self) -> int:
        return SAMPLES


def batches(data: Measurements, batch_size: int, first: int, last: int) -> Iterator[tuple[int, Any, Any]]:
    """Yield `(step, inputs, targets)` for the steps after `first` up to and including `last`.

    The sampler gives every rank a different part of each epoch. Its shuffle depends on the epoch alone, so
    a run that goes on from a checkpoint sees exactly the batches that it would have seen.
    """
    sampler = paddle.io.DistributedBatchSampler(data, batch_size, shuffle=True, drop_last=True)
    # num_workers=0 reads in this process. With workers of their own, batches travel through /dev/shm, which
    # is 64 MB in a container unless `shm_size` says otherwise.
    loader = paddle.io.DataLoader(data, batch_sampler=sampler, num_workers=0)
    if len(loader) == 0:
        raise SystemExit(
            f"--batch-size {batch_size} on {dist.get_world_size()} ranks is more than {SAMPLES} samples"
        )
    step = first - first % len(loader)
    while step < last:
        sampler.set_epoch(step // len(loader))
        for inputs, targets in loader:
            step += 1
            if first < step <= last:
                yield step, inputs, targets


# --- Checkpoints --------------------------------------------------------------------------------------------


def newest_checkpoint(folder: Path) -> Path | None:
    """The checkpoint with the most steps; a half-written one has another name and is never found."""
    found = [path for path in folder.glob("step-*.ckpt") if CHECKPOINT_NAME.fullmatch(path.name)]
    return max(found, key=checkpoint_step, default=None)


def checkpoint_step(path: Path) -> int:
    """The number of steps in a checkpoint's name."""
    match = CHECKPOINT_NAME.fullmatch(path.name)
    return int(match.group(1)) if match else 0


def save_checkpoint(folder: Path, model: Any, optimizer: Any, step: int) -> None:
    """Afterwards `folder` holds this step's checkpoint, whole, and no older one but the last.

    Model, optimizer and step are one file, so they always belong together. It is written beside its place
    and renamed once it is on the disk: a crash at any moment leaves the checkpoint before it untouched.
    """
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / f"step-{step:08d}.ckpt"
    beside = folder / f"{place.name}.writing"
    paddle.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, str(beside))
    with open(beside, "rb") as written:
        os.fsync(written.fileno())
    beside.replace(place)
    for older in sorted(folder.glob("step-*.ckpt"), key=checkpoint_step)[:-2]:
        older.unlink()


def resume(folder: Path, model: Any, optimizer: Any) -> int:
    """Load the newest checkpoint into every rank and return its step, or 0 where there is none.

    Only rank 0 reads, because only its host is sure to have the file, and sends what it read to the others.
    """
    message: list[Any] = [None]
    path = newest_checkpoint(folder) if dist.get_rank() == 0 else None
    if path is not None:
        message = [paddle.load(str(path), return_numpy=True)]
    if dist.get_world_size() > 1:
        dist.broadcast_object_list(message, src=0)
    checkpoint = message[0]
    if checkpoint is None:
        return 0
    model.set_state_dict(checkpoint["model"])
    optimizer.set_state_dict(checkpoint["optimizer"])
    say(f"resumed from step {checkpoint['step']}" + (f" ({path})" if path else ""))
    return int(checkpoint["step"])


# --- Training -----------------------------------------------------------------------------------------------


def use_amp(wanted: bool) -> bool:
    """Whether to mix precision: Paddle does so on a GPU only, so a CPU rank says why it does not."""
    if wanted and paddle.get_device().startswith("cpu"):
        say("amp is off: Paddle mixes precision on a GPU, and this rank runs on the CPU")
        return False
    return wanted


def train(options: argparse.Namespace, model: Any, optimizer: Any, first: int, last: int) -> None:
    """Afterwards `model` has been trained from step `first` to step `last`, and rank 0 has saved it."""
    amp = use_amp(options.amp)
    # float16 underflows where gradients are small: the scaler multiplies the loss and divides the gradients.
    scaler = paddle.amp.GradScaler(init_loss_scaling=1024) if amp else None
    parallel = paddle.DataParallel(model) if dist.get_world_size() > 1 else model
    for step, inputs, targets in batches(Measurements(options.seed), options.batch_size, first, last):
        with paddle.amp.auto_cast(enable=amp):
            loss = paddle.nn.functional.mse_loss(parallel(inputs), targets)
        # backward() is where DataParallel averages the gradients over all ranks.
        if scaler is not None:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            optimizer.step()
        optimizer.clear_grad()
        if step % options.log_every == 0 or step in (first + 1, last):
            say(f"step {step} loss {loss.item():.4f}")
        if dist.get_rank() == 0 and (step % options.save_every == 0 or step == last):
            save_checkpoint(options.checkpoint_dir, model, optimizer, step)
        time.sleep(options.step_time)


def check_all_reduce() -> bool:
    """Add up every rank's number over the network, print the sum, and return whether it is right."""
    number = paddle.to_tensor([dist.get_rank()], dtype="int64")
    if dist.get_world_size() > 1:
        dist.all_reduce(number)
    total, expected = int(number.item()), sum(range(dist.get_world_size()))
    say(f"all_reduce sum={total} expected={expected}")
    return total == expected


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small model on made-up data.")
    parser.add_argument(
        "--steps", type=int, help=f"train up to this step (default: {DEFAULT_STEPS} more than the checkpoint)"
    )
    parser.add_argument("--batch-size", type=int, default=64, help="samples per rank and step")
    parser.add_argument("--learning-rate", type=float, default=0.005)
    parser.add_argument("--amp", action="store_true", help="mix float16 into the arithmetic (on a GPU)")
    parser.add_argument("--seed", type=int, default=2024)
    parser.add_argument("--log-every", type=int, default=10, metavar="STEPS")
    parser.add_argument("--save-every", type=int, default=20, metavar="STEPS")
    parser.add_argument("--step-time", type=float, default=0.0, metavar="S", help="wait after each step")
    parser.add_argument(
        "--checkpoint-dir",
        type=Path,
        default=Path(os.environ.get("CLUSTERKIT_CHECKPOINT_DIR", "checkpoints")),
        help="where rank 0 saves, and resumes from (default: $CLUSTERKIT_CHECKPOINT_DIR, else checkpoints)",
    )
    return parser.parse_args()


def main() -> int:
    options = parse_arguments()
    # The launcher has told this process its rank and the others' addresses through the environment. With
    # more than one rank this call waits until all of them are there.
    if dist.get_world_size() > 1:
        dist.init_parallel_env()
    paddle.seed(options.seed)
    model = paddle.nn.Sequential(
        paddle.nn.Linear(FEATURES, 64),
        paddle.nn.Tanh(),
        paddle.nn.Linear(64, 64),
        paddle.nn.Tanh(),
        paddle.nn.Linear(64, 1),
    )
    optimizer = paddle.optimizer.Adam(options.learning_rate, parameters=model.parameters())
    first = resume(options.checkpoint_dir, model, optimizer)
    last = first + DEFAULT_STEPS if options.steps is None else options.steps
    if first >= last:
        say(f"step {first} is done already, and --steps {last} asks for no more")
    train(options, model, optimizer, first, last)
    return 0 if check_all_reduce() else 1


if __name__ == "__main__":
    sys.exit(main())
