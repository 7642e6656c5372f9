"""Which tokens route together.

Sinkhorn, exact assignment, capacity and the balance loss act on groups of tokens fixed by the spec, so that any split
of a batch into micro-batches or devices computes the same thing. (The shuffle that deals tokens out anew in every layer
is `StepContext.members_of`.)
"""

from __future__ import annotations

from routelaw.errors import InputError
from routelaw.routers.router import router_class
from routelaw.specs.run import RunSpec


def block_tokens(spec: RunSpec) -> int:
    """Tokens that a forward pass must hold together: the groups of a shuffle."""
    return spec.group_tokens * spec.router.shuffle_groups


def depends_on_groups(spec: RunSpec) -> bool:
    """Not dense, nor a router that decides token by token (it says `uses_groups = False`) without capacity."""
    if not spec.routed_blocks:
        return False
    return spec.router.capacity_factor > 0 or router_class(spec.router.name).uses_groups


def check_split(spec: RunSpec, micro_batches: int) -> None:
    """A micro-batch holds whole sequences, and whole blocks of groups where groups matter."""
    batch = spec.train.batch
    if micro_batches < 1 or batch % micro_batches:
        raise InputError(f"{micro_batches} micro-batches do not divide a batch of {batch} sequences.")
    tokens = batch // micro_batches * spec.model.sequence_length
    if depends_on_groups(spec) and tokens % block_tokens(spec):
        raise InputError(
            f"a micro-batch of {tokens} tokens does not hold whole routing groups of {block_tokens(spec)}: "
            f"take fewer micro-batches, or a smaller router.group_tokens (which changes what the run is)."
        )
