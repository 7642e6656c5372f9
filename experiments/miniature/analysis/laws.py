"""Which law predicts a size it has not seen, on our runs and on the paper's; and where routing would stop helping.

python -m experiments.miniature.analysis.laws CSV        writes paper_laws.json from the losses that the paper released
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from experiments.miniature.analysis.study import Study, plain
from experiments.miniature.studies import DATA, run_program
from routelaw.errors import InputError
from routelaw.figures.loss_curves import routed_techniques
from routelaw.fitting.fit import Fit, fit_law
from routelaw.fitting.intervals import DEFAULT_LEVEL, bootstrap, n_cut, small_sample_probability, small_sample_stretch
from routelaw.fitting.noise import NoiseFloor
from routelaw.fitting.points import select_points
from routelaw.fitting.selection import HOLD_OUT_SEARCHES
from routelaw.fitting.selection import comparable_laws as competing_laws
from routelaw.fitting.validation import held_out_residuals
from routelaw.laws.law import Array, Law
from routelaw.laws.power_sum import PowerSum
from routelaw.runs.files import read_runs
from routelaw.studies.study_runs import PAPER_ROUTERS

PAPER = DATA / "paper_laws.json"
LOG_TRILLION = 12.0
DRAWS = 300
RESAMPLES = 2000
HOPELESS = 0.1
"""Error of log10 L, 26 % of the loss, beyond which a law is behind whatever resampled sizes say: with three sizes one
that is wrong by decades on one of them has an interval that holds everything."""


@dataclass(frozen=True)
class LawResult:
    """One law on one router. Errors are RMSE of log10 L with each size predicted from the others."""

    law: str
    router: str
    parameters: int
    points: int
    in_sample: float
    leave_size_out: float | None
    low: float | None
    high: float | None
    """Interval of the leave-size-out error, over resampled sizes."""
    behind: bool
    """Clearly worse than the best law of this router, over resampled sizes, and above the noise of the seeds at these
    sizes; or hopeless."""
    cut_below_trillion: float | None
    """Probability that N_cut is below 1e12: exactly 0 for laws whose form has none, and for no other; None for laws
    that are not in (N, E), and where sizes cannot be resampled."""
    cut_in_draws: float | None = None
    """Share of the refits that say so. Where it is 0 or 1 the probability is only known to be below, or above, what so
    few refits and sizes can tell."""


def routers_of(study: Study) -> list[str]:
    """Those with two E at two sizes or more: what a law can be fitted to. The paper's come first."""
    routed = {r: study.losses(r) for r in routed_techniques(study.table)}
    return [r for r, own in routed.items() if (own.groupby("size").size() > 1).sum() > 1]


def compare_laws(study: Study) -> list[LawResult]:
    """Every law on every router, best first within a router."""
    made: list[LawResult] = []
    for router in routers_of(study):
        fits, _ = fits_of(study, router)
        errors = {fit.law.name: size_out(fit) for fit in fits}
        made += _ranked(router, fits, errors, floor_of(study))
    return made


def floor_of(study: Study) -> NoiseFloor | None:
    """Below it no law is told from another: the noise of the sizes that laws are fitted to."""
    return study.noise(*(size for size in study.active_params if size in set(study.swept.frame["size"])))


def fits_of(study: Study, router: str) -> tuple[list[Fit], dict[str, str]]:
    """Every law that the points of a router determine, on the same points; and of the other laws, why not."""
    if router not in routers_of(study):
        return [], {law.name: "it has not two E at two sizes." for law in competing_laws()}
    points = select_points(study.swept, router, mixed=False)
    fits, reasons = [], {}
    for law in competing_laws():
        try:
            fits.append(fit_law(law, points))
        except InputError as error:
            reasons[law.name] = str(error)
    return fits, reasons


def size_out(fit: Fit) -> Array:
    """Residual of each point with its size left out; all NaN where what is left cannot determine the law."""
    if isinstance(fit.law, PowerSum):
        fit = replace(fit, law=replace(fit.law, searches=min(fit.law.searches, HOLD_OUT_SEARCHES)))
    residual_N = held_out_residuals(fit, fit.points.size)
    return residual_N if np.isfinite(residual_N).all() else np.full(len(residual_N), np.nan)


def _ranked(router: str, fits: list[Fit], errors: dict[str, Array], noise: NoiseFloor | None) -> list[LawResult]:
    rms = {name: float(np.sqrt((r**2).mean())) for name, r in errors.items()}
    judged = [name for name, error in rms.items() if np.isfinite(error)]
    best = min(judged, key=rms.__getitem__) if judged else None
    floor = noise.sd if noise else 0.0
    made = []
    for fit in fits:
        name, points = fit.law.name, fit.points
        low = high = None
        behind = False
        if name in judged and best is not None:
            own, first = (_resampled(errors[n], points.size) for n in (name, best))
            stretch = small_sample_stretch(len(points.sizes), DEFAULT_LEVEL)
            tails = [(1 - DEFAULT_LEVEL) / 2, (1 + DEFAULT_LEVEL) / 2]
            low, high = (max(0.0, float(e)) for e in rms[name] + stretch * (np.quantile(own, tails) - rms[name]))
            gap = rms[name] - rms[best]
            clear = gap + stretch * (float(np.quantile(own - first, tails[0])) - gap) > 0 and rms[name] > floor
            behind = clear or rms[name] > HOPELESS
        made.append(
            LawResult(name, router, len(fit.law.parameters), len(points), fit.rmsle,
                     rms[name] if name in judged else None, low, high, behind, *cut_probability(fit))
        )  # fmt: skip
    return sorted(made, key=lambda s: (s.leave_size_out is None, s.leave_size_out or 0.0))


def _resampled(residual_N: Array, size_N: Array) -> Array:
    """RMSE over resampled sets of sizes, the same sets for every law."""
    sizes = sorted(set(size_N))
    counts = np.random.default_rng(0).multinomial(len(sizes), np.full(len(sizes), 1 / len(sizes)), size=RESAMPLES)
    squares = np.array([(residual_N[size_N == s] ** 2).sum() for s in sizes])
    numbers = np.array([(size_N == s).sum() for s in sizes])
    return np.sqrt((counts @ squares) / (counts @ numbers))


def cut_probability(fit: Fit) -> tuple[float | None, float | None]:
    """That N_cut is below 1e12, from refits to resampled sizes, allowing for few of them; and the share of refits."""
    if {"active_params", "experts"} != set(fit.law.inputs):
        return None, None
    if never_stops_helping(fit.law):
        return 0.0, None
    try:
        draws = bootstrap(fit, draws=DRAWS)
    except InputError:
        return None, None
    share = float(np.mean(n_cut(fit.law).of(draws.params_RP) < LOG_TRILLION))
    return small_sample_probability(share, draws.clusters, DRAWS), share


def never_stops_helping(law: Law) -> bool:
    """By its form, whatever the data: nothing in it depends on N and E together."""
    return isinstance(law, PowerSum) and len(law.terms) == 1 and not any(all(c.powers) for c in law.terms[0])


def winner(made: list[LawResult], routers: Iterable[str] = PAPER_ROUTERS) -> tuple[str | None, list[str]]:
    """The law with the lowest leave-size-out error, RMS over those of the routers that are there, among laws judged on
    all of them; and the laws, itself among them, that are clearly behind on none."""
    own = [s for s in made if s.router in set(routers)]
    by_law: dict[str, list[LawResult]] = {}
    for s in own:
        if s.leave_size_out is not None:
            by_law.setdefault(s.law, []).append(s)
    full = {law: all_ for law, all_ in by_law.items() if len(all_) == len({s.router for s in own})}
    errors = {law: float(np.sqrt(np.mean([(s.leave_size_out or 0.0) ** 2 for s in of]))) for law, of in full.items()}
    level = [law for law in sorted(errors, key=errors.__getitem__) if not any(s.behind for s in full[law])]
    return (min(errors, key=errors.__getitem__) if errors else None), level


def paper_results() -> list[LawResult]:
    """The same on the losses that the paper released, as committed (data/)."""
    return [LawResult(**row) for row in json.loads(PAPER.read_text(encoding="utf-8"))["laws"]]


def main() -> None:
    parser = argparse.ArgumentParser(description="Judge every law on the losses that the paper released.")
    parser.add_argument("csv", type=Path)
    table = plain(read_runs(parser.parse_args().csv))
    content = {
        "source": "losses released by Clark et al. 2022 (google-deepmind/scaling_laws_for_routing, data/curves.csv.gz, "
        "CC-BY 4.0), judged by `python -m experiments.miniature.analysis.laws`: K = 1, R = 1/2, dense runs as E = 1",
        "laws": [asdict(s) for s in compare_laws(Study(table))],
    }
    PAPER.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    run_program(main)
