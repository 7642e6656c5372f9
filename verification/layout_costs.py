"""What the planner of layouts says against what layouts of two and four processes do: memory and bytes sent.

    python -m verification.layout_costs [--size 3M] [--experts 8] [--vocabulary 512] [--length 128] [--batch 16]
                                        [--precision float32] [--micro-batches 1] [--steps 4] [--rounds 3] [--variants]
                                        [--record]

Processes on this machine, gloo between them. For every layout: bytes of optimiser statistics (the most of any process,
and how they compare with one process's share if all were spread evenly), what autograd keeps, and bytes sent per step,
counted at the calls to torch.distributed as rings and all-to-alls. The planner's figure over that is wanted within 5 %.
The loopback interface is an independent witness. gloo carries out a reduce-scatter as a sum everywhere, which sends
twice as much as reducing in a ring: `on gloo` is the planner's figure with reductions counted twice.
`--variants` adds techniques and options that exchange or hold something else.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from benchmarks.script import run
from routelaw.bench.results import Row, row
from routelaw.costs.communication import EXCHANGE, REDUCE, SHUFFLE, communication, sent_by_kind
from routelaw.costs.memory import footprint
from routelaw.specs.layout import Layout
from routelaw.specs.run import ModelSpec, RouterSpec, RunSpec, TrainSpec
from routelaw.specs.sizes import get_size
from verification.layout_ranks import Case, RankMeasurement, loopback_bytes, measured

LAYOUTS = {
    2: [Layout(2, 1, 1), Layout(1, 2, 1), Layout(1, 1, 2)],
    4: [
        Layout(4, 1, 1), Layout(1, 4, 1), Layout(2, 2, 1), Layout(1, 2, 2), Layout(2, 1, 2), Layout(1, 1, 4),
    ],
}  # fmt: skip
WANTED = {"exact": (1, 1), "sent_ratio": (0.95, 1.05), "kept": (0.85, 1.15)}


@dataclass(frozen=True)
class Options:
    size: str = "3M"
    router: str = "s-base"
    experts: int = 8
    vocabulary: int = 512
    length: int = 128
    batch: int = 16
    precision: str = "float32"
    micro_batches: int = 1
    steps: int = 4
    rounds: int = 3
    variants: bool = False


def predicted(case: Case, dropped: float) -> dict[str, float]:
    """Bytes sent by kind, as they are counted: rows of the shuffle among those of the experts."""
    sent = sent_by_kind(communication(case.spec, case.layout, case.micro_batches, case.precision, dropped=dropped))
    sent[EXCHANGE] += sent.pop(SHUFFLE)
    return sent


def figures(case: Case, ranks: list[RankMeasurement]) -> dict[str, float]:
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
        "peak": max(peaks, key=lambda ratio: abs(ratio - 1), default=float("nan")),
        "sent": sent,
        "sent_ratio": sum(expected.values()) / sent if sent else 1.0,
        "loopback_ratio": on_gloo / over if over else float("nan"),
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


def rows(asked: Options) -> Iterator[Row]:
    router = RouterSpec(asked.router, asked.experts, group_tokens=asked.length)
    model = ModelSpec(get_size(asked.size), asked.vocabulary, asked.length)
    spec = RunSpec(model, router, TrainSpec(1000, asked.batch), "random")
    yield row("loopback interface, idle", _idle())
    for world, layouts in LAYOUTS.items():
        cases = {
            _name(layout): Case(spec, layout, asked.micro_batches, asked.precision, asked.steps, rounds=asked.rounds)
            for layout in layouts
        }
        if asked.variants and world == 4:
            cases |= variants(spec, asked.steps)
        for (name, case), ranks in zip(cases.items(), measured(list(cases.values())), strict=True):
            yield row(name, figures(case, ranks))


def _name(layout: Layout) -> str:
    return f"{layout.data}×{layout.expert}×{layout.tensor}"


def _idle() -> dict[str, float]:
    """What goes over the loopback interface when this program sends nothing; empty where there is no counter."""
    before = loopback_bytes()
    time.sleep(2)
    after = loopback_bytes()
    return {} if before is None or after is None else {"kB per s": (after - before) / 2e3}


def data(o: Options) -> str:
    return (
        f"{o.size} {o.router} E={o.experts}, {o.batch} × {o.length} tokens, {o.precision}, "
        f"{o.micro_batches} micro-batches"
    )


if __name__ == "__main__":
    run("layouts", __doc__, Options, rows, data, wanted=WANTED)
