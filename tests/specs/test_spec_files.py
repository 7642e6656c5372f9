"""Specs in files: strict on the way in, whole on the way back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routelaw.errors import InputError
from routelaw.files import read_toml
from routelaw.specs.counting import Architecture
from routelaw.specs.files import from_stored, run_spec, to_mapping
from routelaw.specs.run import ModelSpec, RouterSpec, RunSpec, TrainSpec
from routelaw.specs.sizes import get_size

GOOD: dict[str, Any] = {
    "model": {"size": "0.8M", "vocabulary": 4096},
    "router": {"name": "s-base", "experts": 8, "options": {"tolerance": 0.1}},
    "train": {"steps": 10, "learning_rate": 1},
}


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(
        '[model]\nsize = "0.8M"\nvocabulary = 4096\n[router]\nname = "s-base"\nexperts = 8\n'
        "options = { tolerance = 0.1 }\n[train]\nsteps = 10\nlearning_rate = 1\n"
    )
    made = run_spec(read_toml(path), "c", str(path))
    assert made == run_spec(GOOD, "c", "here")
    assert made.model == ModelSpec(get_size("0.8M"), vocabulary=4096)
    assert isinstance(made.train.learning_rate, float)


def test_four_numbers_instead_of_a_size() -> None:
    numbers = {"d_model": 16, "blocks": 2, "heads": 2, "kv_size": 8}
    assert run_spec({**GOOD, "model": numbers}, "c", "here").model.architecture == Architecture(16, 2, 2, 8)


@pytest.mark.parametrize(
    ("table", "values", "sentence"),
    [
        ("router", {"expert": 8}, r"here \[router\]: unknown key 'expert' \(did you mean 'experts'\?\); it takes name"),
        ("train", {"steps": 1, "lr": 1.0}, r"\[train\]: unknown key 'lr'"),
        ("train", {}, r"here \[train\]: steps is missing"),
        ("train", {"steps": "10"}, r"\[train\]: steps must be a whole number, not '10'"),
        ("train", {"steps": 10.5}, "steps must be a whole number, not 10.5"),
        ("train", {"steps": True}, "steps must be a whole number, not True"),
        ("train", {"steps": 1, "clip": True}, "clip must be a number, not True"),
        ("router", {"shared_decisions": 1}, "shared_decisions must be true or false, not 1"),
        ("router", {"name": 3}, "name must be text, not 3"),
        ("router", {"balance_weight": "none"}, "balance_weight must be a number, not 'none'"),
        ("router", {"options": 3}, "options must be a table, not 3"),
        ("router", 3, r"here \[router\] must be a table of name"),
        ("model", {"size": "0.9M"}, r"Unknown size '0.9M' \(did you mean"),
        ("model", {"size": 15}, "size must be text, not 15"),
        ("model", {"size": "15M", "heads": 4}, "give either size or heads, not both"),
        ("model", {}, 'give a size such as "0.8M", or d_model, blocks, heads, kv_size'),
        ("model", {"d_model": 16, "blocks": 2}, "heads is missing"),
        ("model", {"d_modle": 16}, r"unknown key 'd_modle' \(did you mean 'd_model'\?\)"),
        ("model", {"sizes": "15M"}, r"unknown key 'sizes' \(did you mean 'size'\?\)"),
        ("model", {"architecture": {}}, "unknown key 'architecture'"),
    ],
)
def test_strict(table: str, values: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        run_spec({**GOOD, table: values}, "c", "here")
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


def test_an_unknown_table_names_the_nearest() -> None:
    with pytest.raises(InputError, match=r"unknown key 'trains' \(did you mean 'train'\?\)"):
        run_spec({**GOOD, "trains": {}}, "c", "here")


@pytest.mark.parametrize(("content", "sentence"), [(b"steps = = 3", "is not TOML"), (b"\xff", "is not TOML")])
def test_files_that_are_no_toml(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    with pytest.raises(InputError, match=sentence):
        read_toml(path)
    with pytest.raises(InputError, match="there is no such file"):
        read_toml(tmp_path / "absent.toml")


def stored() -> dict[str, Any]:
    return to_mapping(run_spec(GOOD, "c", "here"))


@pytest.mark.parametrize("lost", ["model", "router", "train", "corpus"])
def test_a_stored_spec_without_one_of_its_parts(lost: str) -> None:
    values = stored()
    del values[lost]
    with pytest.raises(InputError, match=f"spec.json: {lost} is missing"):
        from_stored(values, "spec.json")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"model": 3}, r"\[model\] must be a table of"),
        ({"model": {}}, "architecture is missing"),
        ({"model": {"architecture": {"d_model": 8}}}, "blocks is missing"),
        ({"corpus": None}, "corpus must be text, not None"),
        ({"later": {}}, "unknown key 'later'"),
        ({"router": {"name": "hash", "jitter": 1}}, "unknown key 'jitter'"),
    ],
)
def test_a_stored_spec_that_was_damaged_or_is_newer(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        from_stored({**stored(), **change}, "spec.json")


positive = st.floats(1e-9, 1e9)
options = st.dictionaries(
    st.text(min_size=1, max_size=8), st.one_of(st.text(max_size=5), st.booleans(), st.integers(), positive), max_size=3
)


@st.composite
def specs(draw: st.DrawFn) -> RunSpec:
    heads, blocks = draw(st.integers(1, 64)), draw(st.integers(1, 48))
    architecture = Architecture(draw(st.integers(1, 9999)), blocks, heads, 2 * draw(st.integers(1, 99)))
    length = draw(st.integers(1, 4096))
    model = ModelSpec(architecture, draw(st.integers(1, 10**6)), length, draw(st.sampled_from(["xl", "rope"])))
    train = TrainSpec(
        steps=draw(st.integers(1, 10**7)),
        batch=draw(st.integers(1, 2048)),
        learning_rate=draw(positive),
        final_share=draw(st.floats(0, 1)),
        beta2=draw(st.floats(0, 1, exclude_max=True)),
        weight_decay=draw(st.floats(0, 10)),
        seed=draw(st.integers(0, 2**63 - 1)),
    )
    if draw(st.booleans()):
        return RunSpec(model, RouterSpec(), train, draw(st.text()))
    experts = draw(st.integers(1, 512))
    router = RouterSpec(
        name=draw(st.sampled_from(["s-base", "hash", "My Router"])),
        experts=experts,
        k=draw(st.integers(1, experts)),
        routing_frequency=draw(st.floats(0.6 / blocks, 1)) if blocks > 1 else 1.0,
        placement=draw(st.sampled_from(["even", "interior"])),
        capacity_factor=draw(st.floats(0, 8)),
        shared_decisions=draw(st.booleans()),
        balance_weight=draw(st.none() | st.floats(0, 10)),
        options=draw(options),
    )
    return RunSpec(model, router, train, draw(st.text()))


@given(specs())
def test_what_is_stored_is_read_back_the_same(made: RunSpec) -> None:
    again = from_stored(json.loads(json.dumps(to_mapping(made))), "spec.json")
    assert again == made
    assert again.run_id == made.run_id
    assert again.variant == made.variant
