"""The appendix's figures and ours: each drawn from the release, and its values against computations made otherwise."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Picture
from scipy import optimize, stats

from routelaw.figures import (
    along_training,
    cutoff_by_law,
    experts_per_token,
    kaplan_fits,
    law_ranking,
    routing_frequency,
    shared_decisions,
    style,
    transfer,
)
from routelaw.figures.loss_curves import PAPER_ROUTERS
from routelaw.fitting import fit_law, select_points
from routelaw.fitting.intervals import Interval
from routelaw.fitting.validation import validate
from routelaw.runs.table import RunTable

MODULES = (
    experts_per_token, routing_frequency, shared_decisions, transfer, along_training, kaplan_fits, law_ranking,
    cutoff_by_law,
)  # fmt: skip
FIGURES = {figure.name: figure for module in MODULES for figure in module.FIGURES}

Drawn = Callable[[str], Picture]


@pytest.fixture(scope="module")
def drawn(released: RunTable) -> Drawn:
    """Each figure drawn once, laid out and rendered; the cut-offs from few resamples, for they take longest."""
    pictures: dict[str, Picture] = {}

    def draw(name: str) -> Picture:
        if name not in pictures:
            with matplotlib.rc_context(style.RC), pytest.MonkeyPatch.context() as patch:
                patch.setattr(cutoff_by_law, "DRAWS", 30)
                pictures[name] = FIGURES[name].draw(released)
                FigureCanvasAgg(pictures[name]).draw()
        return pictures[name]

    return draw


@pytest.fixture(scope="module")
def release(released_path: Path) -> pd.DataFrame:
    """The raw file, read without the package."""
    return pd.read_csv(released_path)


def ends(release: pd.DataFrame, target: str = "loss_validation") -> pd.DataFrame:
    return release.dropna(subset=[target]).sort_values("step").groupby("hyper_id").tail(1)


def lines(axes: Axes, label: str) -> list[tuple[np.ndarray, np.ndarray]]:
    found = [line for line in axes.get_lines() if line.get_label() == label]
    return [(np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)) for line in found]


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_labelled_inside_its_frame_and_without_overlap(name: str, drawn: Drawn) -> None:
    picture = drawn(name)
    frame = picture.bbox
    assert len(picture.axes) > 0
    for axes in picture.axes:
        assert axes.get_xlabel()
        assert axes.get_ylabel() or axes.get_subplotspec().colspan.start > 0
        for text in (axes.xaxis.label, axes.yaxis.label, axes.title):
            if text.get_text():
                box = text.get_window_extent()
                assert frame.x0 <= box.x0 <= box.x1 <= frame.x1, text
                assert frame.y0 <= box.y0 <= box.y1 <= frame.y1, text
        low, high = sorted(axes.get_xlim())
        ticks = [
            label.get_window_extent()
            for place, label in zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)
            if low <= place <= high and label.get_text()
        ]
        assert len(ticks) >= 2
        assert all(a.x1 < b.x0 for a, b in pairwise(sorted(ticks, key=lambda box: box.x0)))


def test_figures_are_named_once_and_say_what_they_show() -> None:
    assert len(FIGURES) == sum(len(module.FIGURES) for module in MODULES) == 11
    assert all(len(figure.caption + figure.on_release) > 200 and figure.title for figure in FIGURES.values())


def test_k_against_flops(drawn: Drawn, release: pd.DataFrame) -> None:
    by_size, by_flops, excess = drawn("k_against_flops").axes
    last = ends(release)
    routed = last[(last["router_type"] == "S-Base") & (last["num_experts"] == 64) & (last["routing_frequency"] == 0.5)]
    for k, count in ((1, 6), (2, 2), (4, 2)):
        own = routed[(routed["k"] == k) & ~routed["hyper_id"].isin([54])].sort_values("dense_parameter_count")
        ((_, loss),) = lines(by_size, f"S-BASE 64E, K = {k}")
        ((flops, same_loss),) = lines(by_flops, f"S-BASE 64E, K = {k}")
        assert len(own) == count
        np.testing.assert_allclose(loss, own["loss_validation"])
        np.testing.assert_array_equal(loss, same_loss)
        np.testing.assert_allclose(flops, own["flops_per_step"] / (256 * 2048) / 1e9)
    assert [len(x) for label in ("Dense", "Dense, FFWs widened") for x, _ in lines(by_flops, label)] == [6, 5]
    ((_, at_370m),) = lines(excess, "S-BASE 256E")
    x = np.log([1.066684e9, 3.367731e9, 1.293177e9])  # 370M and 1.3B at K = 1, 370M at K = 2; E = 256
    line = np.exp(np.log(2.153640) + np.log(2.014528 / 2.153640) * (x[2] - x[0]) / (x[1] - x[0]))
    assert at_370m[1] == pytest.approx(100 * (2.117594 / line - 1), abs=0.001)


def test_what_the_caption_says_of_k(released: RunTable) -> None:
    def excess(experts: int, k: int) -> np.ndarray:
        found = experts_per_token.families(released)
        return np.array([experts_per_token.excess(found, experts, size, k) for size in ("25M", "370M")])

    assert (excess(8, 2) > 0.4).all()
    assert (excess(8, 4) > 1.5).all()
    assert (np.abs(excess(64, 2)) < 0.2).all()
    assert (excess(64, 4) > 0.5).all()
    assert (excess(256, 2) < -0.5).all()
    assert (excess(256, 4) < 0).all()
    runs = [select_points(released, "s-base", include_dense=False, k=k, experts=(64,)) for k in (1, 2, 4)]
    order = np.argsort(np.concatenate([p.x["flops_per_token"] for p in runs]))
    assert (np.diff(np.concatenate([p.loss for p in runs])[order]) < 0).all()  # nobody is cheaper and better


def test_routing_frequency(drawn: Drawn, release: pd.DataFrame) -> None:
    last = ends(release)
    hashed = last[last["router_type"].str.lower() == "hash"]
    for axes, experts, shortest in zip(drawn("routing_frequency").axes, (8, 64, 256), (4, 3, 3), strict=True):
        for size, full in (("25M", shortest), ("370M", 4)):
            ((frequency, loss),) = lines(axes, f"HASH {size}")
            own = hashed[(hashed["model_size_label"] == size) & (hashed["num_experts"] == experts)]
            own = own.sort_values("routing_frequency")
            np.testing.assert_allclose(frequency, own["routing_frequency"])
            np.testing.assert_allclose(loss, own["loss_validation"])
            ((frequency, routed),) = lines(axes, f"S-BASE {size}")
            assert len(frequency) == full
            assert (np.diff(routed) < 0).all()
            if frequency[0] < 0.2:  # one routed block: the paper has HASH lower, the release S-BASE
                assert routed[0] < loss[0]
        if experts > 8:
            assert loss[-1] > loss[-2]  # 370M: HASH in every block is worse than in every other


def test_one_routed_layer(drawn: Drawn) -> None:
    small, large = drawn("one_routed_layer").axes
    assert [len(lines(axes, "S-BASE, one block")[0][0]) for axes in (small, large)] == [1, 3]
    assert [len(lines(axes, "HASH, one block")[0][0]) for axes in (small, large)] == [3, 3]
    alone = lines(large, "HASH, one block")[0][1] - lines(large, "S-BASE, one block")[0][1]
    often = lines(large, "HASH, every other block")[0][1] - lines(large, "S-BASE, every other block")[0][1]
    assert (alone > 0).all()
    assert (alone < 0.01).all()
    assert (often > 0.04).all()


def test_shared_decisions(drawn: Drawn, release: pd.DataFrame) -> None:
    last = ends(release).set_index("hyper_id")["loss_validation"]
    for axes, runs in zip(drawn("shared_decisions").axes, ((56, 54, 66), (57, 55, 67)), strict=True):
        ((frequency, loss),) = lines(axes, "S-BASE, decisions shared")
        np.testing.assert_allclose(frequency, [0.25, 0.5, 1.0])
        np.testing.assert_allclose(loss, last.loc[list(runs)])
        hashed = lines(axes, "HASH")[0][1][-3:]
        assert np.abs(loss - hashed).max() < 0.025


def test_transfer_coefficients(drawn: Drawn, release: pd.DataFrame) -> None:
    """Against plain least squares on the raw file, and HASH against the printed table, digit for digit."""
    printed = [(-0.082, -0.102, 0.009), (-0.213, -0.167, 0.015), (-0.111, -0.161, 0.014), (-0.101, -0.101, 0.010),
               (-0.093, -0.086, 0.007), (-0.070, -0.088, 0.008)]  # fmt: skip
    picture = drawn("transfer_coefficients")
    for row, (task, expected) in enumerate(zip(transfer.CORPORA, printed, strict=True)):
        last = ends(release, task)
        own = last[(last["router_type"].str.lower() == "hash") & (last["routing_frequency"] == 0.5) & (last["k"] == 1)]
        u, v = np.log10(own["dense_parameter_count"]), np.log10(own["num_experts"])
        basis = np.stack([u, v, u * v, np.ones(len(u))], axis=1)
        solution = np.linalg.lstsq(basis, np.log10(own[task]), rcond=None)[0][:3]
        plotted = [lines(axes, "HASH")[0][0][row] for axes in picture.axes]
        np.testing.assert_allclose(plotted, solution, rtol=1e-5)
        assert [round(value, 3) for value in plotted] == pytest.approx(list(expected), abs=1e-9)
    assert len(lines(picture.axes[0], "Dense")[0][0]) == 6


def test_transfer_slopes(drawn: Drawn, released: RunTable) -> None:
    axes = drawn("transfer_slopes").axes
    assert len(axes) == 12
    params = transfer.transfer_fits(released)["rl-r", "loss_lambada"].params
    sizes, slope = lines(axes[1], "RL-R")[0]
    np.testing.assert_allclose(slope, params["b"] + params["c"] * np.log10(sizes))
    other = lines(axes[1], "S-BASE")[0][1]
    crossing = sizes[np.flatnonzero(np.diff(np.sign(slope - other)))]
    assert crossing == pytest.approx([220e6], rel=0.1)
    experts, slope = lines(axes[7], "RL-R")[0]
    np.testing.assert_allclose(slope, params["a"] + params["c"] * np.log10(experts))


def test_dense_along_training(drawn: Drawn, release: pd.DataFrame, released: RunTable) -> None:
    slope_axes, error_axes = drawn("dense_along_training").axes
    steps, slope = np.asarray(slope_axes.get_lines()[0].get_data(), float)
    rmse = np.asarray(error_axes.get_lines()[0].get_ydata(), float)
    np.testing.assert_allclose(steps, [*range(10, 250, 10), 249])
    dense = release[(release["num_experts"] == 1) & (release["flop_increase"] == 1)]
    for index, step in ((0, 10_000), (11, 120_000), (23, 240_000)):
        loss = dense[dense["step"] == step].groupby("dense_parameter_count")["loss_validation"].mean()
        line = stats.linregress(np.log10(loss.index.to_numpy(float)), np.log10(loss.to_numpy()))
        residual = np.log10(loss.to_numpy()) - line.intercept - line.slope * np.log10(loss.index.to_numpy(float))
        assert slope[index] == pytest.approx(line.slope, rel=1e-9)
        assert rmse[index] == pytest.approx(1e4 * np.sqrt((residual**2).mean()), rel=1e-6)
    assert slope[-1] == pytest.approx(fit_law("dense", select_points(released, "dense")).params["a"], rel=1e-6)
    assert (np.diff(slope) < 0).all()
    assert rmse[-1] < rmse[0] / 2


def test_experts_along_training(drawn: Drawn, released: RunTable) -> None:
    routers, sizes = drawn("experts_along_training").axes
    for axes, label, router, size in ((routers, "RL-R", "rl-r", "15M"), (sizes, "1.3B", "hash", "1.3B")):
        steps, slope = lines(axes, label)[0]
        for index in (4, len(steps) - 1):
            points = select_points(released, router, sizes=(size,), up_to_step=int(1000 * steps[index]))
            assert slope[index] == pytest.approx(fit_law("experts", points).params["b"], rel=1e-6)
    assert len(lines(sizes, "25M")) == 1
    assert len(sizes.get_lines()) == 6
    assert all((np.diff(line.get_ydata()[[0, 8, 16, -1]]) < 0).all() for line in sizes.get_lines())


def test_kaplan_fits_are_the_optimum_of_an_independent_search(drawn: Drawn, released: RunTable) -> None:
    fits = kaplan_fits.three_fits(released)
    assert [len(fit.points) for fit in fits.values()] == [150, 90, 60]
    for fit in fits.values():
        size, step = np.log10(fit.points.x["active_params"] / 1e8), np.log10(fit.points.x["step"] / 1e5)

        def residual(p: np.ndarray, size=size, step=step, fit=fit) -> np.ndarray:
            return 1e3 * (np.log10(10 ** (p[0] + p[1] * size) + 10 ** (p[2] + p[3] * step)) - fit.points.log_loss)

        best = optimize.least_squares(residual, [0.1, -0.15, 0.1, -0.1])
        assert fit.rmsle == pytest.approx(1e-3 * np.sqrt((best.fun**2).mean()), rel=1e-6)
        assert fit.params["a_n"] == pytest.approx(best.x[1], rel=1e-4)
    *curves, slopes = drawn("kaplan_fits").axes
    for axes in curves:
        ((steps, loss),) = lines(axes, "1.3B")
        assert len(steps) == 25
        assert steps.min() == 10_000
        assert (np.diff(loss) < 0).all()
    measured = np.ptp(lines(slopes, "measured")[0][1])
    for name in fits:  # the form's slope in N does grow along training
        implied = lines(slopes, f"fit to {name}")[0][1]
        assert (np.diff(implied) < 0).all()
        assert 0.5 * measured < np.ptp(implied) < measured


def test_law_ranking(drawn: Drawn, released: RunTable) -> None:
    errors = law_ranking.ranking_errors(released)
    assert len(errors) == 30
    for router, expected in (("s-base", (55.0, 21.4)), ("rl-r", (54.6, 27.7)), ("hash", (53.2, 27.2))):
        ours = [1e4 * errors[law, router]["leave_size_out"] for law in ("saturated", "irreducible")]
        assert ours == pytest.approx(list(expected), abs=0.1)
    full = validate(law_ranking.competing_fits(released)["abnar2025", "hash"])
    assert errors["abnar2025", "hash"]["leave_size_out"] == pytest.approx(full.leave_size_out, rel=1e-4)
    assert errors["abnar2025", "hash"]["largest_size_out"] == pytest.approx(full.largest_size_out, rel=1e-4)
    for axes in drawn("law_ranking").axes:
        ranked = next(line for line in axes.get_lines() if line.get_marker() == "o")
        assert len(ranked.get_xdata()) == 10
        assert (np.diff(ranked.get_xdata()) >= 0).all()
        assert max(np.max(line.get_xdata()) for line in axes.get_lines() if len(line.get_xdata())) < axes.get_xlim()[1]


def test_cutoff_by_law(drawn: Drawn, released: RunTable) -> None:
    fits = law_ranking.competing_fits(released)
    names = [label.get_text() for label in drawn("cutoff_by_law").axes[0].get_yticklabels()]
    for router, axes in zip(PAPER_ROUTERS, drawn("cutoff_by_law").axes, strict=True):
        dots = {
            names[int(line.get_ydata()[0])]: line.get_xdata()[0]
            for line in axes.get_lines()
            if line.get_marker() == "o"
        }
        for law in ("bilinear", "saturated"):
            params = fits[law, router].params
            assert dots[law] == pytest.approx(10 ** (-params["b"] / params["c"]), rel=1e-6)
        nones = [text for text in axes.texts if text.get_text() == "none"]
        assert {names[int(text.get_position()[1])] for text in nones} == {
            "separable",
            "irreducible",
            "irreducible-power",
        }


def test_an_open_interval_is_an_arrow() -> None:
    interval = Interval(3e11, np.inf, open_high=True)
    axes = Picture().subplots()
    cutoff_by_law._row(axes, 0, cutoff_by_law.Cutoff(1e45, interval), "black", (1e10, 1e17))
    assert [line.get_marker() for line in axes.get_lines()] == ["|", ">"]
    assert not cutoff_by_law.Cutoff(np.inf, interval).never
