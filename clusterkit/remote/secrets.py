"""Questions to the person at the terminal: each asked once, the answer used for all hosts."""

from __future__ import annotations

import threading

from clusterkit.inventory.model import Secret
from clusterkit.remote.options import Prompter


class AskedOnce:
    """Remembers answers while the connections live; safe to use from all workers at once.

    The worker that comes first asks, the others wait for its answer.
    """

    def __init__(self, prompter: Prompter | None) -> None:
        self._prompter = prompter
        self._lock = threading.Lock()
        self._answers: dict[str, Secret] = {}

    @property
    def possible(self) -> bool:
        """True if there is somebody to ask."""
        return self._prompter is not None

    def ask(self, question: str, *, echo: bool = False) -> Secret | None:
        """The answer to `question`; None if nobody can be asked."""
        if self._prompter is None:
            return None
        with self._lock:
            if question not in self._answers:
                self._answers[question] = Secret(self._prompter(question, echo))
            return self._answers[question]

    def known(self, question: str) -> Secret | None:
        """The answer that was given before, without asking."""
        with self._lock:
            return self._answers.get(question)

    def forget(self, question: str, answer: Secret) -> None:
        """Drop an answer that turned out to be wrong, unless another has taken its place."""
        with self._lock:
            if self._answers.get(question) == answer:
                del self._answers[question]
