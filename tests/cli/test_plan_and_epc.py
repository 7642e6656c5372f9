"""`routelaw epc` and `routelaw plan`, with no data, with a stranger's table, and with a router nobody has heard of."""

import json

import numpy as np
import pytest

from routelaw.cli.options import quantity
from routelaw.errors import InputError
from routelaw.formatting import byte_size, finite, number

SATURATED = {"a": -0.082, "b": -0.108, "c": 0.009, "d": 1.104, "e_start": 1.847, "e_max": 314.478}
"""S-BASE, as the paper prints it (table of solutions to the joint law)."""
N_370M = 368_123_904


def papers_loss(active_params: float, experts: float) -> float:
    """The joint law written out: 1/Ê = 1/(E − 1 + 1/(1/E_start − 1/E_max)) + 1/E_max."""
    p = SATURATED
    shifted = experts - 1 + 1 / (1 / p["e_start"] - 1 / p["e_max"])
    u, v = np.log10(active_params), np.log10(1 / (1 / shifted + 1 / p["e_max"]))
    return 10 ** (p["a"] * u + p["b"] * v + p["c"] * u * v + p["d"])


@pytest.fixture
def answer(command):
    def call(*args: object) -> dict:
        code, out, err = command(*args, "--json")
        assert (code, err) == (0, "")
        return json.loads(out, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))

    return call


def test_effective_parameters_without_data(answer) -> None:
    got = answer("epc", "--fit", "clark2022-printed/s-base", "--effective", "1B", "--loss", 2.2)
    assert (got["active_params"], got["experts"]) == (N_370M, 64)
    (row,) = got["fits"]
    assert row["fit"] == "clark2022-printed/s-base"
    assert row["loss"] == pytest.approx(papers_loss(N_370M, 64), rel=1e-9)
    assert papers_loss(row["effective_params"], 1) == pytest.approx(row["loss"], rel=1e-9)
    assert papers_loss(N_370M, row["experts_for_effective"]) == pytest.approx(papers_loss(1e9, 1), rel=1e-9)
    for experts, size in row["level_curve"].items():
        assert papers_loss(size, float(experts)) == pytest.approx(2.2, rel=1e-9)
    assert row["n_cut"] == pytest.approx(10 ** (0.108 / 0.009))
    assert set(row["intervals"].values()) == {None}
    assert row["extrapolation"] == ""


def test_a_smaller_dense_model_needs_one_expert(answer) -> None:
    assert {row["experts_for_effective"] for row in answer("epc", "--effective", "10M")["fits"]} == {1.0}


def test_beyond_what_was_fitted(answer) -> None:
    rows = answer("epc", "--params", "13B", "--experts", 1024, "--fit", "clark2022/hash")["fits"]
    assert rows[0]["extrapolation"] == "size is 9.9× the largest fitted and E is beyond the 512 fitted"


def test_epc_of_a_strangers_table(answer, losses, table) -> None:
    losses.assign(loss_c4=losses["loss_validation"] * 1.1).to_csv(table, index=False)
    got = answer(
        "epc", table, "--law", "bilinear", "--params", "60M", "--experts", 32, "--draws", 50, "--target", "all"
    )
    assert [(r["router"], r["target"]) for r in got["fits"]] == [
        ("s-base", "loss_validation"), ("hash", "loss_validation"), ("s-base", "loss_c4"), ("hash", "loss_c4"),
    ]  # fmt: skip
    for row in got["fits"]:
        low, high = row["intervals"]["effective_params"]
        assert 60e6 < low <= row["effective_params"] <= high


def test_plan_without_data(answer) -> None:
    got = answer("plan", "--total-params", "10B", "--memory", "20GB", "--top", 3)
    assert len(got["best"]) == 3
    first = got["best"][0]
    assert first["counts"]["total_params"] <= 10e9
    assert first["memory_bytes"] <= 20e9
    assert [c["loss"] for c in got["best"]] == sorted(c["loss"] for c in got["best"])
    assert [f["name"] for f in got["fits"]] == ["clark2022/s-base", "clark2022/rl-r", "clark2022/hash"]


def test_plan_on_a_strangers_table(answer, command, table) -> None:
    words = ("plan", table, "--law", "bilinear", "--total-params", "2B", "--draws", 50)
    best = answer(*words)["best"][0]
    low, high = best["interval"]
    assert low < best["loss"] < high
    code, out, err = command(*words)
    assert (code, err) == (0, "")
    assert "K and R are those of the models fitted" in out


def test_plan_for_a_router_nobody_has_heard_of(answer, command, losses, table) -> None:
    """Its own K and R are what is planned, and it is counted like a router of one linear layer, which is said."""
    renamed = losses.assign(router=losses["router"].replace("s-base", "my-router"), k=2, routing_frequency=1.0)
    renamed[renamed["router"] != "hash"].to_csv(table, index=False)
    words = ("plan", table, "--law", "bilinear", "--total-params", "2B", "--draws", 50)
    best = answer(*words)["best"]
    routed = [c for c in best if c["experts"] > 1]
    assert {(c["router"], c["k"], c["routing_frequency"]) for c in routed} == {("my-router", 2, 1.0)}
    assert "counted like that of switch" in command(*words)[1]


def test_plan_among_k_and_r(answer, released_path) -> None:
    """The law in compute and parameters tells K and R apart, so they are chosen too."""
    got = answer("plan", released_path, "--law", "compute", "--router", "s-base", "--flops-per-token", "1.2e9",
                 "--draws", 50, "--top", 40)  # fmt: skip
    assert len({(c["k"], c["routing_frequency"]) for c in got["best"]}) > 2
    assert all(c["counts"]["flops_per_token"] <= 1.2e9 for c in got["best"])


def test_numbers_as_people_type_them() -> None:
    typed = {"1.5e9": 1.5e9, "1.5B": 1.5e9, "80GB": 80e9, "80GiB": 80 * 2**30, "2TFLOP": 2e12, " 10 m ": 1e7, "7": 7}
    assert {text: quantity(text, "--x") for text in typed} == typed
    for text in ("", "0", "-1", "B", "1.2.3", "1e999", "nan", "inf", "1 000", "3 apples", "5ib"):
        with pytest.raises(InputError, match="--x must be a positive number"):
            quantity(text, "--x")


def test_numbers_as_people_read_them() -> None:
    shown = {368_123_904: "368M", 1.3e9: "1.3B", 5e14: "500T", 2.5e15: "2.5e+15", 0.01013: "0.01013",
             float("inf"): "∞", float("nan"): "–", 9.999e11: "1T", 999.6e6: "1B", 99_990: "100K"}  # fmt: skip
    assert {value: number(value) for value in shown} == shown
    sizes = {2.2e9: "2.2 GB", 2.21e12: "2.21 TB", 999.9e9: "1 TB", 5e5: "500 kB", 3e16: "30 PB"}
    assert {value: byte_size(value) for value in sizes} == sizes


def test_json_has_no_infinity() -> None:
    held = {"a": (np.float64(1.5), float("inf")), 2: [np.int64(3), float("nan"), None, "x"]}
    assert finite(held) == {"a": [1.5, None], "2": [3, None, None, "x"]}


def test_every_line_of_several_targets_names_its_own(command, losses, table) -> None:
    losses.assign(loss_c4=losses["loss_validation"] * 1.1).to_csv(table, index=False)
    code, out, err = command("epc", table, "--law", "bilinear", "--target", "all", "--loss", 2, "--effective", "2B",
                             "--params", "5B", "--draws", 50, "--router", "hash")  # fmt: skip
    assert (code, err) == (0, "")
    for target in ("loss_validation", "loss_c4"):
        label = f"bilinear fitted to hash, {target}"
        lines = [line for line in out.splitlines() if label in line]
        assert f"! {label}: size is 5.0× the largest fitted: an extrapolation." in lines
        assert any(line.startswith(f"{label}: to equal") for line in lines)
        assert sum(line.strip().startswith(f"{label}  ") for line in lines) == 2


def test_too_few_sizes_are_not_called_published(command, losses, table) -> None:
    losses[losses["active_params"] < 1e8].to_csv(table, index=False)
    code, out, err = command("epc", table, "--law", "bilinear", "--router", "hash")
    assert (code, err) == (0, "")
    assert "published" not in out.lower()
    assert out.count("needs at least 3 sizes, not 2") == 1


def test_printed_digits_do_not_determine_a_cut_off(command) -> None:
    sentence = "do not determine it"
    assert sentence in command("epc", "--fit", "clark2022-printed/s-base")[1]
    assert sentence not in command("epc", "--fit", "clark2022-printed/dense")[1]
    assert sentence not in command("epc")[1]


def test_without_data_answers_come_with_the_intervals_of_refits(answer) -> None:
    rows = answer("epc", "--size", "370M", "--experts", 64)["fits"]
    assert [row["fit"] for row in rows] == ["clark2022/s-base", "clark2022/rl-r", "clark2022/hash"]
    for row in rows:
        low, high = row["intervals"]["effective_params"]
        assert low < row["effective_params"] < high


def test_a_fit_and_a_router_exclude_each_other(command) -> None:
    for words in (("epc",), ("plan", "--total-params", "1B")):
        code, out, err = command(*words, "--router", "s-base", "--fit", "clark2022/hash")
        assert (code, out) == (2, "")
        assert "give either --router or --fit" in err


def test_a_law_of_all_parameters_plans(answer, released_path) -> None:
    got = answer("plan", released_path, "--law", "abnar2025", "--router", "s-base", "--total-params", "10B",
                 "--draws", 50)  # fmt: skip
    assert got["best"][0]["counts"]["total_params"] <= 10e9
    assert got["best"][0]["interval"] is not None


@pytest.fixture
def unfinished(losses, table):
    """The table with one run of each router still running."""
    last = losses["run_id"].isin(["s-base-1e+09-128", "hash-1e+09-128"])
    losses.assign(status=np.where(last, "running", "finished")).to_csv(table, index=False)
    return table


LEFT_OUT = ["1 run not finished"]


def test_what_was_left_out_is_said_by_every_command(answer, command, unfinished) -> None:
    epc = ("epc", unfinished, "--law", "bilinear", "--draws", 50)
    plan = ("plan", unfinished, "--law", "bilinear", "--total-params", "2B", "--draws", 50)
    compare = ("compare", unfinished, "--law", "bilinear", "--law", "separable")
    assert [row["left_out"] for row in answer(*epc)["fits"]] == [LEFT_OUT, LEFT_OUT]
    assert [row["left_out"] for row in answer(*plan)["fits"]] == [LEFT_OUT, LEFT_OUT]
    assert answer(*compare)["left_out"] == {"s-base": LEFT_OUT, "hash": LEFT_OUT}
    for words in (epc, plan, compare):
        [*lines] = [line for line in command(*words)[1].splitlines() if "left out: 1 run not finished." in line]
        assert all(any(router in line for line in lines) for router in ("s-base", "hash"))


def test_warnings_of_the_fit_are_said(answer, command, losses, table) -> None:
    losses[losses["active_params"] < 1e8].to_csv(table, index=False)
    warned = "leave-size-out error is not available"
    for words in (("epc", table, "--law", "bilinear"), ("plan", table, "--law", "bilinear", "--total-params", "2B")):
        assert all(any(warned in w for w in row["warnings"]) for row in answer(*words)["fits"])
        [line] = [line for line in command(*words)[1].splitlines() if warned in line]  # once, with both names
        assert "s-base" in line
        assert "hash" in line
    laws = answer("compare", table, "--law", "bilinear")["laws"]
    assert all(warned in rows[0]["warnings"][0] for rows in laws.values())
    assert command("compare", table, "--law", "bilinear")[1].count(warned) == 2


def test_under_a_law_with_one_router(answer, command, table) -> None:
    words = ("compare", table, "--law", "bilinear", "--router", "hash")
    for option, value in (("--under", "bilinear"), ("--experts", 8), ("--params", "1B"), ("--size", "370M")):
        code, out, err = command(*words, option, value)
        assert (code, out) == (2, "")
        assert f"{option} has no effect with one router (hash)" in err
    assert "not compared" not in command(*words)[1]
    assert answer(*words)["routers_why_not"] == ""


def test_every_star_is_explained(command, table) -> None:
    """The best answer is inside what was fitted and a runner-up is not."""
    code, out, err = command("plan", table, "--law", "bilinear", "--target-loss", 2.5, "--draws", 50, "--top", 40)
    assert (code, err) == (0, "")
    assert " *" in out.split("FLOPs/token")[1]
    assert "extrapolates: " in out


def test_what_is_named_twice_is_there_once(answer, table) -> None:
    assert len(answer("epc", "--router", "hash", "--router", "hash")["fits"]) == 1
    assert len(answer("epc", "--fit", "clark2022/hash", "--fit", "clark2022/hash")["fits"]) == 1
    fits = answer("epc", table, "--law", "bilinear", "--router", "hash", "--router", "hash", "--draws", 50)["fits"]
    assert [row["router"] for row in fits] == ["hash"]
    laws = answer("compare", table, "--law", "bilinear", "--law", "bilinear", "--router", "hash")["laws"]
    assert [row["law"] for row in laws["hash"]] == ["bilinear"]


def test_a_comparison_outside_of_the_data_says_so(answer, table) -> None:
    got = answer("compare", table, "--law", "bilinear", "--params", "1e18", "--experts", "1e12")
    assert all("an extrapolation: size is 1.0e+09× the largest" in w[-1] for w in got["warnings"].values())
    got = answer("compare", table, "--law", "bilinear", "--params", "60M", "--experts", 32)
    assert set(map(tuple, got["warnings"].values())) == {()}


def test_a_router_without_a_finished_run_is_left_out_and_named(command, losses, table) -> None:
    losses.assign(status=np.where(losses["router"] == "hash", "running", "finished")).to_csv(table, index=False)
    for words in (("epc", table, "--draws", 50), ("compare", table), ("plan", table, "--total-params", "2B")):
        code, out, err = command(*words, "--law", "bilinear", "--json")
        assert (code, err) == (0, "note: hash is left out: it has no finished run.\n")
        assert "s-base" in out


def test_nobody_to_show_it_to(command, table, monkeypatch) -> None:
    """As with `>&-`: there is no standard output."""
    monkeypatch.setattr("sys.stdout", None)
    code, _, err = command("compare", table, "--law", "bilinear", "--router", "hash")
    assert (code, err) == (0, "")
