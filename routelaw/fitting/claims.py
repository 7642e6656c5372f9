"""Claims about runs, and the rules that turn a number or an effect with its interval into a verdict.

A claim is what somebody says about models, and a function that asks the runs. Its answer is an effect that is positive
where the claim is right, with an interval:

    holds           the whole interval lies above zero (or above the margin that the claim states)
    does not hold   the whole interval lies below
    cannot tell     it contains zero, or the runs are not there

Where all that is known is a number without an interval (how many pairs agree, how large an error is), the claim states
what the number has to reach: `holds`, `holds in part` or `not supported`. A number that was printed is compared digit
by digit: `matches`, `close` or `differs`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from scipy import special

from routelaw.fitting.intervals import DEFAULT_LEVEL

HOLDS, PARTLY, FAILS, OPEN = "holds", "holds in part", "does not hold", "cannot tell"
NOT_SUPPORTED = "not supported"
"""The runs do not establish the claim; they may not refute it either."""
MATCHES, CLOSE, DIFFERS = "matches", "close", "differs"
NOT_TRAINED = "the runs that it compares were not trained"


@dataclass(frozen=True)
class Effect:
    """Positive where the claim is right."""

    value: float
    low: float = -math.inf
    high: float = math.inf
    basis: str = ""
    """What the interval rests on."""

    @classmethod
    def around(cls, value: float, half: float, basis: str = "") -> Effect:
        return cls(value, value - half, value + half, basis)

    def verdict(self, margin: float = 0.0) -> str:
        if not math.isfinite(self.low) or not math.isfinite(self.high):
            return OPEN
        return HOLDS if self.low > margin else FAILS if self.high < margin else OPEN

    def verdict_below(self, limit: float) -> str:
        """The verdict on a claim that the effect is smaller than the limit."""
        return self.scaled(-1).verdict(-limit)

    def scaled(self, factor: float) -> Effect:
        low, high = sorted((self.low * factor, self.high * factor))
        return Effect(self.value * factor, low, high, self.basis)


Outcome = tuple[Effect, str, str] | str
"""Effect, verdict and why; or, in a word, what is missing."""


@dataclass(frozen=True)
class Claim:
    name: str
    statement: str
    judge: Callable[[Any], Outcome]
    """Asks the runs; its docstring is the rule."""
    paper: str = ""
    """The words or the figure of whoever says so."""
    place: str = ""
    quantity: str = ""
    """What our number is, with its unit."""

    @property
    def rule(self) -> str:
        return " ".join((getattr(self.judge, "func", self.judge).__doc__ or "").split())

    def __call__(self, runs: Any) -> JudgedClaim:
        outcome = self.judge(runs)
        if isinstance(outcome, str):
            return JudgedClaim(self, OPEN, None, outcome)
        effect, verdict, why = outcome
        return JudgedClaim(self, verdict, effect, f"{why} {effect.basis}".strip())


@dataclass(frozen=True)
class JudgedClaim:
    claim: Claim
    verdict: str
    ours: Effect | None
    why: str

    def as_dict(self) -> dict[str, Any]:
        said = {name: getattr(self.claim, name) for name in ("name", "statement", "paper", "place", "quantity")}
        return {**said, "verdict": self.verdict, "ours": asdict(self.ours) if self.ours else None, "why": self.why}


def weakest(effects: Mapping[str, Callable[[float], Effect]], level: float = DEFAULT_LEVEL) -> tuple[str, Effect]:
    """The one with the lowest lower end, of several effects that must all be positive, each a function of the level.

    All hold if the lowest lower end does; one fails if an upper end lies below, of a wider interval that allows for
    their number: with many, one would fall below by chance.
    """
    wide_level = 1 - (1 - level) / len(effects)
    both = {name: (make(level), make(wide_level)) for name, make in effects.items()}
    name = min(both, key=lambda n: (both[n][1].high >= 0, both[n][0].low))
    usual, wide = both[name]
    return name, Effect(usual.value, usual.low, wide.high, usual.basis)


def graded(value: float, holds: float, partly: float = math.inf) -> str:
    """The verdict on a number without an interval: what it has to reach for the claim to hold, or to hold in part."""
    return HOLDS if value >= holds else PARTLY if value >= partly else NOT_SUPPORTED


def student(freedom: float, level: float = DEFAULT_LEVEL) -> float:
    """Half the width of Student's interval, in standard errors."""
    return float(special.stdtrit(freedom, (1 + level) / 2))


def compared_with_print(printed: str, ours: float, scale: float, tolerance: float) -> str:
    """The verdict on a number that was printed in units of `scale`; `tolerance` is absolute, in natural units."""
    if is_printed_as(printed, ours / scale):
        return MATCHES
    return CLOSE if abs(ours - float(printed) * scale) <= tolerance * (1 + 1e-9) else DIFFERS


def is_printed_as(printed: str, value: float) -> bool:
    """Whether rounding or cutting off gives the digits shown: authors sometimes do one, sometimes the other."""
    target, unit = float(printed), 10.0 ** -decimals_of(printed)
    slack = 1e-6 * unit
    rounds = abs(value - target) <= unit / 2 + slack
    beyond = (value - target) * math.copysign(1.0, target)
    cuts = -slack <= beyond < unit - slack
    return rounds or cuts


def decimals_of(printed: str) -> int:
    return len(printed.partition(".")[2])
