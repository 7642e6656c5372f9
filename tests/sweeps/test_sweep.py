"""Sweep files: what they share, what they refuse, and that equal specs are one run."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routelaw.errors import InputError
from routelaw.specs.sizes import get_size
from routelaw.sweeps.sweep import Sweep, read_sweep, smallest_sizes

COMMON = 'corpus = "c"\n[train]\nsteps = 10\n[model]\nsize = "0.2M"\nsequence_length = 16\n'
GRID = '[[grid]]\nrouter.name = ["dense", "hash", "switch"]\nrouter.experts = [2, 4]\n'


def corpus(path: str | Path) -> Any:
    """A stand-in that is what its path says, so that two paths are two corpora."""
    return SimpleNamespace(vocabulary=512, id=Path(path).name)


def read(path: Path, **overrides: Any) -> Sweep:
    return read_sweep(path, overrides=overrides.pop("overrides", None), opened=corpus, **overrides)


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def to(text: str, name: str = "sweep.toml") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return to


def test_dense_appears_once(write: Any) -> None:
    sweep = read(write(COMMON + GRID))
    assert sweep.combinations == 6
    named = [(run.spec.router.name, run.spec.router.experts) for run in sweep.runs]
    assert named == [("dense", 1), ("hash", 2), ("hash", 4), ("switch", 2), ("switch", 4)]
    assert {run.spec.model.vocabulary for run in sweep.runs} == {512}


def test_no_grid_is_one_run(write: Any) -> None:
    sweep = read(write(COMMON))
    assert len(sweep.runs) == sweep.combinations == 1


def test_grids_add_up_and_equal_specs_are_one_run(write: Any) -> None:
    more = '[[grid]]\nrouter.name = ["hash", "HASH"]\nrouter.experts = [4, 8]\ntrain.learning_rate = [2e-4, 0.0002]\n'
    sweep = read(write(COMMON + GRID + more))
    assert sweep.combinations == 6 + 8
    assert [run.spec.router.experts for run in sweep.runs] == [1, 2, 4, 2, 4, 8]
    assert len({run.spec.run_id for run in sweep.runs}) == len(sweep.runs)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "model.size": st.lists(st.sampled_from(["0.2M", "0.2m", "0.5M"]), min_size=1, max_size=3),
                "router.name": st.lists(st.sampled_from(["dense", "hash", "Hash", "switch"]), min_size=1, max_size=3),
                "router.experts": st.lists(st.sampled_from([2, 4]), min_size=1, max_size=3),
                "train.seed": st.lists(st.sampled_from([0, 1]), min_size=1, max_size=2),
            }
        ),
        min_size=1,
        max_size=3,
    )
)
def test_as_many_runs_as_distinct_specs(grids: list[dict[str, list[Any]]]) -> None:
    """Counted here by what a combination means, and once more by comparing the specs that came out."""
    means = {
        (size.upper(), seed, name.lower() != "dense" and (name.lower(), experts))
        for grid in grids
        for size in grid["model.size"]
        for name in grid["router.name"]
        for experts in grid["router.experts"]
        for seed in grid["train.seed"]
    }
    lines = ["[[grid]]\n" + "".join(f"{name} = {json.dumps(v)}\n" for name, v in grid.items()) for grid in grids]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "sweep.toml"
        path.write_text('corpus = "c"\n[train]\nsteps = 10\n' + "".join(lines), encoding="utf-8")
        runs = read(path).runs
    assert len(runs) == len(means)
    assert not any(a.spec == b.spec for i, a in enumerate(runs) for b in runs[:i])
    assert len({run.spec.run_id for run in runs}) == len(runs)


def test_a_base_of_a_base(write: Any) -> None:
    """The nearer file wins field by field; the rules of all of them hold."""
    write(
        "[train]\nsteps = 10\nseed = 1\n[execution]\nthreads = 1\n[[where]]\nrouter.experts = 4\nset = { router.k = 2 }"
    )
    write('base = "sweep.toml"\ncorpus = "c"\n[train]\nseed = 2\n[model]\nsize = "0.2M"\n', "middle.toml")
    top = 'base = "middle.toml"\n[model]\nsize = "0.5M"\n[[grid]]\nrouter.name = "hash"\nrouter.experts = [2, 4]\n'
    first, second = read(write(top, "top.toml")).runs
    assert (first.spec.train.steps, first.spec.train.seed, first.execution.threads) == (10, 2, 1)
    assert first.spec.model.architecture.d_model == 96
    assert (first.spec.router.k, second.spec.router.k) == (1, 2)


def test_the_rules_of_a_file_come_after_those_of_its_base(write: Any) -> None:
    rule = "[[where]]\nmodel.size = '0.2M'\nset = { train.seed = %d }\n"
    write(COMMON + rule % 1, "base.toml")
    assert read(write('base = "base.toml"\n' + rule % 2)).runs[0].spec.train.seed == 2


def test_bases_that_go_round(write: Any) -> None:
    write('base = "b.toml"', "a.toml")
    with pytest.raises(InputError, match=r"base leads round in a circle\."):
        read(write('base = "a.toml"', "b.toml"))


def test_a_base_has_no_grids(write: Any) -> None:
    write(COMMON + GRID, "base.toml")
    with pytest.raises(InputError, match=r"its base base.toml has grids of its own"):
        read(write('base = "base.toml"\n'))


def test_paths_are_relative_to_the_file_that_has_them(write: Any, tmp_path: Path) -> None:
    write(
        'corpus = "mine"\n[evaluate_on]\nc4 = "web/c4"\n"wiki.en" = "w"\n' + COMMON.partition("\n")[2], "low/base.toml"
    )
    path = write('base = "low/base.toml"\n[evaluate_on]\nc4 = "other"\n')
    run = read(path).runs[0]
    assert run.corpus == tmp_path / "low" / "mine"
    assert run.others == {"c4": tmp_path / "other", "wiki.en": tmp_path / "low" / "w"}


def test_a_corpus_in_a_grid(write: Any, tmp_path: Path) -> None:
    path = write(COMMON + '[[grid]]\ncorpus = ["a", "b"]\n', "low/sweep.toml")
    runs = read(path).runs
    assert [run.corpus for run in runs] == [tmp_path / "low" / name for name in "ab"]
    assert [run.spec.corpus for run in runs] == ["a", "b"]
    with pytest.raises(InputError, match=r"\[\[grid\]\]: corpus must be text, not 3\."):
        read(write(COMMON + "[[grid]]\ncorpus = [3]\n"))


def test_one_corpus_under_two_paths_is_one_run(write: Any) -> None:
    sweep = read(write(COMMON + '[[grid]]\ncorpus = ["here/c", "there/c"]\n'))
    assert (sweep.combinations, len(sweep.runs)) == (2, 1)


def test_overrides_win(write: Any) -> None:
    path = write(COMMON + GRID + "[[where]]\nrouter.name = 'hash'\nset = { train.seed = 3 }\n")
    overrides = {"train.seed": 7, "router.k": 2, "corpus": "elsewhere"}
    runs = read(path, overrides=overrides).runs
    assert [run.spec.router.k for run in runs] == [1, 2, 2, 2, 2]  # the dense one has no router
    assert {run.spec.train.seed for run in runs} == {7}
    assert {run.corpus for run in runs} == {Path("elsewhere")}  # of whoever types it, so relative to where that is


def test_overrides_can_make_runs_equal(write: Any) -> None:
    sweep = read(write(COMMON + GRID), overrides={"router.name": "hash", "router.experts": 2})
    assert (sweep.combinations, len(sweep.runs)) == (6, 1)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (COMMON + "[[grids]]\nrouter.k = 1", r"sweep.toml: unknown key 'grids' \(did you mean 'grid'\?\)"),
        (COMMON + "[router]\nexpert = 2", r"sweep.toml router: unknown key 'expert' \(did you mean 'experts'\?\)"),
        (COMMON + "[[grid]]\nrouter.expert = [2]", r"\[\[grid\]\] router: unknown key 'expert' \(did you mean"),
        (COMMON + "[[grid]]\nrouters.k = [2]", r"unknown key 'routers' \(did you mean 'router'\?\)"),
        (COMMON + "[[grid]]\nevaluate_on.c4 = ['a']", "unknown key 'evaluate_on'"),
        (
            COMMON + "[[where]]\nmodel.sizes = '15M'\nset = {}",
            r"\[\[where\]\] model: unknown key 'sizes' \(did you mean",
        ),
        (COMMON + "[[grid]]\nmodel.size = ['0.3M']", r"\(model.size = 0.3M\).*: Unknown size '0.3M' \(did you mean"),
        (COMMON + "[[grid]]\nrouter.experts = []", "router.experts has no values"),
        (COMMON + GRID + "router.k = [1, 4]", r"router.experts = 2, router.k = 4\): router.k must lie between 1 and"),
        (COMMON + "[[grid]]\ntrain.steps = ['ten']", r"\[train\]: steps must be a whole number, not 'ten'"),
        (COMMON + "[grid]\nrouter.k = 1", r"grid must be written \[\[grid\]\], since there may be several"),
        ("where = 3\n" + COMMON, r"where must be written \[\[where\]\]"),
        ("grid = [3]\n" + COMMON, r"\[\[grid\]\] must be a table, not 3"),
        ("router = 3\n" + COMMON, r"sweep.toml: router must be a table, not 3"),
        ("evaluate_on = { c4 = 3 }\n" + COMMON, r"\[evaluate_on\]: c4 must be text, not 3"),
        (COMMON.partition("\n")[2], r'names no corpus; write `corpus = "DIR"` or give --corpus\.'),
        ("base = 3\n" + COMMON, "base must be text, not 3"),
        ("study = 3\n" + COMMON, "sweep.toml: study must be text, not 3"),
        (
            'study = "maine"\n' + COMMON,
            r"sweep.toml: unknown study 'maine' \(did you mean 'main'\?\); there are main, k",
        ),
        ('base = "missing.toml"\n' + COMMON, r"missing.toml: there is no such file"),
        (COMMON + "[execution]\nthread = 1", r"execution: unknown key 'thread' \(did you mean 'threads'\?\)"),
        (COMMON + "[execution]\nthreads = 'all'", r"\[execution\]: threads must be a whole number, not 'all'"),
    ],
)
def test_what_cannot_be_meant(write: Any, text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        read(write(text))
    assert "sweep.toml" in str(caught.value) or "missing.toml" in str(caught.value)
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


def test_a_typo_in_a_base_is_said_of_the_base(write: Any) -> None:
    """Even where every run is dense, and nobody would look at its router."""
    write(COMMON + "[router]\ncapacity = 2.0\n", "base.toml")
    with pytest.raises(InputError, match=r"base.toml router: unknown key 'capacity' \(did you mean 'capacity_factor'"):
        read(write('base = "base.toml"\n'))


def test_which_grid_of_several(write: Any) -> None:
    text = COMMON + GRID + "[[grid]]\nrouter.name = 'hash'\nrouter.experts = 2\nrouter.k = 3\n"
    with pytest.raises(
        InputError, match=r"sweep.toml grid 2 \(router.name = hash, router.experts = 2, router.k = 3\): "
    ):
        read(write(text))


def test_the_study_is_no_part_of_what_a_run_means(write: Any) -> None:
    plain, named = read(write(COMMON + GRID)), read(write('study = "shared_decisions"\n' + COMMON + GRID))
    assert (plain.study, named.study) == ("", "shared-decisions")
    assert [run.spec.run_id for run in plain.runs] == [run.spec.run_id for run in named.runs]


def test_the_smallest_sizes_alone(write: Any) -> None:
    """A technique that makes a model larger does not make it another size."""
    grid = """
[[grid]]
model.size = ["0.8M", "0.2M", "0.5M"]
router.name = ["dense", "hash"]
router.experts = 2
router.ffws_per_expert = [1, 3]
"""
    sweep = read(write(COMMON + grid))
    two = smallest_sizes(sweep, 2)
    assert [run for run in sweep.runs if run in two.runs] == list(two.runs)
    assert {run.spec.model.architecture for run in two.runs} == {get_size("0.2M"), get_size("0.5M")}
    assert (len(two.runs), len(smallest_sizes(sweep, 9).runs)) == (6, 9)
    with pytest.raises(InputError, match="at least 1 is taken, not 0"):
        smallest_sizes(sweep, 0)
