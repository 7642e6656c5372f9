"""`routelaw fit` and `routelaw compare`, end to end: the keys and figures of their JSON, and what each option does."""

import json
from itertools import islice

import numpy as np
import pandas as pd
import pytest

from routelaw.bench import analysis
from routelaw.runs.text_results import add_results

KEYS = {"law", "router", "target", "points", "params", "intervals", "rmsle", "derived", "warnings", "interval_method",
        "level", "left_out"}  # fmt: skip
ERRORS = {"in_sample", "leave_one_out", "leave_size_out", "largest_size_out"}

# The optimum of the six-parameter law on the paper's release, computed independently of this code: parameters to the
# digits given, then the four errors in 1e-4 of log10 L.
OPTIMUM = {
    "s-base": (("-0.0833", "-0.1202", "0.01013", "1.1168", "2.204", "229.6"), (32.2, 36.6, 55.0, 89.8)),
    "rl-r": (("-0.0830", "-0.1253", "0.01142", "1.1100", "1.829", "450.3"), (32.3, 36.1, 54.6, 90.0)),
    "hash": (("-0.0879", "-0.1415", "0.01294", "1.1648", "4.548", "402.5"), (29.8, 34.1, 53.2, 85.7)),
}
NEW_LAW = """
from routelaw import PowerSum, coefficient
LAW = PowerSum(
    name="mine", formula="log L = a·log N + b·log E + d", source="me", inputs=("active_params", "experts"),
    second=lambda x: x["experts"],
    terms=((coefficient("a", "slope in log N", (1, 0)), coefficient("b", "slope in log E", (0, 1)),
            coefficient("d", "log10 loss at N = E = 1", (0, 0))),),
)
"""


@pytest.fixture
def fit(command):
    """`fit(path, *options)`: the JSON of a bilinear fit to s-base, with few draws, read strictly."""

    def call(path, *options: object) -> dict:
        draws = [] if "profile" in options else ["--draws", 50]  # which would have no effect there
        usual = ["--router", "s-base", "--law", "bilinear", *draws, "--json"]
        code, out, err = command("fit", path, *usual, *options)
        assert (code, err) == (0, "")
        return strict(out)

    return call


def strict(text: str) -> dict:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


def save(losses: pd.DataFrame, path) -> None:
    losses.to_csv(path, index=False)


@pytest.mark.parametrize("router", OPTIMUM)
def test_the_papers_law_on_the_papers_losses(command, released_path, router) -> None:
    code, out, _ = command("fit", released_path, "--law", "saturated", "--router", router, "--draws", 50, "--json")
    assert code == 0
    got = strict(out)
    digits, errors = OPTIMUM[router]
    for (name, value), printed in zip(got["params"].items(), digits, strict=True):
        assert f"{value:.{len(printed.split('.')[1])}f}" == printed, name
    assert [
        1e4 * got["rmsle"][name] for name in ("in_sample", "leave_one_out", "leave_size_out", "largest_size_out")
    ] == (pytest.approx(errors, abs=0.2))
    assert set(got) >= KEYS
    assert (got["router"], got["target"], got["interval_method"]) == (router, "loss_validation", "size-bootstrap")
    assert set(got["derived"]) <= set(got["intervals"])
    assert any("runs of another variant" in why for why in got["left_out"])


def test_dense_models_in_kaplans_form(command, released_path) -> None:
    """The paper prints α_N = 0.078 (0.0786, cut off) and N_c = 3.568e13, of the last losses of six sizes."""
    asked = ("fit", released_path, "--law", "dense", "--draws", 200)
    code, out, _ = command(*asked, "--json")
    assert code == 0
    got = strict(out)
    assert got["points"] == 6
    assert f"{got['derived']['n_c']:.3e}" == "3.568e+13"
    assert got["derived"]["alpha_n"] == pytest.approx(0.0786, abs=5e-5)
    for name in ("alpha_n", "n_c"):
        low, high = got["intervals"][name]
        assert low < got["derived"][name] < high
    code, out, _ = command(*asked)
    assert code == 0
    assert "α_N: exponent of Kaplan's" in out
    assert "N_c: scale of Kaplan's" in out
    assert "at N = " not in out  # constants of the law belong to no point


def test_a_strangers_table(fit, table) -> None:
    got = fit(table)
    assert set(got) >= KEYS
    assert set(got["rmsle"]) == ERRORS
    assert (got["points"], got["level"], got["status"]) == (20, 0.9, "converged")
    assert set(got["params"]) == {"a", "b", "c", "d"}
    for name, value in got["params"].items():
        low, high = got["intervals"][name]
        assert low < value < high
    assert got["at"] == {"active_params": 60e6, "experts": 32.0}


def test_parquet_is_the_same(fit, losses, table, tmp_path) -> None:
    losses.to_parquet(tmp_path / "losses.parquet")
    assert fit(tmp_path / "losses.parquet")["params"] == fit(table)["params"]


@pytest.mark.parametrize("method", ["size-bootstrap", "case-bootstrap", "profile"])
def test_every_kind_of_interval(fit, table, method) -> None:
    seed = () if method == "profile" else ("--seed", 3)  # which would have no effect there
    got = fit(table, "--interval", method, "--level", 0.8, *seed)
    assert (got["interval_method"], got["level"]) == (method, 0.8)
    assert set(got["intervals"]) == {*got["params"], *got["derived"]}
    low, high = got["intervals"]["b"]
    assert low < got["params"]["b"] < high


def test_huber_is_not_led_astray(fit, losses, table) -> None:
    clean = fit(table)["params"]
    save(
        losses.assign(
            loss_validation=losses["loss_validation"] * np.where(losses["run_id"] == "s-base-1e+09-128", 1.1, 1)
        ),
        table,
    )
    squared, robust = fit(table), fit(table, "--error", "huber")
    assert (squared["error"], robust["error"]) == ("squared", "huber")
    for name in ("a", "b", "c", "d"):
        assert abs(robust["params"][name] - clean[name]) < 0.2 * abs(squared["params"][name] - clean[name]), name


def test_weights(fit, losses, table, tmp_path) -> None:
    """A run of weight 0 is not there; doubling every weight changes nothing."""
    weight = np.where(losses["run_id"] == "s-base-1e+09-128", 0.0, 1.0)
    save(losses.assign(weight=2 * weight), table)
    save(losses[weight > 0], tmp_path / "fewer.csv")
    weighted, fewer = fit(table, "--weights", "weight"), fit(tmp_path / "fewer.csv")
    assert weighted["params"] == pytest.approx(fewer["params"], rel=1e-9)
    assert weighted["rmsle"] == pytest.approx(fewer["rmsle"], rel=1e-6)
    assert weighted["points"] == fewer["points"] == 19
    assert "1 run of weight 0" in weighted["left_out"]


def test_a_whole_size_may_have_no_weight(fit, losses, table) -> None:
    save(losses.assign(weight=(losses["active_params"] < 5e8).astype(int)), table)
    got = fit(table, "--weights", "weight")
    assert got["sizes"] == ["15M", "60M", "250M"]
    assert got["rmsle"]["largest_size_out"] > 0


def test_seeds_are_averaged_or_kept(fit, losses, table) -> None:
    again = losses.assign(run_id=losses["run_id"] + "-b", loss_validation=losses["loss_validation"] * 1.01, seed=1)
    save(pd.concat([losses.assign(seed=0), again]), table)
    assert fit(table)["points"] == 20
    assert fit(table, "--no-average-seeds")["points"] == 40


def test_dense_runs_and_sizes_are_a_choice(fit, table) -> None:
    assert fit(table, "--no-dense")["points"] == 16
    assert fit(table, "--size", "15M", "--size", "60M", "--size", "1B")["sizes"] == ["15M", "60M", "1B"]


def test_a_law_of_ones_own(command, fit, table, tmp_path) -> None:
    (tmp_path / "mine.py").write_text(NEW_LAW)
    plugin = ("--plugin", tmp_path / "mine.py")
    mine, built_in = fit(table, "--law", "mine", *plugin), fit(table, "--law", "separable")
    assert mine["law"] == "mine"
    assert mine["params"] == pytest.approx(built_in["params"])
    for words in (["epc", table], ["plan", table, "--total-params", "1B"]):
        code, out, _ = command(*words, "--law", "mine", *plugin, "--draws", 50, "--json")
        assert (code, {f["law"] for f in strict(out)["fits"]}) == (0, {"mine"})
    code, out, _ = command("compare", table, "--law", "mine", "--law", "bilinear", *plugin, "--json")
    assert code == 0
    assert [row["law"] for row in strict(out)["laws"]["s-base"]] == ["bilinear", "mine"]


def test_compare(command, table) -> None:
    code, out, err = command("compare", table, "--law", "bilinear", "--law", "separable", "--law", "compute", "--json")
    assert (code, err) == (0, "")
    got = strict(out)
    assert set(got["laws"]) == {"s-base", "hash"}
    for router, rows in got["laws"].items():
        assert [row["law"] for row in rows] == ["bilinear", "separable"]
        assert set(rows[0]["rmsle"]) == ERRORS
        assert rows[0]["worse_than_best_probability"] is None
        assert rows[1]["worse_than_best_probability"] > 0.9
        assert rows[1]["behind_best"] > 0 == rows[0]["behind_best"]
        assert "flops_per_token" in got["skipped"][router]["compute"]
    assert got["routers"]["law"] == "bilinear"
    assert got["routers"]["order"] == ["s-base", "hash"]
    assert got["routers"]["better_probability"]["s-base < hash"] > 0.9


def test_compare_on_a_store_whose_routers_were_evaluated(command, tmp_path) -> None:
    """All routers that have a value of the target, without naming them; the others are left out, and that is said."""
    specs, evaluated = list(islice(analysis.specs(), 200)), ("hash", "switch")
    analysis.write_store(tmp_path / "store", len(specs), 2, 1)
    for spec in specs:
        folder = tmp_path / "store" / spec.run_id
        if folder.is_dir() and spec.router.name != "s-base":
            loss = 2 * analysis.loss_of(spec)
            row = {"name": "lambada", "nats_per_token": loss, "metric": "last word", "text": "0" * 64, "accuracy": 0.1}
            add_results(folder, [{**row, "run_id": spec.run_id, "step": analysis.STEPS, "options": {"stride": None}}])
    words = ("compare", tmp_path / "store", "--law", "bilinear", "--law", "separable", "--json", "--target")
    code, out, err = command(*words, "loss_lambada")
    assert code == 0, err
    assert err == "note: s-base is left out: it has no finished run with a value of loss_lambada.\n"
    assert sorted(strict(out)["laws"]) == sorted(strict(out)["routers"]["order"]) == list(evaluated)
    code, out, err = command(*words, "loss_validation")
    assert (code, err, len(strict(out)["laws"])) == (0, "", 3)
    code, out, err = command(*words, "loss_lambada", "--router", "s-base")
    assert code == 2
    assert "without a value of loss_lambada" in err
    code, out, err = command(*words, "loss_nowhere")
    assert code == 2
    assert "loss_nowhere" in err


def test_for_people(command, table) -> None:
    code, out, err = command("fit", table, "--router", "s-base", "--law", "bilinear", "--draws", 50)
    assert (code, err) == (0, "")
    for expected in ("log L = a·log N", "20 points", "leave size out", "N_cut", "k is not given in every row"):
        assert expected in out
    code, out, err = command("compare", table, "--law", "bilinear", "--law", "separable")
    assert (code, err) == (0, "")
    assert "s-base is better than hash with probability" in out


def test_two_sizes_are_fitted_and_the_missing_errors_said(fit, losses, table) -> None:
    save(losses[losses["active_params"].isin([15_000_000, 1_000_000_000])], table)
    got = fit(table)
    assert got["rmsle"]["leave_size_out"] is None
    assert got["interval_method"] == "profile"
    assert any("Profile intervals instead" in w for w in got["warnings"])


def test_a_point_outside_of_the_data_is_called_so(fit, table) -> None:
    assert "is an extrapolation: E is beyond the 128 fitted" in fit(table, "--at-experts", 1e12)["warnings"][-1]
    assert not any("extrapolation" in warning for warning in fit(table, "--at-experts", 100)["warnings"])
