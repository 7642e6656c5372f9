"""From a sweep file to trained runs: read and check it, then train what the store lacks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from routelaw.corpus.shards import Corpus, open_corpus
from routelaw.costs.layouts import choose_layout
from routelaw.errors import InputError
from routelaw.kernels.cpu_bfloat16 import make_safe
from routelaw.routers.router import load_router
from routelaw.runs.locks import dated_ahead, host_of
from routelaw.runs.store import Store
from routelaw.specs.layout import AUTO
from routelaw.specs.run import ExecutionSpec, describe
from routelaw.sweeps import local, ray_cluster
from routelaw.sweeps.chosen_layout import execution_here, named_cluster
from routelaw.sweeps.estimate.sweep_estimate import SweepEstimate, estimate_sweep, too_large
from routelaw.sweeps.local import Machine
from routelaw.sweeps.progress import Event, RunFailed, SweepProgress, Watch, work
from routelaw.sweeps.sweep import PlannedRun, Sweep, read_sweep, smallest_sizes
from routelaw.sweeps.task import Task
from routelaw.training.run import check_run, check_without_corpus

Notice = Callable[[str], None]
_LOG = logging.getLogger("routelaw")


@dataclass(frozen=True)
class Ray:
    """A Ray cluster, and what each process of a run needs of it.

    >>> rl.Ray(cpus=2)
    Ray(address=None, cpus=2, gpus=0.0)
    """

    address: str | None = None
    """One that runs here, or a new one of this machine, unless given."""
    cpus: float = 1.0
    gpus: float = 0.0
    """0.25: four runs share one."""


def load_sweep(
    file: str | Path,
    *,
    corpus: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    plugins: Sequence[str | Path] = (),
    smallest: int | None = None,
    may_lack_corpus: bool = False,
) -> Sweep:
    """Read a sweep file, with everything checked that would otherwise fail when a run's turn comes.

    `settings` (by dotted name) and `corpus` win over everything in the file; `smallest` takes the runs of that many of
    its smallest sizes alone. `plugins` are Python files that register routers: code, so only what you trust. With
    `may_lack_corpus` a corpus need not be there: such a sweep can be priced, and not trained.

    >>> sweep = rl.load_sweep("sweep.toml", settings={"train.seed": 0})
    >>> [run.spec.router.name for run in sweep.runs]
    ['dense', 'hash']
    """

    @cache
    def opened(path: str) -> Corpus | None:
        return None if may_lack_corpus and not Path(path).exists() else open_corpus(path, verify=True)

    for plugin in plugins:
        load_router(Path(plugin))
    overrides = {**(settings or {}), **({} if corpus is None else {"corpus": str(corpus)})}
    sweep = read_sweep(Path(file), overrides=overrides, opened=lambda path: opened(str(path)))
    if smallest is not None:
        sweep = smallest_sizes(sweep, smallest)
    for run in sweep.runs:
        corpora = {"validation": opened(str(run.corpus))}
        corpora |= {name: opened(str(path)) for name, path in run.others.items()}
        there = {name: corpus for name, corpus in corpora.items() if corpus is not None}
        try:
            if "validation" in there:
                check_run(run.spec, run.execution, there)
            else:
                check_without_corpus(run.spec, run.execution)
        except InputError as error:
            raise InputError(f"{file} ({describe(run.spec)}): {error}") from None
    return replace(sweep, plugins=tuple(Path(plugin) for plugin in plugins))


@dataclass(eq=False, repr=False)
class SweepTraining:
    """A sweep that is about to be trained: iterate over it for its progress, call `finish` for the store.

    Each item is a `SweepProgress`: `ended` of `runs`, `share` of the work, `seconds_left`, what is `running`, and the
    `event` that it follows; one comes every half second. Leaving the loop stops the sweep in good order: its workers
    leave checkpoints and end. The same call continues.

    >>> training = rl.run_sweep(rl.load_sweep("sweep.toml"), "runs", jobs=1)
    >>> training.missing  # trained before
    []
    >>> [progress.share for progress in training]
    []
    """

    sweep: Sweep
    store: Store
    machine: Machine
    ray: Ray | None = None
    notice: Notice = _LOG.warning
    failed: dict[str, str] = field(default_factory=dict)
    """Why runs failed, by run id. The others are trained all the same."""

    @property
    def missing(self) -> list[PlannedRun]:
        """The runs that the store does not hold yet."""
        return [run for run in self.sweep.runs if not self.store.ended(run.spec.run_id)]

    def estimate(self, *, measure: bool = False, price: float | None = None) -> SweepEstimate:
        """What it will take: memory, time and, at a `price` of a device for an hour, money. `measure` times a few steps
        of every shape; without, times are rough.

        >>> estimate = training.estimate(price=2.5)
        >>> len(estimate.left), estimate.cost
        (0, 0.0)
        """
        plugins = self.sweep.plugins
        runs, machine = self.sweep.runs, self.machine
        return estimate_sweep(runs, self.store, machine=machine, measure=measure, price=price, plugins=plugins)

    def events(self) -> Generator[Event, None, None]:
        """What happens, as it happens. Longest runs first: the last minutes are then not spent on a single one. Where
        nothing is missing no worker is started."""
        missing = self.missing
        if missing:
            self.store.check_writable()
        if self.sweep.study:
            self.store.record_study(self.sweep.study, self.sweep.source)
        if not missing:
            return _nothing()
        self._refuse_other_names()
        self._report_leases_dated_ahead()
        runs = sorted(missing, key=lambda run: -work(run.spec))
        plugins = self.sweep.plugins
        tasks = [Task.of(run, self.machine.execution(run.execution), self.store, plugins) for run in runs]
        return self._events(tasks)

    def _events(self, tasks: Sequence[Task]) -> Generator[Event, None, None]:
        self.failed.clear()
        if self.ray is None:
            events = local.run_local(tasks, self.store, devices=self.machine.devices, threads=self.machine.threads)
        else:
            ray = self.ray
            events = ray_cluster.run_on_ray(tasks, self.store, address=ray.address, cpus=ray.cpus, gpus=ray.gpus)
        with closing(events):  # pyrefly: ignore
            for event in events:
                if isinstance(event, RunFailed):
                    self.failed[event.run_id] = event.reason
                yield event

    def __iter__(self) -> Iterator[SweepProgress]:
        watching = Watch(self.store, [run.spec for run in self.sweep.runs])
        with closing(self.events()) as events:
            for event in events:
                yield replace(watching.now(), event=event)

    def finish(self) -> Store:
        """Train what is left, and return the store. Runs that failed are in `failed`."""
        for _ in self:
            pass
        return self.store

    def _refuse_other_names(self) -> None:
        """A run that `train --out` put into the store under a name of the user's would be trained a second time."""
        wanted = {run.spec.run_id for run in self.sweep.runs}
        for run in self.store.runs():
            own_folder = run.folder.parent == self.store.path
            if run.run_id in wanted and own_folder and run.folder.name != run.run_id:
                raise InputError(
                    f"{run.folder} holds run {run.run_id} of this sweep under another name: rename it to {run.run_id}, "
                    "or give another --store."
                )

    def _report_leases_dated_ahead(self) -> None:
        """A lease from the future would hold its run for ever; it is taken for lost, which its owner should hear of."""
        for run in self.store.runs():
            if not run.ended and (ahead := dated_ahead(run.folder)):
                host = str(host_of(run.folder)).partition("/")[0]
                self.notice(
                    f"the lease of host {host} on run {run.run_id} is dated {ahead:.0f} s ahead of this file system's "
                    "clock, so its process is taken for lost and the run goes on here."
                )

    def __repr__(self) -> str:
        return f"SweepTraining({len(self.missing)} of {len(self.sweep.runs)} runs of {self.sweep.source} to train)"


def _nothing() -> Generator[Event, None, None]:
    yield from ()


def machine_of(sweep: Sweep, jobs: int | None, ray: Ray | None, notice: Notice) -> Machine:
    """What this machine or the cluster offers to the runs of a sweep."""
    executions = [run.execution for run in sweep.runs]
    machine = Machine.here(executions, jobs) if ray is None else Machine.on_cluster(executions, ray.cpus, ray.gpus)
    if ray is None and machine.device == "cpu" and any(each.precision == "bfloat16" for each in executions):
        make_safe(notice)  # here, so that all workers inherit it
    return machine


def _to_train(sweep: Sweep, ray: Ray | None) -> Sweep:
    """With every layout chosen, on the devices that are there: of a cluster's nodes the file alone says what they
    are."""
    runs = []
    for run in sweep.runs:
        if run.missing:
            raise InputError(f"{run.missing[0]} is not there: build the corpus, or name another with --corpus.")
        try:
            execution = execution_here(run.spec, run.execution) if ray is None else _named(run)
        except InputError as error:
            raise InputError(f"{sweep.source} ({describe(run.spec)}): {error}") from None
        runs.append(replace(run, execution=execution))
    return replace(sweep, runs=tuple(runs))


def _named(run: PlannedRun) -> ExecutionSpec:
    if run.execution.layout != AUTO:
        return run.execution
    return choose_layout(run.spec, run.execution, named_cluster(run.execution))


def run_sweep(
    sweep: Sweep,
    store: Store | str | Path = "runs",
    *,
    jobs: int | None = None,
    ray: Ray | None = None,
    notice: Notice = _LOG.warning,
) -> SweepTraining:
    """Train every run of a sweep that the store does not hold yet: `rl.run_sweep(…).finish()`, or iterate over it.

    `jobs` is the number of runs at a time, one per GPU or core unless given; `ray` sends them to a Ray cluster instead.
    A run that does not fit into memory raises InputError before any is started. Stop it, kill it, start it twice: no
    run is trained twice and none is lost.

    >>> store = rl.run_sweep(rl.load_sweep("sweep.toml"), "runs", jobs=1).finish()
    >>> sorted(store.table().routers)
    ['dense', 'hash']
    """
    store = store if isinstance(store, Store) else Store(store)
    sweep = _to_train(sweep, ray)
    machine = machine_of(sweep, jobs, ray, notice)
    training = SweepTraining(sweep, store, machine, ray, notice)
    # What a cluster's nodes have is known to them alone.
    if ray is None and (problem := too_large(training.estimate())):
        raise InputError(problem)
    return training
