"""The numerical proof of the fast paths: they train as the plain ones do, to the same gradients, and wait for nothing.

    python benchmarks/gpu_proof.py [--quick] [--parts steady gradients curves] [--corpus FOLDER] [--experts 8]

Parts, on a model of about 3M with E = 8, unless a row has another, and sequences of 512:
- curves: 300 steps of three seeds, with all fast paths, without each, and with each option that saves memory or kernel
  that only models of many experts use (proof_paths.py). Verdict: the largest difference of the smoothed mean curves
  over the standard deviation between the seeds of the reference, which is the one above it in the table; 1 or less
  passes. Beside it the most memory it took and, unless --no-float32, how far each is from a plain float32 run, below 0
  where its loss is less: the most along the curve.
- gradients: of one step in bfloat16 after some training, against float64 with the same decisions. Target 1e-2, of the
  whole gradient and of every parameter; what plain eager bfloat16 is off by stands beside it, and the most that a
  parameter's error is of its plain one.
- steady: in ten steps after the first ones, graphs compiled, waits for the device and copies to the host: none; of
  steps that are recorded as CUDA graphs, and of those that launch every kernel.

Text is a corpus of `routelaw corpus build`, or a fixed Markov chain. In the chain a token depends on the one before
alone, so attention has nothing to learn and curves do not tell if it is wrong: a small model without any came within
0.43 of the spread. Such a verdict on relative attention is marked `blind`; gradients do tell. Appends one line to
results.jsonl.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import ledger
import numpy as np
import torch
from budget import bounded
from ledger import rounded
from proof_curves import Batches, Verdict, curves, signed_most, text_batches, verdict
from proof_gradients import LIMIT, compared, most_over
from proof_paths import DISPATCH, EVERY_KERNEL, FAST, FEW_ROWS, NARROW, RELATIVE, WIDE, WITH, WITHOUT, Way

from routelaw.bench.clock import CUDA, DEVICE, here, wait
from routelaw.bench.models import graphs_made, waits
from routelaw.specs.run import ModelSpec, RouterSpec, RunSpec, TrainSpec
from routelaw.specs.sizes import get_size
from routelaw.training.compiling import WARM_UP
from routelaw.training.device import release
from routelaw.training.loop import on_device
from routelaw.training.step import take_step

WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy")
COPY = "Memcpy DtoH"
POSITIONS = ("rope", "xl")
Found = tuple[str, dict[str, Any]]
"""What was proved, and its figures."""

EXPERTS = 8
"""What is proved of models with others has its number beside its name."""


def spec_of(router: str, positions: str, steps: int, options: argparse.Namespace) -> RunSpec:
    return RunSpec(
        ModelSpec(get_size(options.size), options.vocabulary, options.length, positions),
        RouterSpec() if router == "dense" else RouterSpec(router, options.experts),
        TrainSpec(steps=steps, batch=options.sequences, learning_rate=options.rate),
        corpus="proof",
    )


def prove_curves(batches: Batches, options: argparse.Namespace) -> Iterator[Found]:
    for router in options.routers:
        without = {f"without {name}": WITHOUT[name] for name in options.without if taken_by(router, name)}
        relative = {name: without.pop(name) for name in (f"without {RELATIVE}",) if name in without}
        ways = {
            options.positions: without
            | {f"with {name}": WITH[name] for name in options.options if taken_by(router, name)}
        }
        ways["xl"] = ways.get("xl", {}) | relative
        for positions, others in ways.items():
            if others:
                yield from beside(others, spec_of(router, positions, options.steps, options), batches, options)


def taken_by(router: str, path: str) -> bool:
    """Whether a model with this router takes the path at all."""
    absent = {
        "sinkhorn kernel": router != "s-base",
        "grouped product": router == "dense",
        NARROW: router in ("dense", "hash"),
        DISPATCH: router == "dense",
        FEW_ROWS: router == "dense",
    }
    return not absent.get(path, False)


def beside(others: dict[str, Way], spec: RunSpec, batches: Batches, options: argparse.Namespace) -> Iterator[Found]:
    what = f"curves {spec.router.name} {spec.model.positions}"

    def trained(name: str, way: Way) -> tuple[np.ndarray | None, float]:
        """Its curves and the most memory in MiB, unless it fails."""
        try:
            if CUDA:
                torch.cuda.reset_peak_memory_stats()
            found_SN = curves(way, spec, batches, options.seeds)
        except Exception as error:
            print(f"{what} {name} failed: {_words(error)}", flush=True)
            return None, float("nan")
        return found_SN, torch.cuda.max_memory_allocated() / 2**20 if CUDA else float("nan")

    reference_SN, peak = trained("reference", FAST)
    if reference_SN is None:
        return
    wide_SN = trained("in float32", WIDE)[0] if options.float32 else None

    def ends(curve_SN: np.ndarray, peak: float) -> dict[str, Any]:
        last = {"last": rounded(curve_SN[:, -20:].mean()), **({"peak_mib": rounded(peak)} if CUDA else {})}
        return last | ({} if wide_SN is None else {"from float32": rounded(signed_most(wide_SN, curve_SN))})

    yield f"{what} reference", {"first": rounded(reference_SN[:, 0].mean()), **ends(reference_SN, peak)}
    if wide_SN is not None:
        yield f"{what} in float32", {"last": rounded(wide_SN[:, -20:].mean())}
    for name, way in others.items():
        other_SN, peak = trained(name, way)
        if other_SN is None:
            continue
        found: Verdict = verdict(reference_SN, other_SN)
        figures: dict[str, Any] = {key: rounded(getattr(found, key)) for key in ("difference", "spread", "ratio")}
        figures |= {"within": found.within, **ends(other_SN, peak)}
        if name == f"without {RELATIVE}" and options.corpus is None:
            figures["blind"] = True
        yield f"{what} {name}", figures


def prove_gradients(batches: Batches, options: argparse.Namespace) -> Iterator[Found]:
    for positions, router in product(POSITIONS, options.gradients):
        what = f"gradients {router} {positions}"
        try:
            torch._dynamo.reset()
            spec = spec_of(router, positions, 1000, options)
            model = FAST.model(spec, 0)
            optimizer = FAST.optimizer(model)
            for step in range(options.after):
                take_step(model, optimizer, on_device(batches(0, step), DEVICE), spec, step)
            fast, plain = compared(model, on_device(batches(0, options.after), DEVICE), options.after)
        except Exception as error:
            print(f"{what} failed: {_words(error)}", flush=True)
            continue
        yield (
            what,
            {
                "whole": rounded(fast.whole),
                "whole_plain": rounded(plain.whole),
                "share_within": rounded(fast.share_within),
                "share_within_plain": rounded(plain.share_within),
                "worst": rounded(max(fast.by_name.values())),
                "worst_plain": rounded(max(plain.by_name.values())),
                "most_over_plain": rounded(most_over(fast, plain)),
                "within": fast.whole <= LIMIT,
                "every parameter within": max(fast.by_name.values()) <= LIMIT,
            },
        )


def prove_steady(batches: Batches, options: argparse.Namespace) -> Iterator[Found]:
    ways = {"every kernel": EVERY_KERNEL, **({"recorded": FAST} if CUDA else {})}
    for positions, router in product(POSITIONS, options.steady):
        torch._dynamo.reset()
        for name, way in ways.items():
            what = f"steady {router} {positions} {name}"
            try:
                yield what, steady(way, spec_of(router, positions, 1000, options), batches)
            except Exception as error:
                print(f"{what} failed: {_words(error)}", flush=True)


def steady(way: Way, spec: RunSpec, batches: Batches, warm: int = WARM_UP + 2, counted: int = 10) -> dict[str, int]:
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


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip()[:400]}"


PARTS = {"steady": prove_steady, "gradients": prove_gradients, "curves": prove_curves}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="tiny models, to see that it works; leaves no line")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--corpus", type=Path, help="folder of a corpus; a Markov chain where there is none")
    parser.add_argument("--size", default="3M")
    parser.add_argument("--routers", nargs="+", default=["s-base", "switch"], help="of the curves")
    parser.add_argument(
        "--gradients", nargs="+", default=["hash", "s-base", "switch", "rl-r"], help="routers of that part"
    )
    parser.add_argument("--steady", nargs="+", default=["dense", "s-base", "switch", "rl-r", "hash"])
    parser.add_argument("--positions", default="xl", choices=POSITIONS, help="of the curves")
    parser.add_argument("--without", nargs="*", default=list(WITHOUT), choices=list(WITHOUT), help="in the curves")
    parser.add_argument("--options", nargs="*", default=list(WITH), choices=list(WITH), help="to take up there")
    parser.add_argument("--float32", action=argparse.BooleanOptionalAction, default=True, help="a curve of that, too")
    parser.add_argument("--experts", type=int, default=EXPERTS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--after", type=int, default=50, help="steps of training before gradients are compared")
    parser.add_argument("--sequences", type=int, default=32)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--vocabulary", type=int, default=8192, help="of the Markov chain; a corpus brings its own")
    parser.add_argument("--budget-s", type=float, default=540.0, help="everything ends after this many seconds")
    options = parser.parse_args()
    if options.quick:
        options.size, options.sequences, options.length, options.vocabulary = "0.05M", 4, 32, 100
        options.steps, options.after, options.seeds, options.experts = 6, 2, 2, 4
    figures: dict[str, dict[str, Any]] = {}
    experts = "" if options.experts == EXPERTS else f" E={options.experts}"
    batches, options.vocabulary, data = text_batches(
        options.corpus, options.sequences, options.length, options.vocabulary
    )
    with bounded(options.budget_s):
        for part in options.parts:
            for what, found in PARTS[part](batches, options):
                name = what if "dense" in what.split() else what + experts
                print(name, found, flush=True)
                figures[name] = found
                release()
    if not options.quick:
        flat = {f"{what}/{key}": value for what, found in figures.items() for key, value in found.items()}
        ledger.append("gpu_proof", f"{options.size}, E = {options.experts}, {data}", flat, str(here()))


if __name__ == "__main__":
    main()
