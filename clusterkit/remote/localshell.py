"""A shell on this machine, for ansible_connection=local."""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import threading
import time
from pathlib import Path

from clusterkit.remote.shell import Chunk

_READ = 1 << 20


class LocalShell:
    """`sh -s` in a session of its own, in the home directory, as ssh would start it."""

    def __init__(self) -> None:
        home = Path.home()
        self._process = subprocess.Popen(
            ["/bin/sh", "-s"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=home if home.is_dir() else "/",
            start_new_session=True,
        )
        assert self._process.stdin
        assert self._process.stdout
        assert self._process.stderr
        self._stdin, self._stdout, self._stderr = (
            self._process.stdin,
            self._process.stdout,
            self._process.stderr,
        )
        self._open = selectors.DefaultSelector()
        self._open.register(self._stdout, selectors.EVENT_READ)
        self._open.register(self._stderr, selectors.EVENT_READ)
        self._sending = threading.Lock()
        self._closed = False

    def send(self, data: bytes) -> None:
        """See Shell."""
        view = memoryview(data)
        with self._sending:
            while view:
                if self._stdin.closed:
                    raise BrokenPipeError
                view = view[self._stdin.write(view) :]

    def finish(self) -> None:
        """See Shell."""
        with self._sending:
            self._stdin.close()

    def receive(self, timeout: float | None) -> Chunk:
        """See Shell."""
        if not self._open.get_map():
            return Chunk(b"", b"", True)
        deadline = None if timeout is None else time.monotonic() + timeout
        got = {self._stdout: b"", self._stderr: b""}
        while not any(got.values()):
            ready = self._open.select(None if deadline is None else max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError
            for key, _ in ready:
                data = os.read(key.fd, _READ)
                if data:
                    got[key.fileobj] = data  # type: ignore[index]
                else:
                    self._open.unregister(key.fileobj)
            if not self._open.get_map():
                break
        return Chunk(got[self._stdout], got[self._stderr], not self._open.get_map() and not any(got.values()))

    def status(self, timeout: float) -> int | None:
        """See Shell."""
        try:
            status = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise TimeoutError from None
        return status if status >= 0 else 128 - status

    def close(self) -> None:
        """See Shell."""
        if self._closed:
            return
        self._closed = True
        if self._process.poll() is None:  # it goes on; somebody has to collect it when it ends
            threading.Thread(target=self._process.wait, daemon=True, name="collect").start()
        self._open.close()
        for pipe in (self._stdin, self._stdout, self._stderr):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
