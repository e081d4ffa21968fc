"""A job without Paddle (the launcher is real) in which one rank has an ordinary fault; the others go on.

faulty.py RANK module|address|disk|shm|proxy|kill|memory
"""

import http.server
import mmap
import os
import socket
import sys
import threading
import time
from pathlib import Path

who, fault = int(sys.argv[1]), sys.argv[2]
rank = int(os.environ["PADDLE_TRAINER_ID"])
print(f"rank {rank} begins", flush=True)
time.sleep(1.0)
if rank == who and fault == "module":
    import nosuch_module  # type: ignore[import-not-found]  # noqa: F401
elif rank == who and fault == "address":
    first = socket.create_server(("127.0.0.1", 0))
    socket.socket().bind(first.getsockname())
elif rank == who and fault == "disk":
    Path("/tmp/small/checkpoint").write_bytes(b"x" * 1_000_000)
elif rank == who and fault == "shm":
    with open("/dev/shm/batch", "wb+") as file:
        file.truncate(1 << 30)
        with mmap.mmap(file.fileno(), 1 << 30) as shared:
            for start in range(0, 1 << 30, 1 << 20):
                shared[start : start + (1 << 20)] = b"x" * (1 << 20)
elif rank == who and fault == "proxy":

    class Forbids(http.server.BaseHTTPRequestHandler):
        """A proxy that leads nowhere."""

        def do_CONNECT(self) -> None:
            self.send_error(403)

    proxy = http.server.HTTPServer(("127.0.0.1", 0), Forbids)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    os.environ["HTTPS_PROXY"] = f"http://127.0.0.1:{proxy.server_port}"
    import httpx

    httpx.get("https://10.0.0.1/metrics")
elif rank == who and fault == "memory":
    while not Path("/tmp/go").exists():
        time.sleep(0.1)
    kept = []
    while True:
        kept.append(bytearray(1 << 20))
time.sleep(120)
