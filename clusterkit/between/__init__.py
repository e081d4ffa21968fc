"""What is proved between the hosts, and put to a vote among them (docs/preflight-between.md).

prove   every pair connects, the path carries the MTU, round trips, bandwidth
vote    what should be equal everywhere, and who is odd
share   what one host writes on a shared mount is read by all
write   the login and the container's user can write there
"""

from clusterkit.between.blame import Blame, Blocked
from clusterkit.between.matrix import Matrix
from clusterkit.between.proof import Options, Proof, prove
from clusterkit.between.rules import blame
from clusterkit.between.token import Manner, share
from clusterkit.between.vote import VoteEntry, groups_of, vote
from clusterkit.between.writes import write

__all__ = [
    "Blame",
    "Blocked",
    "Manner",
    "Matrix",
    "Options",
    "Proof",
    "VoteEntry",
    "blame",
    "groups_of",
    "prove",
    "share",
    "vote",
    "write",
]
