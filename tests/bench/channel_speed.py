"""How fast bulk bytes move over a clusterkit stream, against `scp` of the same file (as root, on Linux).

python -m tests.bench.channel_speed
"""

from __future__ import annotations

import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from clusterkit.remote import Connections
from tests.remote.sshd import Sshd, running

SIZE = 400_000_000
ROUNDS = 7


def seconds(transfer: Callable[[], None]) -> float:
    """How long it takes."""
    begun = time.perf_counter()
    transfer()
    return time.perf_counter() - begun


def by_stream(server: Sshd, source: Path, target: Path) -> None:
    """Fetch the file as gathered logs are fetched."""
    with Connections() as connections, open(target, "wb") as file:
        stream = connections.to(server.settings()).open(f"exec cat {source}", timeout=10)
        while piece := stream.read(1 << 20, 30):
            file.write(piece)
        stream.close()


def by_scp(server: Sshd, source: Path, target: Path) -> None:
    """Fetch it with the ssh client's own tool."""
    options = f"{server.args('StrictHostKeyChecking=no')} -i {server.key} -P {server.port} -q".split()
    subprocess.run(["scp", *options, f"root@127.0.0.1:{source}", str(target)], check=True)


def main() -> None:
    """Print both speeds and their ratio; the target is 0.8."""
    with tempfile.TemporaryDirectory() as name, running(Path(name)) as server:
        source, target = Path(name, "source"), Path(name, "target")
        source.write_bytes(bytes(SIZE))
        # Alternating, so that a busy machine slows both.
        pairs = [
            (
                seconds(lambda: by_stream(server, source, target)),
                seconds(lambda: by_scp(server, source, target)),
            )
            for _ in range(ROUNDS)
        ]
        assert target.stat().st_size == SIZE
    ours, theirs = (SIZE / statistics.median(times) / 1e6 for times in zip(*pairs, strict=True))
    print(f"stream {ours:.0f} MB/s, scp {theirs:.0f} MB/s, ratio {ours / theirs:.2f} (target 0.80)")


if __name__ == "__main__":
    main()
