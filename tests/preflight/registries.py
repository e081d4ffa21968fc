"""A real registry on a sandbox host, and registries that refuse or say nothing, on this machine's address."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

from clusterkit.sandbox.sandbox import Sandbox
from tests.preflight.faults import do

PORT = 5000

_CONFIGURATION = f"""
version: 0.1
log: {{level: warn}}
storage: {{filesystem: {{rootdirectory: /var/lib/docker/registry}}, delete: {{enabled: true}}}}
http: {{addr: ":{PORT}"}}
"""
_START = f"""
mkdir -p /etc/registry && cat >/etc/registry/config.yml
setsid docker-registry serve /etc/registry/config.yml >/var/log/registry.log 2>&1 </dev/null &
for try in $(seq 100); do
    (exec 3<>/dev/tcp/127.0.0.1/{PORT}) 2>/dev/null && exit 0
    sleep 0.1
done
tail -n 3 /var/log/registry.log >&2; exit 1
"""


def start(sandbox: Sandbox, host: str) -> str:
    """A registry without TLS runs on the host; its address."""
    do(sandbox, host, f"exec bash -c '{_START.replace(chr(39), chr(34))}'", stdin=_CONFIGURATION)
    return f"{sandbox.addresses(host)[0]}:{PORT}"


class _Refusing(BaseHTTPRequestHandler):
    """Speaks the registry's protocol as far as it takes to refuse."""

    protocol_version = "HTTP/1.1"
    status = 500
    code = ""
    headers_sent: ClassVar[dict[str, str]] = {}
    asks_first = False

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def _answer(self) -> None:
        # A registry that limits pulls greets everybody; one that wants a login does not.
        greets = self.path == "/v2/" and not self.asks_first
        body = (
            b"{}" if greets else json.dumps({"errors": [{"code": self.code, "message": self.code}]}).encode()
        )
        self.send_response(200 if greets else self.status)
        for name, value in self.headers_sent.items():
            self.send_header(name, value)
        self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing on the test's output."""


class WantsLogin(_Refusing):
    """401, with a challenge."""

    status, code, asks_first = 401, "UNAUTHORIZED", True
    headers_sent: ClassVar[dict[str, str]] = {"WWW-Authenticate": 'Basic realm="test"'}


class LimitsPulls(_Refusing):
    """429, as Docker Hub says it."""

    status, code = 429, "TOOMANYREQUESTS"


@contextmanager
def refusing(sandbox: Sandbox, handler: type[_Refusing]) -> Iterator[str]:
    """Such a registry runs meanwhile; its address, which the hosts can reach."""
    server = ThreadingHTTPServer((sandbox.controller, 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.1,))
    thread.start()
    try:
        yield f"{sandbox.controller}:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def silent(sandbox: Sandbox) -> Iterator[str]:
    """The kernel takes connections, and nobody ever answers; the address."""
    with socket.create_server((sandbox.controller, 0), backlog=64) as listener:
        yield f"{sandbox.controller}:{listener.getsockname()[1]}"
