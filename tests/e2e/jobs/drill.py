"""A job without Paddle (the launcher is real): counts, and behaves as its arguments say.

drill.py SECONDS [--fail RANK:CODE:AFTER] [--ignore-term] [--orphan] [--rate LINES_PER_SECOND] [--steps N]
"""

import argparse
import os
import signal
import subprocess
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("seconds", type=float)
parser.add_argument("--fail", default="")
parser.add_argument("--ignore-term", action="store_true")
parser.add_argument("--orphan", action="store_true")
parser.add_argument("--rate", type=float, default=10.0)
parser.add_argument("--steps", type=int, default=0)
options = parser.parse_args()

rank = int(os.environ["PADDLE_TRAINER_ID"])
world = int(os.environ["PADDLE_TRAINERS_NUM"])
if options.ignore_term:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if options.orphan:
    # A child that nobody would find by its environment: emptied, in a session of its own.
    subprocess.Popen(["sleep", "987"], env={}, start_new_session=True)
print(f"rank {rank} of {world}", flush=True)
print("environment " + " ".join(sorted(os.environ)), flush=True)
begun = time.monotonic()
count = 0
while time.monotonic() - begun < options.seconds:
    print(f"rank {rank} line {count}", flush=True)
    if options.steps:
        print(f"epoch 1 step {count}/{options.steps} loss 0.5", flush=True)
    count += 1
    if options.fail:
        who, code, after = options.fail.split(":")
        if rank == int(who) and time.monotonic() - begun > float(after):
            print("something broke", flush=True)
            if code.startswith("-"):
                os.kill(os.getpid(), -int(code))
            sys.exit(int(code))
    time.sleep(1 / options.rate)
print(f"rank {rank} done after {count} lines", flush=True)
