"""Numbers and lists as people write them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from routelaw.fitting.intervals import Interval

UNITS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K"))


def amount(value: float) -> str:
    """854016 as 854K, 1.3e9 as 1.3B."""
    if not math.isfinite(value):
        return "∞" if value > 0 else "–"
    rounded = abs(float(f"{value:.3g}"))
    for scale, unit in UNITS:
        if scale <= rounded < 1e15:
            return f"{value / scale:.3g}{unit}"
    return f"{value:.3g}"


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
