"""Which runs depend on which tokens route together.

Sinkhorn, exact assignment, capacity and the balance loss act on groups of tokens fixed by the spec, so that any split
of a batch into micro-batches or devices computes the same thing. (The shuffle that deals tokens out anew in every layer
is `StepContext.members_of`, and across processes model/shuffle.py.)
"""

from __future__ import annotations

from routelaw.routers.router import router_class
from routelaw.specs.layout import Layout, check_layout
from routelaw.specs.run import RunSpec


def depends_on_groups(spec: RunSpec) -> bool:
    """Not dense, nor a router that decides token by token (it says `uses_groups = False`) without capacity."""
    if not spec.routed_blocks:
        return False
    return spec.router.capacity_factor > 0 or router_class(spec.router.name).uses_groups


def check_split(spec: RunSpec, micro_batches: int, layout: Layout | None = None) -> None:
    """Each process holds whole sequences of a micro-batch, and whole groups where groups matter."""
    check_layout(spec, layout or Layout(), micro_batches, depends_on_groups(spec))
