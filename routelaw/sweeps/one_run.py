"""One run from plain settings to a trained model: what `routelaw train` and `routelaw.train` both do."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from routelaw.corpus.shards import Corpus, open_corpus
from routelaw.costs.memory import footprint_of
from routelaw.distributed.ranks import Rank
from routelaw.errors import InputError
from routelaw.routers.router import load_router
from routelaw.runs.folders import check_loss_name
from routelaw.specs.files import from_mapping, gather_tables, run_spec
from routelaw.specs.run import ExecutionSpec, RunSpec, describe
from routelaw.sweeps.chosen_layout import execution_here
from routelaw.sweeps.estimate import memory_check
from routelaw.training.device import resolve_device, resolve_precision
from routelaw.training.run import Progress, Result, check_run, train_run
from routelaw.training.tracking import tracking
from routelaw.training.trained import Run

MEANING = {
    "size": "model.size",
    "sequence_length": "model.sequence_length",
    "router": "router.name",
    "experts": "router.experts",
    "k": "router.k",
    "routing_frequency": "router.routing_frequency",
    "steps": "train.steps",
    "batch": "train.batch",
    "learning_rate": "train.learning_rate",
    "seed": "train.seed",
}
"""Keywords that say what a run is, with the field of the spec that each sets."""
EXECUTION = {
    "device": "execution.device",
    "threads": "execution.threads",
    "micro_batches": "execution.micro_batches",
    "evaluate_every": "execution.evaluate_every",
    "save_every": "execution.save_every",
}
"""Keywords that say how it is carried out."""
STORE = Path("runs")
"""Where a run's folder goes unless it is named."""
_LOG = logging.getLogger("routelaw")


@dataclass(eq=False, repr=False)
class Training:
    """A run that is about to be trained: iterate over it for its progress, call `finish` for the trained run.

    Each item is a `Progress`: `step`, `loss`, `tokens_per_second`, `seconds_left`, and `losses` after an evaluation.
    Leaving the loop is like ending the process: what was trained since the last checkpoint is trained again. `stop`
    leaves a checkpoint first. Either way the same call to `train` continues.

    >>> training = rl.train(corpus="corpus", size="0.05M", steps=3, batch=2, sequence_length=16, out="stopped")
    >>> for progress in training:
    ...     if progress.step == 2:
    ...         training.stop()
    >>> training.result.status, training.result.step
    ('running', 2)
    >>> training.finish().result.status
    'finished'
    """

    spec: RunSpec
    execution: ExecutionSpec
    corpus: Corpus
    folder: Path
    """Where the run lies, or will."""
    others: Mapping[str, Corpus] = field(default_factory=dict)
    """Evaluated beside the validation split."""
    track: str | None = None
    notice: Callable[[str], None] = _LOG.warning
    result: Result | None = None
    """How the last iteration ended; its status is `running` where it was told to stop."""
    _stopping: bool = False

    def __iter__(self) -> Iterator[Progress]:
        self._stopping, self.result = False, None
        steps = train_run(
            self.spec,
            self.execution,
            self.corpus,
            self.folder,
            others=self.others,
            notice=self.notice,
            stop=lambda: self._stopping,
        )
        with closing(steps), tracking(self.track, self.folder, self.spec, self.execution.log_every) as follow:
            while True:
                try:
                    progress = next(steps)
                except StopIteration as end:
                    self.result = end.value
                    return
                follow(progress)
                yield progress

    def stop(self) -> None:
        """End after the step at hand, and leave a checkpoint."""
        self._stopping = True

    def finish(self) -> Run:
        """Train what is left, and open the trained run. One that diverged is opened, too: its result says so."""
        if self.result is None or self.result.status == "running":
            for _ in self:
                pass
        return Run(self.folder)

    def __repr__(self) -> str:
        return f"Training({describe(self.spec)}, {self.spec.train.steps:,} steps, in {self.folder})"


def train(
    spec: RunSpec | str | Path | None = None,
    corpus: Corpus | str | Path | None = None,
    *,
    out: str | Path | None = None,
    size: str | None = None,
    router: str | None = None,
    experts: int | None = None,
    k: int | None = None,
    routing_frequency: float | None = None,
    steps: int | None = None,
    batch: int | None = None,
    sequence_length: int | None = None,
    learning_rate: float | None = None,
    seed: int | None = None,
    device: str | None = None,
    threads: int | None = None,
    micro_batches: int | None = None,
    evaluate_every: int | None = None,
    save_every: int | None = None,
    settings: Mapping[str, Any] | None = None,
    evaluate_on: Mapping[str, str | Path] | None = None,
    track: str | None = None,
    plugins: Sequence[str | Path] = (),
    notice: Callable[[str], None] = _LOG.warning,
) -> Training:
    """Train a dense or routed language model: `rl.train(…).finish()`, or iterate over it for its progress.

    The run is a `RunSpec`, a TOML file with [model], [router], [train] and [execution], or the keywords, which win
    over a file. `settings` sets any other field by its dotted name, as `--set` does on the command line. The run's
    folder is `out`, or runs/<run_id>; a run that was stopped continues from its newest whole checkpoint. Everything is
    checked here, and wrong input raises InputError before anything is written. `notice` hears remarks: a logger,
    unless told otherwise.

    >>> training = rl.train(
    ...     corpus="corpus", size="0.05M", router="switch", experts=2, steps=2, batch=2, sequence_length=16,
    ...     settings={"router.balance_weight": 0.02}, out="my_run",
    ... )
    >>> for progress in training:
    ...     print(f"step {progress.step}: loss {progress.loss:.4f}")
    step 1: loss 5.7...
    step 2: loss 5.7...
    >>> run = training.finish()
    >>> run.spec.router.name, run.result.status
    ('switch', 'finished')
    """
    meaning = {"size": size, "router": router, "experts": experts, "k": k, "routing_frequency": routing_frequency}
    meaning |= {"steps": steps, "batch": batch, "sequence_length": sequence_length, "seed": seed}
    meaning |= {"learning_rate": learning_rate}
    execution = {"device": device, "threads": threads, "micro_batches": micro_batches}
    execution |= {"evaluate_every": evaluate_every, "save_every": save_every}
    for plugin in plugins:
        load_router(Path(plugin))
    given: list[Mapping[str, Any]] = [{EXECUTION[key]: value for key, value in execution.items()}, settings or {}]
    if isinstance(spec, RunSpec):
        _refuse_changes(meaning, settings or {})
        tables = gather_tables(None, *given)
    else:
        tables = gather_tables(
            None if spec is None else Path(spec), {MEANING[key]: value for key, value in meaning.items()}, *given
        )
    named = tables.pop("corpus", None) if corpus is None else corpus
    tables.pop("corpus", None)
    where = "the options" if spec is None or isinstance(spec, RunSpec) else str(spec)
    rank = Rank.here()
    opened = _opened(named, verify=rank.first)
    carried_out = from_mapping(ExecutionSpec, tables.pop("execution", {}), f"{where} [execution]")
    if not isinstance(spec, RunSpec):
        if isinstance(model := tables.setdefault("model", {}), dict):
            model.setdefault("vocabulary", opened.vocabulary)
        spec = run_spec(tables, opened.id, where)
    others = {}
    for name, path in (evaluate_on or {}).items():
        check_loss_name(name, "evaluate_on")
        others[name] = open_corpus(path, verify=rank.first)
    carried_out = execution_here(spec, carried_out, rank)
    check_run(spec, carried_out, {"validation": opened, **others})
    require_memory(spec, carried_out, rank)
    folder = STORE / spec.run_id if out is None else Path(out)
    return Training(spec, carried_out, opened, folder, others, track, notice)


def _refuse_changes(meaning: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """A RunSpec says all of what a run is."""
    changed = [name for name, value in meaning.items() if value is not None]
    changed += [name for name in settings if not name.startswith("execution.")]
    if changed:
        raise InputError(f"{changed[0]} has no effect beside a RunSpec, which says it: change the spec instead.")


def _opened(corpus: Any, verify: bool) -> Corpus:
    """A flipped bit would train another model under the same id, so a corpus is verified when it is opened."""
    if isinstance(corpus, Corpus):
        return corpus
    if not isinstance(corpus, str | Path):
        raise InputError(
            "name a corpus with --corpus; `routelaw corpus build python --out DIR` makes one of any Python."
        )
    return open_corpus(corpus, verify=verify)


def require_memory(spec: RunSpec, execution: ExecutionSpec, rank: Rank) -> None:
    """A run that does not fit is refused now, with the number, and not ended by the system later."""
    device = resolve_device(execution.device)
    gpu = device.type == "cuda"
    precision = str(resolve_precision(execution.precision, device)).removeprefix("torch.")
    footprint = footprint_of(spec, execution, precision, gpu)
    processes = rank.on_this_machine if rank.is_distributed else execution.processes.world
    required = memory_check.required_memory(footprint, gpu, False, memory_check.floor_here())
    available = memory_check.available_memory(gpu, processes, processes)
    if problem := memory_check.memory_error(
        "the run", footprint, required, available, jobs=1, experts=spec.router.experts
    ):
        raise InputError(problem)
