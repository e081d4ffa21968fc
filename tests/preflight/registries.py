"""A real registry on a sandbox host, and registries that refuse or say nothing, on this machine's address."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import bcrypt

from clusterkit.sandbox.sandbox import Sandbox
from tests.preflight.faults import do

PORT = 5000
PRIVATE_PORT = 5001
# Who may use the private registry; the password is one that is found wherever it gets to.
READER, PASSWORD = "reader", "pass-4f1d0c7be2"

_CONFIGURATION = """
version: 0.1
log: {{level: warn}}
storage: {{filesystem: {{rootdirectory: /var/lib/docker/registry-{port}}}, delete: {{enabled: true}}}}
http: {{addr: ":{port}"}}
"""
_LOGIN = """
auth: {htpasswd: {realm: private, path: /etc/registry/htpasswd}}
"""
_START = """
mkdir -p /etc/registry && cat >/etc/registry/{port}.yml
setsid docker-registry serve /etc/registry/{port}.yml >/var/log/registry-{port}.log 2>&1 </dev/null &
for try in $(seq 100); do
    (exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && exit 0
    sleep 0.1
done
tail -n 3 /var/log/registry-{port}.log >&2; exit 1
"""


def start(sandbox: Sandbox, host: str) -> str:
    """A registry without TLS runs on the host; its address."""
    return _serve(sandbox, host, PORT, "")


def start_private(sandbox: Sandbox, host: str) -> str:
    """A registry that gives an image to READER alone, who shows PASSWORD; its address."""
    line = f"{READER}:{bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()}\n"
    do(sandbox, host, "mkdir -p /etc/registry && cat >/etc/registry/htpasswd", stdin=line)
    return _serve(sandbox, host, PRIVATE_PORT, _LOGIN)


def _serve(sandbox: Sandbox, host: str, port: int, more: str) -> str:
    script = _START.format(port=port).replace(chr(39), chr(34))
    do(sandbox, host, f"exec bash -c '{script}'", stdin=_CONFIGURATION.format(port=port) + more)
    return f"{sandbox.addresses(host)[0]}:{port}"


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
