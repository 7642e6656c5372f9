"""All claims, in the order of the issue they answer: the main sweep first, then K and R, weights, training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from experiments.miniature import (
    claims_on_architecture,
    claims_on_balance,
    claims_on_coefficients,
    claims_on_losses,
    claims_on_training,
)
from experiments.miniature.claim import FAILS, HOLDS, OPEN, Claim, Test
from experiments.miniature.study import Study

ROOMS = (claims_on_losses, claims_on_coefficients, claims_on_architecture, claims_on_balance, claims_on_training)
TESTS: tuple[Test, ...] = tuple(test for room in ROOMS for test in room.TESTS)


def judge_all(study: Study) -> list[Claim]:
    return [test(study) for test in TESTS]


def judge_one(name: str, study: Study) -> Claim:
    return next(test for test in TESTS if test.said.name == name)(study)


def counts(claims: Sequence[Claim]) -> dict[str, int]:
    found = Counter(claim.verdict for claim in claims)
    return {verdict: found[verdict] for verdict in (HOLDS, FAILS, OPEN)}
