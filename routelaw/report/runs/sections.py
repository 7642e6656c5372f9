"""The sections of a report: for a store's own runs one each, for an imported table all in one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from routelaw.fitting.transfer import Transfer
from routelaw.report.page import Block, Heading, Interactive, Section, Text
from routelaw.report.runs import charts
from routelaw.report.runs.advice import advice_blocks
from routelaw.report.runs.analysis import Analysis
from routelaw.report.runs.chart_data import explorer_data
from routelaw.report.runs.data import OWN, ReportData, RunRow
from routelaw.report.runs.law_text import law_blocks, ranking_grid
from routelaw.report.runs.paper_figures import PaperFigures, paper_figure_blocks
from routelaw.report.runs.studies import ReportedStudy, study_section
from routelaw.report.runs.summary import comparison_text, facts, gains, scale, trained
from routelaw.report.runs.training import HeatMaps
from routelaw.report.runs.transfer import transfer_blocks

Parts = list[tuple[str, str, list[Block]]]
"""(title, anchor, blocks)."""


@dataclass(frozen=True, eq=False)
class Source:
    """One source of losses with everything a page says of it."""

    report_data: ReportData
    place: str
    """Its folder below tables/ and figures/, and the beginning of its anchors; empty for a store's own runs."""
    rows: Sequence[RunRow]
    target: str
    """The loss that everything here is about."""
    asked: str
    """The loss that the report was asked for."""
    analysis: Analysis | None = None
    """None while no run has been evaluated."""
    transfer: Transfer | None = None
    """The law on each corpus; None where there is one corpus only."""
    curves: dict[str, Any] | None = None
    """Training curves as the page draws them; None where no run has one."""
    maps: HeatMaps = field(default_factory=lambda: HeatMaps(None, 0))
    """Load of experts over training."""
    studies: Sequence[ReportedStudy] = ()
    """Studies of the paper: those named by a sweep file of this store, or asked for."""
    tables: Sequence[str] = field(default=())
    figures: Sequence[str] = field(default=())
    paper_figures: PaperFigures = field(default_factory=PaperFigures)

    def with_files(self, tables: Sequence[str], figures: Sequence[str], paper_figures: PaperFigures) -> Source:
        return replace(self, tables=tables, figures=figures, paper_figures=paper_figures)

    def address(self, kind: str, name: str) -> str:
        return "/".join(part for part in (kind, self.place, name) if part)

    def anchor(self, name: str) -> str:
        return f"{self.place}-{name}" if self.place else name

    def interactive(
        self, name: str, role: str, title: str, caption: str, data: Any, figure: str = "", table: str = ""
    ) -> Interactive:
        return Interactive(self.anchor(name), role, title, caption, data, self.links(figure, table))

    def links(self, figure: str, table: str = "") -> list[tuple[str, str]]:
        """What of these was written."""
        drawn = [f for f in self.figures if f.startswith(f"{figure}.")]
        found = [(f.rpartition(".")[2].upper(), self.address("figures", f)) for f in drawn]
        return found + [("CSV", self.address("tables", t)) for t in self.tables if t == f"{table}.csv"]


def own_sections(source: Source) -> list[Section]:
    return [Section(title, anchor, blocks) for title, anchor, blocks in _parts(source)]


def imported_section(source: Source) -> Section:
    """The same parts under headings of their own; its runs stand in the table of all runs."""
    blocks: list[Block] = [
        Text(
            "Other people's losses: another corpus and another recipe, so they have laws of their own and are mixed "
            "with nothing.",
            "soft",
        )
    ]
    if source.target != source.asked:
        blocks.append(Text(f"This table has no {source.asked}, so {source.target} stands for it here.", "key"))
    for title, anchor, own in _parts(source):
        blocks += [Heading(title, anchor), *own]
    return Section(f"Imported: {source.report_data.name}", source.anchor("imported"), blocks)


def _parts(source: Source) -> Parts:
    analysis = source.analysis
    parts: Parts = [("Summary", source.anchor("summary"), _summary(source))]
    if analysis is not None:
        over = "experts" if analysis.points else "size"
        parts.insert(0, (f"Loss against {over}", source.anchor("losses"), _losses(source, analysis)))
        parts += [
            ("Advice", source.anchor("advice"), advice_blocks(source)),
            ("Explorer", source.anchor("explorer"), _explorer(source, analysis)),
            ("Laws compared", source.anchor("laws"), _laws(source, analysis)),
            ("Effective parameters", source.anchor("effective"), _effective(source, analysis)),
            ("The slope in log E", source.anchor("slopes"), _slopes(source, analysis)),
            (
                "Transfer",
                source.anchor("transfer"),
                transfer_blocks(source.transfer, analysis, source.anchor("transfer")),
            ),
        ]
    parts = [*(study_section(each, source.anchor("study")) for each in source.studies), *parts]
    parts.append(("Training curves", source.anchor("curves"), _curves(source)))
    if source.report_data.name == OWN:
        parts.append(("Expert load and drops", source.anchor("load"), _load(source)))
    figures = paper_figure_blocks(source.paper_figures, source.anchor, lambda name: source.address("figures", name))
    parts.append(("Figures of the paper", source.anchor("paper-figures"), figures))
    return [(title, anchor, blocks) for title, anchor, blocks in parts if blocks]


def _summary(source: Source) -> list[Block]:
    analysis = source.analysis
    blocks: list[Block] = [facts(source.rows, analysis), *trained(source.report_data, source.rows)]
    if analysis is None:
        return [*blocks, Text("No run has been evaluated yet: losses and laws will stand here once one has.", "key")]
    if mixed := analysis.pairwise.mixed:
        what = "combination of technique, size and E" if mixed == 1 else "combinations of technique, size and E"
        blocks.append(
            Text(f"Not compared: {mixed} {what} whose runs differ in more than their seed (tokens, say).", "key")
        )
    if analysis.pairwise.order:
        blocks += scale(source.rows)
        blocks += [Heading("Which technique wins", source.anchor("winners")), *comparison_text(analysis)]
        blocks += [Heading("What routing gains over dense", source.anchor("gains")), *gains(analysis)]
    else:
        blocks.append(Text("There is no finished routed run: nothing to compare yet.", "key"))
    return [*blocks, Heading("What the laws say", source.anchor("says")), *law_blocks(analysis)]


def _losses(source: Source, analysis: Analysis) -> list[Block]:
    if not analysis.points:
        chart = charts.dense_chart(analysis)
        if chart is None:
            return [Text("There is no finished run with this loss yet.")]
        said = "The last evaluation of each dense run; the line is their power law, where three sizes allow one."
        return [source.interactive("losses-chart", "chart", "Dense runs over size", said, chart, "losses", "runs")]
    caption = (
        "Marks: the last evaluation of each model, seeds averaged; dense models stand at E = 1. Lines: the law chosen, "
        "fitted to each router by itself. Click on a router or size to hide or show it, double-click to see it alone."
        + _at_first(analysis)
    )
    title, chart = "Loss against experts, by size", charts.loss_chart(analysis)
    return [source.interactive("losses-chart", "chart", title, caption, chart, "losses", "losses")]


def _at_first(analysis: Analysis) -> str:
    """Which techniques a chart begins with, where they are too many to be told apart."""
    if not analysis.others:
        return ""
    shown, count = len(analysis.most_trained), len(analysis.techniques)
    return f" Of {count} techniques it begins with the {shown} that were trained at most sizes and E."


def _explorer(source: Source, analysis: Analysis) -> list[Block]:
    if not analysis.techniques:
        return []
    data = explorer_data(analysis)
    if data is None:
        return [Text("The explorer needs a fitted law in (N, E), and there is none yet.")]
    caption = (
        "Move N and E: the loss that every fitted router is predicted to have there, and N̄, the dense model of equal "
        "loss under the same law. Intervals are known of the selected law. Whatever extrapolates says so."
    )
    return [source.interactive("explorer-view", "explorer", "Predictions", caption, data, table="parameters")]


def _laws(source: Source, analysis: Analysis) -> list[Block]:
    if not any(analysis.ranked.values()):
        return []
    blocks: list[Block] = []
    if any(r.validation.leave_size_out is not None for rows in analysis.ranked.values() for r in rows):
        caption = (
            "Each law fitted with one size left out and judged on that size, for every size in turn; in brackets its "
            "number of parameters, bars the interval over resampled sizes. Further left is better."
        )
        title, chart = "Error on unseen sizes", charts.ranking_chart(analysis)
        blocks.append(source.interactive("laws-chart", "chart", title, caption, chart, "laws", "laws"))
    return [*blocks, *ranking_grid(analysis)]


def _effective(source: Source, analysis: Analysis) -> list[Block]:
    if not analysis.laws:
        return []
    caption = (
        "How many times larger a dense model would have to be for the same loss, N̄/N. Lines: the law chosen; marks: "
        "the measured losses, turned into sizes by the same law at E = 1. Below 1 routing hurts."
    )
    title, chart = "What experts are worth", charts.effective_chart(analysis)
    return [source.interactive("effective-chart", "chart", title, caption, chart, "effective", "effective")]


def _slopes(source: Source, analysis: Analysis) -> list[Block]:
    chart = charts.slope_chart(analysis)
    if not chart["traces"]:
        return []
    caption = (
        "b(N), by how much log L falls with log E at each size; closer to zero means that experts help less. Marks: a "
        "straight line through the losses of that size alone (three expert counts at least). Lines: the same straight "
        "line through the predictions of the law chosen."
    )
    title = "The gain from experts by size"
    return [source.interactive("slopes-chart", "chart", title, caption, chart, "slopes", "slopes")]


def _curves(source: Source) -> list[Block]:
    data = source.curves
    if data is None:
        return [Text("There is no more than one evaluation of each run, so there are no curves.", "soft")]
    left = f" {data['left_out']} runs are left out to keep the page light." if data["left_out"] else ""
    caption = f"The loss of every run while it trained. The mouse names the run.{left}"
    return [source.interactive("curves-chart", "curves", "Loss against tokens", caption, data, "curves")]


def _load(source: Source) -> list[Block]:
    maps = source.maps
    if not source.report_data.runs:
        return [Text("This is a table of losses: it does not say how experts were loaded.", "soft")]
    if maps.data is None:
        return [Text("No run here has logged a routed layer.", "soft")]
    heavy = f" {maps.left_out} more runs would make the page heavy: see log.jsonl in their folders."
    left = heavy if maps.left_out else ""
    caption = (
        "Load of each expert over training, before drops, against an even share: white is even, red is over, blue is "
        f"under. Below, the share of assignments dropped for want of capacity, a line per routed block.{left}"
    )
    return [source.interactive("load-maps", "heat-maps", "Expert load", caption, maps.data, "expert_load")]
