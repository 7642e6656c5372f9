"""A study: what the paper asks, the figures that show it, and its claims; and what the claims come to on given runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from routelaw.fitting.claims import FAILS, HOLDS, OPEN, Claim, JudgedClaim
from routelaw.fitting.noise import NoiseFloor, averaged_in_doubt
from routelaw.specs.names import DENSE
from routelaw.studies.study_runs import StudyRuns

NO_SEEDS = (
    "No model was trained with several seeds: intervals rest on pairs of runs, and are missing where pairs are few. "
    "What all runs of one seed share, they do not show."
)
LEAST_TRAINING = 1.0
"""Tokens per active parameter below which nobody calls a model trained."""


@dataclass(frozen=True)
class Study:
    name: str
    question: str
    place: str
    """Where the paper asks it."""
    figures: tuple[str, ...]
    """Names of figures (routelaw/figures)."""
    claims: tuple[Claim, ...]
    any_length: bool = False
    """Whether runs of several lengths are compared."""

    def judge(self, runs: StudyRuns) -> JudgedStudy:
        return JudgedStudy(self, [claim(runs) for claim in self.claims], _noise(runs), self._notes(runs))

    def _notes(self, runs: StudyRuns) -> list[str]:
        """What was assumed of these runs, left out, or is not there, a sentence each."""
        notes = list(runs.notes)
        finals = runs.finals
        if finals.empty:
            return [*notes, "No run has finished."]
        if DENSE not in set(finals["router"]):
            notes.append("No dense run has finished: what compares with dense models cannot be told.")
        other = len(finals) - len(runs.one_length)
        if other and not self.any_length:
            tokens = runs.one_length["tokens_planned"].mode().max()
            notes.append(f"Runs of {tokens:.3g} tokens are compared; {other} of other lengths are left out.")
        seen = float((finals["tokens"].astype(float) / finals["active_params"]).max())
        if seen < LEAST_TRAINING:
            notes.append(f"Trained too briefly to speak of trained models: {seen:.2g} tokens per parameter at most.")
        return [*notes, *(sentence[:1].upper() + sentence[1:] for sentence in averaged_in_doubt(finals))]


@dataclass(frozen=True)
class JudgedStudy:
    study: Study
    claims: Sequence[JudgedClaim]
    noise: dict[str, NoiseFloor]
    """By size, of the sizes that have seeds."""
    notes: Sequence[str]

    @property
    def in_short(self) -> str:
        verdicts = [claim.verdict for claim in self.claims]
        counts = {v: verdicts.count(v) for v in (HOLDS, FAILS, OPEN)}
        return f"{counts[HOLDS]} of {len(verdicts)} claims hold, {counts[FAILS]} do not, {counts[OPEN]} cannot be told."

    @property
    def noise_in_words(self) -> str:
        if not self.noise:
            return NO_SEEDS
        said = ", ".join(
            f"{size} {1e4 * own.sd:.1f}e-4 of log10 L ({own.nats:.4f} nats; {own.freedom:.0f} degrees of freedom)"
            for size, own in self.noise.items()
        )
        return f"Noise of seeds, one standard deviation: {said}. A size without seeds has that of the next smaller one."

    def as_dict(self) -> dict[str, Any]:
        return {
            "study": self.study.name,
            "question": self.study.question,
            "place": self.study.place,
            "claims": [{**claim.as_dict(), "rule": claim.claim.rule} for claim in self.claims],
            "noise": {size: asdict(noise) for size, noise in self.noise.items()},
            "notes": list(self.notes),
        }


def _noise(runs: StudyRuns) -> dict[str, NoiseFloor]:
    return {size: noise for size in runs.seeded_sizes if (noise := runs.noise(size)) is not None}
