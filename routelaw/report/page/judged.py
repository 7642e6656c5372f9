"""Claims with their verdicts, as parts of a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite

from routelaw.fitting.claims import FAILS, HOLDS, OPEN, Claim, JudgedClaim
from routelaw.report.page import Bullets, Entry, Grid

TONES = {HOLDS: "good", FAILS: "bad", OPEN: "none"}
MARKS = {HOLDS: "✓", FAILS: "✗", OPEN: "–"}


def claims_grid(claims: Sequence[JudgedClaim], ours: str = "ours, 90 %") -> Grid:
    """What was claimed and where, what it is on these runs, the verdict and why."""
    rows = []
    for claim in claims:
        effect = claim.ours
        span = f"{effect.low:.3g} … {effect.high:.3g}" if effect and isfinite(effect.high - effect.low) else ""
        rows.append([
            Entry(claim.claim.statement),
            Entry(claim.claim.paper, under=claim.claim.place),
            Entry(f"{effect.value:.3g}" if effect else "–", under=span, over=claim.claim.quantity),
            Entry(claim.verdict, mark=MARKS[claim.verdict], tone=TONES[claim.verdict]),
            Entry(claim.why),
        ])  # fmt: skip
    return Grid(["claim", "the paper", ours, "verdict", "why"], rows, wide=True)


def rules_of(claims: Iterable[Claim]) -> Bullets:
    """Each rule once, with all claims that it judges."""
    by_rule: dict[str, list[str]] = {}
    for claim in claims:
        by_rule.setdefault(claim.rule, []).append(claim.statement)
    return Bullets([f"{'; '.join(statements)}: {rule}" for rule, statements in by_rule.items()])
