"""`routelaw figures`: files that appear together, what is said of the runs taken, and sentences for wrong input."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from routelaw import draw_figures
from routelaw.errors import InputError
from routelaw.figures import all_figures


def losses(router: str, variant: str = "", experts: tuple[int, ...] = (2, 8, 32)) -> list[dict]:
    rng = np.random.default_rng([len(router), len(variant)])
    return [
        {
            "run_id": f"{router}-{variant}-{size:g}-{e}", "router": router, "variant": variant, "experts": e,
            "active_params": size, "loss_validation": 6 * size**-0.04 * e**-0.02 * (1 + rng.normal(0, 1e-3)),
            "loss_c4": 7 * size**-0.04 * e**-0.02,
        }
        for size in (15e6, 60e6, 250e6, 1e9)
        for e in experts
    ]  # fmt: skip


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Two routers, all rotary; a few runs of one of them at another temperature."""
    rows = losses("dense", "positions=rope", (1,)) + losses("hash", "positions=rope")
    rows += losses("s-base", "positions=rope") + losses("s-base", "positions=rope,temperature=0.1", (2, 8))
    path = tmp_path / "runs.csv"
    pd.DataFrame(rows).to_csv(path, index=False)
    return path


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_named_figures_are_written_as_svg_and_png(command, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, said, err = command("figures", table, "expert_slope", "linear_fits", "--out", out)
    assert (code, err) == (0, "")
    assert files(out) == ["expert_slope.png", "expert_slope.svg", "linear_fits.png", "linear_fits.svg"]
    assert (out / "linear_fits.png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in (out / "linear_fits.svg").read_bytes()[:600]
    assert "Taken: each router's most frequent variant (hash: positions=rope; s-base: positions=rope; dense" in said
    assert "s-base: 12 models of 4 sizes at K = 1, R = 0.5, out of 20 runs." in said
    assert "2 figures drawn; SVG and PNG in" in said


def test_others_are_added_and_nothing_is_replaced_unasked(command, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert command("figures", table, "expert_slope", "--out", out).code == 0
    before = (out / "expert_slope.svg").read_bytes()
    code, said, err = command("figures", table, "expert_slope", "linear_fits", "--out", out)
    assert (code, said) == (2, "")
    assert "expert_slope.svg: the file exists" in err
    assert files(out) == ["expert_slope.png", "expert_slope.svg"]
    assert command("figures", table, "linear_fits", "--out", out).code == 0
    assert len(files(out)) == 4
    (out / "expert_slope.svg").write_text("other")
    assert command("figures", table, "expert_slope", "--out", out, "--force").code == 0
    assert (out / "expert_slope.svg").read_bytes() == before


def test_variants_are_chosen_by_router(command, table: Path, tmp_path: Path) -> None:
    given = ("figures", table, "linear_fits", "--json", "--out")
    usual = json.loads(command(*given, tmp_path / "usual").out)
    other = ("--variant", "s-base=temperature=0.1,positions=rope")
    chosen = json.loads(command(*given, tmp_path / "chosen", *other).out)
    assert "s-base: 12 models of 4 sizes at K = 1, R = 0.5, out of 20 runs." in usual["taken"]
    assert "s-base: 8 models of 4 sizes at K = 1, R = 0.5, out of 20 runs." in chosen["taken"]
    assert "s-base: temperature=0.1,positions=rope" in chosen["taken"][0]
    assert usual["drawn"]["linear_fits"]["caption"]
    pictures = [(tmp_path / name / "linear_fits.png").read_bytes() for name in ("usual", "chosen")]
    assert pictures[0] != pictures[1]


def test_a_target_is_drawn_and_told(command, table: Path, tmp_path: Path) -> None:
    drawn = {}
    for target in ("loss_validation", "loss_c4"):
        words = ("figures", table, "linear_fits", "--target", target, "--out", tmp_path / target, "--json")
        drawn[target] = json.loads(command(*words).out)
        assert drawn[target]["target"] == target
    pictures = [(tmp_path / target / "linear_fits.png").read_bytes() for target in drawn]
    assert pictures[0] != pictures[1]


def test_what_cannot_be_drawn_is_listed_where_it_was_not_asked_for(
    command, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = [f for f in all_figures() if f.name in ("linear_fits", "k_against_flops", "kaplan_fits")]
    monkeypatch.setattr("routelaw.figures.drawing.all_figures", lambda: few)
    code, said, _ = command("figures", table, "--out", tmp_path / "out")
    assert code == 0
    assert "not drawn: k_against_flops: no router was trained with several K" in said
    assert "1 figure drawn, 2 not" in said
    code, _, err = command("figures", table, "k_against_flops", "--out", tmp_path / "named")
    assert code == 2
    assert "figure k_against_flops cannot be drawn: no router was trained with several K" in err
    assert not (tmp_path / "named").exists()
    few[:] = [f for f in few if f.name != "linear_fits"]
    code, _, err = command("figures", table, "--out", tmp_path / "none")
    assert code == 2
    assert "no figure can be drawn; k_against_flops: no router" in err
    assert not (tmp_path / "none").exists()


def test_the_list_has_every_figure(command) -> None:
    code, said, _ = command("figures", "--list")
    assert code == 0
    assert all(figure.name in said for figure in all_figures())
    listed = json.loads(command("figures", "--list", "--json").out)
    assert list(listed) == [figure.name for figure in all_figures()]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["joint_curve"], "there is no figure 'joint_curve' (did you mean 'joint_curves'?)"),
        (["--target", "loss_c5"], "no loss 'loss_c5' (did you mean 'loss_c4'?); the losses are"),
        (["--variant", "rope"], "--variant takes ROUTER=VARIANT"),
        (["--variant", "=rope"], "--variant takes ROUTER=VARIANT"),
        (["--variant", "sbase=positions=rope"], "no run of router 'sbase' (did you mean 's-base'?)"),
        (["--variant", "hash=positions=rop"], "no run of hash has variant 'positions=rop' (did you mean"),
        (["--variant", "hash="], "no run of hash has variant ''; there is 'positions=rope'."),
        (["--variant", "hash=a", "--variant", "hash=b"], "--variant names router 'hash' twice"),
    ],
)
def test_wrong_choices_are_one_sentence(command, table: Path, tmp_path: Path, words: list[str], sentence: str) -> None:
    code, said, err = command("figures", table, *words, "--out", tmp_path / "out")
    assert (code, said) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_an_out_folder_is_needed_and_a_table(command, table: Path, tmp_path: Path) -> None:
    assert "--out is missing" in command("figures", table).err
    assert "give a run table or a store" in command("figures", "--out", tmp_path / "out").err
    assert "--out has no effect with --list" in command("figures", "--list", "--out", tmp_path / "out").err
    assert "this is a file" in command("figures", table, "linear_fits", "--out", table).err
    assert "there is no such file" in command("figures", tmp_path / "nowhere.csv", "--out", tmp_path / "out").err


def test_runs_of_several_tables_are_refused(table: Path, tmp_path: Path) -> None:
    frame = pd.read_csv(table)
    both = pd.concat([frame.assign(from_table="a"), frame.assign(from_table="b", run_id="b-" + frame["run_id"])])
    both.to_csv(tmp_path / "both.csv", index=False)
    with pytest.raises(InputError, match="put together from several tables"):
        draw_figures(tmp_path / "both.csv", tmp_path / "out")
