"""Over which links the processes of a layout talk, and how long that takes.

Ranks count tensor fastest, then expert, then data, and fill node after node. A ring leaves a node once, however many of
its members are there: NCCL lays as many rings as there are network adapters, so that m members share what leaves.
(Rings over whole nodes of 8 H100 are known to reach 400 GB/s and more with adapters of 50.) In an all-to-all each
process sends what is for other nodes through its own adapter, and at the same time the rest over the link inside.

Bandwidths are those of data sheets times REACHED, which is an assumption; latency is not counted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from routelaw.costs.communication import GATHER, REDUCE, Flow
from routelaw.costs.devices import NODE, Device
from routelaw.specs.layout import Layout

REACHED = 0.8
"""Share of a link's bandwidth that large exchanges get."""
OVERLAPPED = (GATHER, REDUCE)
"""What FSDP does for experts while others compute."""


@dataclass(frozen=True)
class Cluster:
    """Devices of one kind in nodes, and what they send in bytes per second, in one direction."""

    device: Device
    devices: int
    link: float
    network: float
    node: int = NODE


@dataclass(frozen=True)
class Crossing:
    """One flow on its links."""

    flow: Flow
    inside: int
    """Members of the team that share a node, this process included."""
    between: float
    """Bytes that leave the node, for each process: of a ring its share of them."""
    bandwidth: float
    """Bytes per second at which the whole of it goes."""
    seconds: float

    @property
    def overlapped(self) -> bool:
        """Experts are gathered and reduced block by block while others compute; all else is one group, gathered before
        the first product and reduced after the last."""
        return self.flow.kind in OVERLAPPED and self.flow.group == "data"


def _inside(stride: int, members: int, cluster: Cluster) -> int:
    """Members that share a node, in the team that is spread worst: all wait for it."""
    worst = members
    for first in range(cluster.devices):
        if (first // stride) % members == 0:
            nodes = Counter((first + number * stride) // cluster.node for number in range(members))
            worst = min(worst, *nodes.values())
    return worst


def crossing(flow: Flow, layout: Layout, cluster: Cluster) -> Crossing:
    stride = {"tensor": 1, "expert": layout.tensor, "batch": layout.tensor, "data": layout.tensor * layout.expert}
    inside = _inside(stride[flow.group], flow.members, cluster)
    link, network = REACHED * cluster.link, REACHED * cluster.network
    if inside == flow.members:
        between, within = 0.0, flow.sent
    elif flow.ring:
        between, within = flow.sent / inside, flow.sent if inside > 1 else 0.0
    else:
        between = flow.sent * (flow.members - inside) / (flow.members - 1)
        within = flow.sent - between
    seconds = max(between / network, within / link)
    return Crossing(flow, inside, between, flow.sent / seconds, seconds)
