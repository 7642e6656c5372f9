"""`routelaw eval`: what trained runs make of other texts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from routelaw.cli.output import note

if TYPE_CHECKING:
    from routelaw.evaluation.measure import Trial
    from routelaw.training.store_evaluation import Evaluated, Texts

SPEC = "spec.json"
"""Every folder of a run has one."""
SOME_FAILED = 1


def evaluate(
    runs: Annotated[
        Path,
        typer.Argument(
            metavar="STORE|RUN",
            help="A store, of which every finished run is evaluated, or the folder of a run, whose newest checkpoint "
            "is.",
            show_default=False,
        ),
    ],
    on: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=PATH",
            help="A corpus, measured as by `train --evaluate-on`, or text (.txt, .jsonl, also .gz, .xz, .zst; "
            ".parquet). A name that begins with lambada asks for the last word of each passage, unless it ends in "
            "_text.",
        ),
    ],
    stride: Annotated[
        int | None,
        typer.Option(
            help="Tokens from the start of one window to that of the next; half a sequence unless given. Of a corpus: "
            "all of its held-out text."
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="At most so many documents or passages of each; a corpus is then read as text is."),
    ] = None,
    documents: Annotated[
        str | None,
        typer.Option(
            help="A document of a .txt ends at a line of only <|endoftext|> (separator, the default), "
            "or is a line (the default for lambada), or a file.",
            show_default=False,
        ),
    ] = None,
    key: Annotated[str, typer.Option(help="Key or column that holds the text of a record.")] = "text",
    errors: Annotated[str, typer.Option(help="Invalid UTF-8: strict stops, replace reads it as U+FFFD.")] = "strict",
    replace: Annotated[
        bool,
        typer.Option(
            "--replace", help="In a store: measure all runs again where NAME was another text or had other options."
        ),
    ] = False,
    jobs: Annotated[
        int | None, typer.Option(min=1, max=256, help="In a store: runs evaluated at a time.", show_default="1")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    threads: Annotated[
        int, typer.Option(min=0, max=1024, help="CPU threads of a process; 0: all, shared by the jobs.")
    ] = 0,
    plugin: Annotated[
        list[Path] | None, typer.Option(help="The file that registers the runs' router. Code, so only what you trust.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of tables.")] = False,
) -> None:
    """Measure nats per token, bits per byte and perplexity of texts, the accuracy on LAMBADA, and the load of experts.

    Results become the columns loss_NAME, bpb_NAME (bits per byte) and, for LAMBADA, acc_NAME of the run table. What a
    store has already is not measured again. Exit code 1: some runs could not be evaluated.
    """
    from routelaw.cli.options import named_paths, refuse_without_effect
    from routelaw.errors import InputError
    from routelaw.evaluation.measure import is_last_word
    from routelaw.training.device import resolve_device
    from routelaw.training.store_evaluation import Texts

    paths = named_paths(on, "--on")
    missing = [path for path in paths.values() if not path.exists()]
    if missing:
        raise InputError(f"{missing[0]}: there is no such file or folder.")
    if stride is not None and all(map(is_last_word, paths)):
        raise InputError("--stride has no effect where the last word of each passage is all that is measured.")
    if stride is not None and stride < 1:
        raise InputError(f"--stride must be at least 1 token, not {stride}.")
    resolve_device(device)
    texts = Texts(paths, stride, limit, documents, key, errors)
    if (runs / SPEC).exists():
        refuse_without_effect(
            {"--replace": replace or None, "--jobs": jobs}, "on a single run, which is always measured"
        )
        _evaluate_run(runs, texts, device, threads, plugin or [], as_json)
    else:
        _evaluate_store(runs, texts, device, jobs or 1, threads, plugin or [], replace, as_json)


def _evaluate_run(folder: Path, texts: Texts, device: str, threads: int, plugins: list[Path], as_json: bool) -> None:
    import torch

    from routelaw.cli.output import print_json
    from routelaw.evaluation.measure import is_last_word
    from routelaw.routers.router import load_router
    from routelaw.training.trained import Run

    for file in plugins:
        load_router(file)
    if threads:
        torch.set_num_threads(threads)
    opened = Run(folder, device, notice=note)
    trials = []
    for name, path in texts.paths.items():
        stride = None if is_last_word(name) else texts.stride
        trials.append(opened.evaluate(path, name=name, stride=stride, record=False, **texts.reading))
    opened.record(trials)  # once all are known
    run_id, step = opened.spec.run_id, opened.trained.step
    if as_json:
        results = {trial.name: trial.as_dict() for trial in trials}
        print_json({"run_id": run_id, "step": step, "results": results})
    else:
        _show(run_id, step, trials)


def _evaluate_store(
    path: Path,
    texts: Texts,
    device: str,
    jobs: int,
    threads: int,
    plugins: list[Path],
    replace: bool,
    as_json: bool,
) -> None:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

    from routelaw.cli.output import print_json, progress, say
    from routelaw.errors import InputError
    from routelaw.runs.store import Store
    from routelaw.training.store_evaluation import evaluate_store, plan_evaluation

    plan = plan_evaluation(Store(path), texts, device=device, replace=replace)
    for sentence in plan.skipped:
        note(sentence)
    if plan.there:
        note(f"{plan.there} of {plan.finished * len(texts.paths)} results are there already, and not measured again.")
    failed, measured = dict(plan.damaged), {}
    for run_id, problem in failed.items():
        note(f"run {run_id} is not evaluated: {problem}", "warning")
    columns = (TextColumn("evaluating"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with progress(*columns, quiet=as_json) as bar:
        shown = bar.add_task("", total=len(plan.tasks))
        for nth, done in enumerate(evaluate_store(plan, jobs=jobs, threads=threads, plugins=plugins), start=1):
            bar.update(shown, completed=nth)
            for sentence in done.notices:
                note(sentence)
            if done.problem:
                failed[done.task.run_id] = done.problem
                note(f"run {done.task.run_id} is not evaluated: {done.problem}", "warning")
                continue
            measured[done.task.run_id] = {trial.name: trial.as_dict() for trial in done.trials}
            if not as_json:
                say(f"[{nth}/{len(plan.tasks)}] {_line(done)}")
    if failed and not measured and not plan.there:
        raise InputError(next(iter(failed.values())))
    if as_json:
        print_json(
            {"store": str(path), "there": plan.there, "skipped": plan.skipped, "failed": failed, "runs": measured}
        )
    else:
        names = ", ".join(f"loss_{name}" for name in texts.paths)
        left = f"; {len(failed)} could not be evaluated" if failed else ""
        done = plan.finished + len(plan.damaged) - len(failed)
        say(f"{done} finished runs in {path} have {names}{left}.")
    if failed:
        raise typer.Exit(SOME_FAILED)


def _line(done: Evaluated) -> str:
    from routelaw.runs.store import StoredRun
    from routelaw.specs.run import describe

    parts = []
    for trial in done.trials:
        accuracy = "" if trial.accuracy is None else f" (accuracy {trial.accuracy:.1%})"
        parts.append(f"{trial.name} {trial.nats_per_token:.4f}{accuracy}")
    return f"{describe(StoredRun(done.task.run_id, done.task.folder).spec)}: {', '.join(parts)}"


def _show(run_id: str, step: int, trials: list[Trial]) -> None:
    from routelaw.cli.output import show, table

    made = table(
        f"{run_id} after {step:,} steps", "text", "tokens", "nats per token", "bits per byte", "perplexity", "accuracy"
    )
    for trial in trials:
        figures = trial.figures
        made.add_row(
            trial.name,
            f"{trial.tokens:,}",
            *(_cell(figures.get(key)) for key in ("nats_per_token", "bits_per_byte", "perplexity", "accuracy")),
        )
    show(made)
    loads = table("", "load, as a multiple of an even one", "block", "least used", "most used", "experts unused")
    for trial in trials:
        for block, shares in trial.load.items():
            even = [share * len(shares) for share in shares]
            loads.add_row(
                trial.name, str(block), f"{min(even):.2f}", f"{max(even):.2f}", str(sum(not s for s in shares))
            )
    if loads.row_count:
        show(loads)


def _cell(value: Any) -> str:
    return "–" if value is None else f"{value:.4g}" if value < 1e6 else f"{value:.3e}"
