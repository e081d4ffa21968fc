"""A job whose output no text file would have: bytes that are not UTF-8, a huge line, no newline at the end.

odd_bytes.py [SILENT_RANK]
"""

import os
import sys

rank = int(os.environ["PADDLE_TRAINER_ID"])
world = int(os.environ["PADDLE_TRAINERS_NUM"])
if [str(rank)] != sys.argv[1:]:
    out = sys.stdout.buffer
    out.write(b"rank %d of %d\n" % (rank, world))
    out.write(b"caf\xe9 \xff\xfe\x00 10%\r20%\r\n")
    # Longer than any buffer, and its pieces would cut characters in two.
    out.write("語".encode() * 200_000 + b"\n")
    for number in range(20):
        out.write(b"rank %d line %d\n" % (rank, number))
    out.write(b"no newline at the end \xf0\x9f")
    out.flush()
