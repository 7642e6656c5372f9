"""One run from spec to result, in its own directory: train, evaluate, log, checkpoint, resume.

What is wrong with a run is found before anything is written: of its spec, its corpora, and how it is carried out.
Sinkhorn, exact assignment, capacity and the balance loss act on groups of tokens fixed by the spec, so that any split
of a batch into micro-batches or devices computes the same thing. (The shuffle that deals tokens out anew in every layer
is `StepContext.members_of`, and across processes distributed/exchange.py.)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from routelaw.corpus.batches import batch, validation_windows
from routelaw.corpus.manifest import VALIDATION
from routelaw.corpus.shards import Corpus
from routelaw.costs.step_time import known_device
from routelaw.distributed.groups import check_world, device_of, process_groups
from routelaw.distributed.ranks import Rank
from routelaw.distributed.watchdog import watched
from routelaw.errors import InputError
from routelaw.evaluation.corpora import evaluate_corpus
from routelaw.evaluation.likelihood import Likelihood
from routelaw.evaluation.measure import check_whole_texts
from routelaw.evaluation.texts import held_out
from routelaw.model.transformer import Transformer
from routelaw.routers.router import check_router, router_class
from routelaw.specs.layout import AUTO, Layout, check_choice, check_layout
from routelaw.specs.run import ExecutionSpec, RunSpec, TrainSpec
from routelaw.training.compiling import COMPILE_MODES, resolve_compile_mode, uncompiled
from routelaw.training.device import MOST_THREADS, device_name, prepare, resolve_device, resolve_precision, settings
from routelaw.training.folder import RunFolder, evaluation_row, finite, losses_of
from routelaw.training.loop import train_steps
from routelaw.training.state import OPTIMIZER_STATE_DTYPES, RUNNING, TrainState
from routelaw.training.step import StepInfo


def check_run(spec: RunSpec, execution: ExecutionSpec, corpora: Mapping[str, Corpus]) -> None:
    """What would fail later, after something was written, fails here."""
    corpus, length = corpora[VALIDATION], spec.model.sequence_length
    if corpus.id != spec.corpus:
        raise InputError(f"{corpus.path} is corpus {corpus.id[:12]}, and the run was specified on {spec.corpus[:12]}.")
    if corpus.vocabulary > spec.model.vocabulary:
        raise InputError(
            f"{corpus.path} has a vocabulary of {corpus.vocabulary}, more than the model's {spec.model.vocabulary}: "
            f"give --set model.vocabulary={corpus.vocabulary}."
        )
    if not corpus.validation.documents:
        raise InputError(
            f"{corpus.path} holds no text out, so a validation loss would be one of training: "
            "build it with --validation above 0."
        )
    check_whole_texts(name for name in corpora if name != VALIDATION)
    check_without_corpus(spec, execution)
    batch(corpus, "train", spec.train.seed, 0, spec.train.batch, length)
    for each in corpora.values():
        split = held_out(each, corpus.manifest.tokenizer.sha256).name
        next(validation_windows(each, length, 1, tokens=1, split=split))


def check_without_corpus(spec: RunSpec, execution: ExecutionSpec) -> None:
    """What can be wrong with a run whatever its corpus. Where its layout is still to be chosen, all but that."""
    check_choice(execution)
    if execution.device_kind is not None:
        known_device(execution.device_kind)
    if not spec.train.warmup_steps and spec.train.start_rate != TrainSpec(steps=1).start_rate:
        raise InputError("train.start_rate has no effect, since there are no warm-up steps: leave it out.")
    if not 0 <= execution.threads <= MOST_THREADS:
        raise InputError(
            f"execution.threads must lie between 0 (torch's choice) and {MOST_THREADS}, not {execution.threads}."
        )
    if execution.hang_timeout < 1:
        raise InputError(f"execution.hang_timeout must be at least 1 second, not {execution.hang_timeout:g}.")
    for name in ("evaluate_every", "evaluate_tokens", "log_every", "save_every"):
        if getattr(execution, name) < 1:
            raise InputError(f"execution.{name} must be at least 1, not {getattr(execution, name)}.")
    if execution.keep < 0:
        raise InputError(f"execution.keep must be 0 (none of a run that has ended) or more, not {execution.keep}.")
    if execution.compile not in COMPILE_MODES:
        raise InputError(f"execution.compile is one of {', '.join(COMPILE_MODES)}, not {execution.compile!r}.")
    if execution.optimizer_state_dtype not in OPTIMIZER_STATE_DTYPES:
        known = ", ".join(OPTIMIZER_STATE_DTYPES)
        raise InputError(f"execution.optimizer_state_dtype is one of {known}, not {execution.optimizer_state_dtype!r}.")
    if spec.routed_blocks:
        check_router(spec)
    if execution.layout == AUTO:
        return
    if execution.device == "cpu" or execution.processes.world > 1 or execution.precision == "float64":
        require_float32_moments(execution)
    check_split(spec, execution.micro_batches, execution.processes)


def require_float32_moments(execution: ExecutionSpec) -> None:
    if execution.optimizer_state_dtype != "float32":
        raise InputError(
            f"execution.optimizer_state_dtype = {execution.optimizer_state_dtype!r} is for runs of one GPU; "
            "leave it 'float32' here."
        )


def check_split(spec: RunSpec, micro_batches: int, layout: Layout | None = None) -> None:
    """Each process holds whole sequences of a micro-batch, and whole groups where groups matter."""
    router = spec.router
    # A router may decide token by token (`uses_groups = False`); without capacity its groups then matter to nobody.
    uses_groups = spec.routed_blocks and (router.capacity_factor > 0 or router_class(router.name).uses_groups)
    check_layout(spec, layout or Layout(), micro_batches, bool(uses_groups))


@dataclass(frozen=True)
class Result:
    run_id: str
    status: str
    """finished or diverged; running where it was told to stop."""
    step: int
    loss_validation: float | None
    skipped: int
    """Steps without a finite loss and gradient: they updated nothing."""
    seconds: float = field(compare=False)
    """Seconds of training, evaluation and saving, in all processes that worked on it, as far as their work was kept."""


@dataclass(frozen=True)
class Progress:
    """What an observer sees after each step, or on a GPU after those whose outcome is read."""

    info: StepInfo
    spec: RunSpec
    tokens_per_second: float
    """Since this process began, evaluation and saving included."""
    seconds_left: float
    seconds: float
    """Since the run began, by whichever processes."""
    losses: dict[str, float | None] | None
    """The losses of an evaluation after this step, if there was one."""

    @property
    def step(self) -> int:
        return self.info.step

    @property
    def loss(self) -> float:
        """Loss of this step's batch, in nats per token."""
        return self.info.loss


def run(
    spec: RunSpec,
    execution: ExecutionSpec,
    corpus: Corpus,
    folder: Path,
    *,
    others: Mapping[str, Corpus] | None = None,
    observe: Callable[[Progress], None] = lambda _: None,
    notice: Callable[[str], None] = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> Result:
    """Train to the end of the spec: `train_run`, whose steps `observe` hears of."""
    with closing(train_run(spec, execution, corpus, folder, others=others, notice=notice, stop=stop)) as steps:
        while True:
            try:
                progress = next(steps)
            except StopIteration as end:
                return end.value
            observe(progress)


def train_run(
    spec: RunSpec,
    execution: ExecutionSpec,
    corpus: Corpus,
    folder: Path,
    *,
    others: Mapping[str, Corpus] | None = None,
    notice: Callable[[str], None] = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> Generator[Progress, None, Result]:
    """Train to the end of the spec, from wherever the folder stands, or until `stop` says so: then a checkpoint is
    left. Yields after each step and returns the result. `others` are evaluated beside the validation split. Wrong
    input is refused before anything is written; a generator that is closed leaves what a killed process would."""
    rank, corpora = Rank.here(), {VALIDATION: corpus, **(others or {})}
    check_run(spec, execution, corpora)
    check_world(execution.processes, rank)
    device = device_of(rank, resolve_device(execution.device))
    dtype = resolve_precision(execution.precision, device)
    way = resolve_compile_mode(spec, execution, device, dtype)
    if device.type != "cuda" or rank.is_distributed or dtype == torch.float64:
        require_float32_moments(execution)
    files = RunFolder(folder, writes=rank.first)
    notice = notice if rank.first else _unheard
    prepare(device, dtype, notice)
    # In this order: a folder that another process trains in is refused before anything is joined, and the watchdog runs
    # before the first collective in which a process could be waited for.
    with (
        files.claimed(),
        settings(execution, device),
        watched(rank, execution.hang_timeout) as moved,
        process_groups(execution.processes, device, execution.hang_timeout) as (parallel, meshes),
    ):
        files.identify(spec, corpus)
        files.require_resumable()
        state = TrainState.start(spec, corpus, device, dtype, execution, way, parallel, meshes)
        state.resume(files.checkpoints, notice)
        files.cut_after(state.step, notice)  # rows of steps that will be taken again
        for progress in run_steps(state, execution, corpora, files, device, moved, graphed=way == "step"):
            yield progress
            if state.status == RUNNING and parallel.any_says(stop(), device):
                files.flush()  # first: a checkpoint must not know of rows that a power cut may take
                state.save(files.checkpoints, execution.keep)
                break
        result = Result(
            spec.run_id, state.status, state.step, state.loss_validation, state.skipped, files.seconds_logged()
        )
        if state.status != RUNNING:
            files.write_result({**asdict(result), **asdict(spec.counts), **_executed(execution, device, dtype, way)})
            if not execution.keep:
                files.drop_checkpoints()
    return result


def _executed(execution: ExecutionSpec, device: torch.device, dtype: torch.dtype, way: str) -> dict[str, Any]:
    """What its time is to be read with."""
    return {
        "device": device_name(device),
        "precision": str(dtype).removeprefix("torch."),
        "micro_batches": execution.micro_batches,
        "layout": execution.processes.name,
        "compile": way,
        "recompute": execution.recompute,
        "optimizer_state_dtype": execution.optimizer_state_dtype,
    }


def _unheard(_sentence: str) -> None:
    """Drop the message: what several processes would report is reported by the first."""


def run_steps(
    state: TrainState,
    execution: ExecutionSpec,
    corpora: Mapping[str, Corpus],
    files: RunFolder,
    device: torch.device,
    moved: Callable[[str], None] = _unheard,
    graphed: bool = False,
) -> Iterator[Progress]:
    """Step, evaluate, log, save, as often as asked and at the end; `moved` hears what comes next. `graphed`: as CUDA
    graphs."""
    if state.status != RUNNING:
        return
    spec, pace = state.spec, _Pace(state, files.seconds_logged())
    steps = train_steps(
        state.model,
        state.optimizer,
        corpora[VALIDATION],
        spec,
        first=state.step,
        micro_batches=execution.micro_batches,
        device=device,
        look=_looks(execution, state.optimizer.skips_on_device),
        graphed=graphed,
    )
    moved(f"step {state.step + 1}")
    for info in steps:
        state.record(info)
        losses = None
        # Evaluated before it is saved: the checkpoint holds the loss, so that a run resumed at its end has one.
        if _due(state, execution.evaluate_every):
            moved(f"evaluation after step {state.step}")
            measured = evaluate(state.model, corpora, execution.evaluate_tokens, device)
            losses = losses_of(measured)
            state.record_loss(losses[f"loss_{VALIDATION}"])
            row = evaluation_row(spec, state.step, state.status, measured, corpora, execution.evaluate_tokens)
            files.evaluations.append(row)
            files.loads.append({"step": state.step, "load": {name: m.load for name, m in measured.items()}})
        progress = Progress(info, spec, *pace.now(state), losses)
        if _due(state, execution.log_every) or info.skipped or any(info.earlier) or state.step == 1:
            files.log.append(finite(_log_row(progress)))
        if _due(state, execution.save_every) and (execution.keep or state.status == RUNNING):
            moved(f"saving after step {state.step}")
            files.flush()
            state.save(files.checkpoints, execution.keep)
        moved(f"step {state.step + 1}")
        yield progress
        if state.status != RUNNING:
            return


def _log_row(progress: Progress) -> dict[str, Any]:
    row = asdict(progress.info)
    before = sum(row.pop("earlier"))
    row |= {"skipped_before": before} if before else {}
    return row | {"tokens_per_second": progress.tokens_per_second, "seconds": progress.seconds}


def _looks(execution: ExecutionSpec, ahead: bool) -> Callable[[int], bool]:
    """After which steps their outcome is read: where the host can be ahead of its device, when something is due."""
    every = (execution.log_every, execution.evaluate_every, execution.save_every)
    return lambda step: not ahead or step == 1 or any(step % n == 0 for n in every)


def _due(state: TrainState, every: int) -> bool:
    return state.status != RUNNING or state.step % every == 0


class _Pace:
    def __init__(self, state: TrainState, seconds_before: float) -> None:
        self.begun, self.first, self.seconds_before = time.perf_counter(), state.step, seconds_before

    def now(self, state: TrainState) -> tuple[float, float, float]:
        """Tokens per second, seconds left, and seconds since the run began."""
        seconds, taken = max(time.perf_counter() - self.begun, 1e-9), state.step - self.first
        left = state.spec.train.steps - state.step if state.status == RUNNING else 0
        return state.spec.tokens_after(taken) / seconds, left * seconds / taken, self.seconds_before + seconds


def evaluate(
    model: Transformer, corpora: Mapping[str, Corpus], tokens: int, device: torch.device
) -> dict[str, Likelihood]:
    """Each corpus, at most so many of its tokens (`evaluate_corpus`)."""
    tokenizer = corpora[VALIDATION].manifest.tokenizer.sha256
    with uncompiled(model):
        return {name: evaluate_corpus(model, corpus, tokenizer, tokens, device) for name, corpus in corpora.items()}
