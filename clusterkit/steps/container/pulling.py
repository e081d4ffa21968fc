"""The lines that bring an image to a host, and what a pull's last words mean."""

from __future__ import annotations

import re
from shlex import join, quote

from clusterkit.probes.container import Name, Runtime, pulled_tag
from clusterkit.probes.container.names import HUB, PULLED
from clusterkit.steps.engine import Pace

LIMIT_S = 3000
# A registry of one's own serves this many at a time; a hub counts pulls in hours, whatever their order.
AT_ONCE = 8

# Without a terminal Docker prints a line when a layer begins and when it is there.
_LAYERS = (
    "awk '/: (Pulling fs layer|Already exists)$/ { all++ } /: (Pull complete|Already exists)$/ { done++ }"
    ' END { if (all) printf "%d of %d layers", done, all }\''
)
PACE = Pace(AT_ONCE, _LAYERS)


def pull(runtime: Runtime, image: str, digest: str = "") -> list[str]:
    """The image is there under its name; with `digest` exactly that one of its repository."""
    call, name = join(runtime.command), _called(runtime, image)
    if not digest or Name.of(image).digest:
        return [_pull(call, quote(name))]
    exact = quote(f"{_repository(name)}@{digest}")
    lines = [_pull(call, exact), f"{call} tag {exact} {quote(name)}"]
    # Podman would keep the digest as a name of its own, by which the image outlives its tag.
    return [*lines, f"{call} untag {exact} {exact}"] if runtime.kind == "podman" else lines


def mark(runtime: Runtime, image: str) -> str:
    """The image carries a second name that says: preflight brought it here."""
    name = _called(runtime, image)
    return f"{join(runtime.command)} tag {quote(name)} {PULLED}:{pulled_tag(image)}"


def _pull(call: str, name: str) -> str:
    late = quote(f"no end after {LIMIT_S // 60} min")
    return f"timeout -k 10 {LIMIT_S} {call} pull {name} || {{ [ $? -ne 124 ] || echo {late}; exit 1; }}"


def _called(runtime: Runtime, image: str) -> str:
    """Podman asks on a terminal which registry is meant where none is named."""
    return Name.of(image).full if runtime.kind == "podman" else image


def _repository(name: str) -> str:
    """The name as it is written, without the tag; a port is no tag."""
    return re.sub(r":[^/:]*$", "", name.partition("@")[0])


def why(said: str, image: str, runtime: Runtime, host: str) -> tuple[str, str]:
    """One line that says what was wrong, and one that says what to do."""
    for pattern, message, hint in _meanings(said, Name.of(image), runtime, host):
        if re.search(pattern, said, re.IGNORECASE):
            return message, hint
    retry = f"try on {host}: {join(runtime.command)} pull {quote(image)}"
    return f"{_wanted(Name.of(image))} could not be pulled: {said}", retry


def _meanings(said: str, name: Name, runtime: Runtime, host: str) -> tuple[tuple[str, str, str], ...]:
    """What the words match, what it means, what to do; the first that fits counts."""
    kind, wanted, registry = runtime.kind, _wanted(name), _registry(name)
    own = () if name.registry == HUB else (name.registry,)
    login = join((*runtime.command, "login", *own))
    trusted = "registries.conf" if kind == "podman" else "insecure-registries of /etc/docker/daemon.json"
    return (
        (
            r"no space left on device",
            f"the disk is full: {wanted} does not fit on {runtime.root}",
            make_room(kind),
        ),
        (
            r"toomanyrequests|too many requests|\b429\b|rate limit",
            f"{registry} refuses more pulls for now (429, too many requests)",
            f"wait, or log in (`{login}` on {host}) for a higher limit, or use a mirror of your own",
        ),
        (
            r"no matching manifest|no image found .* for architecture",
            f"{registry} has no {wanted} for this host's architecture",
            "use an image that was built for it",
        ),
        (
            r"pull access denied|access to the resource is denied|name unknown|repository .*not found",
            f"{registry} has no {name.path}, or does not show it without a login",
            f"check the name in `image`; if it is private: `{login}` on {host}",
        ),
        (
            r"manifest unknown|manifest for .* not found|not found: manifest",
            f"{registry} has no {wanted}",
            "check the tag in `image`",
        ),
        (
            r"unauthorized|authentication required|no basic auth|\b401\b|\b403\b|forbidden|denied:",
            f"{registry} refuses the login",
            f"on {host}: {login}",
        ),
        (
            r"gave http response to https client",
            f"{registry} speaks plain HTTP, which {kind} refuses",
            f"give it a certificate, or name it in {trusted}",
        ),
        (
            r"x509|certificate",
            f"the certificate of {registry} is not trusted: {_end(said)}",
            f"put its authority's certificate into /etc/{_folder(kind)}/certs.d/{name.registry}/ca.crt",
        ),
        (
            r"no such host|connection refused|timeout|unreachable|no route to host|deadline exceeded"
            r"|reset by peer|proxyconnect|\beof\b|lookup |temporary failure",
            f"{registry} cannot be reached: {_end(said)}",
            f"try on {host}: curl -v https://{name.registry}/v2/ (the daemon's proxy is its own setting)",
        ),
        (
            r"no end after",
            f"pulling {wanted} had {said}",
            "try again: the layers that have arrived are kept",
        ),
        (
            r"unexpected (http )?status|received unexpected|\b5\d\d\b",
            f"{registry} does not work: {_end(said)}",
            "look at the registry's own log",
        ),
        (
            r"cannot connect to the docker daemon|failed to connect to the docker api",
            "the Docker daemon went down during the pull",
            "as root: journalctl -u docker",
        ),
    )


def _wanted(name: Name) -> str:
    """The image without its registry."""
    return f"{name.path}@{name.digest}" if name.digest else f"{name.path}:{name.tag or 'latest'}"


def _registry(name: Name) -> str:
    return "Docker Hub" if name.registry == HUB else f"the registry {name.registry}"


def make_room(kind: str) -> str:
    """What to do on a host whose disk for images is full."""
    return f"make room: `{kind} system df` shows what takes it, `{kind} image prune -a` removes unused ones"


def _end(said: str) -> str:
    """The last part of words that lead from the general to the particular: `Get "…": dial tcp …: REASON`."""
    parts = [part.strip(' "') for part in said.split(": ")]
    last = [part for part in parts if part][-1:] or [said]
    return "no answer" if re.search(r"timeout|deadline|Client\.Timeout", last[0]) else last[0][:120]


def _folder(kind: str) -> str:
    return "docker" if kind == "docker" else "containers"
