"""What the planner of layouts says against what layouts of two and four processes do: memory and bytes sent.

    python benchmarks/layouts.py [--size 3M] [--experts 8] [--vocabulary 512] [--length 128] [--batch 16]
                                 [--precision float32] [--micro-batches 1] [--steps 4] [--rounds 3] [--variants]
                                 [--record]

Processes on this machine, gloo between them. For every layout: bytes of optimiser statistics (the most of any process,
and how they compare with one process's share if all were spread evenly), what autograd keeps, and bytes sent per step,
counted at the calls to torch.distributed as rings and all-to-alls. The planner's figure over that is wanted within 5 %.
The loopback interface is an independent witness. gloo carries out a reduce-scatter as a sum everywhere, which sends
twice as much as reducing in a ring: `on gloo` is the planner's figure with reductions counted twice.
`--variants` adds techniques and options that exchange or hold something else. `--record` appends a line to
results.jsonl.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace

import ledger
from layout_meters import loopback_bytes
from layout_ranks import Case, Measured, measured
from rich.console import Console
from rich.table import Table

from routelaw.specs.communication import DEAL, EXCHANGE, REDUCE, communication, sent_by_kind
from routelaw.specs.footprint import footprint
from routelaw.specs.layout import Layout
from routelaw.specs.run import ModelSpec, RouterSpec, RunSpec, TrainSpec
from routelaw.specs.sizes import get_size

LAYOUTS = {
    2: [Layout(2, 1, 1), Layout(1, 2, 1), Layout(1, 1, 2)],
    4: [
        Layout(4, 1, 1), Layout(1, 4, 1), Layout(2, 2, 1), Layout(1, 2, 2), Layout(2, 1, 2), Layout(1, 1, 4),
    ],
}  # fmt: skip
WANTED = 0.05
KEPT_WANTED = 0.15


def predicted(case: Case, dropped: float) -> dict[str, float]:
    """Bytes sent by kind, as they are counted: rows of the shuffle among those of the experts."""
    sent = sent_by_kind(communication(case.spec, case.layout, case.micro_batches, case.precision, dropped=dropped))
    sent[EXCHANGE] += sent.pop(DEAL)
    return sent


def figures(case: Case, ranks: list[Measured]) -> dict[str, float | int | bool | None]:
    said = [
        footprint(case.spec, case.micro_batches, case.precision, layout=case.layout, rank=rank)
        for rank in range(case.layout.world)
    ]
    sent = sum(sum(one.sent.values()) for one in ranks) / len(ranks)
    expected = predicted(case, ranks[0].dropped)
    alone = footprint(case.spec, case.micro_batches, case.precision).optimizer
    on_gloo = sum(expected.values()) + expected[REDUCE]
    over = ranks[0].loopback
    peaks = [s.total / (one.peak or 1) for s, one in zip(said, ranks, strict=True) if s.peak.name != "evaluation"]
    kept = [(s.activations + s.logits) / one.kept for s, one in zip(said, ranks, strict=True)]
    return {
        "exact": all(one.held == {n: getattr(s, n) for n in one.held} for s, one in zip(said, ranks, strict=True)),
        "optimizer": max(one.held["optimizer"] for one in ranks),
        "over_even_share": max(one.held["optimizer"] for one in ranks) * case.layout.world / alone,
        "kept": max(kept, key=lambda ratio: abs(ratio - 1)),
        "peak": max(peaks, key=lambda ratio: abs(ratio - 1), default=None),
        "sent": sent,
        "sent_ratio": sum(expected.values()) / sent if sent else 1.0,
        "loopback_ratio": on_gloo / over if over else None,
    }


def variants(spec: RunSpec, steps: int) -> dict[str, Case]:
    """What exchanges or holds something else, on layouts of four."""
    router = replace(spec.router, name="switch", capacity_factor=1.0)
    sequences = spec.train.batch
    changed = {
        "dense": (RouterSpec(), Layout(2, 1, 2), 1, "bfloat16"),
        "K = 2, drops": (replace(router, k=2), Layout(2, 2, 1), 1, "float32"),
        "shuffled over all": (replace(router, shuffle_groups=sequences), Layout(2, 2, 1), 1, "bfloat16"),
        "shared decisions": (
            replace(router, shared_decisions=True, routing_frequency=1.0, shuffle_groups=sequences),
            Layout(1, 2, 2), 1, "float32",
        ),
        "rl-r, two FFWs": (replace(router, name="rl-r", ffws_per_expert=2), Layout(1, 2, 2), 1, "bfloat16"),
        "hash, uneven": (replace(router, name="hash", experts=6), Layout(4, 1, 1), 2, "float32"),
    }  # fmt: skip
    return {
        f"{_name(layout)} {what}": Case(replace(spec, router=own), layout, pieces, precision, steps)
        for what, (own, layout, pieces, precision) in changed.items()
    }


def main() -> int:
    asked = _asked()
    router = RouterSpec(asked.router, asked.experts, group_tokens=asked.length)
    spec = RunSpec(
        ModelSpec(get_size(asked.size), asked.vocabulary, asked.length), router, TrainSpec(1000, asked.batch), "random"
    )
    console = Console() if sys.stdout.isatty() else Console(width=140)
    console.print(_idle())
    found: dict[str, dict] = {}
    for world, layouts in LAYOUTS.items():
        cases = {
            _name(layout): Case(spec, layout, asked.micro_batches, asked.precision, asked.steps, rounds=asked.rounds)
            for layout in layouts
        }
        if asked.variants and world == 4:
            cases |= variants(spec, asked.steps)
        for (name, case), ranks in zip(cases.items(), measured(list(cases.values())), strict=True):
            found[name] = figures(case, ranks)
    console.print(_table(found, f"{asked.size}, {asked.router}, E = {asked.experts}, {asked.precision}"))
    if asked.record:
        rounded = {name: {k: _rounded(v) for k, v in row.items()} for name, row in found.items()}
        data = f"{asked.size} {asked.router} E={asked.experts}, {asked.batch} × {asked.length} tokens, "
        ledger.append("layouts", f"{data}{asked.precision}, {asked.micro_batches} micro-batches", rounded)
    return 0 if all(_good(row) for row in found.values()) else 1


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--size", default="3M")
    parser.add_argument("--router", default="s-base")
    parser.add_argument("--experts", type=int, default=8)
    parser.add_argument("--vocabulary", type=int, default=512)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--micro-batches", type=int, default=1)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--variants", action="store_true")
    parser.add_argument("--record", action="store_true", help="append a line to results.jsonl")
    return parser.parse_args()


def _name(layout: Layout) -> str:
    return f"{layout.data}×{layout.expert}×{layout.tensor}"


def _idle() -> str:
    """What goes over the loopback interface when this program sends nothing."""
    before = loopback_bytes()
    time.sleep(2)
    after = loopback_bytes()
    if before is None or after is None:
        return "the loopback interface has no counter here"
    return f"loopback interface, idle: {(after - before) / 2e3:.3g} kB/s"


def _good(row: dict) -> bool:
    return row["exact"] and abs(row["sent_ratio"] - 1) <= WANTED and abs(row["kept"] - 1) <= KEPT_WANTED


def _rounded(value: float | bool | None) -> float | bool | None:
    return value if isinstance(value, bool) or value is None else float(f"{value:.4g}")


def _table(found: dict[str, dict], title: str) -> Table:
    made = Table(title=f"planned over measured: {title}", title_justify="left")
    for name in ("layout", "tensors", "optimiser", "over an even share", "activations", "peak"):
        made.add_column(name, justify="right")
    for name in ("sent per step", "at the calls", "loopback, on gloo", ""):
        made.add_column(name, justify="right")
    for layout, row in found.items():
        ratios = [
            f"{row[k]:.3f}" if row[k] is not None else "–" for k in ("kept", "peak", "sent_ratio", "loopback_ratio")
        ]
        made.add_row(
            layout, "exact" if row["exact"] else "differ", f"{row['optimizer'] / 1e6:.2f} MB",
            f"{row['over_even_share']:.3f}", *ratios[:2], f"{row['sent'] / 1e6:.2f} MB", *ratios[2:],
            "✓" if _good(row) else "✗",
        )  # fmt: skip
    return made


if __name__ == "__main__":
    sys.exit(main())
