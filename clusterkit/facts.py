"""Facts: one shell script out, one round trip, one value (or one reason) a probe back.

A probe may hang (a dead mount, a stuck driver), even beyond SIGKILL. So each one runs in a child of its own
whose output goes to files; the script waits for that child, which a clock ends with all that it started when
the probe's own time limit is up, and nothing of ours ever waits on a pipe that a probe holds. All probes run
side by side. A process costs the host more than all else here (16 hosts on one machine: 90 % of the time),
so the frames are in the files already, and one `cat` prints them all.

    script(settings, probes, token)          what travels
    TOKEN start 1790000000.123456789         what comes back, among whatever else the shell printed
    TOKEN status NAME STATUS
    TOKEN stdout NAME                        its bytes as they are, to the next line with the token
    TOKEN stderr NAME
    TOKEN end 1790000000.345678901
"""

from __future__ import annotations

import re
import secrets
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from clusterkit.errors import CommandFailed, HostError, Unreachable, apart
from clusterkit.inventory.model import Settings
from clusterkit.remote.protocol import Remote

T = TypeVar("T")

NOT_FOUND = 127
TIMED_OUT = 124
TOO_MUCH_OUTPUT = 153  # 128 + SIGXFSZ: the probe ran into `ulimit -f`
NEEDS_ROOT = 77  # EX_NOPERM: the probe was not run, since it needs root and sudo may not or does not give it

# A clock that is known no better than this is measured once more, on the connection that is now warm.
CLOCK_ERROR_WANTED_S = 0.2


@dataclass(frozen=True)
class Output:
    """How one probe ended: exit status, stdout and stderr as text (undecodable bytes replaced)."""

    status: int
    stdout: str
    stderr: str = ""

    def pairs(self) -> dict[str, str]:
        """The lines `key=value` of stdout; the last of equal keys wins, other lines are dropped."""
        lines = (line.partition("=") for line in self.stdout.splitlines())
        return {key: value for key, equals, value in lines if equals}


@dataclass(frozen=True)
class Probe(Generic[T]):
    """One question to a host: shell text, and a pure parser of what it prints.

    `shell` is POSIX sh (dash, busybox); a callable gets the host's settings and must quote what it takes
    from them, and returns "" where there is nothing to ask: the output is then empty. It finds what many ask
    in variables: `who` is what `id` says, `machine` what `uname -nrm` does (not under `root`). `parse` raises
    ValueError or KeyError for output that it does not understand. `accepts` are the exit statuses that
    `parse` understands. `timeout` is in whole seconds. `about` is how a failure names what was asked. `root`
    says that only root can answer: the probe then runs under `sudo -n` where the login user is not root and
    the inventory permits it (`ansible_become`). With `or_login` the login user is asked where root is not to
    be had; text that then cannot answer ends with NEEDS_ROOT.
    """

    name: str
    shell: str | Callable[[Settings], str]
    parse: Callable[[Output], T]
    timeout: int = 5
    accepts: tuple[int, ...] = (0,)
    about: str = ""
    root: bool = False
    or_login: bool = False

    def text(self, settings: Settings) -> str:
        """The shell text for this host."""
        return self.shell if isinstance(self.shell, str) else self.shell(settings)


class ProbeFailed(HostError):
    """A probe gave no value: `status` is 127 (not found), 124 (timed out), or what it ended with."""

    def __init__(self, host: str, probe: str, status: int, message: str, hint: str = "") -> None:
        super().__init__(host, message, hint)
        self.probe = probe
        self.status = status


@dataclass(frozen=True)
class Clock:
    """The host's clock minus this machine's, in seconds, and how wrong that may be at most."""

    offset_s: float
    error_s: float

    @property
    def certain_s(self) -> float:
        """By how much the two clocks differ at least."""
        return max(0.0, abs(self.offset_s) - self.error_s)


@dataclass(frozen=True)
class Facts:
    """One host's facts. `facts[PROBE]` is that probe's value, typed, or raises its ProbeFailed."""

    host: str
    values: Mapping[str, Any] = field(repr=False)
    clock: Clock | None = None

    def __getitem__(self, probe: Probe[T]) -> T:
        """The probe's value. Raises ProbeFailed; KeyError if the probe was not among those gathered."""
        value: T | ProbeFailed = self.values[probe.name]
        if isinstance(value, ProbeFailed):
            raise value
        return value

    def get(self, probe: Probe[T]) -> T | None:
        """The probe's value, None if it failed."""
        return None if self.failure(probe) else self[probe]

    def failure(self, probe: Probe[Any]) -> ProbeFailed | None:
        """Why there is no value, None if there is one."""
        value = self.values[probe.name]
        return value if isinstance(value, ProbeFailed) else None


def gather(
    remote: Remote, settings: Settings, probes: Sequence[Probe[Any]], *, timeout: float = 60.0
) -> Facts:
    """Every probe's value or failure, and the host's clock, in one round trip.

    Where root is permitted and `sudo -n` does not give it, sudo is asked once more in a second one, with the
    password if one is known; what it says if it refuses is the failure of the probes that need root.
    Raises Unreachable and HostTimeout as `Remote.run` does, and CommandFailed if the host's shell did not
    get to the end of the script (no place for a temporary file, no way to encode what was read).
    """
    token = secrets.token_hex(8)
    sent = time.time()
    result = remote.run(script(settings, probes, token), timeout=timeout, doing="facts")
    received = time.time()
    answer = read(result.stdout, token)
    outputs = {
        **{probe.name: Output(0, "") for probe in probes if not probe.text(settings)},
        **answer.outputs,
    }
    if answer.ended is None or answer.started is None:
        reason = answer.error or result.last_lines(3) or f"exit status {result.status}"
        hint = "facts need a POSIX shell that may write to /dev/shm, $TMPDIR, /tmp or the home directory"
        raise CommandFailed(remote.alias, f"the facts of {remote.alias} could not be read: {reason}", hint)
    clock = offset(result.sent or sent, answer.started, answer.ended, received)
    if clock.error_s > CLOCK_ERROR_WANTED_S:
        clock = sharper(clock, remote, token, timeout)
    values = interpret(remote.alias, outputs, probes)
    return Facts(remote.alias, {**values, **_with_password(remote, settings, probes, answer, timeout)}, clock)


def _with_password(
    remote: Remote, settings: Settings, probes: Sequence[Probe[Any]], answer: Answer, timeout: float
) -> Mapping[str, Any]:
    """What root answers where `sudo -n` was not enough, or why it is not to be had.

    Only the remote knows whether there is a password: an inventory's, or the one that was asked for.
    """
    refused = [each for each in probes if each.root and _status(answer, each) == NEEDS_ROOT]
    if not refused or not settings.become:
        return {}
    token = secrets.token_hex(8)
    try:
        result = remote.run(
            script(settings, refused, token), timeout=timeout, sudo=True, doing="facts that need root"
        )
    except Unreachable as error:
        if error.stage != "sudo":
            raise
        return {each.name: _without_root(remote.alias, each, error) for each in refused}
    return interpret(remote.alias, read(result.stdout, token).outputs, refused)


def _without_root(host: str, probe: Probe[Any], error: Unreachable) -> ProbeFailed:
    """sudo's refusal keeps nothing else of the host from being told."""
    _, reason = apart(host, error.message)
    message = f"{probe.about or probe.name}: {reason}"
    return ProbeFailed(host, probe.name, NEEDS_ROOT, message, error.hint)


def _status(answer: Answer, probe: Probe[Any]) -> int | None:
    output = answer.outputs.get(probe.name)
    return output.status if output else None


def interpret(host: str, outputs: Mapping[str, Output], probes: Sequence[Probe[Any]]) -> dict[str, Any]:
    """Each probe's value, or its ProbeFailed, by the probe's name (pure)."""
    return {probe.name: _value(host, probe, outputs.get(probe.name)) for probe in probes}


def _value(host: str, probe: Probe[T], output: Output | None) -> T | ProbeFailed:
    if output is None:
        return ProbeFailed(host, probe.name, 1, f"{probe.about or probe.name}: the host sent no answer")
    if output.status not in probe.accepts:
        return ProbeFailed(
            host, probe.name, output.status, f"{probe.about or probe.name}: {_reason(probe, output)}"
        )
    try:
        return probe.parse(output)
    except (ValueError, KeyError, IndexError, TypeError, SyntaxError) as error:
        # The output itself stays out of the message: an environment holds secrets.
        return ProbeFailed(
            host,
            probe.name,
            output.status,
            f"{probe.about or probe.name}: the answer was not understood ({error!r})",
        )


def _reason(probe: Probe[Any], output: Output) -> str:
    if output.status == TIMED_OUT:
        return f"no answer within {probe.timeout} s"
    if output.status == TOO_MUCH_OUTPUT:
        return "printed more than 1 MB"
    if output.status == NEEDS_ROOT:
        return "only root can read this"
    # A program's last word on stderr is the reason (a traceback); on stdout it begins with it (nvidia-smi).
    said = output.stderr.strip().splitlines()[-1:] or output.stdout.strip().splitlines()[:1]
    return said[0][:300] if said else f"exit status {output.status}"


# --- the clock -------------------------------------------------------------------------------------


def offset(sent: float, started: tuple[float, float], ended: tuple[float, float], received: float) -> Clock:
    """The offset that fits: started after `sent`, ended before `received`.

    The host's times come with their resolution, in seconds.
    """
    at_least = ended[0] - received
    at_most = started[0] + started[1] - sent
    return Clock((at_least + at_most) / 2, abs(at_most - at_least) / 2)


def sharper(clock: Clock, remote: Remote, token: str, timeout: float) -> Clock:
    """The better of `clock` and one more measurement, which no longer has to wait for a connection."""
    sent = time.time()
    result = remote.run(f"{_NOW}\necho; echo {token} start $(now)\n", timeout=timeout, doing="clock")
    received = time.time()
    started = read(result.stdout, token).started
    if started is None:
        return clock
    return min(
        clock, offset(result.sent or sent, started, started, received), key=lambda measured: measured.error_s
    )


# --- what comes back -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """What the script printed between whatever else the shell printed. Times are (seconds, resolution)."""

    started: tuple[float, float] | None = None
    ended: tuple[float, float] | None = None
    outputs: Mapping[str, Output] = field(default_factory=dict)
    error: str = ""


def read(data: bytes, token: str) -> Answer:
    """The parts between lines with `token`; what else was printed (banner, noisy profile) is dropped."""
    times: dict[str, tuple[float, float]] = {}
    streams: dict[tuple[str, str], str] = {}
    statuses: dict[str, int] = {}
    error = ""
    for kind, words, content in _parts(data, token):
        if kind in ("stdout", "stderr"):
            streams[words, kind] = content
        elif kind == "status":
            name, _, status = words.partition(" ")
            statuses[name] = int(status)
        elif kind == "error":
            error = words
        else:
            times[kind] = _seconds(words)
    outputs = {
        name: Output(status, streams.get((name, "stdout"), ""), streams.get((name, "stderr"), ""))
        for name, status in statuses.items()
    }
    return Answer(times.get("start"), times.get("end"), outputs, error)


def _parts(data: bytes, token: str) -> Iterator[tuple[str, str, str]]:
    """What a line says, and the text from there to the line break before the next such line."""
    pattern = rf"^{re.escape(token)} (start|stdout|stderr|status|error|end) (.+)\n".encode()
    found = list(re.finditer(pattern, data, re.MULTILINE))
    ends = [*(match.start() - 1 for match in found[1:]), len(data)]
    for match, end in zip(found, ends, strict=False):
        content = data[match.end() : max(match.end(), end)]
        yield match[1].decode(), match[2].decode("utf-8", "replace"), content.decode("utf-8", "replace")


def _seconds(text: str) -> tuple[float, float]:
    """`date +%s.%N`, with its resolution: where %N is not known (busybox), whole seconds."""
    whole, _, fraction = text.partition(".")
    return (float(text), 0.0) if fraction.isdigit() else (float(whole), 1.0)


# --- what travels ----------------------------------------------------------------------------------

_NOW = "now() { date +%s.%N; }"

_PROLOGUE = r"""
umask 077
dir=
for base in /dev/shm "${TMPDIR:-/tmp}" /tmp "${HOME:-/}"; do
    dir=$base/clusterkit-facts-$token
    if mkdir "$dir" 2>/dev/null; then
        { echo written >"$dir/.probe"; } 2>/dev/null
        [ -s "$dir/.probe" ] && break
        rm -rf "$dir"
    fi
    dir=
done
if [ -z "$dir" ]; then echo "$token error no directory for temporary files can be written"; exit 1; fi
kill_tree() {
    for stat in /proc/[0-9]*/stat; do
        { read -r line <"$stat"; } 2>/dev/null || continue
        parent=${line##*) }; parent=${parent#* }; parent=${parent%% *}
        if [ "$parent" = "$1" ]; then kill_tree "${line%% *}"; fi
    done
    kill -KILL "$1" 2>/dev/null
}
who=$(id)
machine=$(uname -nrm)
waiting=''; clock=''
clean() {
    for item in $waiting $clock; do kill_tree "${item##*:}"; done
    rm -rf "$dir"
}
trap clean EXIT
trap 'exit 143' HUP INT PIPE TERM
ask() {
    printf '\n%s stdout %s\n' "$token" "$1" >"$dir/$1.out"
    printf '\n%s stderr %s\n' "$token" "$1" >"$dir/$1.err"
    (
        ulimit -S -f 2048 2>/dev/null  # soft: Podman, whose files it would be for, raises it again
        if [ -n "${4:-}" ]; then exec $4 sh -c "$3"; fi
        eval "$3"
    ) </dev/null >>"$dir/$1.out" 2>>"$dir/$1.err" &
    waiting="$waiting $1:$2:$!"
}
root=refused
ask_root() {
    if [ "$root" != refused ]; then ask "$1" "$2" "$3" "$root"; else echo "$token status $1 77"; fi
}
ask_root_or_login() {
    if [ "$root" != refused ]; then ask "$1" "$2" "$3" "$root"; else ask "$1" "$2" "$3"; fi
}
"""

# Looked at once, and only where a probe needs it: `sudo` writes a line into the host's log.
_ROOT = """
case $who in
    'uid=0('* | 'uid=0 '*) root= ;;
    *) if %s && sudo -n true 2>/dev/null; then root='sudo -n'; fi ;;
esac
"""

# The clock ends what is late: a child of this shell that is no zombie, so that nobody else's is ended. It
# sleeps by the second, since a shell that begins to wait may miss the signal to end itself and its sleep.
_EPILOGUE = r"""
self=$$  # of the login's shell, where we are a child of that
{ read -r self rest </proc/self/stat; } 2>/dev/null
end_if_late() {
    { read -r line <"/proc/$2/stat"; } 2>/dev/null || return 0
    line=${line##*) }
    case $line in
        Z*) return 0 ;;
        [A-Z]" $self "*) : >"$dir/.late-$1"; kill_tree "$2" ;;
    esac
}
(
    passed=0; nap=''
    trap 'kill "$nap" 2>/dev/null; exit' TERM
    while :; do
        sleep 1 & nap=$!
        wait "$nap"
        passed=$((passed + 1))
        for item in $waiting; do
            case $item in *:"$passed":*) end_if_late "${item%%:*}" "${item##*:}" ;; esac
        done
    done
) </dev/null >/dev/null 2>&1 &
clock=$!
for item in $waiting; do
    name=${item%%:*}
    wait "${item##*:}" 2>/dev/null
    status=$?
    [ -e "$dir/.late-$name" ] && status=124
    echo "$token status $name $status"
done
waiting=
kill -TERM "$clock" 2>/dev/null
clock=
cat "$dir"/*.??? 2>/dev/null
echo; echo "$token end $(now)"
"""


def script(settings: Settings, probes: Sequence[Probe[Any]], token: str) -> str:
    """A POSIX sh script that asks all probes side by side and prints a frame for each; changes nothing."""
    texts = {probe: text for probe in probes if (text := probe.text(settings))}
    asked = [_question(probe, text) for probe, text in texts.items()]
    if any(probe.root for probe in texts):
        asked.insert(0, (_ROOT % ("true" if settings.become else "false")).strip())
    # A profile may have printed half a line.
    first = f'token={shlex.quote(token)}\n{_NOW}\necho; echo "$token start $(now)"'
    return "\n".join([first, _PROLOGUE.strip(), *asked, _EPILOGUE.strip(), ""])


def _question(probe: Probe[Any], text: str) -> str:
    verb = "ask" if not probe.root else "ask_root_or_login" if probe.or_login else "ask_root"
    return f"{verb} {probe.name} {probe.timeout} {shlex.quote(text)}"
