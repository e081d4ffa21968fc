"""An all-reduce in a container, and who and where the job finds itself to be."""

import getpass
import json
import os
import pwd
import sys
import tempfile
from pathlib import Path

import paddle
import paddle.distributed as dist

dist.init_parallel_env()
rank = dist.get_rank()
total = paddle.to_tensor([float(rank + 1)])
dist.all_reduce(total)
with tempfile.TemporaryFile(dir=Path.home()) as file:
    file.write(b"x")
print(
    json.dumps(
        {
            "sum": float(total[0]),
            "uid": os.getuid(),
            "groups": sorted(os.getgroups()),
            "user": getpass.getuser(),
            "name": pwd.getpwuid(os.getuid()).pw_name,
            "paddle": paddle.__file__,
            "python": sys.executable,
            "contained": Path("/opt/packages").exists() and not Path("/etc/debian_version").exists(),
            "nnodes": os.environ["PADDLE_NNODES"],
            "proxies": [name for name in os.environ if name.lower().endswith("_proxy")],
            "shm": os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize,
        }
    ),
    flush=True,
)
