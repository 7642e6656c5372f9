"""The figures of the studies of the paper, from tables such as their sweep files give: what they show, and refuse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Picture

from routelaw.figures import (
    all_figures,
    lengths,
    limit,
    permuted_hash,
    rl_variants,
    robustness,
    seeds,
    single_layer,
    stacked_ffws,
    style,
)
from routelaw.figures.figure import CannotDraw, Figure
from routelaw.figures.matched import matched_runs, words_of
from routelaw.fitting.noise import noise_floor
from routelaw.report.clark2022 import reproduce
from routelaw.routers.router import router_class
from routelaw.runs.files import read_runs
from routelaw.runs.table import RunTable
from routelaw.specs.run import RouterSpec
from tests.figures.study_tables import EFFECTS, ROUTERS, log_loss, study_specs, table_of

MODULES = (seeds, lengths, rl_variants, robustness, permuted_hash, stacked_ffws, single_layer, limit)
FIGURES = {figure.name: figure for module in MODULES for figure in module.FIGURES}
FILES = {name: "limit_7b" if name == "limit" else name for name in FIGURES}
MINIATURE = Path(__file__).parents[2] / "experiments" / "miniature" / "data" / "runs.csv.gz"
EVERY = pytest.mark.parametrize("name", FIGURES)

Drawn = Callable[[str, RunTable], Picture]


def drawn(name: str, table: RunTable) -> Picture:
    """Drawn, laid out and rendered."""
    with matplotlib.rc_context(style.RC):
        picture = FIGURES[name].draw(table)
        FigureCanvasAgg(picture).draw()
    return picture


@cache
def study_table(study: str, base: str = "miniature") -> RunTable:
    return table_of(study_specs(study, base))


def named(axes: Axes) -> dict[str, np.ndarray]:
    """The lines of a panel by their label."""
    return {str(line.get_label()): np.asarray(line.get_ydata(), float) for line in axes.lines}


def assert_readable(picture: Picture) -> None:
    for axes in picture.axes:
        if axes.get_visible():
            assert axes.has_data()
            assert all(np.isfinite(axes.get_ylim()))
            assert axes.get_ylabel() or axes.get_xlabel() or not axes.get_subplotspec().is_first_col()


@EVERY
@pytest.mark.parametrize("base", ["miniature", "paper"])
def test_it_draws_from_the_runs_of_its_study(name: str, base: str) -> None:
    assert_readable(drawn(name, study_table(FILES[name], base)))


@EVERY
def test_it_draws_from_its_study_cut_to_two_sizes_and_twenty_steps(name: str) -> None:
    """Evaluated once, as short runs are."""
    specs = study_specs(FILES[name], sizes=2, overrides={"train.steps": 20})
    assert_readable(drawn(name, table_of(specs, evaluations=1)))


@EVERY
@pytest.mark.skipif(not MINIATURE.is_file(), reason="no runs of the miniature are committed")
def test_it_draws_from_the_miniature(name: str) -> None:
    assert_readable(drawn(name, miniature()))


@cache
def miniature() -> RunTable:
    return read_runs(MINIATURE)


def without_columns(table: RunTable, *names: str) -> RunTable:
    frame = table.frame.sort_values("step", kind="stable").groupby("run_id", sort=False).tail(1)
    return RunTable.from_frame(frame.drop(columns=list(names)), "few columns")


def degenerate() -> dict[str, RunTable]:
    main = table_of(study_specs("main", sizes=2))
    frame = main.frame
    dense, routed = frame[frame["router"] == "dense"], frame[frame["router"] != "dense"]
    first = frame[frame["run_id"] == frame["run_id"].iloc[0]]
    tables = {
        "dense alone": dense,
        "routed alone": routed,
        "one run": first,
        "one routed run": routed[routed["run_id"] == routed["run_id"].iloc[0]],
        "none finished": frame[frame["status"] != "finished"],
        "all diverged": frame.assign(status="diverged", loss_validation=np.nan),
        "another loss": frame.rename(columns={"loss_validation": "loss_c4"}),
        "equal losses": frame.assign(loss_validation=3.0),
        "another router": frame.assign(router=frame["router"].replace("hash", "mine")),
        "K = 2 throughout": frame.assign(k=np.where(frame["router"] == "dense", 1, 2)),
    }
    made = {name: RunTable.from_frame(own.reset_index(drop=True), name) for name, own in tables.items()}
    made["no progress"] = without_columns(main, "step", "tokens", "tokens_planned")
    few = ["run_id", "router", "experts", "active_params", "loss_validation"]
    last = frame[frame["status"] == "finished"]
    made["required columns"] = RunTable.from_frame(last[few].reset_index(drop=True), "few")
    return made


@EVERY
def test_it_draws_or_says_in_a_sentence_what_is_missing(name: str) -> None:
    for what, table in degenerate().items():
        sentence = refusal(name, table)
        assert not sentence or (sentence[0].isupper() and sentence.endswith(".")), what


def refusal(name: str, table: RunTable) -> str:
    """Why a figure cannot be drawn; empty where it can."""
    try:
        drawn(name, table)
    except CannotDraw as error:
        return str(error)
    return ""


@pytest.mark.parametrize("study", [*FILES.values(), "main", "k", "shared_decisions", "routing_frequency"])
def test_every_figure_meets_every_study(study: str) -> None:
    table = table_of(study_specs(study, sizes=2), evaluations=2)
    for name in FIGURES:
        assert not refusal(name, table) or FILES[name] != study


def test_seeds_are_drawn_about_their_mean_and_by_their_distance() -> None:
    table = table_of(study_specs("seeds"), noise=1e-3)
    last = table.frame[table.frame["status"] == "finished"]
    one = last[(last["router"] == "hash") & (last["experts"] == last["experts"].max())]["loss_validation"]
    assert len(one) == 3
    upper, lower = drawn("seeds", table).axes
    labels = [tick.get_text() for tick in upper.get_xticklabels()]
    assert len(labels) == len(set(labels)) == 7
    place = labels.index(f"HASH, E = {last['experts'].max()}")
    gaps = next(np.asarray(line.get_ydata()) for line in upper.lines if line.get_xdata()[0] == place)
    assert sorted(gaps) == pytest.approx(sorted(one - one.mean()))
    noise = noise_floor(table)
    band = upper.patches[0].get_extents().transformed(upper.transData.inverted())
    assert band.y1 == pytest.approx(noise.nats)
    apart = named(lower)[labels[place]]
    assert len(apart) == 4
    assert apart[-1] == pytest.approx(one.max() - one.min())


def test_runs_with_other_learning_rates_are_no_seeds() -> None:
    frame = table_of(study_specs("seeds"), noise=1e-3).frame
    table = RunTable.from_frame(frame.assign(learning_rate=frame["seed"] * 1e-3), "rates")
    with pytest.raises(CannotDraw, match="several seeds"):
        seeds.draw(table)


def test_lengths_are_drawn_each_with_its_slope() -> None:
    table = study_table("lengths")
    losses, slopes = drawn("lengths", table).axes
    last = table.frame[table.frame["status"] == "finished"]
    for length, own in last.groupby("tokens_planned"):
        expected = np.polyfit(np.log10(own["experts"].astype(float)), np.log10(own["loss_validation"]), 1)[0]
        line = next(np.asarray(line.get_ydata()) for line in slopes.lines
                    if len(line.get_xdata()) > 1 and line.get_xdata()[-1] == length)  # fmt: skip
        assert len(line) == 4
        assert line[-1] == pytest.approx(expected)
    assert {"Dense", "E = 64"} <= set(named(losses))
    assert slopes.get_xlabel() == "tokens seen"


def test_what_routers_are_apart_by_length() -> None:
    lengthy = study_specs("lengths")
    others = [replace(spec, router=RouterSpec("s-base", spec.router.experts)) for spec in lengthy
              if spec.router.name == "hash" and spec.train.steps < 8000]  # fmt: skip
    table = table_of([*lengthy, *others])
    rows, _ = lengths.evaluations(matched_runs(table))
    assert set(rows["variant"]) == {""}
    gaps = lengths.gaps_by_length(rows, "hash")
    assert gaps.shape == (2, 3)
    by_run = {
        (s.router.name, s.router.experts, s.tokens_after(s.train.steps)): log_loss(s) for s in [*lengthy, *others]
    }
    (router, _, experts), tokens = gaps.columns[0], gaps.index[0]
    ratio = 10 ** (by_run[router, experts, tokens] - by_run["hash", experts, tokens])
    assert gaps.iloc[0, 0] < 0
    assert ratio == pytest.approx(10 ** -ROUTERS["hash"])
    assert drawn("lengths", table).axes[2].get_ylabel() == "loss less that of HASH (nats)"


def test_variants_of_rl_r_stand_over_the_usual_one() -> None:
    lines = named(drawn("rl_variants", study_table("rl_variants")).axes[0])
    expected = {"G": EFFECTS["variant=G"], "S": EFFECTS["variant=S"],
                "S, importance": EFFECTS["variant=S"] + EFFECTS["importance"],
                "S, nucleus 1": EFFECTS["variant=S"] + EFFECTS["nucleus=1"],
                "S, entropy weight 0.0005": EFFECTS["variant=S"]}  # fmt: skip
    found = {name: line for name, line in lines.items() if name in expected}
    assert set(found) == set(expected)
    for name, effect in expected.items():
        np.testing.assert_allclose(found[name], 100 * (10**effect - 1), rtol=0.02)
        assert len(found[name]) == (3 if len(name) == 1 else 1), "the remarks were tried at one E"


def test_a_variant_is_said_in_words() -> None:
    assert words_of("entropy_weight=default,variant=G") == "G"
    assert words_of("importance,variant=S") == "S, importance"
    assert words_of("balance_weight=default") == "at the defaults"


def test_default_weights_are_those_of_the_routers() -> None:
    for router, weight in robustness.DEFAULT_WEIGHTS["balance_weight"].items():
        assert router_class(router).default_balance_weight == weight
    made = router_class("rl-r")(8, 64, 1, RouterSpec("rl-r", 4, group_tokens=16))
    for name in ("entropy", "policy"):
        assert made.loss_weights[name] == robustness.DEFAULT_WEIGHTS[f"{name}_weight"]["rl-r"]


def test_robustness_joins_models_that_differ_in_one_weight() -> None:
    first, balance, entropy, policy = drawn("robustness", study_table("robustness")).axes
    joined = [line for line in balance.lines if len(line.get_xdata()) > 1]
    by_colour = {colour: [line for line in joined if line.get_color() == colour]
                 for colour in map(style.router_colour, ("rl-r", "s-base", "switch"))}  # fmt: skip
    assert [len(lines) for lines in by_colour.values()] == [9, 1, 1]
    (line,) = by_colour[style.router_colour("s-base")]
    assert list(line.get_xdata()) == [0.0, 1e-3, 1e-2, 1e-1, 1.0]
    own = [spec for spec in study_specs("robustness") if spec.router.name == "s-base"]
    expected = {spec.router.balance_weight: log_loss(spec) for spec in own}
    ratios = np.log10(np.asarray(line.get_ydata(), float)) - [expected[w] for w in sorted(expected)]
    np.testing.assert_allclose(ratios, ratios[0], atol=1e-12)
    assert [len([line for line in panel.lines if len(line.get_xdata()) > 1]) for panel in (entropy, policy)] == [9, 9]
    assert [tick.get_text() for tick in first.get_xticklabels()] == ["S-BASE", "RL-R", "HASH", "Switch"]
    assert balance.get_ylim() == entropy.get_ylim() == policy.get_ylim()


def test_a_weight_that_is_not_named_stands_at_the_default() -> None:
    main = [spec for spec in study_specs("main", sizes=1) if spec.router.experts == 64]
    varied = [replace(spec, router=replace(spec.router, balance_weight=w)) for spec in main
              if spec.router.name == "switch" or spec.router.name == "s-base" for w in (1e-3, 1.0)]  # fmt: skip
    rows = robustness.weighted_runs(matched_runs(table_of([*main, *varied])))
    weights = rows[rows["router"] == "s-base"].sort_values("balance_weight")
    assert list(weights["balance_weight"]) == [1e-3, 1e-2, 1.0]
    assert list(weights["variant"]) == ["balance_weight=0.001", "", "balance_weight=1"]
    assert rows[rows["router"] == "hash"]["balance_weight"].isna().all()


@pytest.mark.parametrize("most_permuted", [False, True])
def test_permuted_less_plain_whichever_is_usual(most_permuted: bool) -> None:
    specs = study_specs("permuted_hash")
    if most_permuted:
        plain = [spec for spec in specs if not spec.router.options]
        specs = [spec for spec in specs if spec.router.options or spec in plain[:2]]
    pairs = permuted_hash.permuted_pairs(matched_runs(table_of(specs)))
    assert len(pairs) == (1 if most_permuted else 6)
    np.testing.assert_allclose(pairs["permuted"] - pairs["plain"], EFFECTS["permuted"], atol=1e-9)


def test_stacked_models_stand_beside_their_interleaved_ones() -> None:
    table = study_table("stacked_ffws")
    pairs = list(stacked_ffws.stacked_pairs(matched_runs(table).one_length))
    assert {str(pair.stacked["router"]) for pair in pairs} == {"s-base", "hash"}
    specs = study_specs("stacked_ffws")
    for pair in pairs:
        of_router = [spec for spec in specs if spec.router.name == pair.stacked["router"]]
        stacked, interleaved = sorted(of_router, key=lambda spec: -spec.router.ffws_per_expert)
        assert pair.gap == pytest.approx(log_loss(stacked) - log_loss(interleaved))
    (panel,) = drawn("stacked_ffws", table).axes
    assert any(text.get_text().startswith("Dense") for text in panel.get_legend().get_texts())


def test_a_single_block_is_the_lowest_share_of_its_size() -> None:
    rows = single_layer.fewest_routed(matched_runs(study_table("single_layer", "paper")))
    shares = rows.groupby("size")["routing_frequency"].agg(set).to_dict()
    assert shares == {"25M": {1 / 8}, "370M": {1 / 12}}
    assert set(rows["placement"]) == {"even", "interior"}
    many = single_layer.fewest_routed(matched_runs(study_table("routing_frequency", "paper")))
    assert many.groupby("size")["routing_frequency"].max().to_dict() == {
        "25M": 0.125, "370M": pytest.approx(1 / 12), "870M": 0.25,
    }  # fmt: skip
    with pytest.raises(CannotDraw, match="half of its blocks"):
        single_layer.draw(study_table("main"))


def test_the_limit_is_where_the_gain_is_zero() -> None:
    """Δ = −(b + c·log N)·log E of the bilinear law is zero at N = 10^(−b/c) for every E."""
    specs = [spec for spec in study_specs("main", "paper") if spec.router.name in ("dense", "s-base")]
    losses, _ = limit.losses_at_one_length(matched_runs(table_of(specs)))
    gains = limit.gains_over_dense(losses)["s-base"]
    active = {spec.model.architecture: spec.counts.active_params for spec in specs if spec.router.name == "dense"}
    own = gains[gains.index.get_level_values("experts") == 64].sort_values(ascending=False)
    line, zero = limit.stops_helping(np.sort(list(active.values())), own.to_numpy())
    assert line[0] == pytest.approx(-0.01 * np.log10(64), rel=1e-3)
    assert np.log10(zero.value) == pytest.approx(10, abs=1e-2)
    assert zero.low <= zero.value <= zero.high
    assert limit.stops_helping(np.array([1e6, 1e7, 1e8]), np.array([0.01, 0.02, 0.03]))[1].value == np.inf


@pytest.mark.parametrize("steps", [50_000, 100_000])
def test_sizes_are_compared_after_equally_many_tokens(steps: int) -> None:
    """Models that were trained for longer count with what they had then, as the paper compares 7B with main.toml's."""
    specs = study_specs("main", "paper", sizes=2)
    specs += study_specs("limit_7b", "paper", overrides={"train.steps": steps})
    shortest = min(specs, key=lambda spec: spec.tokens_after(spec.train.steps))
    table = table_of(specs, evaluations=80)
    losses, end = limit.losses_at_one_length(matched_runs(table))
    assert end == shortest.tokens_after(shortest.train.steps)
    for size in ("15M", "7B"):
        own = table.frame[(table.frame["router"] == "dense") & (table.frame["size"] == size)]
        nearest = own.iloc[(own["tokens"] - end).abs().argmin()]
        assert 10 ** losses["dense", size, 1] == pytest.approx(nearest["loss_validation"])
    assert "7B" in losses["rl-r"], "it has weights of its own"
    assert drawn("limit", table).axes[0].get_title() == f"after {'105B' if steps == 50_000 else '131B'} tokens"


def test_a_gain_is_of_one_length() -> None:
    """A model of several lengths counts with the one that is as long as the largest size's."""
    lengthy, largest = study_specs("lengths"), study_specs("limit_7b", overrides={"train.batch": 16})
    largest = [replace(spec, train=replace(spec.train, steps=2000)) for spec in largest]
    losses, end = limit.losses_at_one_length(matched_runs(table_of([*lengthy, *largest], evaluations=8)))
    assert end == 2000 * 16 * 192
    table = table_of([spec for spec in lengthy if spec.train.steps == 2000]).frame
    own = table[(table["status"] == "finished") & (table["router"] == "hash")].set_index("experts")["loss_validation"]
    for experts, loss in own.items():
        size = table["size"].iloc[0]
        assert 10 ** losses["hash", size, experts] == pytest.approx(loss)


def test_the_release_page_leaves_out_what_was_not_released(monkeypatch: pytest.MonkeyPatch) -> None:
    every, kept = {figure.name for figure in all_figures()}, {figure.name for figure in reproduce._figures()}
    assert every - kept == set(FIGURES)
    assert len(kept) == 24


def test_captions_name_no_size_and_no_number_of_a_table() -> None:
    figure: Figure
    for figure in FIGURES.values():
        assert figure.title
        assert not any(word in figure.caption for word in ("25M", "130M", "370M", "1.3B", "S-BASE is", "HASH is"))


def test_seeds_of_another_size_are_said() -> None:
    specs = [*study_specs("seeds"), *study_specs("permuted_hash", overrides={"train.steps": 800})]
    frame = table_of(specs, noise=1e-3).frame
    panel = drawn("permuted_hash", RunTable.from_frame(frame, "both")).axes[1]
    said = [text.get_text() for text in panel.get_legend().get_texts()]
    seeded = frame[frame["seed"] > 0]["size"].iloc[0]
    assert f"noise of seeds (± one sd; seeds of {seeded})" in said


def test_rows_of_a_table_are_left_as_they_were() -> None:
    table = study_table("rl_variants")
    before = table.frame.copy()
    rl_variants.draw(table)
    pd.testing.assert_frame_equal(table.frame, before)


def test_losses_on_another_corpus_are_not_compared() -> None:
    frame = study_table("permuted_hash").frame
    other = frame[frame["variant"] == ""].head(4).assign(corpus="other", run_id="other", loss_validation=1.0)
    both = RunTable.from_frame(pd.concat([frame, other]), "both")
    pairs = (permuted_hash.permuted_pairs(matched_runs(table)) for table in (study_table("permuted_hash"), both))
    pd.testing.assert_frame_equal(*pairs)
