"""One JSON line in, one JSON line out, until stdin ends: then nothing of this is left on the host.

    {"do": "listen", …}     {"ports": {NAME: port}, "problems": {NAME: why}, "datagrams": port}
    {"do": "connect", …}    {"results": [ … ], "datagrams": [ … ]}
    {"do": "stream", …}     {"bytes": …, "seconds": …} or {"error": …}
    {"do": "half_open", …}  {"peers": [[ip, port], …]}

Each request carries `limit`: after so many seconds without another one this process ends itself.
"""

import json
import os
import signal
import sys
import threading
from typing import Any, Callable, Dict, List, Optional

from . import connecting, datagrams, kernel, streaming
from .answering import Answering

Answer = Dict[str, Any]


def main() -> int:
    """Serve one conversation; its exit status."""
    # A connection that is lost without a word keeps stdin open: the alarm ends us all the same.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    conversation = _Conversation()
    for line in sys.stdin:
        request = json.loads(line)
        signal.alarm(int(request["limit"]))
        sys.stdout.write(json.dumps(conversation.answer(request)) + "\n")
        sys.stdout.flush()
    return 0


class _Conversation:
    def __init__(self) -> None:
        self._answering: Optional[Answering] = None
        self._token = ""
        self._commands: Dict[str, Callable[[Dict[str, Any]], Answer]] = {
            "listen": self._listen,
            "connect": self._connect,
            "stream": self._stream,
            "half_open": self._half_open,
        }

    def answer(self, request: Dict[str, Any]) -> Answer:
        return self._commands[str(request["do"])](request)

    @property
    def _ip(self) -> str:
        assert self._answering is not None
        return self._answering.ip

    def _listen(self, request: Dict[str, Any]) -> Answer:
        """Listen on the first free port of each range; a range of 0 to 0 leaves the choice to the kernel."""
        self._token = str(request["token"])
        self._answering = Answering(str(request["ip"]), str(request["alias"]), self._token)
        ports: Dict[str, int] = {}
        problems: Dict[str, str] = {}
        wanted: List[List[Any]] = request["ports"]
        for name, first, last in wanted:
            try:
                ports[name] = self._answering.listen(first, last)
            except OSError as error:
                problems[name] = os.strerror(error.errno) if error.errno else str(error)
        try:
            udp = self._answering.listen_for_datagrams()
        except OSError as error:
            udp = 0
            problems["datagrams"] = str(error.strerror)
        self._answering.start()
        return {"ports": ports, "problems": problems, "datagrams": udp}

    def _connect(self, request: Dict[str, Any]) -> Answer:
        """Connections, and datagrams in the meantime: nobody waits for both."""
        targets = connecting.targets(request["targets"])
        answered: List[Dict[str, Any]] = []
        beside = threading.Thread(target=self._datagrams, args=(request["datagrams"], answered))
        beside.start()
        results = connecting.connect(targets, self._ip, self._token, float(request["timeout"]))
        beside.join()
        return {"results": results, "datagrams": answered}

    def _datagrams(self, entries: List[List[Any]], answered: List[Dict[str, Any]]) -> None:
        answered += datagrams.send(datagrams.targets(entries), self._ip, self._token)

    def _stream(self, request: Dict[str, Any]) -> Answer:
        ip, port, seconds = str(request["ip"]), int(request["port"]), float(request["seconds"])
        return streaming.stream(ip, port, seconds, self._ip, self._token)

    def _half_open(self, request: Dict[str, Any]) -> Answer:
        return {"peers": kernel.half_open()}
