"""`routelaw train`: one run, from a spec to a result; give the same command again to continue."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from routelaw.cli.output import note

if TYPE_CHECKING:
    from routelaw.specs.run import ExecutionSpec
    from routelaw.sweeps.one_run import Training
    from routelaw.training.run import Progress, Result


DIVERGED = 3
"""Exit code of a run that diverged, so that a script need not read its result."""
INTERRUPTED, TERMINATED = 130, 143
"""Exit codes of a run that Ctrl-C or SIGTERM stopped: 128 and the signal's number, as a shell has it."""


def train(
    corpus: Annotated[Path | None, typer.Option(help="A corpus made by `routelaw corpus build`.")] = None,
    spec: Annotated[
        Path | None, typer.Option(help="A TOML file with [model], [router], [train], [execution]; options win over it.")
    ] = None,
    size: Annotated[str | None, typer.Option(help="A model size by name.")] = None,
    router: Annotated[str | None, typer.Option(help="dense, s-base, rl-r, hash, switch or base.")] = None,
    experts: Annotated[int | None, typer.Option(help="E: experts in each routed block.")] = None,
    k: Annotated[int | None, typer.Option(help="K: experts that a token visits.")] = None,
    routing_frequency: Annotated[float | None, typer.Option(help="R: share of the blocks that is routed.")] = None,
    steps: Annotated[int | None, typer.Option(help="Optimiser steps.")] = None,
    batch: Annotated[int | None, typer.Option(help="Sequences per step.")] = None,
    sequence_length: Annotated[int | None, typer.Option(help="Tokens in a sequence.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Peak of the learning rate.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything drawn.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Any other field: router.capacity_factor=0 (repeatable).")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder; runs/<run_id> unless given.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda.")] = None,
    threads: Annotated[int | None, typer.Option(help="CPU threads; torch's choice unless given.")] = None,
    micro_batches: Annotated[int | None, typer.Option(help="Forward passes that a batch is split into.")] = None,
    data: Annotated[int | None, typer.Option(help="Processes that share the batch (data parallel).")] = None,
    expert: Annotated[int | None, typer.Option(help="Processes that share experts and batch.")] = None,
    tensor: Annotated[int | None, typer.Option(help="Processes that share heads and hidden units.")] = None,
    evaluate_every: Annotated[int | None, typer.Option(help="Steps between evaluations.")] = None,
    save_every: Annotated[int | None, typer.Option(help="Steps between checkpoints.")] = None,
    evaluate_on: Annotated[
        list[str] | None, typer.Option(metavar="NAME=CORPUS", help="Evaluate on this corpus, too (repeatable).")
    ] = None,
    track: Annotated[str | None, typer.Option(help="tensorboard or wandb, beside the run's own log.")] = None,
    plugin: Annotated[
        list[Path] | None, typer.Option(help="A Python file that registers a router. Code, so only what you trust.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Nothing but one JSON object at the end.")] = False,
) -> None:
    """Train a dense or routed language model. A run that was stopped continues from its newest whole checkpoint.

    SIGTERM, as a batch system sends it, leaves a checkpoint after the step at hand. The exit code is 3 when the run
    diverged.
    """
    from routelaw.cli.options import named_paths, settings_of
    from routelaw.cli.output import print_json
    from routelaw.distributed.groups import check_world
    from routelaw.distributed.ranks import Rank, exit_with_parent, report_error_once
    from routelaw.sweeps import one_run

    settings = {"execution.data": data, "execution.expert": expert, "execution.tensor": tensor}
    settings |= settings_of(set_ or [])
    rank = Rank.here()
    exit_with_parent()
    with report_error_once(rank):
        training = one_run.train(
            spec,
            corpus,
            out=out,
            size=size,
            router=router,
            experts=experts,
            k=k,
            routing_frequency=routing_frequency,
            steps=steps,
            batch=batch,
            sequence_length=sequence_length,
            learning_rate=learning_rate,
            seed=seed,
            device=device,
            threads=threads,
            micro_batches=micro_batches,
            evaluate_every=evaluate_every,
            save_every=save_every,
            settings=settings,
            evaluate_on=named_paths(evaluate_on or [], "--evaluate-on"),
            track=track if rank.first else None,
            plugins=plugin or [],
            notice=note,
        )
        execution, folder = training.execution, training.folder
        if rank.is_distributed:
            check_world(execution.processes, rank)
        if execution.processes.world > 1 and not rank.is_distributed:
            raise typer.Exit(_launched(execution, folder))
        quiet = as_json or not rank.first
        if not quiet:
            _show_derived(training)
        with _sigterm() as asked_to_stop:
            result = _trained(training, asked_to_stop, quiet=quiet)
    if not rank.first:
        return
    if as_json:
        print_json({key: getattr(result, key) for key in ("run_id", "status", "step", "loss_validation")})
    else:
        _show_result(result, folder)
    if result.status == "diverged":
        raise typer.Exit(DIVERGED)
    if result.status == "running":
        note(f"stopped by SIGTERM; the same command continues after step {result.step}, whose checkpoint is written.")
        if not rank.is_distributed:  # whoever started several processes asked them to stop, and knows
            raise typer.Exit(TERMINATED)


@contextmanager
def _sigterm() -> Iterator[Callable[[], bool]]:
    """Whether SIGTERM has arrived, which no longer ends the process. Nor does a second one: a batch system may send one
    to every process of a run, and whoever started them another."""
    arrived = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda _number, _frame: arrived.set())
    try:
        yield arrived.is_set
    finally:
        signal.signal(signal.SIGTERM, before)


def _launched(execution: ExecutionSpec, folder: Path) -> int:
    """The same command in as many processes as the layout has; its exit code."""
    import sys

    from routelaw.distributed.launch import launch
    from routelaw.distributed.ranks import WRONG_INPUT
    from routelaw.distributed.watchdog import EXIT_HANG
    from routelaw.errors import LOST_CONTACT

    command = [sys.executable, "-m", "routelaw", *sys.argv[1:]]
    with _sigterm() as asked_to_stop:
        try:
            ended = launch(command, execution.processes.world, threads=execution.threads, stop=asked_to_stop)
        except KeyboardInterrupt:
            return INTERRUPTED
        if ended.well and asked_to_stop():
            return TERMINATED
    if ended.code < 0 or ended.code not in (0, WRONG_INPUT, DIVERGED, EXIT_HANG, LOST_CONTACT, INTERRUPTED):
        note(f"{ended.reason}, so the run has ended.", "error")
    if ended.code < 0 or ended.code in (EXIT_HANG, LOST_CONTACT):
        note(f"the same command goes on from the last checkpoint in {folder}.")
    return 128 - ended.code if ended.code < 0 else ended.code


def _trained(training: Training, asked_to_stop: Callable[[], bool], *, quiet: bool) -> Result:
    """Follow it with a live line on stderr; losses of evaluations stay on the screen."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

    from routelaw.cli.output import progress
    from routelaw.distributed.ranks import Rank

    columns = (MofNCompleteColumn(), BarColumn(bar_width=20), TextColumn("{task.fields[line]}", markup=False))
    with progress(*columns, quiet=quiet) as bar:
        task = bar.add_task("", total=training.spec.train.steps, line="")
        try:
            for seen in training:
                bar.update(task, completed=seen.step, line=_line(seen))
                if seen.losses and not quiet:
                    losses = ", ".join(f"{key} {_loss(value)}" for key, value in seen.losses.items())
                    bar.console.print(f"step {seen.step}: {losses}", highlight=False, markup=False)
                if asked_to_stop():
                    training.stop()
        except KeyboardInterrupt:
            if not Rank.here().first:
                raise typer.Exit(INTERRUPTED) from None
            note(f"stopped; the same command continues from the last checkpoint in {training.folder}.")
            raise typer.Exit(INTERRUPTED) from None
    assert training.result is not None
    return training.result


def _line(seen: Progress) -> str:
    from datetime import timedelta

    info = seen.info
    left = timedelta(seconds=round(seen.seconds_left))
    dropped = f", {info.dropped:.1%} dropped" if info.layers else ""
    skipped = ", skipped" if info.skipped or any(info.earlier) else ""
    return f"loss {info.loss:.4f}, {seen.tokens_per_second:,.0f} tokens/s{dropped}{skipped}, {left} left"


def _loss(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4f}"


def _show_derived(training: Training) -> None:
    from routelaw.cli.output import show
    from routelaw.costs.memory import footprint_of
    from routelaw.formatting import byte_size
    from routelaw.training.device import resolve_device, resolve_precision
    from routelaw.training.optimizer import warmup_steps

    spec, execution = training.spec, training.execution
    corpus_tokens = max(len(training.corpus.train.tokens), 1)
    counts, architecture, train = spec.counts, spec.model.architecture, spec.train
    tokens = spec.tokens_after(train.steps)
    layout = execution.processes
    device = resolve_device(execution.device)
    precision = str(resolve_precision(execution.precision, device)).removeprefix("torch.")
    required = footprint_of(spec, execution, precision, device.type == "cuda")
    routed = ", ".join(map(str, spec.routed_blocks)) or "none"
    groups = f", in groups of {spec.group_tokens:,} tokens" if spec.routed_blocks else ""
    show(
        f"run {spec.run_id} in {training.folder}",
        f"  model     {architecture.blocks} blocks of width {architecture.d_model}, {architecture.heads} heads of "
        f"{architecture.kv_size}, vocabulary {spec.model.vocabulary:,}, sequences of {spec.model.sequence_length:,}",
        f"  router    {spec.router.name}, {spec.router.experts} experts; routed blocks: {routed}{groups}",
        f"  counts    N {counts.active_params:,} active and P {counts.total_params:,} total parameters, "
        f"F {counts.flops_per_token:,} FLOPs per token",
        f"  training  {train.steps:,} steps of {train.batch:,} sequences: {tokens:,} tokens, "
        f"{tokens / corpus_tokens:.2f} times the corpus; "
        f"warm-up of {warmup_steps(train):,} steps to {train.learning_rate:g}",
        f"  devices   {'one' if layout.world == 1 else f'{layout.world} as {layout}'}, {precision}; on each about "
        f"{byte_size(required.total)}: parameters {byte_size(required.parameters)}, optimiser "
        f"{byte_size(required.masters + required.optimizer)}, "
        f"activations {byte_size(required.activations + required.logits)}, evaluation {byte_size(required.evaluation)}",
    )


def _show_result(result: Result, folder: Path) -> None:
    from routelaw.cli.output import show

    skipped = f", {result.skipped} steps skipped" if result.skipped else ""
    loss = _loss(result.loss_validation)
    show(f"{result.status} after {result.step:,} steps: loss_validation {loss}{skipped} ({folder})")
