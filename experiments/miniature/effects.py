"""Effects with intervals, from differences between matched runs: the spread over sizes, and never less than the seeds'.

Runs of a size are not independent, so sizes are the clusters. An interval is the wider of two: Student's over the means
of sizes, and what the seed noise of these sizes alone would give. With fewer than three sizes the first is Student's
over the pairs of runs, and speaks of those sizes only; with fewer than three pairs the seed noise stands alone, and
without seeds there is no interval then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from scipy import special

from experiments.miniature.claim import Effect
from routelaw.fitting.noise import NoiseFloor, mean_noise
from routelaw.laws.law import Array

LEVEL = 0.9
FEWEST_SIZES = 3
NoiseOf = Callable[[str], NoiseFloor | None]
"""The noise of a run of a size, or another cluster; None where there are no seeds."""
PERCENT = 100 * np.log(10)
"""A small difference of log10 L in percent of the loss."""


def student(freedom: float, level: float) -> float:
    return float(special.stdtrit(freedom, (1 + level) / 2))


def mean_effect(
    differences: Array, clusters: Sequence[object], noise: NoiseOf, *, level: float = LEVEL, unit: str = "sizes"
) -> Effect:
    """Mean over clusters of the mean difference within, each between two runs. `unit`: what a cluster is."""
    values, names = np.asarray(differences, float), np.asarray([str(c) for c in clusters])
    groups = {name: values[names == name] for name in dict.fromkeys(names.tolist())}
    means = np.array([g.mean() for g in groups.values()])
    variances = [2 / len(g) for g in groups.values()]
    of_mean = float(np.sqrt(np.mean(variances) / len(groups)))
    few = len(means) < FEWEST_SIZES
    units, unit = (values, "pairs") if few else (means, unit)
    return _interval(float(means.mean()), units, of_mean, _mean_noise(groups, variances, noise), level, unit)


def _mean_noise(clusters: Iterable[str], weights: Sequence[float], noise: NoiseOf) -> NoiseFloor | None:
    floors = [floor for cluster in clusters if (floor := noise(cluster)) is not None]
    return mean_noise(floors, weights) if len(floors) == len(weights) else None


def shared_effect(differences: Array, noise: NoiseFloor, level: float = LEVEL) -> Effect:
    """Mean difference of several runs to one, whose noise does not average out; the interval is that of the seeds."""
    value = float(np.mean(differences))
    half = student(noise.freedom, level) * noise.sd * float(np.sqrt(1 + 1 / len(differences)))
    return Effect(
        value, value - half, value + half, f"Interval from seed noise with {noise.freedom:.0f} degrees of freedom."
    )


def _interval(value: float, means: Array, noises: float, noise: NoiseFloor | None, level: float, unit: str) -> Effect:
    """The wider of Student's interval of `means` and that of `noises` times the noise of a run."""
    spread = None
    if len(means) >= FEWEST_SIZES:
        spread = student(len(means) - 1, level) * float(np.std(means, ddof=1)) / np.sqrt(len(means))
    return _wider(value, spread, f"{len(means)} {unit}", noises, noise, level, "Fewer than three pairs")


def slope_effect(
    x: Array, y: Array, sizes: Sequence[str], noise_of_y: float, noise: NoiseOf, *, level: float = LEVEL
) -> Effect:
    """Slope of y in x, one point a size; each y carries `noise_of_y` times the noise of a run."""
    centred = x - x.mean()
    total = float((centred**2).sum())
    slope = float((centred * y).sum() / total)
    spread = None
    if len(x) > FEWEST_SIZES:
        residual = y - y.mean() - slope * centred
        spread = student(len(x) - 2, level) * float(np.sqrt((residual**2).sum() / (len(x) - 2) / total))
    noises = noise_of_y / float(np.sqrt(total))
    floor = _mean_noise(sizes, (centred**2).tolist(), noise)
    return _wider(slope, spread, f"{len(x)} sizes", noises, floor, level, "Fewer than four sizes")


def _wider(
    value: float, spread: float | None, of: str, noises: float, noise: NoiseFloor | None, level: float, few: str
) -> Effect:
    """The wider of `spread`, None with too few, and what `noises` times the noise of a run gives."""
    halves = {} if spread is None else {of: spread}
    if noise is not None:
        halves[f"seed noise with {noise.freedom:.0f} degrees of freedom"] = (
            student(noise.freedom, level) * noise.sd * noises
        )
    if not halves:
        return Effect(value, -np.inf, np.inf, f"{few} and no seeds: no interval.")
    by = max(halves, key=halves.__getitem__)
    return Effect(value, value - halves[by], value + halves[by], f"Interval from {by}.")


def both_levels(make: Callable[[float], Effect], several: int) -> tuple[Effect, Effect]:
    """An effect at the usual level, and at the one that allows for `several` of them."""
    return make(LEVEL), make(1 - (1 - LEVEL) / max(several, 1))
