"""Which layout of processes to train a run on: every one that is possible, with memory, bytes sent and time.

Each has the fewest micro-batches with which it fits into the memory of a device. Predicted times are arithmetic
(step_time.py): they are for ranking layouts, and no layout of GPUs has been timed. Experts are taken to be
gathered and reduced while others compute; all else is one group of FSDP's, which is waited for, as are rows on their
way to experts and sums over tensor-parallel processes.

Ranks count tensor fastest, then expert, then data, and fill node after node. A ring leaves a node once, however many of
its members are there: NCCL lays as many rings as there are network adapters, so that m members share what leaves.
(Rings over whole nodes of 8 H100 are known to reach 400 GB/s and more with adapters of 50.) In an all-to-all each
process sends what is for other nodes through its own adapter, and at the same time the rest over the link inside.
Bandwidths are those of data sheets times REACHED, which is an assumption; latency is not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property

from routelaw.costs.communication import GATHER, REDUCE, Flow, communication
from routelaw.costs.memory import CUDA_CONTEXT, Footprint, footprint_of
from routelaw.costs.step_time import NODE, ComputeTime, Device, compute_time
from routelaw.errors import InputError
from routelaw.formatting import byte_size
from routelaw.specs.layout import GIVEN, Layout, check_layout
from routelaw.specs.run import ExecutionSpec, RunSpec

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

    @classmethod
    def of(cls, device: Device, devices: int) -> Cluster:
        """As its data sheet has it."""
        return cls(device, devices, device.link, device.network)


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


@cache
def _inside(stride: int, members: int, devices: int, node: int) -> int:
    """Members that share a node, in the team that is spread worst: all wait for it."""
    worst = members
    for first in range(devices):
        if (first // stride) % members == 0:
            nodes = Counter((first + number * stride) // node for number in range(members))
            worst = min(worst, *nodes.values())
    return worst


def crossing(flow: Flow, layout: Layout, cluster: Cluster) -> Crossing:
    stride = {"tensor": 1, "expert": layout.tensor, "batch": layout.tensor, "data": layout.tensor * layout.expert}
    inside = _inside(stride[flow.group], flow.members, cluster.devices, cluster.node)
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


def crossings_of(
    spec: RunSpec, layout: Layout, micro_batches: int, cluster: Cluster, precision: str
) -> tuple[Crossing, ...]:
    """All that a process sends in a step."""
    return tuple(crossing(flow, layout, cluster) for flow in communication(spec, layout, micro_batches, precision))


def step_seconds(computing: float, crossings: Iterable[Crossing]) -> float:
    """Seconds of a step: what overlaps with computing counts where it takes longer."""
    overlapped = waited = 0.0
    for each in crossings:
        if each.overlapped:
            overlapped += each.seconds
        else:
            waited += each.seconds
    return max(computing, overlapped) + waited


@dataclass(frozen=True)
class LayoutPlan:
    layout: Layout
    micro_batches: int
    memory: Footprint
    """What the process with the most memory needs."""
    available: int
    """Bytes of a device's memory."""
    compute: ComputeTime
    crossings: tuple[Crossing, ...]

    @property
    def needed(self) -> int:
        """With what CUDA takes for itself. A data sheet's gigabytes are some percent less than what there is: that is
        left for NCCL and for holes."""
        return self.memory.total + CUDA_CONTEXT

    @property
    def missing(self) -> int:
        return max(0, self.needed - self.available)

    @cached_property
    def sent(self) -> float:
        return sum(c.flow.sent for c in self.crossings)

    @cached_property
    def between_nodes(self) -> float:
        return sum(c.between for c in self.crossings)

    @cached_property
    def overlapped(self) -> float:
        """Seconds in which FSDP gathers and reduces experts."""
        return sum(c.seconds for c in self.crossings if c.overlapped)

    @cached_property
    def waited(self) -> float:
        return sum(c.seconds for c in self.crossings if not c.overlapped)

    @property
    def step_seconds(self) -> float:
        return step_seconds(self.compute.total, self.crossings)

    @property
    def without_overlap(self) -> float:
        return self.compute.total + self.overlapped + self.waited


@dataclass(frozen=True)
class LayoutRanking:
    spec: RunSpec
    cluster: Cluster
    precision: str
    fitting: tuple[LayoutPlan, ...]
    """Quickest first."""
    too_large: tuple[LayoutPlan, ...]
    """Those that lack least first."""
    notes: tuple[str, ...]

    @property
    def best(self) -> LayoutPlan:
        return self.fitting[0]


def plan_layouts(
    spec: RunSpec, cluster: Cluster, precision: str = "bfloat16", execution: ExecutionSpec = ExecutionSpec()
) -> LayoutRanking:
    """Every layout of the devices. Where none is possible, or none fits, a sentence says why. `execution` says what
    else bears on memory: recomputation, and the type of the moments."""
    if cluster.devices < 1:
        raise InputError(f"a plan needs at least one device, not {cluster.devices}.")
    plans, refused = [], {}
    for layout in all_layouts(cluster.devices):
        try:
            check_layout(spec, layout, 1, groups_matter(spec))
        except InputError as error:
            refused[layout] = str(error)
        else:
            plans.append(_planned(spec, layout, cluster, precision, execution))
    if not plans:
        raise InputError(_none_possible(spec, cluster, refused))
    fitting = sorted((p for p in plans if not p.missing), key=lambda p: p.step_seconds)
    too_large = sorted((p for p in plans if p.missing), key=lambda p: p.missing)
    if not fitting:
        raise InputError(_none_fits(cluster, too_large[0]))
    return LayoutRanking(
        spec, cluster, precision, tuple(fitting), tuple(too_large), tuple(_notes(spec, cluster, refused))
    )


def all_layouts(devices: int) -> Iterator[Layout]:
    for tensor in _divisors(devices):
        for expert in _divisors(devices // tensor):
            yield Layout(devices // tensor // expert, expert, tensor)


def _divisors(n: int) -> list[int]:
    small = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return sorted({*small, *(n // d for d in small)})


def groups_matter(spec: RunSpec) -> bool:
    """Hash routing without capacity is the one technique of the project that decides token by token."""
    return spec.router.capacity_factor > 0 or spec.router.name != "hash"


def choose_layout(spec: RunSpec, execution: ExecutionSpec, cluster: Cluster) -> ExecutionSpec:
    """The execution that `layout = "auto"` stands for on these devices: the quickest layout that fits, and its
    micro-batches."""
    precision = "bfloat16" if execution.precision == "auto" else execution.precision
    best = plan_layouts(spec, cluster, precision, execution).best
    return _arranged(execution, best.layout, best.micro_batches)


def _arranged(execution: ExecutionSpec, layout: Layout, micro_batches: int) -> ExecutionSpec:
    return replace(
        execution,
        layout=GIVEN,
        device_kind=None,
        devices=None,
        data=layout.data,
        expert=layout.expert,
        tensor=layout.tensor,
        micro_batches=micro_batches,
    )


def _planned(spec: RunSpec, layout: Layout, cluster: Cluster, precision: str, execution: ExecutionSpec) -> LayoutPlan:
    """With the fewest micro-batches that fit; with the most there can be where none do."""
    assert cluster.device.memory is not None

    def memory_of(micro_batches: int) -> Footprint:
        arranged = _arranged(execution, layout, micro_batches)
        return footprint_of(spec, arranged, precision, gpu=cluster.device.gpu)

    for micro_batches in _splits(spec, layout):
        memory = memory_of(micro_batches)
        if memory.total + CUDA_CONTEXT <= cluster.device.memory:
            break
    whole = memory_of(1)
    return LayoutPlan(
        layout=layout,
        micro_batches=micro_batches,
        memory=memory,
        available=cluster.device.memory,
        compute=compute_time(spec, micro_batches, whole, cluster.device, layout),
        crossings=crossings_of(spec, layout, micro_batches, cluster, precision),
    )


def _splits(spec: RunSpec, layout: Layout) -> Iterator[int]:
    """Numbers of micro-batches that are possible, ascending; 1 is known to be."""
    for pieces in _divisors(spec.train.batch // layout.batch):
        try:
            check_layout(spec, layout, pieces, groups_matter(spec))
        except InputError:
            continue
        yield pieces


def _notes(spec: RunSpec, cluster: Cluster, refused: dict[Layout, str]) -> Iterator[str]:
    by_groups = [layout for layout in refused if _possible(spec, layout)]
    if by_groups:
        yield _about_groups(spec, cluster, len(by_groups))
    others = len(refused) - len(by_groups)
    if others:
        why = next(reason for layout, reason in refused.items() if layout not in by_groups)
        yield f"{others} of {others + _count(cluster, others)} layouts are not possible; for example: {why}"


def _count(cluster: Cluster, others: int) -> int:
    return sum(1 for _ in all_layouts(cluster.devices)) - others


def _possible(spec: RunSpec, layout: Layout) -> bool:
    """But for the routing groups."""
    try:
        check_layout(spec, layout, 1, groups_matter=False)
    except InputError:
        return False
    return True


def _about_groups(spec: RunSpec, cluster: Cluster, count: int) -> str:
    length, batch = spec.model.sequence_length, spec.train.batch
    sequences, most = spec.group_tokens // length, batch * length // spec.group_tokens
    sentence = (
        f"{count} of {_count(cluster, 0)} layouts are ruled out by routing groups of {spec.group_tokens:,} tokens "
        f"({sequences} sequences), which a process has whole: a batch of {batch} has room for {most} processes"
    )
    if sequences == 1:
        return f"{sentence}; a larger batch has room for more."
    return f"{sentence}. --set router.group_tokens={length} has room for {batch}, and is another run."


def _devices(cluster: Cluster) -> str:
    return f"{cluster.devices} device{'s' * (cluster.devices > 1)}"


def _none_possible(spec: RunSpec, cluster: Cluster, refused: dict[Layout, str]) -> str:
    by_groups = [layout for layout in refused if _possible(spec, layout)]
    if by_groups:
        return f"no layout of {_devices(cluster)} is possible: {_about_groups(spec, cluster, len(by_groups))}"
    return f"no layout of {_devices(cluster)} is possible: {next(iter(refused.values()))}"


def _none_fits(cluster: Cluster, closest: LayoutPlan) -> str:
    memory, device = closest.memory, cluster.device
    parts = {
        "parameters": memory.parameters,
        "masters and optimiser": memory.masters + memory.optimizer,
        "activations and logits": memory.activations + memory.logits,
    }
    largest = max(parts, key=lambda name: parts[name])
    return (
        f"no layout of {_devices(cluster)} fits: the closest, {closest.layout} in {closest.micro_batches} "
        f"micro-batches, needs {byte_size(closest.needed)} of the {device.name}'s {byte_size(closest.available)}, "
        f"{byte_size(closest.missing)} too much ({byte_size(parts[largest])} of it for {largest}): take more devices, "
        f"fewer experts or a smaller model."
    )
