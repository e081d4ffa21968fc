"""Real firewalls on sandbox hosts: how each is set to deny, how it is restarted, and what it looks like."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from clusterkit.sandbox.sandbox import Sandbox
from tests.preflight.faults import do, told

PACKAGES = ("dbus", "firewalld", "iptables", "nftables", "ufw")

# Two of `port_range` at its ends, and one that only the kernel's ephemeral range has where a test narrows it.
PORTS = (30000, 45000, 60999)
CONNECT_S = 1.5

_FIREWALLD = """
mkdir -p /run/dbus
[ -e /run/dbus/pid ] || dbus-daemon --system --fork
setsid /usr/sbin/firewalld --nofork --nopid >/var/log/firewalld.out 2>&1 </dev/null &
echo $! >/run/firewalld.test
for try in $(seq 100); do firewall-cmd --state >/dev/null 2>&1 && exit 0; sleep 0.2; done
cat /var/log/firewalld.out >&2; exit 1
"""

NFTABLES_CONF = """#!/usr/sbin/nft -f

flush ruleset

table inet filter {
\tchain input {
\t\ttype filter hook input priority filter; policy drop;
\t\tct state vmap { established : accept, related : accept, invalid : drop }
\t\tiif lo accept
\t\tip protocol icmp accept
\t\ttcp dport 22 accept
\t}
\tchain forward {
\t\ttype filter hook forward priority filter; policy drop;
\t}
\tchain output {
\t\ttype filter hook output priority filter; policy accept;
\t}
}"""  # an editor left it without a line feed at its end


def _iptables(command: str) -> str:
    return f"""
{command} -A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
{command} -A INPUT -i lo -j ACCEPT
{command} -A INPUT -p tcp -m tcp --dport 22 -j ACCEPT
{command} -A INPUT -s 192.0.2.7/32 -j REJECT
{command} -P INPUT DROP
"""


# As dockerd 20.10 writes them.
_DOCKER = """
for chain in DOCKER DOCKER-ISOLATION-STAGE-1 DOCKER-ISOLATION-STAGE-2 DOCKER-USER; do iptables -N $chain; done
iptables -P FORWARD DROP
iptables -A FORWARD -j DOCKER-USER
iptables -A FORWARD -j DOCKER-ISOLATION-STAGE-1
iptables -A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
iptables -A FORWARD -o docker0 -j DOCKER
iptables -A FORWARD -i docker0 ! -o docker0 -j ACCEPT
iptables -A FORWARD -i docker0 -o docker0 -j ACCEPT
iptables -A DOCKER-ISOLATION-STAGE-1 -i docker0 ! -o docker0 -j DOCKER-ISOLATION-STAGE-2
iptables -A DOCKER-ISOLATION-STAGE-1 -j RETURN
iptables -A DOCKER-ISOLATION-STAGE-2 -o docker0 -j DROP
iptables -A DOCKER-ISOLATION-STAGE-2 -j RETURN
iptables -A DOCKER-USER -j RETURN
iptables -t nat -N DOCKER
iptables -t nat -A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
iptables -t nat -A OUTPUT ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j DOCKER
"""


@dataclass(frozen=True)
class Wall:
    """One firewall: shell lines that set it up to deny, and that restart it; "" where it has no service."""

    name: str
    deny: str
    restart: str
    kept_in: str = ""


WALLS = (
    Wall(
        "ufw",
        "ufw default deny incoming; ufw allow 22/tcp; ufw --force enable",
        "/lib/ufw/ufw-init force-stop; /lib/ufw/ufw-init start",
        "/etc/ufw/user.rules",
    ),
    Wall(
        "firewalld",
        _FIREWALLD,
        'kill "$(cat /run/firewalld.test)"\n'
        'while kill -0 "$(cat /run/firewalld.test)" 2>/dev/null; do sleep 0.1; done\n' + _FIREWALLD,
        "/etc/firewalld/policies/clusterkit.xml",
    ),
    Wall(
        "nftables",
        f"printf %s {quote(NFTABLES_CONF)} >/etc/nftables.conf; nft -f /etc/nftables.conf",
        "nft -f /etc/nftables.conf",
        "/etc/clusterkit.nft",
    ),
    Wall(
        "iptables-nft",
        "update-alternatives --set iptables /usr/sbin/iptables-nft >/dev/null\n"
        # What a person saved before Docker came.
        + _iptables("iptables-nft")
        + "mkdir -p /etc/iptables; iptables-save >/etc/iptables/rules.v4; "
        "ip6tables-save >/etc/iptables/rules.v6\n" + _DOCKER,
        "netfilter-persistent start",
        "/etc/iptables/rules.v4",
    ),
    Wall("iptables-legacy", _iptables("iptables-legacy"), ""),
)

# What a firewall is: the kernel's rules without their counters, and its files.
_RULES = r"""
export LC_ALL=C
for save in iptables-nft-save iptables-legacy-save; do echo "== $save"; $save; done |
    sed -e '/^#/d' -e 's/ \[[0-9]*:[0-9]*\]$//'
echo "== nft"; nft -s list ruleset 2>/dev/null
for file in $(find /etc/ufw /etc/firewalld /etc/iptables /etc/nftables* /etc/clusterkit* -type f \
    2>/dev/null | sort)
do echo "== $file $(stat -c '%a %U' "$file") $(sha256sum <"$file")"; done
"""


def rules(sandbox: Sandbox, host: str) -> str:
    """The host's packet filters and firewall files, as text that is equal for equal ones."""
    return told(sandbox, host, _RULES)


def differences(before: str, after: str) -> list[str]:
    """The lines that only one of the two has."""
    old, new = before.splitlines(), after.splitlines()
    gone = [f"- {line}" for line in old if line not in new]
    return gone + [f"+ {line}" for line in new if line not in old]


def install_packages() -> str:
    """The firewalls are installed on this machine, whose files the hosts see; else why not."""
    missing = [name for name in PACKAGES if not _installed(name)]
    if not missing:
        return ""
    # Debian starts firewalld when it is installed: nothing that tests should do to a machine in use.
    if os.geteuid() != 0 or Path("/run/systemd/system").exists():
        return f"needs {' '.join(missing)}: sudo apt-get install {' '.join(missing)}"
    command = ["apt-get", "-o", "DPkg::Lock::Timeout=600", "-qq", "-y", "--no-install-recommends", "install"]
    done = subprocess.run(
        [*command, *missing],
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    return "" if done.returncode == 0 else f"{' '.join(missing)} cannot be installed: {done.stderr[-200:]}"


def _installed(package: str) -> bool:
    query = ["dpkg-query", "-W", "-f=${db:Status-Status}", package]
    return subprocess.run(query, capture_output=True, text=True, check=False).stdout == "installed"


def install_persistence(sandbox: Sandbox, host: str, folder: Path) -> bool:
    """Debian's own iptables service is on the host. ufw's package forbids it, so it is unpacked there."""
    names = ("netfilter-persistent", "iptables-persistent")
    done = subprocess.run(
        ["apt-get", "-qq", "download", *names], cwd=folder, capture_output=True, timeout=120, check=False
    )
    if done.returncode != 0:
        return False
    for package in folder.glob("*.deb"):
        Path(f"/proc/{sandbox.init(host).pid}/root/tmp/{package.name}").write_bytes(package.read_bytes())
        # Not to / itself: its /lib is a symbolic link, which an archive's directory would replace.
        do(sandbox, host, f"dpkg -x /tmp/{package.name} /tmp/unpacked")
    do(sandbox, host, "cp -R /tmp/unpacked/usr/. /usr/ && rm -r /tmp/unpacked /tmp/*.deb")
    return True


# --- who can connect -------------------------------------------------------------------------------

_LISTEN = """
import socket, sys, threading
def serve(port):
    with socket.create_server(("", port), backlog=64) as listener:
        while True:
            listener.accept()[0].close()
for port in sys.argv[1:]:
    threading.Thread(target=serve, args=(int(port),)).start()
"""

_CONNECT = """
import json, socket, sys
from concurrent.futures import ThreadPoolExecutor
def connects(target):
    try:
        socket.create_connection(tuple(target), timeout=float(sys.argv[2])).close()
        return True
    except OSError:
        return False
targets = json.loads(sys.argv[1])
with ThreadPoolExecutor(64) as pool:
    print(json.dumps(list(pool.map(connects, targets))))
"""


def listen(sandbox: Sandbox, host: str, python: str, ports: Sequence[int] = PORTS) -> None:
    """Programs accept connections on these ports until the host goes."""
    words = " ".join(map(str, ports))
    do(sandbox, host, f"setsid {quote(python)} -c {quote(_LISTEN)} {words} >/dev/null 2>&1 </dev/null &")
    deadline = time.monotonic() + 20
    while told(sandbox, host, "cat /proc/net/tcp").count(" 0A ") <= len(ports):
        assert time.monotonic() < deadline, f"nothing listens on {host}"
        time.sleep(0.05)


def reached(
    sandbox: Sandbox | None, source: str, python: str, addresses: Mapping[str, str]
) -> dict[str, tuple[int, ...]]:
    """For each target, the ports on which a connection from `source` opens; without a sandbox from here."""
    targets = [(address, port) for address in addresses.values() for port in PORTS]
    words = [python, "-c", _CONNECT, json.dumps(targets), str(CONNECT_S)]
    if sandbox is None:
        ran = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    else:
        ran = sandbox.sh(source, words)
        assert ran.returncode == 0, ran.stderr
    opened = dict(zip(targets, json.loads(ran.stdout), strict=True))
    return {
        name: tuple(port for port in PORTS if opened[address, port]) for name, address in addresses.items()
    }
