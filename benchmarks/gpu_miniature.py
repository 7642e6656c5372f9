"""Miniature models side by side on one GPU: tokens per second of all of them together, and how soon a run begins.

    python -m benchmarks.gpu_miniature [--quick] [--sizes 0.8M 3M 8M 20M] [--routers dense s-base hash]
        [--processes 1 2 4 8] [--sequences 64] [--seconds 4] [--mps] [--only-mixed] [--limit 540]

Each process is this program once more, with what it is to do as JSON. What is measured is said in descriptions.md.
"""

from __future__ import annotations

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
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from routelaw.bench.results import Row

AHEAD = 3
"""Steps that the host may be ahead of the device: enough to keep it busy, few enough that all stop together."""


@dataclass(frozen=True)
class Options:
    sizes: tuple[str, ...] = ("0.8M", "3M", "8M", "20M")
    routers: tuple[str, ...] = ("dense", "s-base", "hash")
    processes: tuple[int, ...] = (1, 2, 4, 8)
    sequences: int = 64
    length: int = 512
    vocabulary: int = 8192
    experts: int = 8
    positions: str = "rope"
    seconds: float = 4.0
    """Seconds that each measurement lasts."""
    mps: bool = False
    only_mixed: bool = False
    """One of each size at once, and nothing else."""

    def shape(self, size: str, router: str) -> dict[str, Any]:
        """What a process trains."""
        names = ("sequences", "length", "vocabulary", "experts", "positions")
        return {"size": size, "router": router} | {name: getattr(self, name) for name in names}


QUICK = {
    "sizes": ("0.05M", "0.2M"), "routers": ("s-base",), "processes": (1, 2), "sequences": 4, "length": 32,
    "vocabulary": 100, "experts": 4, "seconds": 0.5,
}  # fmt: skip


def train(
    *, size: str, router: str, sequences: int, length: int, vocabulary: int, experts: int, positions: str,
    number: int, meeting: str, seconds: float, spawned: float, alone: bool,
) -> None:  # fmt: skip
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
    found = {"imported_s": time.time() - spawned}
    spec = RunSpec(
        ModelSpec(get_size(size), vocabulary, length, positions),
        RouterSpec() if router == "dense" else RouterSpec(router, experts),
        TrainSpec(steps=10**6, batch=sequences),
        corpus="random tokens",
    )

    def made() -> Callable[..., Any]:
        model = Transformer(spec).to(DEVICE, DTYPE)
        optimizer = Optimizer(model, spec.train)
        if not CUDA:
            return partial(take_step, model, optimizer, spec=spec)
        compile_blocks(model)
        return GraphedStep(model, optimizer, spec)

    def take_steps(first: int, last: int) -> None:
        for step in range(first, last):
            take(tokens_BS, step=step)
        wait()

    take = made()
    tokens_BS = torch.randint(vocabulary, (sequences, length + 1), device=DEVICE)
    wait()
    found["built_s"] = time.time() - spawned
    take_steps(0, 1)
    found["begun_s"] = time.time() - spawned
    first = WARM_UP + 2  # the recording is over
    take_steps(1, first)
    own = Path(meeting, str(number))
    own.with_suffix(".ready").touch()
    while not Path(meeting, "go").exists():
        time.sleep(0.002)
    taken, begin = 0, time.perf_counter()
    behind = deque()
    while time.perf_counter() - begin < seconds:
        take(tokens_BS, step=first + taken)
        taken += 1
        if CUDA:
            behind.append(torch.cuda.current_stream().record_event())
            if len(behind) > AHEAD:
                behind.popleft().synchronize()
    wait()
    found |= {"tokens": taken * sequences * length, "seconds": time.perf_counter() - begin}
    found["peak_mib"] = torch.cuda.max_memory_reserved() / 2**20 if CUDA else float("nan")
    if alone:
        del take
        release()
        again = time.perf_counter()
        take = made()
        take_steps(0, first)
        found["next_s"] = time.perf_counter() - again
    unfinished = own.with_suffix(".partial")
    unfinished.write_text(json.dumps(found))
    unfinished.rename(own.with_suffix(".json"))


def together(shapes: list[dict[str, Any]], seconds: float, caches: Path) -> list[dict[str, float]]:
    """What a process of each shape found; all are ended if one fails, or this is interrupted."""
    meeting = Path(tempfile.mkdtemp(dir=caches))
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"), "OMP_NUM_THREADS": "1"}
    environment |= {"TRITON_CACHE_DIR": str(caches / "triton"), "TORCHINDUCTOR_COMPILE_THREADS": "4"}
    children = []
    for number, shape in enumerate(shapes):
        own = {"number": number, "meeting": str(meeting), "seconds": seconds, "alone": len(shapes) == 1}
        told = json.dumps(shape | own | {"spawned": time.time()})
        with (meeting / f"{number}.log").open("w") as log:
            command = [sys.executable, "-m", "benchmarks.gpu_miniature", "--child", told]
            children.append(subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT))
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
def multi_process_service(wanted: bool, folder: Path) -> Iterator[None]:
    """NVIDIA's, of our own and only while we measure."""
    if not wanted:
        yield
        return
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None:
        raise SystemExit("there is no nvidia-cuda-mps-control here: leave out --mps, and processes take turns.")
    folders = ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")
    for name in folders:
        os.environ[name] = str(folder / name.lower())
        Path(os.environ[name]).mkdir()
    subprocess.run([control, "-d"], check=True)
    try:
        yield
    finally:
        subprocess.run([control], input="quit\n", text=True, check=False, timeout=30)
        for name in folders:
            del os.environ[name]


def measure(size: str, router: str, options: Options, caches: Path) -> Iterator[Row]:
    """Two starts of a shape one after the other, then the processes side by side."""
    from routelaw.bench.clock import reason
    from routelaw.bench.results import row

    name, shape, single = f"{size} {router}", options.shape(size, router), float("nan")
    (first,) = together([shape], 0.0, caches)
    yield row(name, {"cold_s": first["begun_s"], "next_s": first["next_s"]})
    for count in options.processes:
        try:
            each = together([shape] * count, options.seconds, caches)
        except Exception as error:
            yield row(name, {}, {f"{count}/tokens_per_s": reason(error)})
            continue
        figures = totals(each)
        if count == 1:
            single = figures["1/tokens_per_s"]
            figures |= {f"warm_{what}": each[0][what] for what in ("imported_s", "built_s")}
            figures["warm_s"] = each[0]["begun_s"]
        yield row(name, figures | {f"{count}/over_one": figures[f"{count}/tokens_per_s"] / single})


def totals(each: list[dict[str, float]]) -> dict[str, float]:
    """Totals of processes that ran side by side."""
    rates = [one["tokens"] / one["seconds"] for one in each]
    found = {"tokens_per_s": sum(rates), "slowest": min(rates), "begun_s": max(one["begun_s"] for one in each)}
    found["mib"] = sum(one["peak_mib"] for one in each)
    return {f"{len(each)}/{key}": value for key, value in found.items()}


def rows(options: Options) -> Iterator[Row]:
    from routelaw.bench.clock import attempt, reason
    from routelaw.bench.results import row

    prefix = "routelaw-miniature-"
    with tempfile.TemporaryDirectory(prefix=prefix) as folder, multi_process_service(options.mps, Path(folder)):
        caches = Path(folder)
        for router in options.routers:
            for size in () if options.only_mixed else options.sizes:
                try:
                    yield from measure(size, router, options, caches)
                except Exception as error:
                    yield row(f"{size} {router}", {}, {"cold_s": reason(error)})
            if len(options.sizes) > 1:
                shapes = [options.shape(size, router) for size in options.sizes]
                name = f"mixed {router}"
                yield attempt(name, lambda n=name, s=shapes: row(n, totals(together(s, options.seconds, caches))))


def data(options: Options) -> str:
    shape = f"{options.sequences} × {options.length} random tokens of {options.vocabulary:,}, {options.positions}"
    return f"{shape}, {'with' if options.mps else 'without'} MPS"


def main() -> None:
    from benchmarks.script import run
    from routelaw.bench.clock import here

    run("gpu_miniature", __doc__, Options, rows, data, quick=QUICK, device=here)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        train(**json.loads(sys.argv[2]))
    else:
        main()
