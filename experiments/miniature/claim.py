"""A claim of the paper beside what our runs say, and the one rule by which a verdict is reached.

Every claim is turned into an effect that is positive where the paper is right, with a 90 % interval:

    holds           the whole interval lies above zero (or above the margin that the claim states)
    does not hold   the whole interval lies below
    cannot tell     it contains zero, or the runs are not there

The rule of each claim stands in its docstring. All were written before there was any data; README.md says which were
changed since, and what was there then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from experiments.miniature.study import Study

HOLDS, FAILS, OPEN = "holds", "does not hold", "cannot tell"
NOT_TRAINED = "not trained"


@dataclass(frozen=True)
class Effect:
    """Positive where the paper is right."""

    value: float
    low: float
    high: float
    basis: str = ""
    """What the interval rests on."""

    def verdict(self, margin: float = 0.0) -> str:
        if not math.isfinite(self.low) or not math.isfinite(self.high):
            return OPEN
        return HOLDS if self.low > margin else FAILS if self.high < margin else OPEN

    def scaled(self, factor: float) -> Effect:
        return Effect(self.value * factor, self.low * factor, self.high * factor, self.basis)


@dataclass(frozen=True)
class Statement:
    """What the paper says, and where."""

    name: str
    statement: str
    paper: str
    """Its words or its figure."""
    place: str
    quantity: str
    """What our number is, with its unit."""


@dataclass(frozen=True)
class Claim:
    said: Statement
    verdict: str
    ours: Effect | None
    why: str

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self.said), "verdict": self.verdict, "ours": asdict(self.ours) if self.ours else None,
                "why": self.why}  # fmt: skip


@dataclass(frozen=True)
class Test:
    """A claim and the function that judges it; its docstring is the rule."""

    said: Statement
    judge: Callable[[Study], tuple[Effect, str, str] | str]
    """Effect, verdict and why; or, in a word, what is missing."""

    @property
    def rule(self) -> str:
        return " ".join((self.judge.__doc__ or "").split())

    def __call__(self, study: Study) -> Claim:
        outcome = self.judge(study)
        if isinstance(outcome, str):
            return Claim(self.said, OPEN, None, outcome)
        effect, verdict, why = outcome
        return Claim(self.said, verdict, effect, f"{why} {effect.basis}".strip())


def weakest(effects: Mapping[str, tuple[Effect, Effect]]) -> tuple[str, Effect]:
    """The one with the lowest lower end, of several effects that must all be positive.

    Each comes with a usual interval and a wider one that allows for their number. All hold if the lowest lower end
    does; one fails if an upper end, of the wider interval, lies below: with many, one would fall below by chance.
    """
    name = min(effects, key=lambda n: (effects[n][1].high >= 0, effects[n][0].low))
    usual, wide = effects[name]
    return name, Effect(usual.value, usual.low, wide.high, usual.basis)
