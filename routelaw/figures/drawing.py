"""Drawing figures of a run table into a folder: which, of which variants and loss, and what could not be drawn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from routelaw.errors import InputError
from routelaw.figures import all_figures
from routelaw.figures.figure import CannotDraw, Figure
from routelaw.figures.selection import comparable, relative_notes, what_is_drawn, with_target, with_variants
from routelaw.fitting.points import check_one_source
from routelaw.runs.files import read_runs
from routelaw.runs.store import Store
from routelaw.runs.table import RunTable
from routelaw.runs.variants import parts_of, variant_of
from routelaw.specs.names import canonical_router, nearest_hint
from routelaw.whole_folder import whole_folder

KINDS = ("svg", "png")


@dataclass(frozen=True)
class FigureStep:
    """One figure tried. The last one carries the summary."""

    done: int
    total: int
    what: str
    summary: dict[str, Any] = field(default_factory=dict)


def named_figures(names: Sequence[str]) -> list[Figure]:
    """The figures of these names, all of them for no name."""
    known = {figure.name: figure for figure in all_figures()}
    for name in names:
        if name not in known:
            raise InputError(
                f"there is no figure {name!r}{nearest_hint(name, known)}; `routelaw figures --list` has all."
            )
    return [known[name] for name in dict.fromkeys(names or known)]


def try_to_draw(figure: Figure, table: RunTable, folder: Path) -> str:
    """Write NAME.svg and NAME.png; returns the sentence that says why that is not possible, else nothing."""
    try:
        figure.save(table, folder)
    except (CannotDraw, InputError) as error:
        return str(error).removeprefix(f"{table.source}: ")
    return ""


def with_choices(table: RunTable, target: str | None = None, variants: Mapping[str, str] | None = None) -> RunTable:
    """The table with this loss as its main one and these variants for usual, by router."""
    check_one_source(table)
    if target is not None:
        if target not in table.losses:
            hint = nearest_hint(target, table.losses)
            raise InputError(f"{table.source}: no loss {target!r}{hint}; the losses are {', '.join(table.losses)}.")
        table = with_target(table, target)
    if not variants:
        return table
    chosen = {}
    for router, variant in variants.items():
        name = canonical_router(router)
        if name not in table.routers:
            hint, there = nearest_hint(name, table.routers), ", ".join(table.routers)
            raise InputError(f"{table.source}: no run of router {router!r}{hint}; the table has {there}.")
        there = [str(v) for v in table.frame["variant"][table.frame["router"] == name].unique()]
        if variant_of(parts_of(variant)) not in map(variant_of, map(parts_of, there)):
            hint, known = nearest_hint(variant, there), "; ".join(repr(v) for v in there[:6])
            more = f" and {len(there) - 6} more" if len(there) > 6 else ""
            raise InputError(f"{table.source}: no run of {name} has variant {variant!r}{hint}; there is {known}{more}.")
        chosen[name] = variant
    return with_variants(table, chosen)


def figure_steps(
    runs: RunTable | Store | str | Path,
    out: Path,
    names: Sequence[str] = (),
    *,
    target: str | None = None,
    variants: Mapping[str, str] | None = None,
    force: bool = False,
) -> Iterator[FigureStep]:
    """Draw into `out`, telling after each figure how far it is. Named figures must be drawn; of all of them those that
    can be. The files appear together at the end, or none."""
    figures = named_figures(names)
    table = with_choices(_table_of(runs), target, variants)
    not_drawn: dict[str, str] = {}
    with whole_folder(out, lambda folder: _check_free(folder, figures, force), merge=True) as folder:
        for done, figure in enumerate(figures):
            yield FigureStep(done, len(figures), figure.name)
            if sentence := try_to_draw(figure, table, folder):
                if names:
                    raise InputError(f"{table.source}: figure {figure.name} cannot be drawn: {sentence}")
                not_drawn[figure.name] = sentence
        if len(not_drawn) == len(figures):
            raise InputError(f"{table.source}: no figure can be drawn; {figures[0].name}: {not_drawn[figures[0].name]}")
    yield FigureStep(len(figures), len(figures), "done", _summary(table, out, figures, not_drawn))


def _table_of(runs: RunTable | Store | str | Path) -> RunTable:
    if isinstance(runs, RunTable):
        return runs
    return runs.table() if isinstance(runs, Store) else read_runs(runs)


def _check_free(folder: Path, figures: Sequence[Figure], force: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: this is a file; name a folder.")
    there = [name for figure in figures for kind in KINDS if (folder / (name := f"{figure.name}.{kind}")).exists()]
    if there and not force:
        raise InputError(f"{folder / there[0]}: the file exists; choose another folder or pass --force to replace it.")


def _summary(table: RunTable, out: Path, figures: Sequence[Figure], not_drawn: Mapping[str, str]) -> dict[str, Any]:
    drawn = [figure for figure in figures if figure.name not in not_drawn]
    return {
        "source": table.source,
        "target": table.losses[0],
        "taken": [*relative_notes(table), *what_is_drawn(table)],
        "drawn": {
            f.name: {
                "title": f.title,
                "paper": f.paper,
                "caption": f.caption,
                "files": [str(Path(out) / f"{f.name}.{kind}") for kind in KINDS],
            }
            for f in drawn
        },
        "not_drawn": dict(not_drawn),
        "notes": [*comparable(table).warnings],
    }


def draw_figures(
    runs: RunTable | Store | str | Path,
    out: str | Path,
    names: Sequence[str] = (),
    *,
    target: str | None = None,
    variants: Mapping[str, str] | None = None,
    force: bool = False,
) -> dict[str, Any]:
    """Draw figures of the paper from any runs: NAME.svg and NAME.png in the folder `out`.

    Without `names` all that the runs allow. Returns a summary: what was `drawn`, with captions; what was `not_drawn`,
    with the sentence that says what is missing; what was `taken` of the table. `target` is a loss_… column; `variants`
    maps a router to the variant to draw, by default its most frequent one; `force` replaces files that exist.

    >>> summary = rl.draw_figures("losses.csv", "figures", ["joint_curves"])
    >>> summary["drawn"]["joint_curves"]["files"]
    ['figures/joint_curves.svg', 'figures/joint_curves.png']
    """
    summary: dict[str, Any] = {}
    for step in figure_steps(runs, Path(out), names, target=target, variants=variants, force=force):
        summary = step.summary
    return summary
