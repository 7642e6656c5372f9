"""`routelaw demo`: the whole loop, small: text → tokens → thirty trained models → laws → a page to look at."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from routelaw.cli.output import note

if TYPE_CHECKING:
    from routelaw.runs.store import Store
    from routelaw.runs.table import RunTable

VOCABULARY = 512
VALIDATION = 0.02


def demo(
    out: Annotated[str, typer.Option(metavar="PATH", help="Folder for corpus, runs and page.")] = "out/demo",
    jobs: Annotated[int | None, typer.Option(help="Runs at a time; one per core unless given.")] = None,
) -> None:
    """Train thirty tiny models on the text of your Python installation, fit laws, and write a page about it.

    A few minutes on two cores. Stopped, it continues when the same command is given again.
    """
    from routelaw.errors import InputError
    from routelaw.sweeps.local import check_jobs

    check_jobs(jobs)  # before the work of minutes
    if not out:
        raise InputError("--out is empty; name a folder.")
    _demonstrate(Path(out), jobs)


def _demonstrate(out: Path, jobs: int | None) -> None:
    from routelaw.cli.output import show
    from routelaw.errors import InputError
    from routelaw.runs.store import Store

    if out.exists() and not out.is_dir():
        raise InputError(f"{out}: this is a file; name a folder.")
    show(f"1. The corpus: the library of your Python, as tokens in {out / 'corpus'}")
    _corpus(out / "corpus")
    show(f"2. The sweep: {_sweep_file(out)}: three sizes, dense and three routers, E = 2, 8, 32")
    store = Store(out / "runs")
    _train(out / "sweep.toml", store, jobs)
    summary = _report(store.path, out / "report")
    show(_losses(store.table()))
    show("3. " + _law(summary))
    show("4. " + _learned(summary))
    show("   " + _scale(store.table()))
    show(f"5. The page, with everything else: {out / 'report' / 'index.html'}")
    show("", "Next:")
    show("   your own corpus:  routelaw corpus build my_texts/ --out my_corpus")
    show("   your own router:  routelaw sweep my_sweep.toml --plugin my_router.py   (docs/extending.md shows one)")
    show("   your own losses:  routelaw report my_losses.csv --out my_report")


def _corpus(path: Path) -> None:
    """Once; one that lies there whole is used again."""
    from routelaw.cli.corpus import build
    from routelaw.corpus.shards import open_corpus
    from routelaw.errors import InputError

    try:
        open_corpus(path, verify=True)
    except InputError:
        build(["python"], path, vocabulary=VOCABULARY, validation=VALIDATION, force=True)


def _sweep_file(out: Path) -> Path:
    """A copy to read and to change; one that was changed is kept."""
    from routelaw.files import write_atomically

    file = out / "sweep.toml"
    if not file.exists():
        write_atomically(Path(__file__).with_name("demo.toml").read_bytes(), file)
    return file


def _train(file: Path, store: Store, jobs: int | None) -> None:
    from routelaw.cli.sweep import SOME_FAILED, note_what_is_there, show_end, watch
    from routelaw.sweeps.run_sweep import load_sweep, run_sweep

    training = run_sweep(load_sweep(file), store, jobs=jobs, notice=note)
    note_what_is_there(training)
    if failed := watch(training.events(), training.sweep, store, quiet=False):
        show_end(training.sweep, store, failed)
        raise typer.Exit(SOME_FAILED)


def _report(store: Path, out: Path) -> dict[str, Any]:
    from routelaw.cli.output import followed
    from routelaw.report.runs.report import report_steps

    return followed(report_steps(store, out, force=True))["sources"]["own"]


def _losses(table: RunTable) -> Any:
    """One row per size and router, one column per E."""
    from routelaw.cli.output import table as grid
    from routelaw.specs.names import DENSE

    last = table.frame.sort_values("step", kind="stable").groupby("run_id", sort=False).tail(1)
    experts = sorted(set(last["experts"]) - {1})
    made = grid("Validation loss (nats per token)", "size", "router", "dense", *(f"E = {e}" for e in experts))
    dense = last[last["router"] == DENSE].set_index("size")["loss_validation"].to_dict()
    routed = last[last["router"] != DENSE].sort_values("active_params", kind="stable")
    for (size, router), rows in routed.groupby(["size", "router"], sort=False):
        losses = rows.set_index("experts")["loss_validation"]
        cells = [f"{losses[e]:.3f}" if e in losses else "–" for e in experts]
        made.add_row(str(size), str(router), f"{dense[size]:.3f}" if size in dense else "–", *cells)
    return made


def _scale(table: RunTable) -> str:
    """Where that holds, and what the paper found at its own scale."""
    from routelaw.report.runs.summary import scale_sentence

    last = table.frame.groupby("run_id", sort=False).tail(1)
    here = scale_sentence(list(zip(last["active_params"], last["tokens"], strict=True)))
    return (
        f"{here} On the paper's own losses (15M to 1.3B parameters, 130B tokens) S-BASE is the best at 42 of the 51 "
        "sizes and E that its three techniques share, RL-R at 9 and HASH at none: learned routing takes longer to pay."
    )


def _law(summary: dict[str, Any]) -> str:
    """The selected law, on the router that did best, with its parameters."""
    from routelaw.cli.output import number, span
    from routelaw.laws import get_law

    if not summary.get("fits"):
        return f"No law could be fitted: {next(iter(summary.get('no_law', {}).values()), 'too few runs.')}"
    router = next(name for name in summary["order"] if name in summary["fits"])
    fit = summary["fits"][router]
    known = fit["intervals"]
    params = ", ".join(
        f"{p} {number(v)} {span(*known[p]) if p in known else ''}".strip() for p, v in fit["params"].items()
    )
    error = fit["rmsle"]["leave_size_out"]
    unseen = f"; it misses sizes it has not seen by {10**error - 1:.1%} of the loss" if error is not None else ""
    return f"The law ({fit['law']}) for {router}: {get_law(fit['law']).formula}, with {params}{unseen}."


def _learned(summary: dict[str, Any]) -> str:
    """One sentence: did routing help, which router did best, and how sure that is."""
    names, best = summary["techniques"], summary["order"][0]
    gains = [_gain(size, gain) for size, gain in summary["best_gain"][best].items()]
    others = [pair for pair in summary["pairwise"] if best in (pair["first"], pair["second"])]
    clear = sum(pair["verdict"] == "clearly" for pair in others)
    sure = (
        "clearly ahead of the others" if clear == len(others) else f"clearly ahead of {clear} of {len(others)} others"
    )
    against = ", ".join(gains)
    return f"Learned: {names[best]} did best here, {sure}; against dense models of its size its loss is {against}."


def _gain(size: str, gain: float) -> str:
    return f"{abs(gain):.1%} {'lower' if gain > 0 else 'higher'} at {size}"
