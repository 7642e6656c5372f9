"""The studies of the miniature in the order in which they are trained, and the runs that each consists of.

A sweep file says its runs exactly once the corpus is known, and of that only its id and its vocabulary matter: so what
belongs to which study can be told without the corpus, from any of its runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from routelaw.specs.run import RunSpec
from routelaw.sweeps.sweep import read_sweep

HERE = Path(__file__).parent
RATES, ROUTED_RATES, MAIN, LARGEST, QUICK = "rates", "routed_rates", "main", "largest", "quick"
LARGEST_RATES, MORE_SEEDS, BETWEEN = "largest_rates", "more_seeds", "between"
WEIGHTS_OF_RL = "rl_weights"
STUDIES = (
    RATES, WEIGHTS_OF_RL, "paper_weights", ROUTED_RATES, MAIN, "seeds", "robustness", "k", "routing_frequency",
    "lengths", "rl_variants", "sinkhorn_temperature", "shared_decisions", "permuted_hash", "stacked_ffws",
    "base_layers", LARGEST, LARGEST_RATES, MORE_SEEDS, BETWEEN,
)  # fmt: skip
"""What the others need comes first, what is easiest to do without towards the end."""
OF_LARGEST = (LARGEST, LARGEST_RATES)
"""Not trained before predictions are there."""
ON_REQUEST = (*OF_LARGEST, MORE_SEEDS, BETWEEN)
"""Not trained unless asked for: the blind test has its time, and the others are for time that is left."""


def specs_of(study: str, corpus_id: str, vocabulary: int, folder: Path = HERE) -> list[RunSpec]:
    """The runs of a study on a corpus that does not have to be there."""
    corpus: Any = SimpleNamespace(id=corpus_id, vocabulary=vocabulary)
    return [run.spec for run in read_sweep(folder / f"{study}.toml", opened=lambda _: corpus).runs]


def studies_of_runs(known: RunSpec, studies: Sequence[str] = STUDIES) -> dict[str, tuple[str, ...]]:
    """Run id → the studies it belongs to, for every run of them, trained or not, on the corpus of the one known."""
    belongs: dict[str, tuple[str, ...]] = {}
    for study in studies:
        for each in specs_of(study, known.corpus, known.model.vocabulary):
            belongs[each.run_id] = (*belongs.get(each.run_id, ()), study)
    return belongs
