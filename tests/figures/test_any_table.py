"""Every figure from any table: it is drawn, or one sentence says what is missing; nothing else may happen."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest

from routelaw.errors import InputError
from routelaw.figures import all_figures, cutoff_by_law, selection, style
from routelaw.figures.figure import CannotDraw, Figure
from routelaw.fitting import fit_law, select_points
from routelaw.laws import get_law
from routelaw.runs.files import read_runs
from routelaw.runs.table import RunTable
from routelaw.specs.counting import count
from routelaw.specs.sizes import get_size

FIGURES = {figure.name: figure for figure in all_figures()}
MINIATURE = Path(__file__).parents[2] / "experiments" / "miniature" / "data" / "runs.csv.gz"
NOT_OF_THE_MINIATURE = {"shared_r_fits", "level_curves"}
"""Its R were trained at one size, and four models of each K are too few for a law of each."""
OF_THE_PAPER = {
    "dense_along_training", "experts_along_training", "size_or_compute", "shared_k_fits", "shared_r_fits",
    "cutoff_by_law", "expert_slope", "k_against_flops", "joint_curves", "kaplan_fits", "law_ranking", "level_curves",
    "linear_fits", "hash_affine_fits", "main_results", "max_effective", "routing_frequency", "one_routed_layer",
    "shared_decisions", "three_panels_s_base", "three_panels_rl_r", "three_panels_hash",
}  # fmt: skip
LAW = {"a": -0.08, "b": -0.1, "c": 0.008, "d": 1.1}
STEPS = (100, 200, 400, 600, 800, 1000)


def rows_of(
    router: str, size: str, experts: int = 1, *, k: int = 1, r: float = 0.5, variant: str = "", seed: int = 0
) -> list[dict]:
    """A made-up run at several steps: a bilinear law with some noise, falling while it trains."""
    counts = count(
        get_size(size), router if router in style.ROUTER_COLOURS else "hash", experts, k=k, routing_frequency=r
    )
    noise = np.random.default_rng([seed, experts, k, int(100 * r), counts.active_params]).normal(0, 0.002)
    final = get_law("bilinear").predict(LAW, active_params=counts.active_params, experts=experts)[0] * np.exp(noise)
    final *= 1 - 0.004 * np.log2(k) - 0.006 * np.log2(2 * r)
    return [
        {
            "run_id": f"{router}-{size}-{experts}-{k}-{r}-{variant}-{seed}", "router": router, "variant": variant,
            "size": size, "experts": experts, "k": k, "routing_frequency": r, "seed": seed, "step": step,
            "tokens": step * 1000, "tokens_planned": STEPS[-1] * 1000, "active_params": counts.active_params,
            "total_params": counts.total_params, "flops_per_token": counts.flops_per_token,
            "loss_validation": final * (STEPS[-1] / step) ** 0.1,
        }
        for step in STEPS
    ]  # fmt: skip


def frame_of(
    routers: tuple[str, ...] = ("s-base", "hash", "mine"),
    sizes: tuple[str, ...] = ("0.2M", "0.8M", "3M"),
    experts: tuple[int, ...] = (2, 8, 32),
    *,
    dense: bool = True,
    variant: str = "",
) -> pd.DataFrame:
    rows = [row for size in sizes for row in (rows_of("dense", size, variant=variant) if dense else [])]
    rows += [row for r in routers for s in sizes for e in experts for row in rows_of(r, s, e, variant=variant)]
    return pd.DataFrame(rows)


def studies() -> pd.DataFrame:
    """A small sweep with several K and R, and shared decisions."""
    rows = [frame_of()]
    for size in ("0.2M", "3M"):
        for e in (2, 8, 32):
            rows += [pd.DataFrame(rows_of("s-base", size, e, k=k)) for k in (2, 4) if k <= e]
            rows += [pd.DataFrame(rows_of(router, size, e, r=r)) for router in ("s-base", "hash") for r in (0.25, 1.0)]
            rows.append(pd.DataFrame(rows_of("s-base", size, e, r=1.0, variant="shared_decisions")))
    return pd.concat(rows)


def last_rows_alone(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["step"] == STEPS[-1]].drop(columns=["step", "tokens", "tokens_planned"])


def with_nan(frame: pd.DataFrame) -> pd.DataFrame:
    """Evaluations missing here and there, one run without an end, and counts of which some are unknown."""
    frame = frame.reset_index(drop=True)
    frame.loc[frame.index % 7 == 3, "loss_validation"] = np.nan
    frame.loc[frame["run_id"] == frame["run_id"].iloc[-1], ["status", "loss_validation"]] = ["failed", np.nan]
    frame["total_params"] = frame["total_params"].astype(float).mask(frame.index % 2 == 0)
    frame["total_params"] = frame.groupby("run_id")["total_params"].transform("first").mask(frame["experts"] == 8)
    return frame


def renamed(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(size=frame["size"].map({"0.2M": "$a_1$", "0.8M": "_b", "3M": "<c>"})).replace(
        {"router": {"mine": "my$router_2"}}
    )


ODD_TABLES: dict[str, Callable[[], pd.DataFrame]] = {
    "a small sweep": frame_of,
    "studies": studies,
    "one router": lambda: frame_of(("switch",)),
    "a router of one's own": lambda: frame_of(("mine",)),
    "many routers": lambda: frame_of(("s-base", "rl-r", "hash", "switch", "mine", "ours", "theirs")),
    "one size": lambda: frame_of(sizes=("0.8M",)),
    "two sizes": lambda: frame_of(sizes=("0.8M", "3M")),
    "one expert count": lambda: frame_of(experts=(8,)),
    "one expert count and no dense runs": lambda: frame_of(experts=(8,), dense=False),
    "no dense runs": lambda: frame_of(dense=False),
    "dense runs alone": lambda: frame_of(routers=()),
    "one run": lambda: pd.DataFrame(rows_of("s-base", "0.8M", 8)),
    "one dense run": lambda: pd.DataFrame(rows_of("dense", "0.8M")),
    "one step": lambda: frame_of().query("step == 1000"),
    "no steps": lambda: last_rows_alone(frame_of()),
    "only the required columns": lambda: last_rows_alone(frame_of())[
        ["run_id", "router", "experts", "active_params", "loss_validation"]
    ],
    "steps of its own for every run": lambda: frame_of().assign(
        step=lambda f: f["step"] + f.groupby("run_id").ngroup()
    ),
    "every run a variant": lambda: frame_of(variant="positions=rope"),
    "variants as frequent": lambda: pd.concat([frame_of(("hash",), variant=f"scheme={s}") for s in ("a", "b")]),
    "another usual K and R": lambda: frame_of().assign(k=2, routing_frequency=0.25),
    "several corpora and lengths": lambda: frame_of().assign(
        corpus=lambda f: np.where(f["experts"] > 8, "b", "a"),
        tokens_planned=lambda f: f["tokens_planned"] * np.where(f["router"] == "hash", 3, 1),
    ),
    "no run finished": lambda: frame_of().assign(status="running"),
    "nothing but failures": lambda: frame_of().assign(status="failed", loss_validation=np.nan),
    "values missing": lambda: with_nan(studies().assign(status="finished")),
    "equal losses": lambda: frame_of().assign(loss_validation=3.0),
    "huge expert counts": lambda: frame_of(sizes=("3M", "12M", "20M"), experts=(1024, 16384)),
    "odd expert counts": lambda: frame_of(experts=(3, 5, 48)),
    "a loss below one": lambda: frame_of().assign(loss_validation=lambda f: f["loss_validation"] / 40),
    "names that Matplotlib would read": lambda: renamed(frame_of()),
    "routing hurts": lambda: frame_of().assign(loss_validation=lambda f: f["loss_validation"] * f["experts"] ** 0.05),
    "losses of chance": lambda: frame_of().assign(
        loss_validation=lambda f: 3 + np.random.default_rng(3).random(len(f))
    ),
    "another main loss": lambda: frame_of().rename(columns={"loss_validation": "loss_mine"}),
}  # fmt: skip


def drawn_or_told(figure: Figure, table: RunTable) -> str:
    """Nothing where it was drawn, rendered too; else the sentence."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with matplotlib.rc_context(style.RC):
        try:
            picture = figure.draw(table)
        except (CannotDraw, InputError) as error:
            sentence, known = str(error), isinstance(error, CannotDraw)
            if not known and figure.name in OF_THE_PAPER:
                raise
            return sentence
        FigureCanvasAgg(picture).draw()
        assert picture.axes
    return ""


@pytest.fixture(autouse=True)
def _few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Intervals of every law are slow; what they say is tested where they are made."""
    monkeypatch.setattr(cutoff_by_law, "DRAWS", 10)


@pytest.mark.parametrize("kind", ODD_TABLES)
def test_a_table_of_any_shape_is_drawn_or_told_what_is_missing(kind: str) -> None:
    table = RunTable.from_frame(ODD_TABLES[kind]().reset_index(drop=True), "odd.csv")
    told = {name: drawn_or_told(figure, table) for name, figure in FIGURES.items()}
    for name in OF_THE_PAPER:
        assert not told[name] or re.fullmatch(r"[^\n]{20,}\.", told[name]), told[name]
    drawn = {name for name, sentence in told.items() if not sentence} & OF_THE_PAPER
    least = {"a small sweep": 13, "studies": 20, "every run a variant": 13, "another main loss": 13,
             "no dense runs": 9, "many routers": 13, "names that Matplotlib would read": 13}  # fmt: skip
    assert len(drawn) >= least.get(kind, 0), {name: told[name] for name in OF_THE_PAPER - drawn}
    if kind in ("no run finished", "nothing but failures", "one run", "one dense run"):
        assert not drawn


def test_the_release_allows_all_of_them(released: RunTable) -> None:
    told = {name: drawn_or_told(FIGURES[name], released) for name in OF_THE_PAPER}
    assert not any(told.values()), told


def test_the_miniature_allows_all_but_two() -> None:
    """At least 15 of the 24 figures of the paper's page, although every run of the table is a variant."""
    table = read_runs(MINIATURE)
    told = {name: drawn_or_told(figure, table) for name, figure in FIGURES.items()}
    assert {name for name, sentence in told.items() if sentence} & OF_THE_PAPER == NOT_OF_THE_MINIATURE
    assert "several R" in told["shared_r_fits"]
    assert not told["transfer_coefficients"]
    assert not told["transfer_slopes"]


def test_captions_say_of_the_release_alone_what_is_true_of_it_alone() -> None:
    for name in OF_THE_PAPER:
        figure = FIGURES[name]
        assert figure.on_release
        for word in ("130M", "15M", "25M", "370M", "1.3B", "K = 1,", "R = 0.5", "release", "three seeds"):
            assert word not in figure.caption, (name, word)


def test_what_is_drawn_are_the_runs_of_the_most_frequent_variant() -> None:
    """A sweep of rotary positions with one plain run in it, which is not mixed with the others."""
    frame = pd.concat([frame_of(("hash",), variant="positions=rope"), pd.DataFrame(rows_of("hash", "3M", 8, seed=9))])
    table = RunTable.from_frame(frame.reset_index(drop=True), "rope.csv")
    points = selection.points_of(table, "hash")
    expected = select_points(table, "hash", variant="positions=rope")
    assert sorted(points.loss) == sorted(expected.loss)
    fit = fit_law("saturated", expected)
    drawn = FIGURES["main_results"].draw(table).axes[0]
    line = next(line for line in drawn.lines if line.get_linestyle() == ":")
    x, y = np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)
    assert np.allclose(y, fit.predict(active_params=expected.x["active_params"].min(), experts=x))


def test_runs_of_another_length_or_corpus_are_not_drawn() -> None:
    long = frame_of(("hash",)).assign(
        run_id=lambda f: "long-" + f["run_id"], tokens_planned=10**7, loss_validation=lambda f: f["loss_validation"] / 2
    )
    other = frame_of(("hash",), sizes=("3M",)).assign(run_id=lambda f: "other-" + f["run_id"], corpus="b")
    both = pd.concat([frame_of(("hash",)).assign(corpus="a"), long[long["size"] == "3M"].assign(corpus="a"), other])
    table = RunTable.from_frame(both.reset_index(drop=True), "mixed.csv")
    alone = RunTable.from_frame(frame_of(("hash",)), "alone.csv")
    assert sorted(selection.points_of(table, "hash").loss) == sorted(selection.points_of(alone, "hash").loss)


def test_another_main_loss_is_drawn_and_named() -> None:
    frame = frame_of().assign(loss_c4=lambda f: 1.5 * f["loss_validation"])
    table = selection.with_target(RunTable.from_frame(frame, "two.csv"), "loss_c4")
    assert selection.target_of(table) == "loss_c4"
    axes = FIGURES["joint_curves"].draw(table).axes[0]
    assert axes.get_ylabel() == "loss on c4 (nats per token)"
    marks = next(line for line in axes.lines if line.get_linestyle() == "None")
    assert set(np.asarray(marks.get_ydata(), float)) <= set(frame["loss_c4"])
