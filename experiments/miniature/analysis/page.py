"""The page of the miniature: claims with verdicts, laws beside the paper's, the blind test, figures and costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import pandas as pd

from experiments.miniature.analysis.claims import CLAIMS, Change, Outlier, counts
from experiments.miniature.analysis.figures_of_choices import rates
from experiments.miniature.analysis.laws import HOPELESS, LawResult, floor_of, winner
from experiments.miniature.analysis.page_sections import blocks_on_blind, blocks_on_weights
from experiments.miniature.analysis.study import Study, TimePrediction, device_seconds, in_study
from experiments.miniature.studies import MAIN, WEIGHTS_OF_RL
from routelaw.figures.style import router_label
from routelaw.fitting.claims import FAILS, HOLDS, OPEN, JudgedClaim
from routelaw.fitting.noise import noise_floor
from routelaw.report.page import Block, Bullets, Entry, Grid, Picture, Section, Text, render
from routelaw.report.page.judged import claims_grid, rules_of
from routelaw.runs.table import FINISHED, last_status
from routelaw.studies.study_runs import PAPER_ROUTERS

MAIN_FIGURE = "figure-main"
MOST = 0.5
"""Share of the sum of squares of a size's seeds: a run that makes more of it by itself is named."""


@dataclass(frozen=True)
class MiniatureData:
    """Everything that the page shows."""

    study: Study
    claims: Sequence[JudgedClaim]
    outlier: Outlier | None
    by_size: Mapping[str, Sequence[Change]]
    """Sizes without which some verdicts would be others."""
    laws: Sequence[LawResult]
    paper: Sequence[LawResult]
    coefficients: Sequence[dict[str, Any]]
    scored: dict[str, Any] | None
    spending: pd.DataFrame
    price: float | None
    """Price of an hour of the device."""
    time_predicted: TimePrediction | None
    pictures: Sequence[Picture]
    not_drawn: Sequence[tuple[str, str]] = field(default_factory=list)


ENDS = (
    "* Where several effects must hold at once, the weakest is shown: its lower end is that of 90 %, its upper end "
    "that of an interval which allows for their number, for that is what would refute it. Zero-shot losses, schedules "
    "and the entropy weight hold if one of several does: both ends allow for their number."
)


CHANGED = (
    "The rules were written before any run was there. Trying them on drawn runs and on the paper's release changed "
    "four. Seven changed later, when runs were there. Six of these could not judge any of those runs: RL-R's variants, "
    "the speed of K, (F, B) against (N, E), lengths, the balance weight (no balance loss at all does not count) and "
    "coefficients of the law (not told where a fit is at a bound). Of the seventh, the entropy weight, six runs were "
    "there, and no seeds. Since then the deep model has no part in what is said of sizes swept over E. Noise was "
    "pooled over all seeds until those of three sizes were there, and turned out to differ by size."
)

FORMS = {
    "hours": ".3f",
    "seconds": ".0f",
    "tokens_per_second": ",.0f",
    "device_seconds": ".1f",
    "cost": ".3f",
    "cost_of_a_run": ".4f",
}
"""Formats of the columns of costs."""


def build_page(m: MiniatureData) -> str:
    first = [p for p in m.pictures if p.name == MAIN_FIGURE]
    others = [p for p in m.pictures if p.name != MAIN_FIGURE]
    sections = [
        Section("In short", "short", [_in_short(m), *_outlier(_decisive(m.outlier)), *first]),
        Section(
            "The paper's claims on our runs",
            "claims",
            [claims_grid(m.claims, "ours, 90 %*"), Text(ENDS, "soft"), *_decided_by_size(m.by_size)],
        ),
        Section("Laws on sizes they have not seen", "laws", _laws(m)),
        Section("Coefficients of the paper's law", "coefficients", _coefficients(m.coefficients)),
        Section("The blind test", "blind", blocks_on_blind(m.scored, rates(m.study))),
        Section("Weights of the routers' losses", "weights", blocks_on_weights(m.study, m.claims)),
        Section("Figures", "figures", [*others, *(Text(f"{t}: not drawn, {why}") for t, why in m.not_drawn)]),
        Section("How a verdict is reached", "rules", [Text(CHANGED), *_tuned(m.study), rules_of(CLAIMS)]),
        Section("What it took", "costs", _costs(m)),
        Section("The data", "data", [Bullets([*_data(m.study), *m.study.table.notes])]),
    ]
    lead = (
        "Dense and routed transformers trained by us on one GPU, a hundredth of the paper's size, judged by rules most "
        "of which were written down before. A verdict is about these runs; what does not hold here may hold at scale."
    )
    return render("The paper in miniature", lead, sections, "Computed by routelaw from the committed run table.")


def _tuned(study: Study) -> list[Block]:
    """Whose weights were looked for, and which models were then chosen by the loss that they are judged by."""
    settings = in_study(study.finals, WEIGHTS_OF_RL)
    if not settings.any():
        return []
    chosen = study.finals[settings & in_study(study.finals, MAIN)]
    cells = ", ".join(
        f"{size} with E = {e}" for size, e in sorted(set(zip(chosen["size"], chosen["experts"], strict=True)))
    )
    tried = study.finals[settings]["variant"].nunique()
    words = (
        f"RL-R alone has weights that were looked for, in {tried} settings at the smallest size by the validation "
        "loss; the other routers have the paper's, or ours where it gives none."
    )
    if cells:
        words += (
            f" Of its models of {cells} the first seed is the best of those runs, not a new one: that makes losses a "
        )
        words += "little too low, by less where there are other seeds."
    return [Text(words)]


def _in_short(m: MiniatureData) -> Text:
    found = counts(m.claims)
    runs = m.study.table.frame["run_id"].nunique()
    waiting = sum(claim.ours is None for claim in m.claims)
    words = f"{found[HOLDS]} hold{'s' * (found[HOLDS] == 1)}, {found[FAILS]} not, {found[OPEN]} cannot be told"
    words += f", {waiting} of them because runs or records are missing." if waiting else "."
    return Text(f"{len(m.claims)} claims judged on {runs} runs: {words}", "key")


def _decisive(run: Outlier | None) -> Outlier | None:
    return run if run and run.share >= MOST else None


def _outlier(run: Outlier | None) -> list[Block]:
    if run is None:
        return []
    name = f"{router_label(run.router)} {run.size} with E = {run.experts} and seed {run.seed}"
    words = (
        f"One run, {name}, makes {run.share:.0%} of the sum of squares of the seeds of {run.size}, and intervals that "
        f"rest on these are as wide as it makes them. Without it they would differ by {1e4 * run.without.sd:.1f}e-4 of "
        "log10 L"
    )
    if not run.changed:
        return [Text(f"{words}, and every verdict would be the same.", "key")]
    return [Text(f"{words}, and these verdicts would be others. {_said_of(run.changed)}.", "key")]


def _decided_by_size(sizes: Mapping[str, Sequence[Change]]) -> list[Block]:
    if not sizes:
        return []
    return [
        Text("Some verdicts hang on one size:"),
        Bullets([f"Without {s}: {_said_of(c)}." for s, c in sizes.items()]),
    ]


def _said_of(changed: Sequence[Change]) -> str:
    return ". ".join(f"{claim.claim.statement}: {verdict} instead of {claim.verdict}" for claim, verdict in changed)


def _laws(m: MiniatureData) -> list[Block]:
    noise = floor_of(m.study)
    blocks: list[Block] = []
    if noise is not None:
        words = (
            f"Seeds differ by {1e4 * noise.sd:.1f}e-4 of log10 L ({noise.nats:.4f} nats; 90 %: {1e4 * noise.low:.1f} "
            f"to {1e4 * noise.high:.1f}e-4, {noise.freedom:.0f} degrees of freedom), the mean over these sizes. No law "
            "does better but by luck, or where seeds are averaged; one counts as behind the best only if its error is "
            "above this and the difference clear over resampled sizes, or if it is wrong by 26 % of the loss and more."
        )
        blocks.append(Text(words, "key"))
        parts = [(size, m.study.where("size", size)) for size in m.study.seeded_sizes]
        parts += [(router_label(router), m.study.where("router", router)) for router in m.study.table.routers]
        found = [(name, own) for name, part in parts if (own := noise_floor(part)) is not None]
        said = ", ".join(f"{name} {1e4 * own.sd:.1f}e-4 ({own.freedom:.0f})" for name, own in found)
        words = (
            f"By themselves, with degrees of freedom: {said}. A verdict takes that of its sizes; a size without seeds "
            "has the noise of the next smaller one that has some."
        )
        blocks.append(Text(words, "soft"))
    (ours, level), (theirs, their_level) = winner(list(m.laws)), winner(list(m.paper))
    same = "the same law" if ours == theirs else "not the same law"
    blocks += [
        Text(
            f"Lowest leave-size-out error over {', '.join(map(router_label, PAPER_ROUTERS))}, those that are there: "
            f"{ours or 'none'} on our runs, {theirs} on the paper's, {same}. Clearly behind on none of them: "
            f"{', '.join(level) or 'none'}; on the paper's {', '.join(their_level) or 'none'}.",
            "key",
        ),
        _cells(m, "error"),
        Text(
            "RMSE of log10 L in 1e-4, each size predicted from the others; above in each cell the same on the losses "
            "that the paper released. Blue: the best of the router; red: clearly behind it, or wrong by 26 % of "
            "the loss and more. A dash: these runs do not determine the law.",
            "soft",
        ),
        _cells(m, "cut"),
        Text(
            "Probability that the size beyond which routing stops helping is below 1e12 parameters, from refits to "
            "resampled sizes, allowing for few of them; above, on the paper's runs. Some laws have no such size by "
            "their form, whatever the data.",
            "soft",
        ),
    ]
    return blocks


def _cells(m: MiniatureData, pick: str) -> Grid:
    routers = list(dict.fromkeys(s.router for s in m.laws))
    laws = list(dict.fromkeys(s.law for s in m.laws))
    ours = {(s.law, s.router): s for s in m.laws}
    theirs = {(s.law, s.router): s for s in m.paper}
    rows = [[Entry(law), *(_cell(ours.get((law, r)), theirs.get((law, r)), pick, m) for r in routers)] for law in laws]
    return Grid(["law", *map(router_label, routers)], rows)


def _cell(own: LawResult | None, other: LawResult | None, pick: str, m: MiniatureData) -> Entry:
    if own is None:
        return Entry("–")
    if pick == "cut":
        return Entry(_cut(own) or "–", over=_cut(other))
    shown = [None if s is None else _error(s.leave_size_out) for s in (own, other)]
    best = next(s for s in m.laws if s.router == own.router)
    ends = [_error(end, 0) for end in (own.low, own.high)]
    span = " … ".join(end for end in ends if end)
    return Entry(shown[0] or "–", under=span, over=shown[1] or "",
                 tone="mine" if own is best else "bad" if own.behind else "")  # fmt: skip


def _cut(own: LawResult | None) -> str:
    if own is None or own.cut_below_trillion is None:
        return ""
    if not own.cut_below_trillion:
        return "none by its form"
    bound = {0.0: "below ", 1.0: "above "}.get(own.cut_in_draws, "")  # no draw says so, or all do
    return f"{bound}{own.cut_below_trillion:.0%}"


def _error(error: float | None, digits: int = 1) -> str | None:
    if error is None:
        return None
    return f"{1e4 * error:.{digits}f}" if error < HOPELESS else f"over {1e4 * HOPELESS:.0f}"


def _coefficients(rows: Sequence[dict[str, Any]]) -> list[Block]:
    fitted = [row for row in rows if "params" in row]
    notes = [f"{router_label(row['router'])}: {row['missing']}" for row in rows if "missing" in row]
    notes += [f"{router_label(row['router'])}: {warning}" for row in fitted for warning in row["warnings"]]
    body = [
        [
            Entry(router_label(row["router"])),
            *(Entry(f"{value:.4g}", under=row["spans"].get(name, "")) for name, value in row["params"].items()),
        ]
        for row in fitted
    ]
    table: Block = (
        Grid(["router", *fitted[0]["params"]], body) if fitted else Text("No router has enough runs.", "soft")
    )
    return [table, *([Bullets(notes)] if notes else [])]


def _costs(m: MiniatureData) -> list[Block]:
    if m.study.costs is None:
        return [Text("No costs were recorded.", "soft")]
    columns = [c for c in m.spending if c not in ("router", "size")]
    rows = [
        [Entry(f"{router_label(r['router'])} {r['size']}"), *(_number(r[c], c) for c in columns)]
        for r in m.spending.to_dict("records")
    ]
    shares = device_seconds(m.study.costs)
    unknown = f" ({shares.isna().sum()} more did not record how many shared it)" if shares.isna().any() else ""
    words = (
        f"{shares.sum() / 3600:,.2f} device hours for {shares.notna().sum()} runs, those for learning rates among "
        f"them; a run that shared the device counts with its part of it{unknown}. By router and size, of those that "
        "finished; seconds are of one run, shared or not, device seconds its part:"
    )
    blocks: list[Block] = [Text(words)]
    if m.price is not None:
        blocks.append(Text(f"Costs are at {m.price:g} an hour, which was assumed.", "soft"))
    if m.study.allocations is not None:
        held, first = m.study.allocations["seconds"].sum() / 3600, m.study.allocations["began"].min()[:10]
        words = f"Since {first} allocations say how long they held the device, all told: {held:.2f} h in "
        words += f"{len(m.study.allocations)}, with what runs did not end in, compiling and making the corpora."
        blocks.append(Text(words))
    if m.time_predicted is not None:
        f = m.time_predicted
        words = (
            f"A dry run predicted {f.predicted_hours:.2f} h for {f.runs} runs; they took {f.measured_hours:.2f} h. "
            f"Median of measured over predicted {f.ratio:.2f}, nine in ten between {f.low:.2f} and {f.high:.2f}; "
            f"{f.near:.0%} of the runs are within 25 %. Predicted is a run by itself, without compiling; measured is "
            "its part of a device that several shared, with compiling."
        )
        blocks.append(Text(words, "key"))
    return [*blocks, Grid(["runs of", *(c.replace("_", " ") for c in columns)], rows)]


def _number(value: float, column: str) -> Entry:
    return Entry(f"{value:{FORMS.get(column, ',.4g')}}" if isfinite(value) else "–")


def _data(study: Study) -> list[str]:
    frame = study.table.frame
    ended = last_status(frame)
    lost = frame["run_id"].groupby(ended[ended != FINISHED]).nunique()
    return [f"Read from {study.table.source}.", *(f"{n} runs {status}." for status, n in lost.items())]
