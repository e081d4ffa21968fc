"""The interpreter of a bare host, and the Paddle in it."""

from __future__ import annotations

from clusterkit.facts import NOT_FOUND, Facts
from clusterkit.inventory.model import Settings
from clusterkit.planning import dialects
from clusterkit.probes import PYTHON
from clusterkit.probes.python import PythonFacts, host_python
from clusterkit.steps.engine import (
    LAUNCH,
    Change,
    Fleet,
    Severity,
    State,
    Step,
    VersionAtLeast,
    judge,
)

OLDEST_PYTHON = "3.6"
OLDEST_PADDLE = dialects.oldest()


class _OnBareHost(Step):
    """What an image would bring along, so it does not apply to hosts that run one."""

    tags = frozenset({LAUNCH})
    probes = (PYTHON,)

    def skip(self, host: str, fleet: Fleet) -> str:
        """In a container the host's does not matter; one that does not work is `python`'s to tell."""
        if fleet.members[host].container_runtime != "none":
            return "the image brings its own"
        python = fleet.facts[host].get(PYTHON)
        usable = python is not None and VersionAtLeast(OLDEST_PYTHON).met_by(_dotted(python))
        return "" if usable else "no interpreter that works"


class Interpreter(_OnBareHost):
    """The inventory's `python` is there, and new enough for what we send."""

    name = "python"

    def skip(self, host: str, fleet: Fleet) -> str:
        """Never: also beside a container it runs what starts and watches the job."""
        return ""

    def desired(self, host: str, fleet: Fleet) -> State:
        """3.6."""
        return {"version": VersionAtLeast(OLDEST_PYTHON)}

    def actual(self, host: str, fleet: Fleet) -> State:
        """Its version, None if there is none."""
        failed = fleet.facts[host].failure(PYTHON)
        if failed and failed.status == NOT_FOUND:
            return {"version": None}
        return {"version": _dotted(fleet.facts[host][PYTHON])}

    def explain(self, change: Change) -> str:
        python = host_python(change.settings)
        if change.actual["version"] is None:
            beside = ", and what watches the container needs one" if _in_container(change.settings) else ""
            return f"there is no interpreter {python}{beside}"
        return f"{python} is Python {change.actual['version']}, and {OLDEST_PYTHON} is the oldest that works"

    def hint(self, change: Change) -> str:
        if _in_container(change.settings):
            return "as root: apt-get install python3 (Debian, Ubuntu), or dnf install python3"
        return f"write python=/path/to/python for {change.host} in the inventory, such as a venv's"


class PaddleInstalled(_OnBareHost):
    """A Paddle whose launcher is in the table of dialects, and that can use the GPUs planned."""

    name = "paddle"

    def desired(self, host: str, fleet: Fleet) -> State:
        """The oldest that can be launched, with CUDA where GPUs are used."""
        node = fleet.node(host)
        build = {"gpu_build": True} if node and node.devices else {}
        return {"version": VersionAtLeast(OLDEST_PADDLE), **build}

    def actual(self, host: str, fleet: Fleet) -> State:
        """From the package's metadata: Paddle is not imported."""
        paddle = fleet.facts[host][PYTHON].paddle
        node = fleet.node(host)
        build = {"gpu_build": paddle.for_gpu if paddle else None} if node and node.devices else {}
        return {"version": paddle.version if paddle else None, **build}

    def explain(self, change: Change) -> str:
        path = change.facts[PYTHON].path
        version = change.actual["version"]
        if version is None:
            return f"Paddle is not installed for {path}"
        if str(version).startswith("0.0"):
            return f"Paddle calls itself {version}, as source builds do: what its launcher takes is not known"
        if "version" in change.keys:
            return f"Paddle {version} is too old: {OLDEST_PADDLE} is the oldest that can be launched"
        return f"GPUs are to be used, but Paddle {version} of {path} was built without CUDA"

    def hint(self, change: Change) -> str:
        node = change.fleet.node(change.host)
        package = "paddlepaddle-gpu" if node and node.devices else "paddlepaddle"
        if "version" in change.keys:
            install = f"{change.facts[PYTHON].path} -m pip install {package}"
            return f"{install}, or write python=… of the right environment in the inventory"
        return "install paddlepaddle-gpu instead, or write nproc_per_node to train on the CPU"


class SamePaddle(_OnBareHost):
    """Every node has the Paddle that most have: mixed ones hang or fail in the first collective call."""

    name = "same paddle"

    def skip(self, host: str, fleet: Fleet) -> str:
        """Where there is none, or one that cannot be used, `paddle` tells."""
        reason = super().skip(host, fleet)
        if reason or not fleet.facts[host][PYTHON].paddle:
            return reason or "no Paddle"
        return "" if judge(PaddleInstalled(), host, fleet).status == "ok" else "a Paddle that cannot be used"

    def desired(self, host: str, fleet: Fleet) -> State:
        """What most nodes have."""
        return {"paddle": fleet.majority(_paddle)}

    def actual(self, host: str, fleet: Fleet) -> State:
        """What this one has."""
        return {"paddle": _paddle(fleet.facts[host])}

    def severity(self, change: Change) -> Severity:
        """Near releases often do work together."""
        return "warning"

    def explain(self, change: Change) -> str:
        return f"has {change.actual['paddle']}, the other nodes {change.desired['paddle']}"

    def hint(self, change: Change) -> str:
        return f"install {change.desired['paddle']} on {change.host}"


class SamePython(_OnBareHost):
    """Every node has the Python (major and minor) that most have: pickled data and wheels depend on it."""

    name = "same python"

    def desired(self, host: str, fleet: Fleet) -> State:
        """What most nodes have."""
        return {"python": fleet.majority(_minor)}

    def actual(self, host: str, fleet: Fleet) -> State:
        """What this one has."""
        return {"python": _minor(fleet.facts[host])}

    def severity(self, change: Change) -> Severity:
        """It often works."""
        return "warning"

    def explain(self, change: Change) -> str:
        return f"has Python {change.actual['python']}, the other nodes {change.desired['python']}"

    def hint(self, change: Change) -> str:
        return f"write python=… of an equal interpreter for {change.host} in the inventory"


class GompLibrary(_OnBareHost):
    """`libgomp.so.1`, the one library that Paddle's wheel takes from the system."""

    name = "libgomp"

    def skip(self, host: str, fleet: Fleet) -> str:
        """Where ctypes cannot load it, nobody can tell."""
        reason = super().skip(host, fleet)
        untold = not reason and fleet.facts[host][PYTHON].libgomp is None
        return "this Python has no ctypes" if untold else reason

    def desired(self, host: str, fleet: Fleet) -> State:
        """There."""
        return {"libgomp.so.1": True}

    def actual(self, host: str, fleet: Fleet) -> State:
        """Whether the interpreter could load it."""
        return {"libgomp.so.1": fleet.facts[host][PYTHON].libgomp}

    def explain(self, change: Change) -> str:
        return "libgomp.so.1 cannot be loaded, so importing Paddle will fail"

    def hint(self, change: Change) -> str:
        return "as root: apt-get install libgomp1 (Debian, Ubuntu), or dnf install libgomp"


def _in_container(settings: Settings) -> bool:
    return settings.container_runtime != "none"


def _dotted(python: PythonFacts) -> str:
    return ".".join(map(str, python.version))


def _paddle(facts: Facts) -> str | None:
    python = facts.get(PYTHON)
    return f"{python.paddle.distribution} {python.paddle.version}" if python and python.paddle else None


def _minor(facts: Facts) -> str | None:
    python = facts.get(PYTHON)
    return ".".join(map(str, python.version[:2])) if python else None
