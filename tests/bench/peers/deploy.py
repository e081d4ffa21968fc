"""The same work as preflight.yml, as a pyinfra deploy.

As there, the nodes' network is a variable (TRAINING_NETWORK) and the ports are those that clusterkit opens;
the deploy that the budget was set with had both written down.
"""

import os

from pyinfra import host
from pyinfra.facts.server import Command, Hostname, Kernel, Mounts
from pyinfra.operations import iptables

GPU = "nvidia-smi --query-gpu=driver_version,name,memory.total --format=csv,noheader,nounits"

for fact in (Hostname, Kernel, Mounts):
    host.get_fact(fact)
for command in (GPU, "ss -Hltn", "df -k /dev/shm", "date +%s.%N", "getent ahostsv4 $(hostname)"):
    host.get_fact(Command, command)
iptables.rule(
    name="open the port range between the nodes",
    chain="INPUT",
    jump="ACCEPT",
    protocol="tcp",
    source=os.environ["TRAINING_NETWORK"],
    destination_port="30000:65535",
)
