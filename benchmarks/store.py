"""How long does it take to read a store? 1,000 runs of 100 evaluations, against parsing the same lines one by one.

python benchmarks/store.py [--runs 1000] [--evaluations 100] [--no-record]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from ledger import append

from routelaw.runs.files import read_runs
from routelaw.runs.listing import list_runs
from routelaw.runs.store import Store


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--evaluations", type=int, default=100)
    parser.add_argument("--no-record", action="store_true", help="leave results.jsonl alone")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        for number in range(asked.runs):
            _write(place / f"{number:012x}", number, asked.evaluations)
        seconds = min(_timed(lambda: read_runs(place)) for _ in range(3))
        listing = min(_timed(lambda: list_runs(Store(place))) for _ in range(3))
        naive = _timed(lambda: _one_by_one(place))
        assert len(read_runs(place).frame) == asked.runs * asked.evaluations
    print(f"{asked.runs} runs × {asked.evaluations} evaluations: read, checked and tabled in {seconds:.2f} s,")
    print(f"{seconds / naive:.2f} times as long as json.loads alone on every line; `runs list` takes {listing:.2f} s")
    if not asked.no_record:
        append("store", "synthetic", {"seconds": seconds, "over_json_loads": seconds / naive, "listing": listing})
    return 0


def _write(folder: Path, number: int, evaluations: int) -> None:
    folder.mkdir()
    rows = [
        {
            "run_id": folder.name, "router": "s-base", "variant": "", "size": "0.8M", "experts": 8, "k": 1,
            "routing_frequency": 0.5, "seed": number, "tokens_planned": 10**8, "active_params": 854016,
            "total_params": 2691072, "flops_per_token": 2631680, "step": 100 * (i + 1), "tokens": 409600 * (i + 1),
            "status": "finished" if i == evaluations - 1 else "running", "loss_validation": 5 - i / 100 + number / 1e6,
            "loss_c4": 5.1 - i / 100,
        }
        for i in range(evaluations)
    ]  # fmt: skip
    (folder / "evaluations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "result.json").write_text(json.dumps({"run_id": folder.name, "status": "finished"}))


def _one_by_one(place: Path) -> None:
    for file in place.glob("*/evaluations.jsonl"):
        for line in file.read_bytes().splitlines():
            json.loads(line)


def _timed(action) -> float:
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


if __name__ == "__main__":
    sys.exit(main())
