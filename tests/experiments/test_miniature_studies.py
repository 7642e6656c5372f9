"""The sweep files of the miniature: complete, counted, and of one recipe."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import product

import pytest

from experiments.miniature.studies import (
    DATA,
    HERE,
    LARGEST,
    ON_REQUEST,
    PREDICTIONS,
    QUICK,
    RATES,
    STUDIES,
    SWEEPS,
    specs_of,
)
from routelaw.routers.router import router_class
from routelaw.specs.run import RunSpec
from routelaw.studies.study_runs import BALANCE_DEFAULTS
from routelaw.training.run import check_split

BASES = {"recipe", "chosen_rates", "chosen", "deep"}
RUNS = {
    "rates": 16,
    "rl_weights": 40,
    "paper_weights": 9,
    "routed_rates": 10,
    "main": 87,
    "seeds": 27,
    "robustness": 21,
    "k": 14,
    "routing_frequency": 9,
    "lengths": 27,
    "rl_variants": 22,
    "sinkhorn_temperature": 27,
    "shared_decisions": 7,
    "permuted_hash": 5,
    "stacked_ffws": 5,
    "base_layers": 5,
    "largest_rates": 4,
    "more_seeds": 54,
    "between": 17,
    "largest": 29,
}
EVERY_E = [2, 4, 8, 16, 32, 64, 128]
EVERY = pytest.mark.parametrize("study", RUNS)


def specs(study: str) -> list[RunSpec]:
    return specs_of(study, "c", 8192)


def test_every_file_is_in_the_order_of_work() -> None:
    assert {path.stem for path in SWEEPS.glob("*.toml")} == {*STUDIES, *BASES, QUICK}
    assert set(STUDIES) == set(RUNS)
    assert STUDIES[0] == RATES
    assert STUDIES[-len(ON_REQUEST) :] == ON_REQUEST


@EVERY
def test_runs_are_as_many_as_said_and_none_would_be_refused(study: str) -> None:
    found = specs(study)
    text = (SWEEPS / f"{study}.toml").read_text(encoding="utf-8")
    assert len({spec.run_id for spec in found}) == RUNS[study]
    assert re.search(rf"^# {RUNS[study]} runs", text, re.MULTILINE)
    assert "?" in text.partition("#\n")[0]
    assert f"#     routelaw sweep experiments/miniature/sweeps/{study}.toml\n" in text
    for spec in found:
        check_split(spec, 1)
        if spec.routed_blocks:
            router_class(spec.router.name)(8, 64, 1, replace(spec.router, group_tokens=spec.group_tokens))


def test_the_readme_counts_them_too() -> None:
    text = (HERE / "README.md").read_text(encoding="utf-8")
    said = re.findall(r"^\| \[(\w+)\.toml\].*? \| (\d+) \| (\d+) \|", text, re.MULTILINE)
    assert [study for study, _, _ in said] == list(STUDIES)
    assert {study: int(runs) for study, runs, _ in said} == RUNS
    known: set[str] = set()
    for study, _, new in said:
        own = {spec.run_id for spec in specs(study)}
        if study != "main":  # a rate that is chosen may be one of those tried
            assert len(own - known) == int(new), study
        known |= own


def test_the_readme_says_what_was_predicted() -> None:
    text = (HERE / "README.md").read_text(encoding="utf-8")
    said = re.findall(r"^\| \[(\w+)\.toml\].*? \| \d+ \| \d+ \| ([\d.]+) \|", text, re.MULTILINE)
    corpus = json.loads((DATA / "specs.jsonl").read_text(encoding="utf-8").partition("\n")[0])["spec"]["corpus"]
    known = {spec.run_id for spec in specs_of(RATES, corpus, 8192)}
    for study, minutes in said:
        if study != RATES:  # trained before anything was written down
            time_predicted = json.loads((PREDICTIONS / f"predicted_{study}.json").read_text(encoding="utf-8"))["runs"]
            assert {run["run_id"] for run in time_predicted} == {spec.run_id for spec in specs_of(study, corpus, 8192)}
            new = sum(run["seconds"] for run in time_predicted if run["run_id"] not in known)
            assert float(minutes) == pytest.approx(new / 60, abs=0.051), study
            known |= {run["run_id"] for run in time_predicted}


@EVERY
def test_tokens_are_equal_and_within_one_epoch(study: str) -> None:
    lengths = {spec.tokens_after(spec.train.steps) for spec in specs(study)}
    whole = 1500 * 64 * 512
    assert max(lengths) < 58_133_432
    assert lengths <= {whole, whole // 2, whole // 4}
    if study not in ("lengths", "base_layers"):
        assert lengths == {whole}


def test_the_main_sweep_and_the_largest_size_make_one_grid() -> None:
    found = [*specs("main"), *specs("largest")]
    sizes = sorted({spec.counts.active_params for spec in found})
    assert len(sizes) == 4
    assert sizes[-1] / sizes[0] > 20
    for size in sizes:
        own = [spec for spec in found if spec.counts.active_params == size]
        assert len({spec.train.learning_rate for spec in own}) == 1, "routers have the rate of the dense model"
        for router in ("s-base", "hash", "rl-r", "switch"):
            assert sorted(s.router.experts for s in own if s.router.name == router) == EVERY_E
        assert sum(spec.router.name == "dense" for spec in own) == 1
    weights = "balance_weight=0.1,entropy_weight=0.05,policy_weight=0.01,"
    assert {(s.router.name == "rl-r") * weights + "positions=rope" == s.variant for s in found} == {True}
    largest = {spec.run_id for spec in specs("largest")}
    others = {spec.run_id for study in STUDIES if study != LARGEST for spec in specs(study)}
    assert not largest & others, "nothing of the blind test is trained with another study"
    assert sizes[-1] not in {spec.counts.active_params for spec in specs("rates")}


def test_studies_share_the_runs_they_say() -> None:
    known = {study: {spec.run_id for spec in specs(study)} for study in STUDIES}
    with_main = {
        "seeds": 9,
        "more_seeds": 18,
        "k": 6,
        "lengths": 9,
        "rl_variants": 6,
        "robustness": 3,
        "sinkhorn_temperature": 3,
    }
    assert {study: len(known[study] & known["main"]) for study in with_main} == with_main
    with_weights = {"main": 2, "paper_weights": 2, "robustness": 1}
    assert {study: len(known[study] & known["rl_weights"]) for study in with_weights} == with_weights
    with_frequencies = {"shared_decisions": 5, "permuted_hash": 3, "stacked_ffws": 1}
    assert {study: len(known[study] & known["routing_frequency"]) for study in with_frequencies} == with_frequencies


def test_what_the_studies_vary() -> None:
    frequencies = {(s.routing_frequency, len(s.routed_blocks)) for s in specs("routing_frequency") if s.routed_blocks}
    assert frequencies == {(0.125, 1), (0.25, 2), (0.5, 4), (1.0, 8)}
    stacked = {(s.routed_blocks, s.router.ffws_per_expert) for s in specs("stacked_ffws") if s.routed_blocks}
    assert stacked == {((4,), 3), ((2, 4, 6), 1)}
    assert {s.router.k for s in specs("k")} == {1, 2, 4}
    routed = [s.router for s in specs("rl_variants") if s.routed_blocks]
    variants = {(r.options.get("variant", "B"), r.options.get("reward", "logp")) for r in routed}
    assert variants == {("B", "logp"), *product("GS", ("logp", "p"))}
    chosen = {(s.router.balance_weight, s.router.options["policy_weight"]) for s in specs("main") if s.router.options}
    assert {(r.balance_weight, r.options["policy_weight"]) for r in routed} == chosen
    assert all(("entropy_weight" in r.options) == ("variant" not in r.options) for r in routed), "B alone has the term"
    (rate,) = {s.train.learning_rate for s in specs("main") if s.counts.active_params == 788_480}
    assert {s.train.learning_rate for s in specs("routed_rates")} == {rate / 2, rate * 2}
    for router in ("switch", "s-base", "rl-r"):
        weights = {s.router.balance_weight for s in specs("robustness") if s.router.name == router}
        assert {BALANCE_DEFAULTS[router] if w is None else w for w in weights} == {0.0, 1e-3, 1e-2, 1e-1, 1.0}
    assert {s.train.seed for s in specs("seeds")} == {0, 1, 2}
    assert {s.router.experts for s in specs("seeds")} == {1, 8, 64}
