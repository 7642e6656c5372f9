"""Does a run mean the same on every layout? Every router, K, shuffle and capacity, on 1, 2 and 4 processes (gloo).

    python benchmarks/layout_equality.py [--steps 20] [--processes 1 2 4] [--precision float64 float32] [--no-record]

Each layout and case is trained side by side with a single process, in float64 and in float32, whole and in two
micro-batches. Compared at every step: the loss, every gradient before clipping, the gradient's norm, drops, loads and
the routers' losses; then an evaluation. The figure is the largest difference; float64 must stay below 1e-10, float32
below 1e-5. Exit code 1 otherwise.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from ledger import append

from routelaw.specs.layout import Layout

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "training"))
from layout_cases import Trial, compare, spawned

MOST = {"float64": 1e-10, "float32": 1e-5}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--precision", nargs="+", choices=MOST, default=list(MOST))
    parser.add_argument("--no-record", action="store_true", help="leave results.jsonl alone")
    asked = parser.parse_args()
    worst: dict[str, dict[str, float]] = {}
    wrong = 0
    for name in asked.precision:
        dtype = getattr(torch, name)
        worst[name] = {}
        for world in asked.processes:
            trials = [Trial(layout, pieces, dtype, asked.steps) for layout in _layouts(world) for pieces in (1, 2)]
            found = spawned(compare, *trials)
            for layout in _layouts(world):
                gaps = {case: max(gap[:2]) for case, gap in found.items() if case[0].layout == layout}
                beyond = {case: gap for case, gap in gaps.items() if gap > MOST[name]}
                wrong += len(beyond)
                worst[name][str(layout)] = max(gaps.values())
                print(
                    f"{name:8} {layout!s:34} {len(gaps):3} cases, largest difference {max(gaps.values()):.1e}",
                    flush=True,
                )
                for (trial, case), gap in beyond.items():
                    print(f"         beyond {MOST[name]:g}: {case}, {trial.micro_batches} micro-batches: {gap:.1e}")
    print(f"{asked.steps} steps; {'all within bounds' if not wrong else f'{wrong} cases beyond their bounds'}")
    if not asked.no_record:
        append("layout_equality", "made up", {"steps": asked.steps, "wrong": wrong, "largest_difference": worst})
    return int(wrong > 0)


def _layouts(world: int) -> list[Layout]:
    sides = [n for n in range(1, world + 1) if world % n == 0]
    return [Layout(d, e, world // d // e) for d in sides for e in sides if world % (d * e) == 0]


if __name__ == "__main__":
    sys.exit(main())
