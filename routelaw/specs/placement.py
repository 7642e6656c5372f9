"""Which blocks are routed.

R = n/L places n routed blocks at round(i·L/n), i = 1…n (every other block, 2, 4, …, at the paper's R = ½); a single
one goes to the last but one block, L−1, as in the paper's appendix. `interior` is the placement of Lewis et al. and
Roller et al., i·L/(n+1), which puts a single one at L/2.
"""

from __future__ import annotations

from routelaw.errors import InputError
from routelaw.specs.counting import routed_blocks

PLACEMENTS = ("even", "interior")


def canonical_placement(placement: str) -> str:
    """One spelling: lower case, and block numbers in order, so that "4, 2" and "2,4" are the same placement."""
    placement = placement.strip().lower()
    return placement if placement in PLACEMENTS else ",".join(str(block) for block in sorted(_listed(placement)))


def routed_positions(blocks: int, routing_frequency: float, placement: str = "even") -> tuple[int, ...]:
    """Block numbers, from 1, in order."""
    n = routed_blocks(blocks, routing_frequency)
    if placement in PLACEMENTS and n < 1:
        raise InputError(f"a routing frequency of {routing_frequency:g} routes none of the {blocks} blocks.")
    if placement == "even":
        chosen = [max(blocks - 1, 1)] if n == 1 else [round(i * blocks / n) for i in range(1, n + 1)]
    elif placement == "interior":
        inside = [max(round(i * blocks / (n + 1)), 1) for i in range(1, n + 1)]
        chosen = inside if n < blocks else list(range(1, blocks + 1))
    else:
        chosen = _listed(placement)
    if len(set(chosen)) != len(chosen) or not all(1 <= b <= blocks for b in chosen):
        raise InputError(f"placement {placement!r} does not name distinct blocks between 1 and {blocks}.")
    return tuple(sorted(chosen))


def _listed(placement: str) -> list[int]:
    try:
        return [int(part) for part in placement.split(",")]
    except ValueError:
        raise InputError(f"placement is even, interior, or block numbers such as '2,4,5', not {placement!r}.") from None
