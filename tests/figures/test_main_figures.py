"""The figures of the paper's main text and its joint fits: complete, labelled, and drawn from the fits they name."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.contour import QuadContourSet
from matplotlib.figure import Figure as Picture

from routelaw.figures import (
    architecture_variants,
    compute_form,
    expert_slope,
    joint_curves,
    level_curves,
    linear_fits,
    main_results,
    max_effective,
    three_panels,
)
from routelaw.figures.loss_curves import along_experts, loss_axes, size_colours, utilisation
from routelaw.fitting import Fit, fit_law, select_points
from routelaw.fitting.slopes import affine_by_size, slopes_by_size
from routelaw.laws import equivalence, get_law
from routelaw.runs.table import RunTable
from routelaw.specs.counting import count
from routelaw.specs.sizes import get_size

MODULES = (
    main_results, joint_curves, linear_fits, expert_slope, level_curves, max_effective, three_panels, compute_form,
)  # fmt: skip
FIGURES = {figure.name: figure for module in MODULES for figure in module.FIGURES}
ROUTERS = ("s-base", "rl-r", "hash")
Pictures = Callable[[str], Picture]
BILINEAR = {"a": -0.08, "b": -0.1, "c": 0.008, "d": 1.1}


def model(router: str, size: str, experts: int, k: int = 1, routing_frequency: float = 0.5) -> dict:
    """A made-up run that obeys a bilinear law exactly, better by a little for each expert used and layer routed."""
    counts = count(get_size(size), router, experts, k=k, routing_frequency=routing_frequency)
    active, bonus = counts.active_params, 0.005 * np.log2(k) + 0.01 * np.log2(2 * routing_frequency)
    loss = get_law("bilinear").predict(BILINEAR, active_params=active, experts=experts)[0] * (1 - bonus)
    return {
        "run_id": f"{router}-{size}-{experts}-{k}-{routing_frequency}", "router": router, "size": size, "k": k,
        "experts": experts, "routing_frequency": routing_frequency, "active_params": active,
        "total_params": counts.total_params, "flops_per_token": counts.flops_per_token, "loss_validation": loss,
    }  # fmt: skip


@pytest.fixture(scope="module")
def small() -> RunTable:
    """Three sizes, four expert counts, and the K and R variants of two sizes."""
    sizes, experts = ("25M", "130M", "370M"), (2, 8, 64, 256)
    rows = [model("dense", size, 1) for size in sizes]
    rows += [model(router, size, e) for router in ROUTERS for size in sizes for e in experts]
    for size in ("25M", "370M"):
        for e in (8, 64, 256):
            rows += [model("s-base", size, e, k=k) for k in (2, 4)]
            rows += [model("s-base", size, e, routing_frequency=r) for r in (1.0, 0.25)]
    return RunTable.from_frame(pd.DataFrame(rows), "small")


@pytest.fixture(scope="module")
def pictures(released: RunTable) -> Pictures:
    """Each figure of the released runs, drawn once."""
    return cache(lambda name: FIGURES[name].draw(released))


def marks(axes: Axes) -> int:
    """How many points are drawn: lines without a line, and scatters."""
    plotted = sum(np.size(line.get_xdata()) for line in axes.lines if line.get_linestyle() == "None")
    scattered = [c for c in axes.collections if not isinstance(c, QuadContourSet)]
    return plotted + sum(len(np.asarray(c.get_offsets())) for c in scattered if c.get_array() is not None)


def lines(axes: Axes, style: str) -> list[tuple[np.ndarray, np.ndarray]]:
    drawn = [line for line in axes.lines if line.get_linestyle() == style]
    return [(np.asarray(line.get_xdata()), np.asarray(line.get_ydata())) for line in drawn]


def assert_draws(axes: Axes, style: str, fit: Fit) -> None:
    """For every size of the fit's points exactly one line of this style is what the fit predicts along E."""
    drawn = lines(axes, style)
    for _, active, _ in fit.points.by_size():
        expected = [np.allclose(y, fit.predict(active_params=active, experts=x), rtol=1e-9) for x, y in drawn]
        assert sum(expected) == 1


def check_picture(picture: Picture) -> None:
    assert picture.axes
    for axes in picture.axes:
        assert axes.get_xlabel()
        shares = axes.get_shared_y_axes().get_siblings(axes)
        assert any(sibling.get_ylabel() for sibling in shares)
        low, high = sorted(axes.get_ylim())
        for line in axes.lines:
            y = np.asarray(line.get_ydata(), float)
            assert np.isfinite(y).all()
            assert (y >= low * (1 - 1e-9) if low > 0 else y >= low - 1e-9).all()
            assert (y <= high + abs(high) * 1e-9).all()


@pytest.mark.parametrize("name", FIGURES)
def test_draws_the_released_runs_complete_and_labelled(name: str, released: RunTable, pictures: Pictures) -> None:
    check_picture(pictures(name))


@pytest.mark.parametrize("name", FIGURES)
def test_draws_a_small_table_of_ones_own(name: str, small: RunTable) -> None:
    check_picture(FIGURES[name].draw(small))


def test_writes_svg_and_png(small: RunTable, tmp_path) -> None:
    paths = FIGURES["expert_slope"].save(small, tmp_path)
    assert sorted(path.name for path in paths) == ["expert_slope.png", "expert_slope.svg"]
    assert all(path.stat().st_size > 1000 for path in paths)


def test_names_and_captions() -> None:
    assert len(FIGURES) == sum(len(module.FIGURES) for module in MODULES) == 13
    for figure in FIGURES.values():
        assert figure.paper
        text = f"{figure.caption} {figure.on_release}"
        assert "Departs from print" in text or "Departures from print" in text


def test_points_drawn_are_the_runs_selected(released: RunTable, pictures: Pictures) -> None:
    chosen = [len(select_points(released, router)) for router in ROUTERS]
    sizes, levels, effective = pictures("main_results").axes
    assert marks(sizes) == marks(levels) == chosen[0]
    assert marks(effective) == sum(n - 6 for n in chosen) + 6  # dense runs stand there once
    joint = pictures("joint_curves").axes
    assert [marks(axes) for axes in joint] == [*chosen, 0]
    assert [marks(axes) for axes in pictures("linear_fits").axes] == chosen
    assert [marks(axes) for axes in pictures("hash_affine_fits").axes] == [chosen[2]] * 2
    assert [marks(axes) for axes in pictures("three_panels_rl_r").axes] == [chosen[1]] * 3
    both = pictures("size_or_compute").axes
    assert [marks(axes) for axes in both] == [chosen[0]] * 2 + [chosen[1]] * 2
    assert [marks(axes) for axes in pictures("level_curves").axes] == [18] * 4
    for name in ("shared_k_fits", "shared_r_fits"):
        assert [marks(axes) for axes in pictures(name).axes] == [6] * 3


def test_lines_are_the_fits(released: RunTable, pictures: Pictures) -> None:
    points = [select_points(released, router) for router in ROUTERS]
    assert_draws(pictures("main_results").axes[0], ":", fit_law("saturated", points[0]))
    joint = pictures("joint_curves").axes
    linear = pictures("linear_fits").axes
    for i in range(3):
        assert_draws(joint[i], ":", fit_law("saturated", points[i]))
        assert_draws(joint[3], ":", fit_law("saturated", points[i]))
        assert_draws(joint[i], "-", fit_law("bilinear", points[i]))
        assert_draws(linear[i], ":", fit_law("bilinear", points[i]))
        assert_draws(linear[i], "-", fit_law("separable", points[i]))
        for (x, y), (_, _, group) in zip(lines(linear[i], "--"), points[i].by_size(), strict=True):
            assert np.allclose(y, fit_law("experts", group).predict(experts=x))


def test_effective_sizes_lie_on_the_corrected_power_law(released: RunTable, pictures: Pictures) -> None:
    """Erratum: log L = α(E_start)·log N̄ + d + b·log E_start, where the printed line is a·log N̄ + d."""
    effective = pictures("main_results").axes[2]
    for (x, y), router in zip(lines(effective, "-"), ROUTERS, strict=True):
        fit = fit_law("saturated", select_points(released, router))
        p = fit.params
        start = np.log10(p["e_start"])
        assert np.allclose(np.log10(y), (p["a"] + p["c"] * start) * np.log10(x) + p["d"] + p["b"] * start)
        n = main_results.effective_sizes(fit, fit.points)
        assert np.allclose(fit.predict(active_params=n, experts=1.0), 10 ** (fit.residual_N + fit.points.log_loss))
        assert np.allclose(n[fit.points.dense], fit.points.x["active_params"][fit.points.dense])


def test_expert_slopes_are_the_fits_of_single_sizes(released: RunTable, pictures: Pictures, small: RunTable) -> None:
    (axes,) = pictures("expert_slope").axes
    drawn = [line for line in axes.lines if line.get_linestyle() == "None"]
    for line, (x, y), router in zip(drawn, lines(axes, ":"), ROUTERS, strict=True):
        points = select_points(released, router)
        slopes = [fit_law("experts", points.where(points.size == s)).params["b"] for s in points.sizes]
        assert np.allclose(line.get_ydata(), slopes)
        joint = fit_law("bilinear", points).params
        assert np.allclose(y, joint["b"] + joint["c"] * np.log10(x))
    _, active, slopes = zip(*slopes_by_size(select_points(small, "hash")), strict=True)
    assert np.allclose(slopes, BILINEAR["b"] + BILINEAR["c"] * np.log10(active))


def test_shared_slope_is_the_least_squares_one(released: RunTable) -> None:
    points = select_points(released, "hash")
    x = np.log10(points.x["experts"])
    own, shared = affine_by_size(x, points)
    design = np.column_stack([x, *(points.size == s for s in points.sizes)]).astype(float)
    solution, *_ = np.linalg.lstsq(design, points.log_loss)
    assert np.allclose([shared[s][0] for s in points.sizes], solution[0])
    assert np.allclose([shared[s][1] for s in points.sizes], solution[1:])
    assert own["370M"][0] == pytest.approx(fit_law("experts", points.where(points.size == "370M")).params["b"])


@pytest.mark.parametrize("panel", range(4))
def test_level_curves_have_the_level_they_claim(panel: int, released: RunTable, pictures: Pictures) -> None:
    axes = pictures("level_curves").axes[panel]
    knob = (architecture_variants.K, architecture_variants.R)[panel // 2]
    law = architecture_variants.held_laws(released, "s-base")[panel % 2]
    contours = [c for c in axes.collections if isinstance(c, QuadContourSet)]
    groups = architecture_variants.varied(released, knob).by_value()
    seen = 0
    for contour, group in zip(contours, groups.values(), strict=True):
        fit = fit_law(law, group)
        assert fit.status == "converged"
        for level, path in zip(contour.levels, contour.get_paths(), strict=True):
            x, y = np.asarray(path.vertices).T
            inputs = (
                {"active_params": x, "experts": y} if panel % 2 == 0 else {"flops_per_token": x, "total_params": x * y}
            )
            assert np.allclose(fit.predict(**inputs), level, rtol=1e-3)
            seen += len(x)
    assert seen > 100


def test_held_saturation_is_the_main_sweeps(released: RunTable) -> None:
    """With the saturation held at its own optimum the law fitted to the same points is the same fit."""
    sweep = select_points(released, "s-base")
    for law, name in zip(architecture_variants.held_laws(released, "s-base"), ("saturated", "compute"), strict=True):
        free, held = fit_law(name, sweep), fit_law(law, sweep)
        assert held.rmsle == pytest.approx(free.rmsle, rel=1e-6)
        assert held.params["c"] == pytest.approx(free.params["c"], rel=1e-3)


def test_variants_leave_out_the_mislabelled_runs(released: RunTable) -> None:
    vary = architecture_variants.varied(released, architecture_variants.R)
    assert (vary.router, vary.values, vary.usual) == ("s-base", (1.0, 0.5, 0.25), 0.5)
    points = vary.points
    assert set(points.size) == {"25M", "370M"}
    assert sorted(set(points.x["experts"])) == [8, 64, 256]
    assert len(points) == 18
    assert not points.dense.any()


def test_one_law_in_compute_beats_one_in_experts(released: RunTable) -> None:
    """The point of the (F, B) form, and the claim of both captions."""
    for knob in (architecture_variants.K, architecture_variants.R):
        points = architecture_variants.varied(released, knob).points
        in_experts, in_compute = (fit_law(law, points) for law in architecture_variants.held_laws(released, "s-base"))
        assert in_compute.rmsle < in_experts.rmsle / 2
        assert fit_law("compute", points).status == "converged"


def test_curves_against_utilisation_pass_where_the_models_are(released: RunTable, pictures: Pictures) -> None:
    """P and F are affine in E, so a model between two runs costs what counting says."""
    points = select_points(released, "s-base", sizes=["370M"], include_dense=False)
    models = along_experts(points)
    assert models["total_params"][0] / models["flops_per_token"][0] == pytest.approx(utilisation(points)[0])
    nearest = int(np.argmin(np.abs(models["experts"] - 24)))
    e = models["experts"][nearest]
    counts = [count(get_size("370M"), "s-base", n) for n in (16, 32)]
    share = (e - 16) / 16
    for name in ("total_params", "flops_per_token"):
        low, high = (getattr(c, name) for c in counts)
        assert models[name][nearest] == pytest.approx(low + share * (high - low), rel=1e-12)
    fit = fit_law("compute", select_points(released, "s-base"))
    axes = pictures("size_or_compute").axes[1]
    for (x, y), (_, _, group) in zip(lines(axes, ":"), fit.points.by_size(), strict=True):
        models = along_experts(group)
        flops = models["flops_per_token"]
        assert np.allclose(y, fit.predict(flops_per_token=flops, total_params=x * flops))


def test_largest_effective_size_meets_the_diagonal_at_the_cutoff(released: RunTable, pictures: Pictures) -> None:
    (axes,) = pictures("max_effective").axes
    curves = {line.get_label(): line for line in axes.lines if not str(line.get_label()).startswith("_")}
    for router in ROUTERS:
        fit = fit_law("saturated", select_points(released, router))
        cut = float(equivalence.cutoff(fit.law, fit.params_BP)[0])
        label = next(name for name in curves if str(name).startswith(router.upper()))
        x, y = np.asarray(curves[label].get_xdata()), np.asarray(curves[label].get_ydata())
        assert f"{cut / 1e9:.0f}B" in str(label)
        assert x[-1] == pytest.approx(cut)
        assert y[-1] == pytest.approx(cut, rel=1e-6)
        assert (y[:-1] > x[:-1]).all()
        assert y[0] == pytest.approx(equivalence.max_effective_params(fit.law, fit.params_BP, float(x[0]))[0])


def test_sizes_keep_their_colour_where_only_some_are_drawn(released: RunTable, pictures: Pictures) -> None:
    everywhere = size_colours(select_points(released, "s-base"))
    axes = pictures("shared_k_fits").axes[0]
    drawn = {tuple(line.get_color()) for line in axes.lines if line.get_linestyle() == "None"}
    assert drawn == {everywhere["25M"], everywhere["370M"]}


def test_a_loss_of_another_range_gets_ticks_of_its_own() -> None:
    axes = Picture().subplots()
    axes.plot([1, 2], [0.61, 0.97])
    loss_axes(axes)
    low, high = axes.get_ylim()
    assert low < 0.61
    assert high > 0.97
    assert sum(low <= tick <= high for tick in axes.get_yticks()) >= 3
