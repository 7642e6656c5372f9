"""Which learning rate does each size get? Chosen on dense models, once, for all routers.

    python -m experiments.miniature.train.rates

Reads the runs of rates.toml in the tables (data/) and writes sweeps/chosen_rates.toml, on which every other study
stands. For a size that was tried: the lowest point of the parabola in log rate through the best and its two neighbours;
the best itself where it is at the edge, which is said. For the others, the largest among them: the line through those,
log rate against log N. Two digits of each are kept. Diverged runs count as infinitely bad.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, log
from pathlib import Path

import numpy as np

from experiments.miniature.studies import DATA, RATES, SWEEPS, EndedRun, recorded_in, run_program, specs_of
from routelaw.errors import InputError
from routelaw.files import write_atomically
from routelaw.specs.counting import Architecture, dense_params
from routelaw.specs.sizes import NAMED_SIZES, get_size

FILE = SWEEPS / "chosen_rates.toml"
OTHERS = ("2M", "20M")
"""Sizes without runs in rates.toml. The deep model of deep.toml takes the rate of 2M."""
HEAD = """\
# The learning rate of each size, chosen on dense models (rates.toml) and then the same for every router.
#
# Written by rates.py: {how}

base = "recipe.toml"

[train]
learning_rate = {deep}  # for the model of deep.toml, which has no name
"""
RULE = """
[[where]]
model.size = "{size}"
set = {{ train.learning_rate = {rate} }}
"""

Losses = Mapping[str, Mapping[float, float]]
"""Size → rate → loss."""


def losses_of(ended: Mapping[str, EndedRun]) -> dict[str, dict[float, float]]:
    """What the runs of rates.toml came to; empty until all of them have ended."""
    if not ended:
        return {}
    known = next(iter(ended.values())).spec
    specs = specs_of(RATES, known.corpus, known.model.vocabulary)
    if any(spec.run_id not in ended for spec in specs):
        return {}
    losses: dict[str, dict[float, float]] = {}
    for spec in specs:
        losses.setdefault(_name(spec.model.architecture), {})[spec.train.learning_rate] = ended[spec.run_id].loss
    return losses


def best_rate(loss_at: Mapping[float, float]) -> tuple[float, bool]:
    """The rate, and whether it lies within those tried."""
    rates = sorted(loss_at)
    best = min(range(len(rates)), key=lambda i: loss_at[rates[i]])
    around = rates[max(best - 1, 0) : best + 2]
    if len(around) < 3 or inf in (loss_at[rate] for rate in around):
        return rates[best], 0 < best < len(rates) - 1
    a, b, _ = np.polyfit(np.log(around), [loss_at[rate] for rate in around], 2)
    return float(np.exp(-b / (2 * a))) if a > 0 else rates[best], True


def chosen(losses: Losses) -> tuple[dict[str, float], list[str]]:
    """Size → rate for all sizes, smallest first, and the sizes whose best was at the edge."""
    found = {size: best_rate(loss_at) for size, loss_at in losses.items()}
    slope, level = np.polyfit([_log_params(size) for size in found], [log(rate) for rate, _ in found.values()], 1)
    rates = {size: rate for size, (rate, _) in found.items()}
    rates |= {size: float(np.exp(level + slope * _log_params(size))) for size in OTHERS}
    ordered = sorted(rates, key=_log_params)
    return {size: float(f"{rates[size]:.2g}") for size in ordered}, [
        size for size, (_, within) in found.items() if not within
    ]


def rendered(rates: Mapping[str, float], how: str) -> str:
    rules = (RULE.format(size=size, rate=rate) for size, rate in rates.items())
    return HEAD.format(how=how, deep=rates["2M"]) + "".join(rules)


def write_chosen(ended: Mapping[str, EndedRun], file: Path = FILE) -> Sequence[str] | None:
    """Write the file once the runs of rates.toml have ended; returns what was found, None before that."""
    losses = losses_of(ended)
    if not losses:
        return None
    rates, at_edge = chosen(losses)
    tried = ", ".join(losses)
    write_atomically(rendered(rates, f"{tried} were tried, the others follow.").encode(), file, force=True)
    said = [f"{size}: {rate:g}{'' if size in losses else ' (by the line)'}" for size, rate in rates.items()]
    return said + [f"{size}: the best rate tried is at the edge; try more" for size in at_edge]


def _name(architecture: Architecture) -> str:
    return next(name for name, known in NAMED_SIZES.items() if known == architecture)


def _log_params(size: str) -> float:
    return log(dense_params(get_size(size)))


def main() -> None:
    said = write_chosen(recorded_in(DATA))
    if said is None:
        raise InputError("the runs of rates.toml have not all ended.")
    print("\n".join(said))


if __name__ == "__main__":
    run_program(main)
