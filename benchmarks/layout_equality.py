"""Does a run mean the same on every layout? Every router, K, shuffle and capacity, on 1, 2 and 4 processes (gloo).

    python benchmarks/layout_equality.py [--steps 20] [--processes 1 2 4] [--no-record]

Each layout and case is trained side by side with a single process, in float64 and in float32, whole and in two
micro-batches. Compared at every step: the loss, every gradient before clipping, the gradient's norm, drops, loads and
the routers' losses; then an evaluation. The figure is the largest difference; float64 must stay below 1e-10, float32
below 1e-5. Exit code 1 otherwise.
"""

from __future__ import annotations

import argparse
import socket
import sys
from pathlib import Path

import torch
import torch.multiprocessing
from ledger import append

from routelaw.specs.layout import Layout

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "training"))
from layout_cases import compare

MOST = {torch.float64: 1e-10, torch.float32: 1e-5}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--no-record", action="store_true", help="leave results.jsonl alone")
    asked = parser.parse_args()
    worst: dict[str, dict[str, float]] = {}
    wrong = 0
    for dtype, most in MOST.items():
        name = str(dtype).removeprefix("torch.")
        worst[name] = {}
        for world in asked.processes:
            found = _found(world, dtype, asked.steps)
            for layout in map(str, _layouts(world)):
                gaps = {case: max(gap[:2]) for case, gap in found.items() if case[0] == layout}
                beyond = {case[1:]: gap for case, gap in gaps.items() if gap > most}
                wrong += len(beyond)
                worst[name][layout] = max(gaps.values())
                print(
                    f"{name:8} {layout:34} {len(gaps):3} cases, largest difference {max(gaps.values()):.1e}", flush=True
                )
                for case, gap in beyond.items():
                    print(f"         beyond {most:g}: {case}: {gap:.1e}")
    print(f"{asked.steps} steps; {'all within bounds' if not wrong else f'{wrong} cases beyond their bounds'}")
    if not asked.no_record:
        append("layout_equality", "made up", {"steps": asked.steps, "wrong": wrong, "largest_difference": worst})
    return int(wrong > 0)


def _layouts(world: int) -> list[Layout]:
    sides = [n for n in range(1, world + 1) if world % n == 0]
    return [Layout(d, e, world // d // e) for d in sides for e in sides if world % (d * e) == 0]


def _splits(world: int) -> list[tuple[Layout, int]]:
    return [(layout, pieces) for layout in _layouts(world) for pieces in (1, 2)]


def _found(world: int, dtype: torch.dtype, steps: int) -> dict[tuple[str, int, str], tuple[float, float, float]]:
    with torch.multiprocessing.Manager() as manager:
        told = manager.dict()
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            port = listening.getsockname()[1]
        torch.multiprocessing.spawn(compare, (port, _splits(world), dtype, steps, told), nprocs=world)
        return dict(told)


if __name__ == "__main__":
    sys.exit(main())
