"""Which blocks are routed.

R = n/L places n routed blocks at round(i·L/n), i = 1…n (every other block, 2, 4, …, at the paper's R = ½); a single
one goes to the last but one block, L−1, as in the paper's appendix. `interior` is the placement of Lewis et al. and
Roller et al., i·L/(n+1), which puts a single one at L/2.
"""

from __future__ import annotations

from routelaw.errors import InputError
from routelaw.specs.counting import routed_blocks


def routed_positions(blocks: int, routing_frequency: float, placement: str = "even") -> tuple[int, ...]:
    """Block numbers, from 1, in order."""
    n = routed_blocks(blocks, routing_frequency)
    if placement == "even":
        if n < 1:
            raise InputError(f"a routing frequency of {routing_frequency:g} routes none of the {blocks} blocks.")
        chosen = [max(blocks - 1, 1)] if n == 1 else [round(i * blocks / n) for i in range(1, n + 1)]
    elif placement == "interior":
        chosen = [max(round(i * blocks / (n + 1)), 1) for i in range(1, n + 1)]
    else:
        chosen = _listed(placement)
    if not chosen or len(set(chosen)) != len(chosen) or not all(1 <= b <= blocks for b in chosen):
        raise InputError(f"placement {placement!r} does not name distinct blocks between 1 and {blocks}.")
    return tuple(sorted(chosen))


def _listed(placement: str) -> list[int]:
    try:
        return [int(part) for part in placement.split(",")]
    except ValueError:
        raise InputError(f"placement is even, interior, or block numbers such as '2,4,5', not {placement!r}.") from None
