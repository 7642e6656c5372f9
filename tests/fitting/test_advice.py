"""The paper's recommendations on tables whose advice is known, because they were drawn from a law."""

import json
import math
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq

import routelaw as rl
from routelaw.fitting.advice.how_many_experts import how_many_experts, last_worthwhile
from routelaw.fitting.advice.k_and_r import k_and_r
from routelaw.fitting.advice.runs import runs_to_advise_on
from routelaw.fitting.advice.runs_lacking import runs_lacking
from routelaw.fitting.advice.use_routing import use_routing
from routelaw.fitting.advice.which_router import which_router
from routelaw.fitting.claims import FAILS, HOLDS, OPEN, PARTLY
from routelaw.formatting import finite
from routelaw.laws import get_law
from routelaw.runs.table import RunTable

SIZES = (4e6, 16e6, 64e6, 256e6)
EXPERTS = (2, 4, 8, 16, 32, 64, 128, 256)
TRUTH = {"a": -0.083, "b": -0.12, "c": 0.0101, "d": 1.117, "e_start": 2.2, "e_max": 230.0}
BEHIND = {"s-base": 0.0, "hash": 0.01}
"""log10 of each router's loss over the law's, as far as it is routed."""


def rows_of(law="saturated", truth=TRUTH, sizes=SIZES, experts=EXPERTS, behind=BEHIND, seeds=1, noise=1e-4, **more):
    """A run for each router, size, E and seed, with dense ones; `more` are further columns."""
    rng, chosen, rows = np.random.default_rng(7), get_law(law), []
    for active in sizes:
        for router, lag in {"dense": 0.0, **behind}.items():
            for e in (1,) if router == "dense" else experts:
                x = {"active_params": np.array([active]), "experts": np.array([float(e)])}
                log_loss = float(chosen.log_loss(chosen.row(truth), x)[0, 0]) + lag
                for seed in range(seeds):
                    loss = 10 ** (log_loss + noise * rng.standard_normal())
                    rows.append({"run_id": f"{router}-{active:g}-{e}-{seed}", "router": router, "experts": e,
                                 "active_params": active, "seed": seed, "tokens_planned": 10**9, "tokens": 10**9,
                                 "flops_per_token": 2 * active, "loss_validation": loss, **more})  # fmt: skip
    return rows


def table_of(rows) -> RunTable:
    return RunTable.from_frame(pd.DataFrame(rows), "made")


def parts(rows, **options) -> dict:
    """The recommendations by number."""
    advice = rl.advise(table_of(rows), **options)
    json.dumps(finite(advice.as_dict()), allow_nan=False)
    assert max(map(len, advice.lines())) <= 100
    return {each.number: each for each in advice.recommendations}


def only(recommendation: Callable, rows, **options):
    """One recommendation alone, which fits no laws that it does not ask for."""
    asked = {"target": "loss_validation", "variant": None, "level": 0.9, "gain": 1.0, **options}
    return recommendation(runs_to_advise_on(table_of(rows), **asked))


def finding(part, name: str):
    return next(each for each in part.findings if each.claim.name == name)


@pytest.fixture(scope="module")
def known() -> dict:
    return parts(rows_of(seeds=2))


def test_routing_helps_up_to_the_cutoff_of_the_law(known) -> None:
    truth = 10 ** (-TRUTH["b"] / TRUTH["c"])
    cut = next(c for c in known[1].numbers["n_cut"] if c["router"] == "s-base" and c["law"] == "saturated")
    assert cut["interval"][0] < truth < cut["interval"][1]
    assert cut["n_cut"] == pytest.approx(truth, rel=0.3)
    assert known[1].verdict == HOLDS
    assert finding(known[1], "beyond the sizes trained").ours.value == pytest.approx(math.log10(truth / 256e6), abs=0.2)


def test_the_gain_is_that_of_the_losses_drawn(known) -> None:
    helps = finding(known[1], "s-base helps")
    law, row = get_law("saturated"), get_law("saturated").row(TRUTH)
    x = {"active_params": np.full(len(EXPERTS), 256e6), "experts": np.array(EXPERTS, float)}
    one = law.log_loss(row, {"active_params": np.array([256e6]), "experts": np.ones(1)})[0, 0]
    mean = float(one - law.log_loss(row, x)[0].mean())
    assert helps.ours.value == pytest.approx(100 * (1 - 10**-mean), abs=0.05)
    assert "at 256M, the weakest of 4 sizes" in helps.why


def test_beyond_its_cutoff_routing_does_not_help() -> None:
    truth = {"a": -0.08, "b": -0.12, "c": 0.0160, "d": 1.1}  # N_cut = 10^7.5 = 32M
    part = parts(rows_of("bilinear", truth, seeds=2))[1]
    assert finding(part, "s-base helps").verdict == FAILS
    assert finding(part, "beyond the sizes trained").verdict == FAILS
    assert part.verdict == FAILS
    worse = [g for g in part.numbers["gains_percent"] if g["gain"] <= 0]
    assert {g["size"] for g in worse} >= {"64M", "256M"}
    assert any("no better than dense" in remark for remark in part.remarks)


def test_the_better_router_leads_by_what_it_was_given(known) -> None:
    best = finding(known[2], "best router")
    assert (best.verdict, known[2].numbers["order"]) == (HOLDS, ["s-base", "hash"])
    assert best.ours.value == pytest.approx(100 * (1 - 10**-0.01), abs=0.02)
    assert best.ours.low < best.ours.value < best.ours.high


def test_another_best_router_than_the_papers_is_said() -> None:
    part = only(which_router, rows_of(seeds=2, behind={"s-base": 0.01, "hash": 0.0, "switch": 0.02}))
    assert part.numbers["order"] == ["hash", "s-base", "switch"]
    assert finding(part, "default router").verdict == FAILS
    assert (finding(part, "best router").verdict, part.verdict) == (HOLDS, FAILS)
    assert any("the paper's default is s-base" in r.lower() for r in part.remarks)


def test_equal_routers_cannot_be_told_apart() -> None:
    part = only(which_router, rows_of(seeds=2, noise=2e-3, behind={"s-base": 0.0, "hash": 0.0}))
    assert finding(part, "best router").verdict == OPEN


@pytest.mark.parametrize("gain", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("active", [4e6, 256e6])
def test_the_last_worthwhile_doubling_is_the_root_of_the_laws_own_formula(gain: float, active: float) -> None:
    a, b, c, start, most = (TRUTH[name] for name in ("a", "b", "c", "e_start", "e_max"))

    def effective(experts: float) -> float:
        return 1 / (1 / (experts - 1 + 1 / (1 / start - 1 / most)) + 1 / most)

    def drop(experts: float) -> float:
        slope = b + c * math.log10(active)
        return slope * math.log10(effective(experts) / effective(2 * experts))

    limit = -math.log10(1 - gain / 100)
    peak = max(np.geomspace(1, 1e4, 2000), key=drop)
    assert a < 0 < drop(peak) - limit  # there is such an E
    root = brentq(lambda experts: drop(experts) - limit, peak, 1e5)
    law = get_law("saturated")
    assert last_worthwhile(law, active, gain).at(law.row(TRUTH)) == pytest.approx(root, rel=5e-3)


def test_no_doubling_is_worth_more_than_it_gains() -> None:
    law = get_law("saturated")
    assert last_worthwhile(law, 64e6, 30.0).at(law.row(TRUTH)) == 1


def test_where_doublings_stop_being_worth_while_by_law_and_as_measured(known) -> None:
    law = get_law("saturated")
    for row in known[3].numbers["beyond_by_law"]:
        active = {"4M": 4e6, "16M": 16e6, "64M": 64e6, "256M": 256e6}[row["size"]]
        truth = last_worthwhile(law, active, 1.0).at(law.row(TRUTH))
        if row["router"] != "s-base":
            continue
        assert row["law"] == "saturated"
        assert row["experts"] == pytest.approx(truth, rel=0.15)
    by_law = {(r["router"], r["size"]): r["experts"] for r in known[3].numbers["beyond_by_law"]}
    for row in known[3].numbers["beyond_measured"]:
        # A step from E to 2E gains less than 1 % from the law's E on; a measured E is one of those trained.
        assert row["high"] is None or row["low"] <= 2 * row["high"]
        assert row["low"] / 2 <= by_law[row["router"], row["size"]] * 1.05
        assert row["high"] is None or by_law[row["router"], row["size"]] <= row["high"] * 1.3


def test_a_power_law_in_experts_has_no_diminishing_returns_and_a_saturating_one_has(known) -> None:
    truth = {"a": -0.08, "b": -0.05, "c": 0.0, "d": 1.1}
    power = only(how_many_experts, rows_of("bilinear", truth, seeds=2))
    assert finding(known[3], "diminishing").verdict == HOLDS
    assert finding(power, "diminishing").verdict != HOLDS
    assert finding(power, "gains up to").verdict == HOLDS
    each = 100 * (1 - 2**-0.05)
    assert finding(power, "still gains").ours.value == pytest.approx(each, abs=0.05)
    assert finding(power, "little beyond").verdict == FAILS
    assert (
        finding(only(how_many_experts, rows_of("bilinear", truth, seeds=2), gain=each + 1), "gains up to").verdict
        == FAILS
    )


def with_choices(excess_k: float = 0.02, gap_r: float = 0.03) -> list[dict]:
    """K = 2 at 1.5 times the FLOPs, above the straight line of K = 1 in log-log; and every R beside 1/2."""
    truth = {"a": -0.08, "b": -0.05, "c": 0.0, "d": 1.1}
    rows = rows_of("bilinear", truth, seeds=2, noise=1e-5, behind={"s-base": 0.0})
    more = []
    for row in rows:
        if row["router"] == "dense" or row["experts"] not in (8, 64) or row["active_params"] == SIZES[-1]:
            continue
        up = {"k": 2, "flops_per_token": 1.5 * row["flops_per_token"],
              "loss_validation": row["loss_validation"] * 1.5**-0.08 * 10**excess_k}  # fmt: skip
        more.append({**row, **up, "run_id": row["run_id"] + "-k2"})
        for frequency, gap in ((0.25, gap_r), (1.0, -gap_r / 10)):
            loss = row["loss_validation"] * 10**gap
            at = {"routing_frequency": frequency, "loss_validation": loss, "run_id": f"{row['run_id']}-r{frequency}"}
            more.append({**row, **at})
    filled = [{"k": 1, "routing_frequency": 0.5, **row} for row in rows]
    return filled + more


@pytest.mark.parametrize(("excess", "verdict"), [(0.02, HOLDS), (-0.02, FAILS)])
def test_k_is_compared_at_equal_flops(excess: float, verdict: str) -> None:
    part = only(k_and_r, with_choices(excess_k=excess))
    average, front = finding(part, "k one"), finding(part, "k front")
    assert (average.verdict, front.verdict) == (verdict, verdict)
    assert average.ours.value == pytest.approx(100 * (10**excess - 1), abs=0.01)
    assert any("ahead at equal FLOPs" in remark for remark in part.remarks) == (excess < 0)


@pytest.mark.parametrize(("gap", "verdict"), [(0.03, HOLDS), (-0.03, FAILS)])
def test_fewer_routed_blocks_are_compared_at_equal_size_and_experts(gap: float, verdict: str) -> None:
    part = only(k_and_r, with_choices(gap_r=gap))
    low, whole = finding(part, "low r"), finding(part, "r range")
    assert low.verdict == verdict
    assert low.ours.value == pytest.approx(100 * (10**gap - 1), abs=0.01)
    assert whole.verdict == HOLDS  # 0.7 % is less than 1 %
    by_r = {row["routing_frequency"]: row["effect"]["value"] for row in part.numbers["routing_frequency"]}
    assert by_r[1.0] == pytest.approx(100 * (10 ** (-gap / 10) - 1), abs=0.01)


def test_c_and_e_max_are_those_of_the_law_drawn_from(known) -> None:
    for row in known[5].numbers["coefficients"]:
        if row["router"] != "s-base":  # hash lags behind the law where it is routed, and is of another one
            continue
        for name, (low, high) in row["intervals"].items():
            assert low < TRUTH[name] < high
    assert finding(known[5], "c").verdict == HOLDS


def test_missing_runs_are_named_and_a_missing_dense_run_decides_most() -> None:
    gone = {("dense", 16e6, 1), ("hash", 64e6, 8), ("s-base", 4e6, 128)}
    rows = [r for r in rows_of(seeds=2) if (r["router"], r["active_params"], r["experts"]) not in gone]
    part = only(runs_lacking, rows)
    missing = [(m["router"], m["size"], m["experts"]) for m in part.numbers["missing"]]
    assert sorted(missing) == [("dense", "16M", 1), ("hash", "64M", 8), ("s-base", "4M", 128)]
    first, *others = part.numbers["runs_wanted"]
    assert (first["router"], first["size"], first["open"]) == ("dense", "16M", 2 * len(EXPERTS))
    assert {(w["router"], w["size"], w["experts"]) for w in others if not w["trained"]} == set(missing[1:])
    grid = finding(part, "grid")
    assert (grid.verdict, grid.ours.value) == (PARTLY, pytest.approx(1 - 2 / 64))


def test_pairs_within_the_noise_ask_for_seeds() -> None:
    rows = rows_of(seeds=2, noise=3e-3, behind={"s-base": 0.0, "hash": 0.0})
    wanted = only(runs_lacking, rows).numbers["runs_wanted"]
    assert wanted
    assert all(w["trained"] == 2 for w in wanted)
    opens = [w["open"] for w in wanted]
    assert opens == sorted(opens, reverse=True)


def test_a_complete_grid_without_noise_wants_nothing(known) -> None:
    assert finding(known[6], "grid").verdict == HOLDS
    assert known[6].numbers["missing"] == []
    assert all(w["trained"] for w in known[6].numbers["runs_wanted"])


def test_leads_that_change_with_size_forbid_to_extrapolate() -> None:
    rows = rows_of(seeds=2)
    for row in rows:
        if row["router"] == "hash":
            row["loss_validation"] *= (row["active_params"] / 4e6) ** 0.01
    part = only(runs_lacking, rows)
    assert finding(part, "one size").verdict == HOLDS
    assert finding(part, "one size").ours.value == pytest.approx(100 * math.log(10) * 0.01, rel=0.05)
    assert finding(only(runs_lacking, rows_of(seeds=2)), "one size").verdict == OPEN


LACKING = {
    "no dense run": (lambda r: r["router"] != "dense", {1: "no dense run"}),
    "no routed run": (lambda r: r["router"] == "dense", dict.fromkeys((1, 2, 3, 4, 5, 6), "no finished routed run")),
    "one router": (lambda r: r["router"] in ("dense", "hash"), {2: "hash is the only router"}),
    "one size": (lambda r: r["active_params"] == 4e6, {5: "one model size only", 6: "a comparison needs three sizes"}),
    "one E": (lambda r: r["experts"] in (1, 8), {3: "two expert counts", 6: "needs three expert counts"}),
    "one model": (lambda r: (r["router"], r["experts"], r["active_params"]) == ("hash", 8, 4e6), {1: "no dense run"}),
}


@pytest.mark.parametrize("case", LACKING)
def test_what_the_runs_lack_is_said(case: str) -> None:
    keep, said = LACKING[case]
    found = parts([row for row in rows_of() if keep(row)])
    assert sorted(found) == [1, 2, 3, 4, 5, 6]
    if case.startswith("no "):
        assert found[1].verdict == OPEN
    for number, words in said.items():
        unknown = [each for each in found[number].findings if each.verdict == OPEN]
        assert any(words in each.why for each in unknown), [each.why for each in found[number].findings]


def test_the_usual_variant_is_taken_and_said() -> None:
    rows = rows_of(seeds=2, variant="positions=rope")
    other = [{**r, "run_id": r["run_id"] + "x", "variant": "positions=rope,temperature=0.1",
              "loss_validation": 2 * r["loss_validation"]} for r in rows if r["experts"] == 8]  # fmt: skip
    table = table_of(rows + other)
    advice = rl.advise(table)
    assert advice.recommendations[1].verdict == HOLDS
    assert any("positions=rope" in sentence and "most frequent" in sentence for sentence in advice.scope)
    assert any(f"{len(other)} runs of unusual variants" in sentence for sentence in advice.scope)
    asked = rl.advise(table, variant="positions=rope,temperature=0.1")
    assert {g["experts"] for g in asked.recommendations[0].numbers["gains_percent"]} == {8}
    assert asked.recommendations[0].verdict == FAILS
    assert "As asked, routed runs are those of variant 'positions=rope,temperature=0.1'." in asked.scope
    assert "Dense runs are those of variant 'positions=rope'." in asked.scope


def test_a_router_without_a_run_that_counts_is_named() -> None:
    rows = rows_of(seeds=2)
    for row in rows:
        if row["router"] == "hash":
            row.update(tokens_planned=10**8, tokens=10**8)
    advice = rl.advise(table_of(rows))
    assert "Not judged, since no run of theirs is left: hash." in advice.scope
    assert advice.recommendations[1].verdict == OPEN


def test_a_router_that_hurts_does_not_speak_against_one_that_helps() -> None:
    part = only(use_routing, rows_of(seeds=2, behind={"s-base": 0.0, "switch": 0.1}))
    assert finding(part, "switch helps").verdict == FAILS
    assert (finding(part, "s-base helps").verdict, part.verdict) == (HOLDS, HOLDS)


def test_other_lengths_are_left_out_and_the_tokens_said() -> None:
    rows = rows_of(seeds=2)
    other = [{**r, "run_id": r["run_id"] + "x", "tokens_planned": 10**8, "tokens": 10**8,
              "loss_validation": 3 * r["loss_validation"]} for r in rows if r["experts"] == 8]  # fmt: skip
    plain, both = rl.advise(table_of(rows)), rl.advise(table_of(rows + other))
    assert both.recommendations[1].as_dict() == plain.recommendations[1].as_dict()
    assert any(f"{len(other)} runs of another length than 1B tokens" in sentence for sentence in both.scope)
    assert "after 1B tokens" in both.scope[0]


def test_runs_that_differ_in_more_than_the_seed_are_not_averaged() -> None:
    rows = rows_of(seeds=1, learning_rate=1e-3)
    other = [{**r, "run_id": r["run_id"] + "x", "learning_rate": 1e-2, "loss_validation": 2 * r["loss_validation"]}
             for r in rows if (r["router"], r["experts"], r["active_params"]) == ("hash", 8, 4e6)]  # fmt: skip
    advice = rl.advise(table_of(rows + other))
    assert any("differ in more than their seed" in sentence for sentence in advice.scope)
    gains = advice.recommendations[0].numbers["gains_percent"]
    assert ("hash", "4M", 8) not in {(g["router"], g["size"], g["experts"]) for g in gains}


def test_another_loss_is_advised_on_as_if_it_were_the_only_one() -> None:
    rows = rows_of(seeds=2)
    renamed = [{("loss_c4" if k == "loss_validation" else k): v for k, v in row.items()} for row in rows]
    both = [{**row, "loss_c4": row["loss_validation"], "loss_validation": 3.0} for row in rows]
    here = rl.advise(table_of(both), target="loss_c4")
    alone = rl.advise(table_of(renamed), target="loss_c4")
    assert here.as_dict() == alone.as_dict()
    assert here.target == "loss_c4"


@pytest.mark.parametrize("level", [0.5, 0.99])
def test_every_interval_is_of_the_level_asked_for(level: float) -> None:
    """Of one seed noise, half the width goes with Student's quantile; where the weakest of several counts, its lower
    side has the level and the upper one allows for their number."""
    rows = with_choices()
    usual, asked = ({p.number: p for p in rl.advise(table_of(rows), level=at).recommendations} for at in (0.9, level))
    found = 0
    for number, part in usual.items():
        for one, other in zip(part.findings, asked[number].findings, strict=True):
            if one.ours is not None and np.isfinite(one.ours.low) and one.ours.low < one.ours.value:
                low, at = (each.ours.value - each.ours.low for each in (one, other))
                assert (at < low) == (level < 0.9), (number, one.claim.name)
                found += 1
    assert found >= 5


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"gain": 0.0}, "between 0 and 100"),
        ({"gain": math.nan}, "between 0 and 100"),
        ({"gain": 100.0}, "between 0 and 100"),
        ({"target": "loss_valdation"}, "did you mean 'loss_validation'"),
        ({"variant": "rope"}, "no routed run has variant 'rope'"),
    ],
)
def test_what_cannot_be_meant_is_refused(options: dict, said: str) -> None:
    with pytest.raises(rl.InputError, match=said):
        rl.advise(table_of(rows_of(sizes=SIZES[:1])), **options)


def test_unfinished_runs_give_no_advice() -> None:
    rows = rows_of(status="running")
    with pytest.raises(rl.InputError, match="no run is left to advise on: left out are 68 runs not finished"):
        rl.advise(table_of(rows))


@pytest.fixture(scope="module")
def release(released: RunTable) -> dict:
    return {each.number: each for each in rl.advise(released).recommendations}


def test_routing_helps_at_every_size_up_to_the_cutoffs_known(release) -> None:
    assert release[1].verdict == HOLDS
    cut = {c["router"]: c["n_cut"] for c in release[1].numbers["n_cut"] if c["law"] == "saturated"}
    assert {router: round(value / 1e9) for router, value in cut.items()} == {"s-base": 739, "rl-r": 93, "hash": 86}
    assert any("form of the law" in remark for remark in release[1].remarks)


def test_s_base_is_the_router_and_where_it_is_not_is_said(release) -> None:
    assert release[2].verdict == HOLDS
    assert release[2].numbers["order"] == ["s-base", "rl-r", "hash"]
    assert any("rl-r at 15M" in remark for remark in release[2].remarks)


def test_experts_gain_beyond_128_with_diminishing_returns(release) -> None:
    verdicts = {each.claim.name: each.verdict for each in release[3].findings}
    assert release[3].verdict == HOLDS
    assert verdicts == {"gains up to": HOLDS, "still gains": HOLDS, "little beyond": FAILS, "diminishing": HOLDS}


def test_k_and_r_on_the_release(release) -> None:
    excess = {(row["k"], row["experts"]): row["effect"]["value"] for row in release[4].numbers["k"]}
    assert excess[2, 256] < 0 < excess[2, 8]
    assert finding(release[4], "low r").verdict == HOLDS
    assert any("K = 2 at E = 256" in remark for remark in release[4].remarks)


def test_the_interval_of_e_max_leaves_open_whose_is_larger(release) -> None:
    ends = {row["router"]: row["intervals"]["e_max"] for row in release[5].numbers["coefficients"]}
    assert ends["s-base"][1] > max(ends["rl-r"][0], ends["hash"][0])


def test_the_four_models_that_the_release_lacks_are_found(release) -> None:
    missing = {(m["router"], m["size"], m["experts"]) for m in release[6].numbers["missing"]}
    assert missing == {("s-base", "130M", 256), ("hash", "130M", 8), ("hash", "130M", 256), ("hash", "25M", 32)}
