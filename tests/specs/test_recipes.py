"""A recipe is a way to write settings down: below all others, and no part of what a run means."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from routelaw.errors import InputError
from routelaw.routers.reinforce import VARIANTS
from routelaw.routers.router import router_class
from routelaw.runs.folders import columns_of
from routelaw.specs.files import from_stored, run_spec, to_mapping
from routelaw.specs.recipes import RECIPES
from routelaw.specs.run import ModelSpec, RouterSpec, RunSpec, TrainSpec
from routelaw.specs.sizes import get_size

PAPER = "clark2022"


def of(router: dict[str, Any], recipe: str = PAPER, **train: Any) -> RunSpec:
    return run_spec({"recipe": recipe, "model": {"size": "0.2M"}, "router": router, "train": train}, "c", "here")


@pytest.mark.parametrize("name", ["s-base", "base", "hash", "switch", "rl-r"])
def test_the_paper_is_no_variant_and_has_the_id_of_its_settings(name: str) -> None:
    made = of({"name": name, "experts": 8})
    shuffled = {"shuffle_groups": 4} if "base" in name else {}
    model = ModelSpec(get_size("0.2M"))
    assert made.run_id == RunSpec(model, RouterSpec(name, 8, **shuffled), TrainSpec(steps=250_000), "c").run_id
    assert made.variant == ""
    assert made.router.shuffle_groups == shuffled.get("shuffle_groups", 1)
    assert columns_of(made)["recipe"] == (PAPER if shuffled else "")


def test_a_dense_run_takes_the_training_alone() -> None:
    made = of({})
    assert (made.router, made.recipe, made.train) == (RouterSpec(), "", TrainSpec(steps=250_000))


def test_what_a_file_says_wins_and_is_named() -> None:
    made = of({"name": "S-Base", "experts": 8, "capacity_factor": 1.0}, steps=20, batch=8, clip=0.5)
    assert (made.train.steps, made.train.batch, made.router.shuffle_groups) == (20, 8, 4)
    assert made.variant == "capacity_factor=1"
    assert columns_of(made)["recipe"] == "clark2022,clip=0.5"
    assert of({"name": "s-base", "experts": 8, "shuffle_groups": 1}).variant == "shuffle_groups=1"
    assert of({"name": "hash", "experts": 8, "capacity_factor": 1.0}).variant == "capacity_factor=1"


def test_it_is_stored_and_left_out_where_it_changes_nothing() -> None:
    made = of({"name": "s-base", "experts": 8})
    again = from_stored(to_mapping(made), "spec.json")
    assert (again, again.variant) == (made, "")
    old = {key: value for key, value in to_mapping(made).items() if key != "recipe"}
    assert from_stored(old, "spec.json").variant == "shuffle_groups=4", "runs from before there were recipes"
    assert replace(made, router=RouterSpec("hash", 8)).recipe == ""


@pytest.mark.parametrize(
    ("recipe", "sentence"),
    [
        ("clark22", r"unknown recipe 'clark22' \(did you mean 'clark2022'\?\); there is clark2022\.$"),
        (3, "here: recipe must be text, not 3"),
        (["clark2022"], "here: recipe must be text"),
    ],
)
def test_wrong_recipes(recipe: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        of({"name": "s-base", "experts": 8}, recipe)
    with pytest.raises(InputError, match="recipe"):
        from_stored({**to_mapping(of({"name": "s-base", "experts": 8})), "recipe": recipe}, "spec.json")


def test_what_the_recipe_leaves_to_defaults_is_the_papers() -> None:
    """Appendix B: the weights of balance, policy, value and entropy; section 2: training."""
    assert (router_class("s-base").default_balance_weight, router_class("rl-r").default_balance_weight) == (1e-2, 1.0)
    variant = VARIANTS["B"]
    assert (variant.policy, variant.value, variant.entropy) == (1e-2, 1e-2, 5e-4)
    recipe = RECIPES[PAPER]
    assert TrainSpec(**recipe.train) == TrainSpec(steps=250_000)
    assert recipe.router("hash") == {"capacity_factor": 2.0}
    assert recipe.router("dense") == {}


def test_a_recipe_in_a_file_of_a_sweep_and_as_an_option(tmp_path: Path) -> None:
    from types import SimpleNamespace

    from routelaw.cli.options import settings_of
    from routelaw.sweeps.sweep import read_sweep

    corpus: Any = SimpleNamespace(vocabulary=320, id="c")
    text = 'corpus = "c"\n[model]\nsize = "0.2M"\n[router]\nname = "s-base"\nexperts = 8\n'
    for name, content in {"base": f'recipe = "{PAPER}"\n{text}', "own": 'base = "base.toml"\n', "none": text}.items():
        (tmp_path / f"{name}.toml").write_text(content)

    def planned(name: str, **overrides: Any) -> RunSpec:
        return read_sweep(tmp_path / f"{name}.toml", overrides=overrides, opened=lambda _: corpus).runs[0].spec

    assert planned("base").recipe == planned("own").recipe == planned("none", **settings_of([f"recipe={PAPER}"])).recipe
    assert planned("base").train.steps == 250_000
    (tmp_path / "wrong.toml").write_text('recipe = "clark"\n' + text)
    with pytest.raises(InputError, match=r"wrong.toml: unknown recipe 'clark' \(did you mean"):
        planned("wrong")
