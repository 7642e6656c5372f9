"""The report on a store or a table of losses: one page to read and play with, its figures and its tables.

Sources stand apart from each other: a store's own runs first, then every imported table with laws of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from routelaw.errors import InputError
from routelaw.files import without_collection, write_atomically
from routelaw.fitting.comparison import of_one_length
from routelaw.fitting.selection import check_selectable
from routelaw.formatting import printable
from routelaw.laws import get_law
from routelaw.laws.law import Law
from routelaw.report.page import Interactive, ReportProgress, Section, render, report_folder
from routelaw.report.runs.analysis import analyse
from routelaw.report.runs.data import OWN, ReportData, RunRow, read_report_data, rows_of
from routelaw.report.runs.paper_figures import draw_paper_figures
from routelaw.report.runs.sections import Source, imported_section, own_sections
from routelaw.report.runs.static_figures import draw_static_figures
from routelaw.report.runs.studies import FOLDER, report_studies
from routelaw.report.runs.tables import run_table_data, summary_of, write_tables
from routelaw.report.runs.training import Log, curve_data, evenly, heat_map_data, sampled_log, technique_keys
from routelaw.report.runs.transfer import transfer_of, write_transfer_tables
from routelaw.runs.folders import LOG
from routelaw.runs.store import Store
from routelaw.specs.names import known_study, nearest_hint

DEFAULT_TARGET = "loss_validation"
STEPS_EACH = 4
MOST_LOGS = 600
"""Logs read for curves and heat maps: reading a thousand long ones would take longer than all the rest."""


def report_steps(
    path: Path,
    out: Path,
    *,
    force: bool = False,
    law: Law | None = None,
    own_laws: Sequence[Law] = (),
    target: str = DEFAULT_TARGET,
    studies: Sequence[str] = (),
) -> Iterator[ReportProgress]:
    """Write everything to `out`, telling after each part how far it is. A failure leaves nothing behind."""
    if law is not None:
        check_selectable(law)
    studies = list(dict.fromkeys(known_study(name) for name in studies))
    with report_folder(out, force=force) as folder:
        sources_data = read_report_data(path)
        total = STEPS_EACH * len(sources_data) + 1
        done = 0
        sources: list[Source] = []
        for place, report_data in enumerate(sources_data):
            name = _place(report_data, place)
            yield ReportProgress(done, total, f"fitting laws to {report_data.source}")
            source, logs = _source(report_data, name, target, law, own_laws)
            yield ReportProgress(done + 1, total, f"tables of {report_data.source}")
            for kind in ("tables", "figures"):
                (folder / kind / name).mkdir(parents=True)
            tables = write_tables(source.rows, source.analysis, folder / "tables" / name)
            tables += write_transfer_tables(source.transfer, folder / "tables" / name)
            yield ReportProgress(done + 2, total, f"figures of {report_data.source}")
            figures = draw_static_figures(source, folder / "figures" / name)
            yield ReportProgress(done + 3, total, f"figures of the paper from {report_data.source}")
            comparable = report_data.comparable if source.analysis else None
            paper_figures = draw_paper_figures(comparable, source.target, folder / "figures" / name)
            address = source.address("figures", FOLDER)
            wanted = _studies(path, report_data, sources_data, studies)
            judged = report_studies(wanted, report_data, source.target, logs, folder / address, address)
            sources.append(replace(source.with_files(tables, figures, paper_figures), studies=judged))
            done += STEPS_EACH
        yield ReportProgress(done, total, "the page")
        write_atomically(_page(path, sources).encode(), folder / "index.html")
    summary = {"page": str(Path(out) / "index.html"), **summary_of(str(path), sources)}
    yield ReportProgress(total, total, "done", summary)


def _place(report_data: ReportData, nth: int) -> str:
    """A folder and anchor of its own: names of tables may hold anything."""
    if report_data.name == OWN:
        return ""
    return f"{re.sub(r'[^a-z0-9]+', '-', report_data.name.lower()).strip('-') or 'table'}-{nth}"


def _studies(path: Path, report_data: ReportData, every: Sequence[ReportData], asked: Sequence[str]) -> Sequence[str]:
    """Those asked for, or those that the store was made for: of its own runs, which imported tables are not."""
    if report_data.name != OWN and any(each.name == OWN for each in every):
        return ()
    return asked or (Store(path).studies() if path.is_dir() else ())


def _source(
    report_data: ReportData, place: str, target: str, law: Law | None, own_laws: Sequence[Law]
) -> tuple[Source, Mapping[str, Log]]:
    """And the logs of its runs."""
    rows = rows_of(report_data)
    read = (rows[i] for i in evenly(len(rows), MOST_LOGS))
    with without_collection():
        logs = {row.run_id: sampled_log(row.folder / LOG) for row in read if row.folder is not None}
    used, analysis, transfer = target, None, None
    if report_data.comparable is not None:
        used = _target(report_data, target)
        compared, left_out = of_one_length(report_data.comparable)
        longer = tuple(f"{sentence}: techniques are compared at the length of most runs." for sentence in left_out)
        report_data = replace(report_data, excluded=(*report_data.excluded, *longer))
        analysis = analyse(compared, used, law=law, own_laws=own_laws)
        transfer = transfer_of(compared, analysis)
    looks = analysis.looks if analysis else {}
    source = Source(
        report_data,
        place,
        rows,
        used,
        target,
        analysis,
        transfer,
        curve_data(
            rows, report_data.table, used, logs, technique_keys(analysis), looks, analysis.others if analysis else ()
        ),
        heat_map_data(rows, logs),
    )
    return source, logs


def _target(report_data: ReportData, target: str) -> str:
    """As asked; an imported table that lacks it is read by its own first loss, and its section says so."""
    assert report_data.table is not None
    losses = report_data.table.losses
    if target in losses:
        return target
    if report_data.name == OWN:
        hint = nearest_hint(target, losses)
        raise InputError(f"{report_data.source}: no column {target!r}{hint}; the losses are {', '.join(losses)}.")
    return losses[0]


def _page(path: Path, sources: Sequence[Source]) -> str:
    own = [source for source in sources if source.report_data.name == OWN]
    imported = [source for source in sources if source.report_data.name != OWN]
    sections: list[Section] = [section for source in own for section in own_sections(source)]
    rows: list[RunRow] = [row for source in sources for row in source.rows]
    target = sources[0].target
    table = Interactive(
        "runs-table",
        "run-table",
        "Every run",
        "Click on a heading to sort, again to turn the order round; the boxes filter, and words in the text box must "
        "all occur. A run that failed or diverged says why when the mouse rests on it.",
        run_table_data(rows, target),
        links=[(f"runs of {s.report_data.name} (CSV)", s.address("tables", "runs.csv")) for s in sources],
    )
    sections.append(Section("All runs", "runs", [table]))
    sections += [imported_section(source) for source in imported]
    title = "What these runs say about routing"
    lead = f"Runs, laws and routers of {printable(str(path))}."
    footer = "Made by routelaw. The numbers stand in tables/*.csv and the figures in figures/ beside this page."
    return render(title, lead, sections, footer, interactive=True)


def write_report(
    runs: Store | str | Path,
    out: str | Path,
    *,
    force: bool = False,
    law: str | Law | None = None,
    own_laws: Sequence[Law] = (),
    target: str = DEFAULT_TARGET,
    studies: Sequence[str] = (),
) -> dict[str, Any]:
    """Write the report on a store or a table of losses to the folder `out`: index.html, figures/ and tables/.

    Returns its summary: `page` is the file to open, `sources` what was found. `law` is the one selected for the page
    (the simplest that none clearly beats, unless given); `own_laws` join those of the package; `force` replaces files.
    `studies` are those of the paper to judge: "k", "seeds" …; unless given, those whose sweep files the store is of.

    >>> rl.write_report("runs", "report")["page"]
    'report/index.html'
    """
    path = runs.path if isinstance(runs, Store) else Path(runs)
    selected = None if law is None else get_law(law)
    summary: dict[str, Any] = {}
    for step in report_steps(
        path, Path(out), force=force, law=selected, own_laws=own_laws, target=target, studies=studies
    ):
        summary = step.summary
    return summary
