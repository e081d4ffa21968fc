"""A container of the training image, started as a launch would and gone in a second: what is inside?

Nothing else tells as much: that the runtime can start one at all, with which GPUs, limits and shared memory,
which interpreter and which Paddle a launch would find, and which variables it would meet.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from shlex import join, quote

from clusterkit.facts import Output, Probe
from clusterkit.inventory.model import Settings
from clusterkit.probes.container.calling import calling, is_used
from clusterkit.probes.paddle import FIND_PADDLE, Paddle, paddle_of
from clusterkit.probes.python import REFUSE_OLD

START_LIMIT_S = 25


@dataclass(frozen=True)
class Inside:
    """What a program in a container sees. Sizes in bytes; None means without a limit, for `shm` no /dev/shm.

    `python` is the interpreter that a launch would use: the first of the inventory's `python`, `python3` and
    `python` that has Paddle. `names` are those of the environment. `gpus` counts device files.
    `stack` is the hard limit, -1 if it was not asked. `passwd` is the image's own /etc/passwd where that does
    not know the `uid` that the program has.
    """

    python: str
    version: tuple[int, ...]
    paddle: Paddle | None
    names: tuple[str, ...] = ()
    shm: int | None = None
    open_files: int | None = None
    locked_memory: int | None = None
    gpus: int = 0
    libcuda: bool = False
    ibverbs: bool = False
    stack: int | None = -1
    uid: int | None = None
    passwd: str | None = None


@dataclass(frozen=True)
class Container:
    """How the start went: `inside`, or `failed`, the runtime's words.

    `refused`: why it did not start with the GPUs and the locked memory that a launch asks for, only without.
    """

    inside: Inside | None = None
    failed: str = ""
    refused: str = ""


# Runs as the container's first process, for which a signal without a handler does not exist.
_PROGRAM = (
    REFUSE_OLD
    + f"""
import os, signal
signal.signal(signal.SIGALRM, lambda *_: os._exit(124))
signal.alarm({START_LIMIT_S - 10})
"""
    + FIND_PADDLE
    + r"""
import json, resource
def limit(name, which=0):
    value = resource.getrlimit(name)[which]
    return None if value == resource.RLIM_INFINITY else value
def unknown_to():
    try:
        with open("/etc/passwd") as text:
            lines = text.read(65536)
    except (IOError, UnicodeDecodeError):
        return ""
    known = [line.split(":")[2:3] for line in lines.splitlines()]
    return None if [str(os.getuid())] in known else lines
def loads(library):
    try:
        import ctypes
        ctypes.CDLL(library)
        return True
    except (ImportError, OSError):
        return False
try:
    shm = os.statvfs("/dev/shm")
    shm = shm.f_blocks * shm.f_frsize
except OSError:
    shm = None
print(json.dumps({
    "python": sys.executable, "version": list(sys.version_info[:3]), "paddle": paddle,
    "names": sorted(os.environ),
    "shm": shm, "open_files": limit(resource.RLIMIT_NOFILE), "locked_memory": limit(resource.RLIMIT_MEMLOCK),
    "gpus": len([name for name in os.listdir("/dev") if name[:6] == "nvidia" and name[6:].isdigit()]),
    "libcuda": loads("libcuda.so.1"), "ibverbs": loads("libibverbs.so.1"),
    "stack": limit(resource.RLIMIT_STACK, 1), "uid": os.getuid(), "passwd": unknown_to(),
}))
"""
)

# In the container. An image may have the system's python3 beside the one that Paddle was installed for.
_CHOOSE = r"""
program=$1; shift; answer=
for python in "$@"; do
    command -v "$python" >/dev/null 2>&1 || continue
    said=$("$python" -c "$program") || continue
    case $said in *'"paddle": null'*) answer=${answer:-$said} ;; *) answer=$said; break ;; esac
done
if [ -z "$answer" ]; then echo "none of these runs in the image: $*" >&2; exit 127; fi
printf '%s\n' "$answer"
"""

# On the host. `$extra` may be refused: GPUs without NVIDIA's runtime, and locked memory without a limit.
_SHELL = r"""
$as "$client" image inspect --format '{{.Id}}' "$image" >/dev/null 2>&1 || { echo absent=yes; exit 0; }
extra=
if [ -n "$gpus" ] && command -v nvidia-smi >/dev/null 2>&1; then extra=$gpus; fi
if [ -n "$(ls /sys/class/infiniband 2>/dev/null)" ]; then extra="$extra --ulimit memlock=-1:-1"; fi
# Rootless, the container's root is the login user already, and its own number is somebody else.
case $($as "$client" info --format '{{json .}}' 2>/dev/null | tr -d '\n ') in
    *'name=rootless'* | *'"rootless":true'*) user=${user:-0:0} ;;
esac
set -- --user "${user:-$(id -u):$(id -g)}" "$@"
start() {
    timeout -k 5 "$limit" $as "$client" run --rm --pull=never --network host --label clusterkit.probe=1 \
        --entrypoint sh "$@" </dev/null
}
both=$(start $extra "$@" 2>&1)
status=$?
if [ "$status" != 0 ] && [ -n "$extra" ]; then
    printf 'refused=%s\n' "$(printf '%s\n' "$both" | last)"
    both=$(start "$@" 2>&1)
    status=$?
fi
answer=$(printf '%s\n' "$both" | grep -e '^{.*}$' -e '^version=' | tail -n 1)
if [ "$status" = 0 ] && [ -n "$answer" ]; then printf 'answer=%s\n' "$answer"
elif [ "$status" = 124 ] || [ "$status" = 137 ]; then echo "broken=nothing came from it within $limit s"
else printf 'broken=%s\n' "$(printf '%s\n' "$both" | last)"; fi
exit 0
"""


def _shell(settings: Settings) -> str:
    if not is_used(settings):
        return ""
    pythons = tuple(dict.fromkeys((settings.python, "python3", "python")))
    words = [*_options(settings), str(settings.image), "-c", _CHOOSE, "sh", _PROGRAM, *pythons]
    gpus = "" if settings.gpu_count == 0 else _gpus(settings)
    return "\n".join(
        [
            calling(settings),
            f"limit={START_LIMIT_S}\ngpus={quote(gpus)}\nuser={quote(settings.container_user or '')}",
            f"set -- {join(words)}",
            _SHELL,
        ]
    )


def _gpus(settings: Settings) -> str:
    return "--device nvidia.com/gpu=all" if settings.container_runtime == "podman" else "--gpus all"


# Of the user's own arguments those that decide what is measured, and that change nothing on the host.
_MEASURED = ("--ulimit", "--ipc", "--shm-size", "--runtime", "--security-opt", "--privileged", "--cap-add")


def _options(settings: Settings) -> list[str]:
    chosen = _measured(settings.container_args)
    own = any(word.partition("=")[0] in ("--ipc", "--shm-size") for word in chosen)
    return [*([] if own else [f"--shm-size={settings.shm_size}"]), *chosen]


def _measured(arguments: tuple[str, ...]) -> list[str]:
    chosen: list[str] = []
    words = iter(arguments)
    for word in words:
        name, equals, _ = word.partition("=")
        if name in _MEASURED:
            chosen.append(word)
            if not equals and name != "--privileged":
                chosen += [value for value in [next(words, None)] if value is not None]
    return chosen


def _parse(output: Output) -> Container | None:
    """None where there is nothing to start: no image, or no runtime that answers."""
    found = output.pairs()
    refused = found.get("refused", "")
    if "broken" in found:
        return Container(None, found["broken"], refused)
    if "answer" not in found:
        return None
    answer = found["answer"]
    if answer.startswith("version="):
        version = tuple(map(int, answer.partition("=")[2].split(".")))
        return Container(Inside("python3", version, None), "", refused)
    said = json.loads(answer)
    fields = {
        **said,
        "version": tuple(said["version"]),
        "names": tuple(said["names"]),
        "paddle": paddle_of(said["paddle"]),
    }
    return Container(Inside(**fields), "", refused)


INSIDE = Probe(
    "container_inside", _shell, _parse, timeout=2 * START_LIMIT_S + 5, about="a container of the image"
)
