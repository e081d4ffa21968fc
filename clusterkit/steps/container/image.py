"""The training image: on every host, the same one, for its architecture, with room to pull it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from shlex import quote
from typing import Any

from clusterkit.probes import HOST
from clusterkit.probes.container import CONTAINER, Name, pulled_tag
from clusterkit.probes.container.runtime import architecture
from clusterkit.steps.container import pulling
from clusterkit.steps.container.sameness import short, standing
from clusterkit.steps.container.scope import absent, bare, client, image_name, image_on, runtime_on, silent
from clusterkit.steps.engine import LAUNCH, PLAN, AtLeast, Change, Fleet, Severity, State, Step, Verdict

GIB = 1024**3
# Packed layers and unpacked files lie side by side while an image is pulled.
ROOM = 2


class ImageSpace(Step):
    """Room for the image where the runtime keeps images, looked at before it is pulled."""

    name = "image space"
    probes = (CONTAINER,)

    def skip(self, host: str, fleet: Fleet) -> str:
        """What is there needs no room any more; a file system that nobody may look at has no number."""
        if silent(host, fleet):
            return silent(host, fleet)
        if image_on(fleet.facts[host]):
            return "the image is there"
        runtime = runtime_on(fleet.facts[host])
        return "" if runtime and runtime.free is not None else "its file system cannot be read"

    def desired(self, host: str, fleet: Fleet) -> State:
        """Twice what it takes on a host that has it."""
        size = standing(host, fleet).size
        return {
            "free_gib": AtLeast(
                round(ROOM * size / GIB, 2) if size else fleet.members[host].threshold("image_gib")
            )
        }

    def actual(self, host: str, fleet: Fleet) -> State:
        """What is free."""
        return {"free_gib": round(_free(host, fleet) / GIB, 2)}

    def severity(self, change: Change) -> Severity:
        """What certainly does not fit is a failure."""
        return "failed" if _cannot_fit(change.host, change.fleet) else "warning"

    def explain(self, change: Change) -> str:
        runtime, free = runtime_on(change.facts), change.actual["free_gib"]
        root = runtime.root if runtime else ""
        size = standing(change.host, change.fleet).size
        usual = change.settings.threshold("image_gib")
        needs = f"the image takes {size / GIB:.3g} GiB" if size else f"an image takes up to {usual:g} GiB"
        return f"only {free} GiB are free on {root}, and {needs} and as much again while it is pulled"

    def hint(self, change: Change) -> str:
        return pulling.make_room(change.settings.container_runtime)


class ImagePresent(Step):
    """The image of the inventory is there; a pull brings it, by its digest where other hosts have it."""

    name = "image"
    tags = frozenset({LAUNCH, PLAN})
    # As whoever may use the runtime: the lines say sudo themselves. A private registry knows the login user.
    root = False
    probes = (CONTAINER,)
    pace = pulling.PACE

    def skip(self, host: str, fleet: Fleet) -> str:
        """The runtime has to answer. What cannot fit is for `image space`, which a launch does not ask."""
        reason = silent(host, fleet)
        if reason or fleet.starting or image_on(fleet.facts[host]):
            return reason
        return "there is no room for it: see image space" if _cannot_fit(host, fleet) else ""

    def desired(self, host: str, fleet: Fleet) -> State:
        """There. An image that is named by its digest is the right one, or it is not there."""
        return {"image": image_name(fleet.members[host])}

    def actual(self, host: str, fleet: Fleet) -> State:
        """Whether the runtime has it."""
        return {"image": image_name(fleet.members[host]) if image_on(fleet.facts[host]) else None}

    def fix(self, change: Change) -> list[str]:
        runtime, image = runtime_on(change.facts), image_name(change.settings)
        if runtime is None or _cannot_fit(change.host, change.fleet):
            return []
        others = standing(change.host, change.fleet)
        digest = others.most if others.most in others.pullable else None
        return [*pulling.pull(runtime, image, digest or ""), pulling.mark(runtime, image)]

    def undo(self, host: str, fleet: Fleet) -> list[str]:
        """Only what preflight has pulled, only the name that it was pulled by, and only when asked to."""
        found = fleet.facts[host][CONTAINER]
        if not fleet.permissions.images or bare(host, fleet) or found is None:
            return []
        call = client(fleet.facts[host])
        names = [
            name
            for pulled in found.pulled
            for name in (*(name for name in pulled.names if _is_marked(name, pulled.mark)), pulled.mark)
        ]
        return [f"{call} image rm {quote(name)}" for name in dict.fromkeys(names)]

    def explain(self, change: Change) -> str:
        no_room = ", and there is no room for it" if _cannot_fit(change.host, change.fleet) else ""
        return f"{image_name(change.settings)} is not on this host{no_room}"

    def hint(self, change: Change) -> str:
        no_room = _cannot_fit(change.host, change.fleet)
        return pulling.make_room(change.settings.container_runtime) if no_room else ""

    def blame(self, said: str, verdict: Verdict, fleet: Fleet) -> Verdict:
        return _blamed(said, verdict, fleet)


@dataclass(frozen=True)
class OneForAll:
    """What a tie leaves open: any image, the same on all hosts."""

    def met_by(self, actual: Any) -> bool:
        """Never: this is desired only where the hosts differ."""
        return False

    def __str__(self) -> str:
        return "one image on all hosts"


class SameImage(Step):
    """Under one name every host has one image: tags are moved, and who pulled before has the old one."""

    name = "same image"
    tags = frozenset({LAUNCH})
    root = False
    probes = (CONTAINER,)
    pace = pulling.PACE

    def skip(self, host: str, fleet: Fleet) -> str:
        """A digest in the inventory has decided already."""
        digest = bool(Name.of(image_name(fleet.members[host])).digest)
        return absent(host, fleet) or ("named by its digest" if digest else "")

    def desired(self, host: str, fleet: Fleet) -> State:
        """What most hosts have."""
        found = standing(host, fleet)
        return {"image": found.most or OneForAll()}

    def actual(self, host: str, fleet: Fleet) -> State:
        """The registry's digest, or the image's id."""
        return {"image": standing(host, fleet).own[host]}

    def fix(self, change: Change) -> list[str]:
        """The image that most have is pulled by its digest. In a tie the registry decides, for all."""
        runtime, image = runtime_on(change.facts), image_name(change.settings)
        found = standing(change.host, change.fleet)
        if runtime is None or not found.pullable:
            return []
        if found.most is None:
            return pulling.pull(runtime, image)
        return pulling.pull(runtime, image, found.most) if found.most in found.pullable else []

    def explain(self, change: Change) -> str:
        image, own = image_name(change.settings), short(str(change.actual["image"]))
        found = standing(change.host, change.fleet)
        if found.most is not None:
            return f"{image} is {own} here, and {short(found.most)} on most hosts"
        others = [host for host, other in found.own.items() if short(other) != own]
        return f"{image} is {own} here, and {short(found.own[others[0]])} on {others[0]}"

    def hint(self, change: Change) -> str:
        image, kind = quote(image_name(change.settings)), change.settings.container_runtime
        found = standing(change.host, change.fleet)
        if self.fix(change):
            return "name the image by its digest in the inventory, and it stays the same"
        source = next((host for host, own in found.own.items() if own == found.most), "the right host")
        return f"no registry has it: on {source}, {kind} save {image} | ssh {change.host} {kind} load"

    def blame(self, said: str, verdict: Verdict, fleet: Fleet) -> Verdict:
        return _blamed(said, verdict, fleet)


class ImageArchitecture(Step):
    """The image was built for the host's processor."""

    name = "image architecture"
    tags = frozenset({LAUNCH})
    probes = (CONTAINER, HOST)

    def skip(self, host: str, fleet: Fleet) -> str:
        """The image has to be there."""
        return absent(host, fleet)

    def desired(self, host: str, fleet: Fleet) -> State:
        """The host's, as images name it."""
        return {"architecture": architecture(fleet.facts[host][HOST].architecture)}

    def actual(self, host: str, fleet: Fleet) -> State:
        """The image's."""
        image = image_on(fleet.facts[host])
        return {"architecture": image.architecture if image else None}

    def explain(self, change: Change) -> str:
        image = image_name(change.settings)
        return f"{image} is for {change.actual['architecture']}, the host is {change.desired['architecture']}"

    def hint(self, change: Change) -> str:
        pull = f"{client(change.facts)} pull --platform linux/{change.desired['architecture']}"
        return f"{pull} {quote(image_name(change.settings))}, if its registry has such a one"


def _free(host: str, fleet: Fleet) -> int:
    runtime = runtime_on(fleet.facts[host])
    return (runtime.free if runtime else None) or 0


def _cannot_fit(host: str, fleet: Fleet) -> bool:
    """Whether the image is larger than what is free; False where either is not known."""
    runtime = runtime_on(fleet.facts[host])
    known = runtime is not None and runtime.free is not None
    return known and standing(host, fleet).size > _free(host, fleet)


def _is_marked(name: str, mark: str) -> bool:
    return pulled_tag(name) == mark.rpartition(":")[2]


def _blamed(said: str, verdict: Verdict, fleet: Fleet) -> Verdict:
    runtime = runtime_on(fleet.facts[verdict.host]) if verdict.host in fleet.facts else None
    if runtime is None:
        return replace(verdict, message=f"{said}; {verdict.message}")
    image = image_name(fleet.members[verdict.host])
    message, hint = pulling.why(said, image, runtime, verdict.host)
    return replace(verdict, message=message, hint=hint)
