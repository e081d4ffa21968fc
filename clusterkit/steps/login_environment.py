"""What a login without a terminal has in its environment that a job had better not see."""

from __future__ import annotations

from clusterkit.planning.variables import is_proxy, override
from clusterkit.probes import ENVIRONMENT
from clusterkit.steps.engine import Change, Fleet, Severity, State, Step


class LoginEnvironment(Step):
    """No proxy that would catch the nodes' rendezvous, nothing that the launcher obeys before its options.

    Only a warning: launch keeps these out. Whoever starts the launcher by hand there has them.
    """

    name = "login environment"
    probes = (ENVIRONMENT,)

    def desired(self, host: str, fleet: Fleet) -> State:
        """None."""
        return {"launcher": (), "proxies": ()}

    def actual(self, host: str, fleet: Fleet) -> State:
        """The names; values may be secrets."""
        names = sorted(fleet.facts[host][ENVIRONMENT].variables)
        return {
            "launcher": tuple(name for name in names if override(name)),
            "proxies": tuple(name for name in names if is_proxy(name) and name.upper() != "NO_PROXY"),
        }

    def severity(self, change: Change) -> Severity:
        """Launch keeps them out."""
        return "warning"

    def explain(self, change: Change) -> str:
        parts = []
        if "launcher" in change.keys:
            names = _names(change, "launcher")
            found = override(names[0])
            more = f" (and {', '.join(names[1:5])})" if names[1:] else ""
            parts.append(f"{names[0]} {found.effect if found else ''}{more}")
        if "proxies" in change.keys:
            parts.append(
                f"{', '.join(_names(change, 'proxies'))} would catch the rendezvous between the nodes"
            )
        return "; ".join(parts)

    def hint(self, change: Change) -> str:
        where = "/etc/environment, ~/.bashrc and ~/.ssh/environment"
        if "launcher" in change.keys:
            found = override(_names(change, "launcher")[0])
            return f"launch keeps it out; {found.instead if found else ''}, and take it out of {where}"
        return f"launch keeps them out (--keep-proxy gives them to the script alone); they come from {where}"


def _names(change: Change, key: str) -> tuple[str, ...]:
    value = change.actual[key]
    return value if isinstance(value, tuple) else ()
