"""The paper's sweeps as files: complete, at either scale, and counted as the release counts them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from routelaw.files import read_toml
from routelaw.routers.router import router_class
from routelaw.runs.table import RunTable
from routelaw.specs.names import STUDIES
from routelaw.specs.run import RunSpec
from routelaw.specs.sizes import MINIATURE_SIZES, PAPER_SIZES, get_size
from routelaw.sweeps.sweep import PlannedRun, read_sweep
from routelaw.training.run import check_split

EXPERIMENTS = Path(__file__).parents[2] / "experiments" / "paper"
BASES = ("paper", "miniature")
RUNS = {
    "main": (168, 168),
    "k": (34, 34),
    "routing_frequency": (60, 48),
    "single_layer": (26, 26),
    "shared_decisions": (19, 19),
    "permuted_hash": (13, 13),
    "stacked_ffws": (5, 5),
    "rl_variants": (42, 42),
    "robustness": (39, 39),
    "seeds": (21, 21),
    "lengths": (12, 12),
    "limit_7b": (2, 2),
}
"""On the paper's base and in miniature, where a quarter of four blocks is one block."""
NUMBERS = {"Two": 2, "Five": 5}
IN_THE_PAPER = [(name, "paper", paper) for name, (paper, _) in RUNS.items()]
IN_MINIATURE = [(name, "miniature", miniature) for name, (_, miniature) in RUNS.items()]
BOTH = pytest.mark.parametrize("base", BASES)
EVERY = pytest.mark.parametrize(("study", "base", "runs"), IN_THE_PAPER + IN_MINIATURE)

Expand = Callable[[str, str], tuple[PlannedRun, ...]]


@pytest.fixture(scope="module")
def expand(tmp_path_factory: pytest.TempPathFactory) -> Expand:
    """The runs of a study with the one line changed; no corpus is there."""
    corpus: Any = SimpleNamespace(vocabulary=2048, id="c")

    @cache
    def expanded(study: str, base: str) -> tuple[PlannedRun, ...]:
        folder = tmp_path_factory.mktemp(base)
        for path in EXPERIMENTS.glob("*.toml"):
            text = path.read_text(encoding="utf-8").replace('base = "paper.toml"', f'base = "{base}.toml"')
            (folder / path.name).write_text(text, encoding="utf-8")
        return read_sweep(folder / f"{study}.toml", opened=lambda _: corpus).runs

    return expanded


def specs(runs: tuple[PlannedRun, ...], router: str = "") -> list[RunSpec]:
    return [run.spec for run in runs if router in ("", run.spec.router.name)]


def ids(found: list[RunSpec]) -> set[str]:
    return {spec.run_id for spec in found}


def test_every_file_is_known_here_and_has_the_one_line() -> None:
    assert {path.stem for path in EXPERIMENTS.glob("*.toml")} == {*RUNS, *BASES}
    for study in RUNS:
        text = (EXPERIMENTS / f"{study}.toml").read_text(encoding="utf-8")
        assert text.count("base =") == text.splitlines().count('base = "paper.toml"') == 1


@EVERY
def test_runs(expand: Expand, study: str, base: str, runs: int) -> None:
    """As many as said; and what a run table says of them tells them apart: nothing differs unseen."""
    found = specs(expand(study, base))
    assert len(found) == len(ids(found)) == runs
    described = {
        (s.router.name, s.variant, s.counts, s.router.experts, s.router.k, s.routing_frequency, s.train) for s in found
    }
    assert len(described) == runs


@pytest.mark.parametrize("study", RUNS)
def test_the_comment_says_what_it_asks_its_command_and_its_runs(study: str) -> None:
    text = (EXPERIMENTS / f"{study}.toml").read_text(encoding="utf-8")
    assert "?" in text.partition("#\n")[0]
    assert f"#     routelaw sweep experiments/paper/{study}.toml\n" in text
    said = re.search(r"^# (\w+) runs", text, re.MULTILINE)
    assert said
    assert (NUMBERS.get(said[1]) or int(said[1])) == RUNS[study][0]
    assert max(map(len, text.splitlines())) <= 120


@EVERY
def test_no_run_would_be_refused(expand: Expand, study: str, base: str, runs: int) -> None:
    """By its technique, whose file alone knows its options, nor by its split into micro-batches."""
    for run in expand(study, base):
        check_split(run.spec, run.execution.micro_batches)
        if run.spec.routed_blocks:
            router_class(run.spec.router.name)(8, 64, 1, replace(run.spec.router, group_tokens=run.spec.group_tokens))


def test_main_is_the_sweep_of_the_paper(expand: Expand) -> None:
    found = specs(expand("main", "paper"))
    for name, runs in (("dense", 6), ("s-base", 54), ("rl-r", 54), ("hash", 54)):
        own = [spec for spec in found if spec.router.name == name]
        assert len(own) == runs
        assert {spec.model.architecture for spec in own} == {
            a for n, a in PAPER_SIZES.items() if n not in ("870M", "7B")
        }
        assert {spec.router.experts for spec in own} == ({1} if name == "dense" else {2**i for i in range(1, 10)})
    assert {spec.train.steps * spec.train.batch * spec.model.sequence_length for spec in found} == {131_072_000_000}
    assert {(s.train.learning_rate, s.train.learning_rate * s.train.final_share) for s in found} == {(2e-4, 2e-5)}
    assert {spec.model.vocabulary for spec in found} == {32_000}


def test_the_papers_s_base_is_no_variant_and_is_the_run_that_its_settings_spelled_out_are(expand: Expand) -> None:
    found = specs(expand("main", "paper"), "s-base")
    assert {(s.variant, s.recipe, s.router.shuffle_groups, s.router.capacity_factor) for s in found} == {
        ("", "clark2022", 4, 2.0)
    }
    spelled = [replace(spec, recipe="") for spec in found]
    assert {spec.variant for spec in spelled} == {"shuffle_groups=4"}
    assert [spec.run_id for spec in spelled] == [spec.run_id for spec in found]
    assert {(s.variant, s.recipe) for s in specs(expand("main", "paper")) if s.router.name != "s-base"} == {("", "")}
    small = {spec.variant for spec in specs(expand("main", "miniature"), "s-base")}
    assert small == {"relative_temperature,temperature=0.05"}


def test_main_counts_as_the_release_does(expand: Expand, released: RunTable) -> None:
    """164 of the 168 models were released."""
    columns = ["active_params", "total_params", "flops_per_token"]
    frame = released.frame
    frame = frame[(frame["variant"] == "") & (frame["k"] == 1) & (frame["routing_frequency"] == 0.5)]
    frame = frame.drop_duplicates(["router", "size", "experts"]).set_index(["router", "size", "experts"])[columns]
    sizes = {architecture: name for name, architecture in PAPER_SIZES.items()}
    found = {
        (s.router.name, sizes[s.model.architecture], s.router.experts): s.counts for s in specs(expand("main", "paper"))
    }
    assert len(frame) == 164
    assert set(found) - set(frame.index) == {
        ("s-base", "130M", 256), ("hash", "130M", 8), ("hash", "130M", 256), ("hash", "25M", 32),
    }  # fmt: skip
    for key, counts in frame.iterrows():
        assert [getattr(found[key], column) for column in columns] == counts.tolist(), key


@pytest.mark.parametrize(("study", "released_runs"), [("k", 18), ("routing_frequency", 46)])
def test_variants_count_as_the_release_does(expand: Expand, released: RunTable, study: str, released_runs: int) -> None:
    """All that the release has of K and R: S-BASE 25M with E = 64 and 256 at R = 1/8 were not released."""
    keys = ["router", "size", "experts", "k", "routing_frequency"]
    frame = released.frame[(released.frame["variant"] == "") & (released.frame["router"] != "dense")]
    known = {
        tuple(row[:5]): row[5:] for row in frame[[*keys, "total_params", "flops_per_token"]].itertuples(index=False)
    }
    sizes = {architecture: name for name, architecture in PAPER_SIZES.items()}
    matched = 0
    for s in specs(expand(study, "paper")):
        key = (s.router.name, sizes[s.model.architecture], s.router.experts, s.router.k, s.routing_frequency)
        if key in known:
            assert (s.counts.total_params, s.counts.flops_per_token) == tuple(known[key])
            matched += 1
    assert matched == released_runs


def test_wider_dense_models_count_as_the_release_does(expand: Expand, released: RunTable) -> None:
    """f experts that are all used, without a weight, are its flop_increase f."""
    columns = ["active_params", "total_params", "flops_per_token"]
    wider = released.frame[released.frame["variant"].str.startswith("flop_increase")]
    known = {tuple(row) for row in wider[columns].itertuples(index=False)}
    found = {
        (s.counts.active_params, s.counts.total_params, s.counts.flops_per_token)
        for s in specs(expand("k", "paper"), "hash")
    }
    assert len(found) == 4
    assert found < known


@BOTH
def test_studies_share_the_runs_they_say(expand: Expand, base: str) -> None:
    """With main.toml: dense models, K = 1, R = 1/2, variant B, and the length of the main sweep."""
    known = {study: ids(specs(expand(study, base))) for study in RUNS}
    with_main = {"k": 6 + 2, "routing_frequency": 12 + 2, "rl_variants": 9 + 3, "robustness": 2, "lengths": 4}
    assert {study: len(known[study] & known["main"]) for study in with_main} == with_main
    with_frequencies = {"single_layer": 12 + 2, "shared_decisions": 12 + 1, "permuted_hash": 6 + 1}
    frequencies = known["routing_frequency"]
    assert {study: len(known[study] & frequencies) for study in with_frequencies} == with_frequencies
    assert not known["seeds"] & known["main"]
    assert not known["limit_7b"] & known["main"]


@BOTH
def test_one_routed_block_at_either_scale(expand: Expand, base: str) -> None:
    for spec in specs(expand("single_layer", base)):
        blocks = spec.model.architecture.blocks
        placed = {"even": (blocks - 1,), "interior": (blocks // 2,)}[spec.router.placement]
        assert spec.routed_blocks == (() if spec.router.name == "dense" else placed)
    stacked = [s for s in specs(expand("stacked_ffws", base)) if s.router.name != "dense"]
    assert sorted((len(s.routed_blocks), s.router.ffws_per_expert) for s in stacked) == [(1, 3), (1, 3), (3, 1), (3, 1)]
    middles = {s.model.architecture.blocks // 2 for s in stacked}
    assert {s.routed_blocks[len(s.routed_blocks) // 2] for s in stacked} == middles


@BOTH
def test_shared_decisions_and_lengths_and_seeds(expand: Expand, base: str) -> None:
    shared = [spec for spec in specs(expand("shared_decisions", base)) if spec.router.shared_decisions]
    assert len(shared) == 6
    steps = sorted({spec.train.steps for spec in specs(expand("lengths", base))})
    assert [step / steps[1] for step in steps] == [0.3, 1, 4]
    seeds = specs(expand("seeds", base))
    assert {spec.train.steps / steps[1] for spec in seeds} == {0.4}
    assert sorted({spec.router.experts for spec in seeds})[:2] == [1, 8]
    assert {spec.train.seed for spec in seeds} == {1, 2, 3}


def test_robustness_crosses_what_the_paper_names(expand: Expand) -> None:
    runs = expand("robustness", "paper")
    assert {spec.model.architecture for spec in specs(runs)} == {PAPER_SIZES["55M"]}
    assert sorted(s.router.balance_weight or 0.0 for s in specs(runs, "s-base")) == [0.0, 1e-3, 1e-2, 1e-1, 1.0]
    chosen = [s for s in specs(runs, "rl-r") if s.router.balance_weight == 1.0]
    assert {"entropy_weight": 5e-4, "policy_weight": 1e-2} in [spec.router.options for spec in chosen]


def test_the_7b_model(expand: Expand) -> None:
    routed = specs(expand("limit_7b", "paper"), "rl-r")[0]
    assert routed.counts.active_params == 6_979_846_144
    assert (routed.train.batch, routed.train.steps, routed.router.experts) == (1024, 100_000, 64)
    assert (routed.router.balance_weight, routed.router.options) == (0.1, {"policy_weight": 0.1})


@pytest.mark.parametrize("study", RUNS)
def test_miniatures_are_miniature(expand: Expand, study: str) -> None:
    small = set(MINIATURE_SIZES.values())
    for run in expand(study, "miniature"):
        assert run.spec.model.architecture in small
        assert run.spec.counts.total_params <= 200e6
        assert run.spec.router.experts <= 64
        assert run.spec.train.steps <= 8000
        assert run.execution.evaluate_every <= run.spec.train.steps / 2


def test_miniatures_keep_the_order_of_what_they_stand_for(expand: Expand) -> None:
    """Run by run of the main sweep, since both expand in the same order."""
    pairs = list(zip(specs(expand("main", "paper")), specs(expand("main", "miniature")), strict=True))
    experts = sorted({(large.router.experts, small.router.experts) for large, small in pairs})
    assert [small for _, small in experts] == [1, 2, 4, 8, 12, 16, 24, 32, 48, 64]
    sizes = sorted({(large.counts.active_params, small.counts.active_params) for large, small in pairs})
    assert sizes == sorted(sizes, key=lambda pair: pair[1])
    assert len({small for _, small in sizes}) == 6
    assert all(large.router.name == small.router.name for large, small in pairs)
    named = {get_size(name) for name in ("0.2M", "0.5M", "0.8M", "2M", "3M", "8M")}
    assert {small.model.architecture for _, small in pairs} == named


def test_every_file_says_which_study_it_is() -> None:
    files = {name: read_toml(EXPERIMENTS / f"{name}.toml")["study"] for name in RUNS}
    assert sorted(files.values()) == sorted(set(STUDIES) - {"transfer"}), "transfer is main, evaluated on other texts"
    assert not any("study" in read_toml(EXPERIMENTS / f"{base}.toml") for base in BASES)
