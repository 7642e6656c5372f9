"""Plans of layouts: all that are possible, the quickest first, and arithmetic that comes out."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from routelaw.costs.communication import GATHER, REDUCE, communication
from routelaw.costs.layouts import REACHED, Cluster, LayoutRanking, all_layouts, crossing, plan_layouts
from routelaw.costs.memory import CUDA_CONTEXT, footprint
from routelaw.costs.step_time import KNOWN, known_device
from routelaw.errors import InputError
from routelaw.plans.layout_arithmetic import arithmetic
from routelaw.specs.layout import Layout, check_layout
from routelaw.specs.run import ModelSpec, RouterSpec, RunSpec, TrainSpec
from routelaw.specs.sizes import get_size

ROUTED = RouterSpec("s-base", 64, group_tokens=2048)


def make(size: str = "370M", router: RouterSpec = ROUTED, batch: int = 256) -> RunSpec:
    return RunSpec(ModelSpec(get_size(size)), router, TrainSpec(steps=1, batch=batch), "any")


def cluster(devices: int, name: str = "h100", **changed) -> Cluster:
    device = known_device(name)
    return replace(Cluster(device, devices, device.link, device.network), **changed)


def planned(devices: int, spec: RunSpec | None = None, **changed) -> LayoutRanking:
    return plan_layouts(spec or make(), cluster(devices, **changed))


def test_every_layout_is_considered_once() -> None:
    for devices in (1, 6, 8, 12, 64):
        layouts = list(all_layouts(devices))
        assert len(set(layouts)) == len(layouts)
        triples = [(a, b, c) for a in range(1, 65) for b in range(1, 65) for c in range(1, 65) if a * b * c == devices]
        assert {(layout.data, layout.expert, layout.tensor) for layout in layouts} == set(triples)


def test_all_that_are_possible_are_listed_best_first() -> None:
    plan = planned(16)
    listed = [p.layout for p in (*plan.fitting, *plan.too_large)]

    def possible(layout: Layout) -> bool:
        try:
            check_layout(make(), layout, 1)
        except InputError:
            return False
        return True

    assert set(listed) == {layout for layout in all_layouts(16) if possible(layout)}
    times = [p.step_seconds for p in plan.fitting]
    assert times == sorted(times)
    assert all(p.needed <= p.available for p in plan.fitting)
    assert all(p.needed > p.available and p.missing == p.needed - p.available for p in plan.too_large)


def test_micro_batches_are_the_fewest_that_fit() -> None:
    for p in planned(8).fitting:
        for pieces in (n for n in (1, 2, 4, 8, 16, 32) if n < p.micro_batches):
            memory = footprint(make(), pieces, "bfloat16", gpu=True, layout=p.layout)
            assert memory.total + CUDA_CONTEXT > p.available
        assert footprint(make(), p.micro_batches, "bfloat16", gpu=True, layout=p.layout) == p.memory


def test_a_step_waits_for_what_does_not_overlap() -> None:
    for p in planned(32).fitting:
        hidden = sum(c.seconds for c in p.crossings if c.flow.kind in (GATHER, REDUCE) and c.flow.group == "data")
        waited = sum(c.seconds for c in p.crossings) - hidden
        assert p.step_seconds == pytest.approx(max(p.compute.total, hidden) + waited)
        assert p.step_seconds <= p.without_overlap == pytest.approx(p.compute.total + hidden + waited)


def test_a_team_that_straddles_nodes_goes_over_the_network() -> None:
    """24 devices in nodes of 8, expert teams of six: the second has two in one node and four in the next."""
    layout, where = Layout(4, 6, 1), cluster(24)
    flows = communication(make(router=replace(ROUTED, experts=12)), layout, 1, "bfloat16")
    [experts] = [crossing(f, layout, where) for f in flows if f.kind == "exchange"]
    assert experts.inside == 2
    assert experts.between == pytest.approx(experts.flow.sent * 4 / 5)


def test_links_by_hand() -> None:
    """Nodes of 8; tensor 4 is within one, 2 of 8 expert-parallel processes are, and no two of 2 data-parallel ones."""
    layout, where = Layout(2, 8, 4), cluster(64)
    flows = {(f.kind, f.group): crossing(f, layout, where) for f in communication(make(), layout, 1, "bfloat16")}
    link, network = REACHED * 450e9, REACHED * 50e9
    tensor, experts = flows["tensor", "tensor"], flows["exchange", "expert"]
    assert (tensor.inside, tensor.between) == (4, 0)
    assert tensor.seconds == pytest.approx(tensor.flow.sent / link)
    assert experts.inside == 2
    assert experts.between == pytest.approx(experts.flow.sent * 6 / 7)
    assert experts.seconds == pytest.approx(experts.between / network)
    data, batch = flows["gather", "data"], flows["gather", "batch"]
    assert data.seconds == pytest.approx(data.flow.sent / network)
    # a ring of 16, two of them in each node: they share what leaves it
    assert batch.inside == 2
    assert batch.seconds == pytest.approx(batch.flow.sent / 2 / network)


def test_a_ring_through_whole_nodes_is_not_quicker_than_a_link() -> None:
    (flow,) = (f for f in communication(make(), Layout(64), 1) if (f.kind, f.group) == ("gather", "batch"))
    slow, quick = crossing(flow, Layout(64), cluster(64)), crossing(flow, Layout(64), cluster(64, network=1e12))
    assert slow.bandwidth == pytest.approx(REACHED * 8 * 50e9)
    assert quick.bandwidth == pytest.approx(REACHED * 450e9)
    assert crossing(flow, Layout(64), cluster(64, node=64)).between == 0


def test_groups_are_named_where_they_rule_layouts_out() -> None:
    plan = planned(256, make("1.3B", RouterSpec("s-base", 512)))
    assert all(p.layout.batch <= 32 for p in plan.fitting)
    note = plan.notes[0]
    assert "groups of 16,384 tokens (8 sequences)" in note
    assert "room for 32 processes" in note
    assert "--set router.group_tokens=2048 has room for 256" in note
    assert not any("groups" in note for note in planned(256, make("1.3B", replace(ROUTED, experts=512))).notes)


def test_hash_without_capacity_has_no_groups() -> None:
    free = RouterSpec("hash", 64, capacity_factor=0.0)
    assert any(p.layout.batch == 64 for p in planned(64, make(router=free)).fitting)
    held = RouterSpec("hash", 64)
    assert all(p.layout.batch <= 32 for p in planned(64, make("1.3B", held)).fitting)


def test_more_devices_are_not_slower() -> None:
    times = [planned(devices).best.step_seconds for devices in (4, 8, 16, 32, 64)]
    assert times == sorted(times, reverse=True)


def test_what_cannot_be_is_one_sentence() -> None:
    with pytest.raises(InputError, match=r"no layout of 2 devices fits: the closest.*too much.*take more devices"):
        planned(2, make("1.3B", replace(ROUTED, experts=512)))
    with pytest.raises(InputError, match="at least one device, not 0"):
        planned(0)
    with pytest.raises(InputError, match="no layout of 7 devices is possible"):
        planned(7)
    with pytest.raises(InputError, match=r"no layout of 1024 devices is possible.*routing groups"):
        planned(1024, make("25M", RouterSpec("s-base", 64), batch=512))


def value(formula: str) -> float:
    """A formula with its units left out: what a pocket calculator shows."""
    plain = re.sub(r"\(padding [\d,]+\)", "", formula)
    plain = re.sub(r"[A-Za-z][A-Za-z-]*", "", plain.replace(",", "")).replace("²", "**2")
    plain = plain.replace("·", "*").replace("×", "*")
    return eval(re.sub(r"\s+", " ", plain), {"__builtins__": {}})


ROUTERS = [
    ROUTED,
    RouterSpec(),
    replace(ROUTED, name="hash"),
    replace(ROUTED, name="rl-r", routing_frequency=1.0),
    replace(ROUTED, ffws_per_expert=3),
    replace(ROUTED, shared_decisions=True, routing_frequency=1.0),
]


@pytest.mark.parametrize("devices", [1, 8, 64])
@pytest.mark.parametrize("router", ROUTERS, ids=lambda router: f"{router.name} {router.ffws_per_expert}")
def test_numbers_come_out_to_the_unit(router: RouterSpec, devices: int) -> None:
    plan = planned(devices, make("55M", router))
    for p in plan.fitting:
        for line in arithmetic(plan, p)["numbers that one process computes with"]:
            assert value(line.formula) == float(line.result.replace(",", "")), line


UNITS = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


def amount(text: str) -> float:
    number, unit = re.match(r"([\d.e+-]+) (\w+)", text).groups()  # pyrefly: ignore
    return float(number) * UNITS[unit]


@pytest.mark.parametrize("router", ROUTERS, ids=lambda router: f"{router.name} {router.ffws_per_expert}")
def test_bytes_come_out_to_the_digits_shown(router: RouterSpec) -> None:
    plan = planned(64, make("370M", router))
    for p in plan.fitting:
        lines = arithmetic(plan, p)
        memory = {line.what: line for line in lines["memory of the process that has most"]}
        for what in ("parameters", "masters", "optimiser", "for the loss"):
            plain = re.sub(r" of (experts|all else|all) over \d+", "", memory[what].formula.replace("2 moments", "2"))
            assert value(plain) == pytest.approx(amount(memory[what].result), rel=1e-3), memory[what]
        parts = [amount(part) for part in re.findall(r"([\d.]+ [kMGT]?B)\b", memory["in all"].formula)]
        assert sum(parts) == pytest.approx(amount(memory["in all"].result), rel=1e-3)
        for line in lines["bytes that one process sends in a step"]:
            times, share, size = line.formula.split(" × ")
            assert int(times) * value(share) * amount(size) == pytest.approx(amount(line.result), rel=1e-3)


def test_the_paper_in_its_own_recipe() -> None:
    """1.3B with 512 experts on 256 H100: 207 billion parameters, of which each process has some gigabytes."""
    plan = planned(256, make("1.3B", RouterSpec("s-base", 512)))
    best = plan.best
    assert best.layout.world == 256
    held = best.memory.masters + best.memory.optimizer
    assert held > 12 * plan.spec.counts.total_params / 256
    assert held < 1.2 * 12 * plan.spec.counts.total_params / 256
    assert KNOWN["h100"].memory == best.available
