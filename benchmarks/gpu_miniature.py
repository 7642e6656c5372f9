"""Miniature models side by side on one GPU: tokens per second of all of them together, and how soon a run begins.

    python benchmarks/gpu_miniature.py [--quick] [--sizes 0.8M 3M 8M 20M] [--routers dense s-base hash]
        [--processes 1 2 4 8] [--sequences 64] [--seconds 4] [--mps] [--only-mixed] [--budget-s 540]

Every process trains a model of its own on random tokens, 64 × 512 a step, as runs of experiments/miniature do: rotary
positions, a vocabulary of 8,192, the real optimiser, blocks compiled, steps recorded as CUDA graphs, bfloat16. All
begin together and stop after the same time. Target: 4M tokens/s in total. The baseline is one process of the same
shape. Compile caches are shared and empty at first: `cold_s` is from the start of the first process of a shape to the
end of its first step, `warm_s` that of the second, alone (`warm_imported_s` and `warm_built_s` say how much of it went
before the step), and `next_s` that of another run in the first process, as a sweep's worker takes one after another,
until its step is recorded (up to commit 66c457a to the end of its first step); target under ten seconds.
Of several sizes there is `mixed`, too: one process of each, all at once, as a sweep over sizes has them. `4/…` are of
four processes together: `slowest` is the least rate of one of them, `begun_s` when the last had taken its first step,
`mib` the memory of all (up to commit 66c457a of one).
`--mps` lets kernels of several processes run at once, where the driver has that service; else they take turns. Appends
one line.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from budget import bounded

TARGET, SOON = 4e6, 10.0
AHEAD = 3
"""Steps that the host may be ahead of the device: enough to keep it busy, few enough that all stop together."""


def train(options: argparse.Namespace) -> None:
    """One process: build, take the first step, say so, wait for the others, train for a while."""
    import torch

    from routelaw.bench.clock import CUDA, DEVICE, DTYPE, wait
    from routelaw.model.transformer import Transformer
    from routelaw.specs.run import ModelSpec, RouterSpec, RunSpec, TrainSpec
    from routelaw.specs.sizes import get_size
    from routelaw.training.compiling import WARM_UP, GraphedStep, compile_blocks
    from routelaw.training.device import release
    from routelaw.training.optimizer import Optimizer
    from routelaw.training.step import take_step

    torch.set_num_threads(1)
    found = {"imported_s": time.time() - options.spawned}
    router = RouterSpec() if options.router == "dense" else RouterSpec(options.router, options.experts)
    spec = RunSpec(
        ModelSpec(get_size(options.size), options.vocabulary, options.length, options.positions),
        router,
        TrainSpec(steps=10**6, batch=options.sequences),
        corpus="random tokens",
    )

    def made() -> Callable[..., Any]:
        model = Transformer(spec).to(DEVICE, DTYPE)
        optimizer = Optimizer(model, spec.train)
        if not CUDA:
            return partial(take_step, model, optimizer, spec=spec)
        compile_blocks(model)
        return GraphedStep(model, optimizer, spec)

    take = made()
    tokens_BS = torch.randint(options.vocabulary, (options.sequences, options.length + 1), device=DEVICE)
    wait()
    found["built_s"] = time.time() - options.spawned
    take(tokens_BS, step=0)
    wait()
    found["begun_s"] = time.time() - options.spawned
    first = WARM_UP + 2  # the recording is over
    for step in range(1, first):
        take(tokens_BS, step=step)
    wait()
    own = options.meeting / str(options.number)
    own.with_suffix(".ready").touch()
    while not (options.meeting / "go").exists():
        time.sleep(0.002)
    taken, begin = 0, time.perf_counter()
    behind = deque()
    while time.perf_counter() - begin < options.seconds:
        take(tokens_BS, step=first + taken)
        taken += 1
        if CUDA:
            behind.append(torch.cuda.current_stream().record_event())
            if len(behind) > AHEAD:
                behind.popleft().synchronize()
    wait()
    seconds = time.perf_counter() - begin
    found |= {"tokens": taken * options.sequences * options.length, "seconds": seconds}
    found["peak_mib"] = torch.cuda.max_memory_reserved() / 2**20 if CUDA else float("nan")
    if options.alone:
        del take
        release()
        again = time.perf_counter()
        take = made()
        for step in range(first):
            take(tokens_BS, step=step)
        wait()
        found["next_s"] = time.perf_counter() - again
    unfinished = own.with_suffix(".partial")
    unfinished.write_text(json.dumps(found))
    unfinished.rename(own.with_suffix(".json"))


def together(shapes: list[list[str]], seconds: float, caches: Path) -> list[dict[str, float]]:
    """What a process of each shape found; all are ended if one fails, or this is interrupted."""
    meeting = Path(tempfile.mkdtemp(dir=caches))
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"), "OMP_NUM_THREADS": "1"}
    environment |= {"TRITON_CACHE_DIR": str(caches / "triton"), "TORCHINDUCTOR_COMPILE_THREADS": "4"}
    children = []
    for number, shape in enumerate(shapes):
        own = ["--child", "--number", str(number), "--meeting", str(meeting), "--seconds", str(seconds)]
        own += ["--alone"] if len(shapes) == 1 else []
        command = [sys.executable, __file__, *own, "--spawned", str(time.time()), *shape]
        log = (meeting / f"{number}.log").open("w")
        children.append(subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT))
        log.close()
    try:
        _await(children, meeting, "ready")
        (meeting / "go").touch()
        _await(children, meeting, "json")
        for child in children:
            child.wait()
        return [json.loads((meeting / f"{number}.json").read_text()) for number in range(len(shapes))]
    finally:
        for child in children:
            child.kill()
            child.wait()


def _await(children: list[subprocess.Popen[bytes]], meeting: Path, what: str) -> None:
    while any(not (meeting / f"{number}.{what}").exists() for number in range(len(children))):
        for number, child in enumerate(children):
            if child.poll() not in (None, 0):
                lines = (meeting / f"{number}.log").read_text().strip().splitlines()
                raise RuntimeError(f"process {number} ended with {child.returncode}: {' | '.join(lines[-3:])[-400:]}")
        time.sleep(0.02)


@contextmanager
def service(wanted: bool, folder: Path) -> Iterator[bool]:
    """NVIDIA's multi-process service, of our own and only while we measure; whether it runs."""
    control = shutil.which("nvidia-cuda-mps-control") if wanted else None
    if control is None:
        if wanted:
            print("no nvidia-cuda-mps-control here: processes take turns", flush=True)
        yield False
        return
    folders = ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")
    for name in folders:
        os.environ[name] = str(folder / name.lower())
        Path(os.environ[name]).mkdir()
    begun = subprocess.run([control, "-d"], check=False).returncode == 0
    try:
        yield begun
    finally:
        if begun:
            subprocess.run([control], input="quit\n", text=True, check=False, timeout=30)
        for name in folders:
            del os.environ[name]


def shape_of(size: str, router: str, options: argparse.Namespace) -> list[str]:
    shape = ["--size", size, "--router", router]
    for name in ("sequences", "length", "vocabulary", "experts", "positions"):
        shape += [f"--{name}", str(getattr(options, name))]
    return shape


def measure(size: str, router: str, options: argparse.Namespace, caches: Path, found: dict[str, float]) -> None:
    """Two starts of a shape one after the other, then the processes side by side. Figures are left as they come."""
    shape = shape_of(size, router, options)
    (first,) = together([shape], 0.0, caches)
    found |= {"cold_s": first["begun_s"], "next_s": first["next_s"]}
    for count in options.processes:
        try:
            each = together([shape] * count, options.seconds, caches)
        except Exception as error:
            print(f"  {size} {router} × {count} failed: {type(error).__name__}: {str(error)[:500]}", flush=True)
            continue
        if count == 1:
            found |= {"warm_s": each[0]["begun_s"], "warm_imported_s": each[0]["imported_s"]}
            found["warm_built_s"] = each[0]["built_s"]
        found |= totals(f"{size} {router} × {count}", f"{count}/", each)
        if alone := found.get("1/tokens_per_s"):
            found[f"{count}/over_one"] = found[f"{count}/tokens_per_s"] / alone


def totals(what: str, prefix: str, each: list[dict[str, float]]) -> dict[str, float]:
    """Totals of processes that ran side by side; printed, too."""
    rates, begun = [one["tokens"] / one["seconds"] for one in each], max(one["begun_s"] for one in each)
    words = f"{sum(rates) / 1e6:.3f}M tokens/s, {sum(rates) / TARGET:.2f} of the target"
    print(f"  {what}: {words}, begun within {begun:.1f} s", flush=True)
    found = {"tokens_per_s": sum(rates), "slowest": min(rates), "begun_s": begun}
    found["mib"] = sum(one["peak_mib"] for one in each)
    return {prefix + key: value for key, value in found.items()}


def mixed(router: str, options: argparse.Namespace, caches: Path, found: dict[str, float]) -> None:
    """A process of each size, side by side."""
    each = together([shape_of(size, router, options) for size in options.sizes], options.seconds, caches)
    found |= totals(f"{' + '.join(options.sizes)} {router}", f"{len(each)}/", each)


def tried(what: str, work: Callable[[dict[str, float]], None], figures: dict[str, float]) -> None:
    """Whatever it found goes to the figures, if it fails or time is up, too."""
    from ledger import rounded

    found: dict[str, float] = {}
    try:
        work(found)
    except Exception as error:
        print(f"{what} failed: {type(error).__name__}: {str(error)[:500]}", flush=True)
    finally:
        figures |= {f"{what}/{key}": rounded(value) for key, value in found.items()}
    for process, key in {"another process": "warm_s", "the next run of a worker": "next_s"}.items():
        if key in found:
            soon = "in time" if found[key] < SOON else "late"
            print(f"{what}: {process} begins {soon}, {found[key]:.1f} s", flush=True)


def best(figures: dict[str, float]) -> dict[str, float]:
    """The most tokens per second of each row, whatever the number of processes."""
    found: dict[str, float] = {}
    for key, value in figures.items():
        if key.endswith("/tokens_per_s"):
            what = key.split("/")[0]
            found[what] = max(value, found.get(what, 0.0))
    return found


def main() -> None:
    options = parse()
    if options.child:
        train(options)
        return
    import ledger

    from routelaw.bench.clock import here

    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="routelaw-miniature-") as folder, service(options.mps, Path(folder)) as mps:
        with bounded(options.budget_s):
            for router in options.routers:
                for size in () if options.only_mixed else options.sizes:
                    tried(f"{size} {router}", partial(measure, size, router, options, Path(folder)), figures)
                if len(options.sizes) > 1:
                    tried(f"mixed {router}", partial(mixed, router, options, Path(folder)), figures)
        for what, total in best(figures).items():
            print(f"{what}: {total / 1e6:.2f}M tokens/s at best, {total / TARGET:.2f} of the target", flush=True)
    if not options.quick:
        data = f"{options.sequences} × {options.length} random tokens of {options.vocabulary:,}, {options.positions}"
        data += f", {'with' if mps else 'without'} MPS"
        ledger.append("gpu_miniature", data, figures, str(here()))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="tiny models, to see that it works; leaves no line")
    parser.add_argument("--sizes", nargs="+", default=["0.8M", "3M", "8M", "20M"])
    parser.add_argument("--routers", nargs="+", default=["dense", "s-base", "hash"])
    parser.add_argument("--processes", nargs="+", type=int, default=[1, 2, 4, 8])
    for name, usual in {"sequences": 64, "length": 512, "vocabulary": 8192, "experts": 8}.items():
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--positions", default="rope")
    parser.add_argument("--seconds", type=float, default=4.0, help="that each measurement lasts")
    parser.add_argument("--mps", action="store_true")
    parser.add_argument("--only-mixed", action="store_true", help="one of each size at once, and nothing else")
    parser.add_argument("--budget-s", type=float, default=540.0, help="everything ends after this many seconds")
    child = parser.add_argument_group("of one process").add_argument
    child("--child", action="store_true", help=argparse.SUPPRESS)
    child("--alone", action="store_true", help=argparse.SUPPRESS)
    for name, kind in {"size": str, "router": str, "number": int, "meeting": Path, "spawned": float}.items():
        child(f"--{name}", type=kind, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.sizes, options.routers, options.processes = ["0.05M", "0.2M"], ["s-base"], [1, 2]
        options.sequences, options.length, options.vocabulary, options.experts, options.seconds = 4, 32, 100, 4, 0.5
    return options


if __name__ == "__main__":
    main()
