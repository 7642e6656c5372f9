"""Which rows of a table become points, and what is said of the others."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routelaw.errors import InputError
from routelaw.fitting import Points, fit_law, select_points
from routelaw.laws import get_law
from routelaw.runs.table import RunTable

BASE = {"run_id": "r", "router": "s-base", "experts": 8, "active_params": 1e7, "loss_validation": 3.0, "step": 100}


def table(*rows: dict) -> RunTable:
    """Each row is BASE with changes; a run_id is made up where none is given."""
    filled = [{**BASE, "run_id": f"run-{i}", **row} for i, row in enumerate(rows)]
    return RunTable.from_frame(pd.DataFrame(filled), "test")


def triples(points: Points) -> list[tuple[float, float, float]]:
    return list(zip(points.x["active_params"], points.x["experts"], points.loss, strict=True))


def test_the_last_row_with_a_value() -> None:
    rows = [
        {"run_id": "r", "step": step, "loss_validation": loss} for step, loss in ((300, np.nan), (200, 2.5), (100, 3.0))
    ]
    points = select_points(table(*rows), "s-base")
    assert (points.loss.tolist(), points.x["step"].tolist()) == ([2.5], [200])


def test_up_to_a_step() -> None:
    rows = [{"run_id": "r", "step": step, "loss_validation": 4 - step / 200} for step in (100, 200, 300)]
    assert select_points(table(*rows), "s-base", up_to_step=250).loss.tolist() == [3.0]


def test_dense_runs_are_one_expert() -> None:
    """Whatever E, K and R a table gives its dense runs: they mean nothing there, and do not split seeds."""
    rows = [
        {"router": "dense", "experts": 1, "k": 1, "routing_frequency": 0.5, "loss_validation": 3.2},
        {"router": "dense", "experts": 1, "k": 2, "routing_frequency": 1.0, "loss_validation": 3.4},
        {"k": 1, "routing_frequency": 0.5},
    ]
    points = select_points(table(*rows), "s-base")
    assert triples(points) == [(1e7, 1, pytest.approx(3.3)), (1e7, 8, 3.0)]
    assert points.dense.tolist() == [True, False]
    assert len(select_points(table(*rows), "s-base", include_dense=False)) == 1


def test_seeds_are_averaged_unless_kept() -> None:
    rows = [
        {"seed": seed, "loss_validation": loss, "step": 100 + seed} for seed, loss in ((0, 3.0), (1, 3.2), (2, 3.4))
    ]
    points = select_points(table(*rows), "s-base")
    assert triples(points) == [(1e7, 8, pytest.approx(3.2))]
    assert points.x["step"].tolist() == [101]
    assert sorted(select_points(table(*rows), "s-base", average_seeds=False).loss) == [3.0, 3.2, 3.4]


MIXED = [
    {"k": 1, "routing_frequency": 0.5},
    {"k": 2, "routing_frequency": 0.5, "loss_validation": 2.9},
    {"k": 1, "routing_frequency": 1.0, "loss_validation": 2.8},
    {"router": "dense", "experts": 1},
]


def test_one_k_and_r_and_it_is_said() -> None:
    points = select_points(table(*MIXED), "s-base")
    assert triples(points) == [(1e7, 1, 3.0), (1e7, 8, 3.0)]
    assert points.left_out == ("1 run with K other than 1", "1 run with R other than 0.5")
    assert select_points(table(*MIXED), "s-base", k=2).loss.tolist() == [3.0, 2.9]
    assert select_points(table(*MIXED), "s-base", routing_frequency=1.0).loss.tolist() == [3.0, 2.8]


def test_a_law_of_compute_takes_every_k_and_r() -> None:
    points = select_points(table(*MIXED), "s-base", get_law("compute"))
    assert len(points) == 4
    assert points.left_out == ()


def test_the_only_k_and_r_there_are() -> None:
    points = select_points(table({"k": 4, "routing_frequency": 0.25}, {"router": "dense", "experts": 1}), "s-base")
    assert (len(points), points.left_out) == (2, ())


def test_a_k_and_r_that_are_not_there() -> None:
    rows = table({"k": 2}, {"k": 4, "routing_frequency": 1.0}, {"router": "dense", "experts": 1})
    with pytest.raises(InputError, match=r"K = 1 and R = 0.5; there is K = 2 with R = 0.5, K = 4 with R = 1\."):
        select_points(rows, "s-base")


def test_variants_are_kept_apart() -> None:
    rows = table({"variant": ""}, {"variant": "shared_decisions", "loss_validation": 3.1})
    points = select_points(rows, "s-base")
    assert (points.loss.tolist(), points.left_out) == ([3.0], ("1 run of another variant than ''",))
    assert select_points(rows, "s-base", variant="shared_decisions").loss.tolist() == [3.1]
    with pytest.raises(InputError, match=r"did you mean 'shared_decisions'"):
        select_points(rows, "s-base", variant="shared")


def test_a_router_whose_only_variant_is_of_its_own_fields_is_fitted_with_the_plain_dense_runs() -> None:
    """The paper's S-BASE shuffles, always: there is nothing to mix it up with."""
    dense = {"router": "dense", "experts": 1, "loss_validation": 3.5}
    only = table({"variant": "shared_slots=4,shuffle_groups=4"}, dense)
    assert select_points(only, "s-base").loss.tolist() == [3.5, 3.0]
    options = table({"variant": "relative_temperature,temperature=0.03,tolerance=0.05"}, dense)
    assert select_points(options, "s-base").loss.tolist() == [3.5, 3.0]
    foreign = table({"variant": "big"}, dense)
    with pytest.raises(InputError, match="left out are 1 run of another variant than ''"):
        select_points(foreign, "s-base")
    mixed = table({"variant": "shuffle_groups=4"}, {"variant": "", "experts": 4}, dense)
    assert sorted(select_points(mixed, "s-base").loss.tolist()) == [3.0, 3.5]
    assert select_points(mixed, "s-base").left_out == ("1 run of another variant than ''",)


def test_dense_runs_have_the_part_of_a_variant_that_is_not_the_routers() -> None:
    weights = {"variant": "balance_weight=0.1,policy_weight=0.1,positions=rope"}
    dense = {"router": "dense", "experts": 1}
    others = [{**dense, "variant": v, "loss_validation": 9.0} for v in ("", "positions=xl", "positions=rope,wide")]
    rows = table(weights, {**dense, "variant": "positions=rope", "loss_validation": 3.3}, *others)
    points = select_points(rows, "s-base", variant=weights["variant"])
    assert sorted(points.loss) == [3.0, 3.3]


def test_a_variant_that_all_runs_share_is_the_default() -> None:
    rotary = {"variant": "positions=rope"}
    rows = table(rotary, {**rotary, "router": "dense", "experts": 1, "loss_validation": 3.5})
    assert select_points(rows, "s-base").loss.tolist() == [3.5, 3.0]
    assert select_points(rows, "dense").loss.tolist() == [3.5]


def test_routed_runs_of_another_variant_alone_are_none() -> None:
    with pytest.raises(
        InputError, match="no run of s-base is left to fit: left out are 1 run of another variant than ''"
    ):
        select_points(table({"variant": "long"}, {"router": "dense", "experts": 1, "variant": ""}), "s-base")


def test_unfinished_runs_are_left_out() -> None:
    """A run is what its last row says, so rows written while it was running count once it has finished."""
    rows = [
        {"run_id": "a", "step": 100, "status": "running", "loss_validation": 3.3},
        {"run_id": "a", "step": 200, "status": "finished", "loss_validation": np.nan},
        {"run_id": "b", "step": 100, "status": "finished", "experts": 16},
        {"run_id": "b", "step": 200, "status": "diverged", "experts": 16, "loss_validation": 9.0},
    ]
    points = select_points(table(*rows), "s-base")
    assert (triples(points), points.left_out) == ([(1e7, 8, 3.3)], ("1 run not finished",))


def test_training_curves() -> None:
    rows = [
        {"run_id": "d", "router": "dense", "experts": 1, "step": s, "loss_validation": 5 - s / 100}
        for s in (0, 100, 200)
    ]
    points = select_points(table(*rows), "dense", get_law("kaplan2020"))
    assert points.x["step"].tolist() == [100, 200]
    assert points.left_out == ("evaluations before the first step",)


def test_sizes_and_experts_asked_for() -> None:
    rows = table(*({"experts": e, "active_params": n} for e in (2, 8, 32) for n in (1e7, 1e8)))
    points = select_points(rows, "S_Base", experts=(2, 32), sizes=("100M",))
    assert [t[:2] for t in triples(points)] == [(1e8, 2), (1e8, 32)]
    assert points.left_out == ("2 runs with an E not asked for", "2 runs of a size not asked for")


def test_weights() -> None:
    rows = table({"w": 2.0}, {"experts": 16, "w": 0.0}, {"experts": 32, "w": 1.0})
    points = select_points(rows, "s-base", weight_column="w")
    assert (points.weight.tolist(), points.left_out) == ([1.0, 0.5], ("1 run of weight 0",))
    with pytest.raises(InputError, match="no run of s-base is left to fit"):
        select_points(table({"w": 0.0}), "s-base", weight_column="w")
    with pytest.raises(InputError, match=r"column 'w' holds -1\.0 for run run-0"):
        select_points(table({"w": -1.0}), "s-base", weight_column="w")
    with pytest.raises(InputError, match="did you mean 'w'"):
        select_points(table({"w": 1.0}), "s-base", weight_column="ww")


@pytest.mark.parametrize("size", [1e-320, 1e300])
def test_weights_of_any_magnitude(size: float) -> None:
    rows = table({"w": size}, {"experts": 16, "w": size})
    assert select_points(rows, "s-base", weight_column="w").weight.tolist() == [1.0, 1.0]
    with pytest.raises(InputError, match="differ by more than a factor"):
        select_points(table({"w": size}, {"experts": 16, "w": 1.0}), "s-base", weight_column="w")


@pytest.mark.parametrize("weight", [True, pd.Timestamp("2022-02-02"), pd.Timedelta("1h")])
def test_what_is_no_number_is_no_weight(weight: object) -> None:
    with pytest.raises(InputError, match="column 'w' holds"):
        select_points(table({"w": weight}, {"experts": 16, "w": weight}), "s-base", weight_column="w")


@pytest.mark.parametrize("column", ["optimizer", "lr", "batch_size", "Sequence_Length", "dataset", "d_model"])
def test_runs_of_other_settings_are_not_seeds(column: str) -> None:
    rows = [{column: value, "loss_validation": 3.0 + value} for value in (0, 1)]
    points = select_points(table(*rows), "s-base")
    assert points.loss.tolist() == [3.0, 4.0]
    assert f"runs that differ in {column}: these are separate points" in points.warnings[0]


def test_an_unknown_column_that_tells_averaged_runs_apart_is_named() -> None:
    rows = [{"seed": i, "flavour": i % 2, "tokens_per_second": 5.0 + i, "loss_validation": 3.0} for i in range(4)]
    [warning] = select_points(table(*rows), "s-base").warnings
    assert warning.startswith("runs averaged as seeds of one model differ in flavour: ")
    assert select_points(table(*rows), "s-base", average_seeds=False).warnings == ()
    assert select_points(table(*rows), "s-base", weight_column="flavour").warnings == ()


def test_runs_of_the_same_seed_are_averaged_with_a_warning() -> None:
    [warning] = select_points(table({"seed": 1}, {"seed": 1}, {"seed": 2}), "s-base").warnings
    assert "2 runs averaged as seeds of one model have the same seed (run-0 and run-1, say)" in warning
    assert select_points(table({}, {}), "s-base").warnings == ()  # of a table without seeds nobody knows


GRID = [(n, e) for n in (1e7, 1e8, 1e9) for e in (1, 4, 16, 64)]


@st.composite
def tables(draw) -> pd.DataFrame:
    """Two routers and dense runs over a grid, some cells missing, two seeds, an earlier and a last step."""
    noise = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kept = draw(st.lists(st.booleans(), min_size=2 * len(GRID), max_size=2 * len(GRID)))
    rows = []
    for i, (active, experts) in enumerate(GRID * 2):
        router = "dense" if experts == 1 else ("s-base", "hash")[i // len(GRID)]
        if i < len(GRID) or (kept[i] and experts > 1):
            for seed in range(1 + kept[i]):
                loss = 12 * active**-0.08 * experts**-0.04 * (1 + 0.01 * noise.standard_normal())
                run = f"{router}-{active:g}-{experts}-{seed}"
                rows += [
                    (run, router, experts, active, seed, step, loss + 50 / step, noise.uniform(0.5, 2))
                    for step in (50, 100)
                ]
    return pd.DataFrame(
        rows, columns=["run_id", "router", "experts", "active_params", "seed", "step", "loss_validation", "w"]
    )


def bilinear(frame: pd.DataFrame, weights: str | None = None) -> dict[str, float]:
    return fit_law(
        "bilinear", select_points(RunTable.from_frame(frame, "made up"), "s-base", weight_column=weights)
    ).params


@settings(max_examples=8, deadline=None, derandomize=True)
@given(tables(), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(frame, random) -> None:
    order = list(range(len(frame)))
    random.shuffle(order)
    assert bilinear(frame.iloc[order]) == pytest.approx(bilinear(frame), rel=1e-9)


@settings(max_examples=8, deadline=None, derandomize=True)
@given(tables())
def test_other_routers_change_nothing(frame) -> None:
    assert bilinear(frame) == pytest.approx(bilinear(frame[frame["router"] != "hash"]), rel=1e-12)


@settings(max_examples=8, deadline=None, derandomize=True)
@given(tables(), st.floats(1e-6, 1e6))
def test_the_scale_of_weights_changes_nothing(frame, scale) -> None:
    scaled = frame.assign(w=frame["w"] * scale)
    assert bilinear(scaled, "w") == pytest.approx(bilinear(frame, "w"), rel=1e-7)


def test_runs_planned_for_another_length_are_left_out(runs_of_two_lengths) -> None:
    points = select_points(runs_of_two_lengths, "mine")
    assert set(points.loss) == {3.0}
    assert any("of another length than 1000 tokens" in reason for reason in points.left_out)


@pytest.fixture
def runs_of_two_lengths() -> RunTable:
    rows = [(f"r{i}", 1000, 3.0) for i in range(3)] + [("short", 100, 4.0)]
    frame = pd.DataFrame(rows, columns=["run_id", "tokens_planned", "loss_validation"])
    frame = frame.assign(router="mine", experts=[2, 4, 8, 16], active_params=1e7)
    return RunTable.from_frame(frame, "test")


def test_last_evaluations_far_apart_are_said() -> None:
    frame = pd.DataFrame({"run_id": ["a", "b"], "step": [10, 100], "loss_validation": [3.0, 2.0]})
    frame = frame.assign(router="mine", experts=[2, 4], active_params=1e7)
    points = select_points(RunTable.from_frame(frame, "test"), "mine")
    assert any("range from step 10 to 100" in warning for warning in points.warnings)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("tokens", [10**9, 2 * 10**9]),
        ("tokens_planned", [10**9, 10**9 + 1]),
        ("learning_rate", [1e-3, 2e-3]),
        ("batch_tokens", [2**16, 2**17]),
        ("recipe", ["", "weight_decay=0"]),
        ("total_params", [3e7, 4e7]),
        ("flops_per_token", [2e7, 3e7]),
    ],
)
def test_runs_that_a_column_tells_apart_are_not_seeds(column: str, values: list) -> None:
    """Averaged, they would be a model that nobody trained."""
    rows = [{"seed": i % 2, column: values[i // 2], "loss_validation": 3.0 + i, "step": None} for i in range(4)]
    points = select_points(table(*rows), "s-base")
    assert points.loss.tolist() == [3.5, 5.5]
    assert f"one model has runs that differ in {column}" in points.warnings[0]
    seeds = [{**row, "seed": i, column: values[0]} for i, row in enumerate(rows)]
    assert select_points(table(*seeds), "s-base").loss.tolist() == [4.5]
    assert select_points(table(*seeds), "s-base").warnings == ()


@pytest.mark.parametrize(("column", "values"), [("granularity", [1, 4]), ("shared_experts", [0, 1])])
def test_a_law_that_does_not_read_an_architecture_takes_one(column: str, values: list) -> None:
    rows = [{"seed": i % 2, column: values[i // 2], "loss_validation": 3.0 + i, "step": None} for i in range(4)]
    points = select_points(table(*rows), "s-base")
    assert points.loss.tolist() == [3.5]
    assert points.left_out == (f"2 runs with {column} other than {values[0]}",)


def test_lengths_that_shade_into_each_other_are_not_one() -> None:
    """Each within 4 % of the next, the last 60 times the first: a table of 245 such runs was 142 points once."""
    tokens = [int(10**9 * 1.04**i) for i in range(100)]
    rows = [{"tokens": n, "step": None, "loss_validation": 4.0 - i / 100} for i, n in enumerate(tokens)]
    points = select_points(table(*rows), "s-base")
    assert len(points) == 100
    assert any("from 1e+09 to 4.86e+10 tokens" in warning for warning in points.warnings)


def test_of_several_corpora_the_commonest_is_fitted() -> None:
    rows = [{"corpus": "one", "loss_validation": 3.0}, {"corpus": "one", "loss_validation": 3.2, "seed": 1}]
    points = select_points(table(*rows, {"corpus": "two", "loss_validation": 9.0, "seed": 2}), "s-base")
    assert points.loss.tolist() == [pytest.approx(3.1)]
    assert points.left_out == ("1 run of another corpus than one",)


@pytest.mark.parametrize("target", ["run_id", "router", "experts", "active_params", "loss_"])
def test_a_target_is_a_loss(target: str) -> None:
    with pytest.raises(InputError, match=f"no loss {target!r}.*the losses are loss_validation"):
        select_points(table({}), "s-base", target=target)


def test_warnings_of_the_table_are_those_of_every_fit_to_it() -> None:
    points = select_points(table({"loss_validation": 83.0}), "s-base")
    assert "loss_validation is 83.0 in data row 1" in points.warnings[0]
