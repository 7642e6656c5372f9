"""The league's page: which laws predict runs that they have not seen, over tables, routers and splits."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import numpy as np
from matplotlib.figure import Figure as Picture

from routelaw.figures import style
from routelaw.files import write_atomically
from routelaw.fitting.league import LARGEST_OUT, SIZE_OUT, League, Standing
from routelaw.fitting.splits import MEANINGS
from routelaw.fitting.validation import error_e4
from routelaw.report.page import Block, Bullets, Entry, Grid, Heading, Section, Text, embedded, render, report_folder
from routelaw.report.page import Picture as PagePicture

MEANING = {
    SIZE_OUT: "every size in turn, predicted from all other sizes",
    LARGEST_OUT: "the largest size, predicted from all smaller ones",
    **MEANINGS,
}
COLUMNS = (
    "table", "router", "split", "rank", "law", "parameters", "error", "low", "high", "behind", "held_out", "status",
    "at_bounds",
)  # fmt: skip
TOO_FAR = 10.0
"""Errors over the best law's beyond which a mark stands at the edge of the picture."""


def write_league(found: League, out: Path, *, force: bool = False) -> None:
    """index.html, league.csv, league.svg and league.png; a failure leaves nothing behind."""
    with report_folder(out, force=force) as folder:
        write_atomically(_csv(found).encode(), folder / "league.csv")
        with matplotlib.rc_context(style.RC):
            picture = draw(found)
            for kind in ("svg", "png"):
                metadata = {"Date": None} if kind == "svg" else None
                picture.savefig(folder / f"league.{kind}", dpi=160, metadata=metadata)
        write_atomically(_page(found, folder).encode(), folder / "index.html")


def draw(found: League) -> Picture:
    """A row per law, best first; a mark per contest at its error over that of the contest's best law."""
    laws = [name for name, *_ in found.overall()]
    tables = list(dict.fromkeys(s.table for s in found.standings))
    picture = Picture(figsize=(7.0, 1.2 + 0.32 * len(laws)), layout="constrained")
    axes = picture.add_subplot()
    spread = np.linspace(-0.28, 0.28, max(len(tables), 2))
    colours = [*style.ROUTER_COLOURS.values(), *style.SPARE_COLOURS]
    for nth, table in enumerate(tables):
        own = [s for s in found.standings if s.table == table]
        at = [laws.index(s.law) + spread[nth] for s in own]
        behind = [min(s.behind, TOO_FAR) for s in own]
        label = Path(table).name
        axes.plot(behind, at, "o", ms=3.5, alpha=0.75, color=colours[nth % len(colours)], label=label, mew=0)
    for law, behind, *_ in found.overall():
        axes.plot(min(behind, TOO_FAR), laws.index(law), "|", ms=14, mew=2, color="black")
    axes.set_xscale("log")
    axes.set_xlim(0.93, TOO_FAR * 1.07)
    ticks = [1, 1.5, 2, 3, 5, TOO_FAR]
    axes.set_xticks(ticks, [f"{t:g}" for t in ticks[:-1]] + [f"≥ {TOO_FAR:g}"])
    axes.xaxis.set_minor_locator(matplotlib.ticker.NullLocator())
    axes.set_yticks(range(len(laws)), laws)
    axes.invert_yaxis()
    axes.set_xlabel("error on unseen runs, over that of the best law of the contest (bar: geometric mean)")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return picture


def _csv(found: League) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for *_, standings in found.contests():
        for s in standings:
            writer.writerow([getattr(s, name) for name in COLUMNS])
    return text.getvalue()


def _page(found: League, folder: Path) -> str:
    overall = [
        [Entry(law), Entry(f"{behind:.2f}×"), Entry(f"{rank:.1f}"), Entry(str(contests))]
        for law, behind, rank, contests in found.overall()
    ]
    links = [(kind.upper(), f"league.{kind}") for kind in ("svg", "png", "csv")]
    caption = (
        "A mark is one contest: a table, a router and what was held out. It stands at the law's error over that of the "
        "best law there; the bar is the geometric mean over the contests that the law stands in."
    )
    image = embedded([folder / "league.svg", folder / "league.png"])
    standing: list[Block] = [
        Text(
            "Laws are compared by errors on runs that the fit has not seen. A law stands only in the contests in which "
            "it could be fitted: means of laws that stand in different contests are not the same race."
        ),
        PagePicture("league", "Errors on unseen runs", caption, image, "", links),
        Grid(["law", "error over the best", "mean rank", "contests"], overall),
    ]
    contests: list[Block] = [Bullets([f"{name.replace('_', ' ')}: {said}" for name, said in MEANING.items()])]
    for nth, (table, router, split, standings) in enumerate(found.contests()):
        contests += [
            Heading(f"{Path(table).name}, {router}: {split.replace('_', ' ')}", f"contest-{nth}"),
            Grid(
                ["rank", "law", "parameters", "error in log10 L, ×1e-4", "interval", "at bounds"],
                [_row(s) for s in standings],
            ),
        ]
    left = [[Entry(Path(n.table).name), Entry(n.router), Entry(n.law), Entry(n.reason)] for n in found.not_ranked]
    sections = [Section("The league", "league", standing), Section("Contests", "contests", contests)]
    if left:
        sections.append(Section("Not ranked", "not-ranked", [Grid(["table", "router", "law", "why"], left)]))
    if found.notes:
        sections.append(Section("Notes", "notes", [Bullets(found.notes)]))
    tables = len({s.table for s in found.standings})
    lead = f"{len(overall)} scaling laws on {tables} table{'s' if tables > 1 else ''} of losses."
    return render("The league of scaling laws", lead, sections)


def _row(s: Standing) -> list[Entry]:
    ends = "–" if np.isnan(s.low) else f"[{error_e4(s.low)}, {error_e4(s.high)}]"
    return [
        Entry(str(s.rank)), Entry(s.law), Entry(str(s.parameters)), Entry(error_e4(s.error)), Entry(ends),
        Entry(s.at_bounds),
    ]  # fmt: skip
