"""Numbers and lists as people write them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from routelaw.fitting.intervals import Interval
from routelaw.formatting import number


def amount(value: float) -> str:
    """854016 as 854K, 1.3e9 as 1.3B."""
    return number(value, digits=3, least=1e3)


def percent(share: float, digits: int = 1) -> str:
    """A share with its sign: +1.4 %, −0.3 %."""
    sign = "+" if share > 0 else "−" if share < 0 else ""
    return f"{sign}{abs(100 * share):.{digits}f} %"


def loss_share(log10_ratio: float) -> float:
    """A difference of log10 L as a share of the loss."""
    return 10**log10_ratio - 1


def counted(count: int, thing: str, things: str = "") -> str:
    return f"{count:,} {thing if count == 1 else things or thing + 's'}"


def listed(names: Sequence[str], joint: str = "and") -> str:
    """a, b and c."""
    names = list(names)
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {joint} {names[-1]}" if names else ""


def span(values: Sequence[float], write=amount) -> str:
    """`2 to 8`, or the one there is."""
    low, high = min(values), max(values)
    return write(low) if low == high else f"{write(low)} to {write(high)}"


def known(interval: Interval | None, write=None) -> str:
    """An interval with open ends written as such; empty where there is none."""
    if interval is None or (math.isnan(interval.low) and math.isnan(interval.high)):
        return ""
    write = write or (lambda value: f"{value:.3g}")
    low = "…" if interval.open_low else write(interval.low)
    high = "…" if interval.open_high else write(interval.high)
    return f"{low} to {high}"
