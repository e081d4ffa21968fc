"""One rank writes a huge log as fast as it can.

flood.py RANK MEGABYTES
"""

import os
import sys

rank = int(os.environ["PADDLE_TRAINER_ID"])
print(f"rank {rank} begins", flush=True)
if rank == int(sys.argv[1]):
    count = int(sys.argv[2]) * 10
    for piece in range(count):
        line = b"%012d %s\n" % (piece, b"x" * 106)
        sys.stdout.buffer.write(line * 833)
    sys.stdout.buffer.flush()
print("the end", flush=True)
