"""The numerical proof of the fast paths: they train as the plain ones do, to the same gradients, and wait for nothing.

    python -m benchmarks.gpu_proof [--quick] [--parts steady gradients curves] [--corpus FOLDER] [--experts 8]

What its three parts measure is said in descriptions.md; the fast paths, and what is plain of each, in proof_paths.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path

import numpy as np
import torch

from benchmarks import proof_comparisons as comparisons
from benchmarks import proof_paths as paths
from benchmarks.script import run
from routelaw.bench.clock import CUDA, DEVICE, here, reason, wait
from routelaw.bench.models import graphs_made, waits
from routelaw.bench.results import Row, row
from routelaw.specs.run import ModelSpec, RouterSpec, RunSpec, TrainSpec
from routelaw.specs.sizes import get_size
from routelaw.training.compiling import WARM_UP
from routelaw.training.device import release
from routelaw.training.loop import on_device
from routelaw.training.step import take_step

WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy")
COPY = "Memcpy DtoH"
POSITIONS = ("rope", "xl")
EXPERTS = 8
"""What is proved of models with others has their number beside its name."""


@dataclass(frozen=True)
class Options:
    parts: tuple[str, ...] = ("steady", "gradients", "curves")
    corpus: Path | None = None
    """Folder of a corpus; a Markov chain where there is none."""
    size: str = "3M"
    routers: tuple[str, ...] = ("s-base", "switch")
    """Routers of the curves; the other two parts have their own."""
    gradients: tuple[str, ...] = ("hash", "s-base", "switch", "rl-r")
    steady: tuple[str, ...] = ("dense", "s-base", "switch", "rl-r", "hash")
    positions: str = "xl"
    """Positions of the curves."""
    without: tuple[str, ...] = tuple(paths.WITHOUT)
    """Fast paths to leave out in the curves."""
    options: tuple[str, ...] = tuple(paths.WITH)
    """Options to take up there."""
    float32: bool = True
    """A curve of that, too."""
    experts: int = EXPERTS
    seeds: int = 3
    steps: int = 300
    after: int = 50
    """Steps of training before gradients are compared."""
    sequences: int = 32
    length: int = 512
    rate: float = 1e-3
    vocabulary: int = 8192
    """Tokens of the Markov chain; a corpus brings its own."""

    @cached_property
    def text(self) -> tuple[comparisons.Batches, int, str]:
        return comparisons.text_batches(self.corpus, self.sequences, self.length, self.vocabulary)

    def spec(self, router: str, positions: str, steps: int = 1000) -> RunSpec:
        return RunSpec(
            ModelSpec(get_size(self.size), self.text[1], self.length, positions),
            RouterSpec() if router == "dense" else RouterSpec(router, self.experts),
            TrainSpec(steps=steps, batch=self.sequences, learning_rate=self.rate),
            corpus="proof",
        )


QUICK = {
    "size": "0.05M", "sequences": 4, "length": 32, "vocabulary": 100, "steps": 6, "after": 2, "seeds": 2, "experts": 4,
}  # fmt: skip


def prove_curves(options: Options) -> Iterator[Row]:
    for router in options.routers:
        without = {f"without {name}": paths.WITHOUT[name] for name in options.without if taken_by(router, name)}
        relative = {name: without.pop(name) for name in (f"without {paths.RELATIVE}",) if name in without}
        with_ = {f"with {name}": paths.WITH[name] for name in options.options if taken_by(router, name)}
        ways = {options.positions: without | with_}
        ways["xl"] = ways.get("xl", {}) | relative
        for positions, others in ways.items():
            if others:
                yield from beside(others, options.spec(router, positions, options.steps), options)


def taken_by(router: str, path: str) -> bool:
    """Whether a model with this router takes the path at all."""
    absent = {
        "sinkhorn kernel": router != "s-base",
        "grouped product": router == "dense",
        paths.NARROW: router in ("dense", "hash"),
        paths.DISPATCH: router == "dense",
        paths.FEW_ROWS: router == "dense",
    }
    return not absent.get(path, False)


def beside(others: dict[str, paths.Way], spec: RunSpec, options: Options) -> Iterator[Row]:
    what = f"curves {spec.router.name} {spec.model.positions}"

    def trained(way: paths.Way) -> tuple[np.ndarray, dict[str, float]]:
        """Its curves, where they end, and the most memory it took."""
        if CUDA:
            torch.cuda.reset_peak_memory_stats()
        curve_SN = comparisons.curves(way, spec, options.text[0], options.seeds)
        peak = {"peak_mib": torch.cuda.max_memory_allocated() / 2**20} if CUDA else {}
        return curve_SN, {"last": curve_SN[:, -20:].mean(), **peak}

    def from_float32(curve_SN: np.ndarray) -> dict[str, float]:
        return {} if wide_SN is None else {"from float32": comparisons.signed_most(wide_SN, curve_SN)}

    try:
        reference_SN, ends = trained(paths.FAST)
    except Exception as error:
        yield row(f"{what} reference", {}, {"last": reason(error)})
        return
    wide_SN = None
    if options.float32:
        try:
            wide_SN, last = trained(paths.WIDE)
            yield row(f"{what} in float32", {"last": last["last"]})
        except Exception as error:
            yield row(f"{what} in float32", {}, {"last": reason(error)})
    yield row(f"{what} reference", {"first": reference_SN[:, 0].mean()} | ends | from_float32(reference_SN))
    for name, way in others.items():
        try:
            other_SN, ends = trained(way)
        except Exception as error:
            yield row(f"{what} {name}", {}, {"ratio": reason(error)})
            continue
        found = comparisons.curve_difference(reference_SN, other_SN)
        figures = {key: getattr(found, key) for key in ("difference", "spread", "ratio", "within")}
        blind = {"blind": True} if name == f"without {paths.RELATIVE}" and options.corpus is None else {}
        yield row(f"{what} {name}", figures | ends | from_float32(other_SN) | blind)


def prove_gradients(options: Options) -> Iterator[Row]:
    batches = options.text[0]
    for positions, router in product(POSITIONS, options.gradients):
        what = f"gradients {router} {positions}"
        try:
            torch._dynamo.reset()
            spec = options.spec(router, positions)
            model = paths.FAST.model(spec, 0)
            optimizer = paths.FAST.optimizer(model)
            for step in range(options.after):
                take_step(model, optimizer, on_device(batches(0, step), DEVICE), spec, step)
            fast, plain = comparisons.compared(model, on_device(batches(0, options.after), DEVICE), options.after)
        except Exception as error:
            yield row(what, {}, {"whole": reason(error)})
            continue
        figures = {}
        for suffix, errors in (("", fast), ("_plain", plain)):
            worst = max(errors.by_name.values())
            figures |= {f"whole{suffix}": errors.whole, f"share_within{suffix}": errors.share_within}
            figures |= {f"worst{suffix}": worst}
        figures |= {"most_over_plain": comparisons.most_over(fast, plain), "within": fast.whole <= comparisons.LIMIT}
        yield row(what, figures | {"every parameter within": figures["worst"] <= comparisons.LIMIT})


def prove_steady(options: Options) -> Iterator[Row]:
    ways = {"every kernel": paths.EVERY_KERNEL, **({"recorded": paths.FAST} if CUDA else {})}
    for positions, router in product(POSITIONS, options.steady):
        torch._dynamo.reset()
        for name, way in ways.items():
            what = f"steady {router} {positions} {name}"
            try:
                yield row(what, steady(way, options.spec(router, positions), options.text[0]))
            except Exception as error:
                yield row(what, {}, {"graphs": reason(error)})


def steady(
    way: paths.Way, spec: RunSpec, batches: comparisons.Batches, warm: int = WARM_UP + 2, counted: int = 10
) -> dict[str, int]:
    """Counts of the real loop, batches from the host included, between its first steps and what ends the profile."""
    before = graphs_made()
    model = way.model(spec, 0)
    take = way.taker(model, way.optimizer(model))
    fed = [batches(0, step) for step in range(warm + counted + 1)]

    def steps(first: int, last: int) -> None:
        for step in range(first, last):
            take(on_device(fed[step], DEVICE), step)

    steps(0, warm)
    wait()
    graphs = graphs_made()
    activities = [torch.profiler.ProfilerActivity.CPU, *([torch.profiler.ProfilerActivity.CUDA] if CUDA else [])]
    with torch.profiler.profile(activities=activities) as profile:
        with torch.profiler.record_function("counted steps"):
            steps(warm, warm + counted)
        wait()  # after the span: it is not counted
    events = profile.events()
    host = torch.autograd.DeviceType.CPU  # the device has a span of that name, too, which ends later
    (span,) = (e.time_range for e in events if e.name == "counted steps" and e.device_type == host)
    inside = Counter(e.name for e in events if e.name in WAITS and span.start <= e.time_range.start < span.end)
    copies = sum(COPY in e.name for e in events)  # by the device's clock, which runs behind the host
    asked = len(waits(lambda: steps(warm + counted, warm + counted + 1), "a step"))
    found = {"graphs": graphs - before, "graphs_later": graphs_made() - graphs}
    found |= {"copies_to_host": copies, "waits_refused": asked}
    return found | {name: inside[name] for name in WAITS} | {"steps": counted}


PARTS = {"steady": prove_steady, "gradients": prove_gradients, "curves": prove_curves}


def rows(options: Options) -> Iterator[Row]:
    experts = "" if options.experts == EXPERTS else f" E={options.experts}"
    for part in options.parts:
        for found in PARTS[part](options):
            yield found if "dense" in found.name.split() else replace(found, name=found.name + experts)
            release()


def data(options: Options) -> str:
    return f"{options.size}, E = {options.experts}, {options.text[2]}"


if __name__ == "__main__":
    run("gpu_proof", __doc__, Options, rows, data, quick=QUICK, device=here)
