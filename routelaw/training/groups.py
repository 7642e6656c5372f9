"""Which tokens route together.

Sinkhorn, exact assignment, capacity and the balance loss act on groups of tokens fixed by the spec, so that any split
of a batch into micro-batches or devices computes the same thing. With shuffle_groups > 1 the tokens of a block of
groups are dealt to its groups by a permutation of (seed, step, block), the same in every layer: the paper's shuffle,
which keeps a token's neighbours from learning about it through the assignment.

Shapes: T tokens, G groups of M members.
"""

from __future__ import annotations

import torch
from torch import Tensor

from routelaw.errors import InputError
from routelaw.routers.randomness import Randomness
from routelaw.routers.router import router_class
from routelaw.specs.run import RunSpec

SHUFFLE_LAYER, SHUFFLE_PURPOSE = -1, 7


def group_members(token_T: Tensor, group_tokens: int, shuffle_groups: int, seed: int, step: int | Tensor) -> Tensor:
    """(G, M) indices into the tokens given, which must be whole blocks of groups."""
    tokens = token_T.shape[0]
    groups = tokens // group_tokens
    index_T = torch.arange(tokens, device=token_T.device)
    if shuffle_groups > 1:
        block = group_tokens * shuffle_groups
        random = Randomness.of(seed, step, SHUFFLE_LAYER, token_T.device)
        key_BT = random.bits(SHUFFLE_PURPOSE, token_T)[:, 0].view(-1, block)
        order_BT = torch.argsort(key_BT, dim=1, stable=True)
        index_T = (index_T.view(-1, block).gather(1, order_BT)).reshape(-1)
    return index_T.view(groups, group_tokens)


def block_tokens(spec: RunSpec) -> int:
    """Tokens that a forward pass must hold together: the groups of a shuffle."""
    return spec.group_tokens * spec.router.shuffle_groups


def depends_on_groups(spec: RunSpec) -> bool:
    """Not dense, nor a router that decides token by token (it says `uses_groups = False`) without capacity."""
    if not spec.routed_blocks:
        return False
    return spec.router.capacity_factor > 0 or getattr(router_class(spec.router.name), "uses_groups", True)


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
