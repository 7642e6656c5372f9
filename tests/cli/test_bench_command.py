"""`routelaw bench`, as people and machines call it."""

from __future__ import annotations

import json

import pytest
import torch

eager = pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU everything is compiled, which takes minutes")


@eager
def test_tables_with_their_baselines(command) -> None:
    code, out, err = command("bench", "layer", "attention", "--quick")
    assert (code, err) == (0, "")
    assert out.index("layer: One routed layer") < out.index("attention: Causal attention")
    assert "Baseline: a dense FFW of the same FLOPs" in out
    assert "mean little" in out


@eager
def test_json(command) -> None:
    code, out, err = command("bench", "experts", "--quick", "--json")
    assert (code, err) == (0, "")
    got = json.loads(out)
    assert got["quick"] is True
    (table,) = got["tables"]
    assert table["name"] == "experts"
    assert table["failures"] == []
    assert {"device", "torch", "date"} == table["machine"].keys()
    assert [row["E"] for row in table["rows"].values()] == [1, 4]
    assert all(row["over dense"] > 0 for row in table["rows"].values())


@eager
def test_a_recorded_table_is_a_line_of_its_options(command, tmp_path) -> None:
    file = tmp_path / "results.jsonl"
    asked = {"experts": "[1,2]", "width": 16, "tokens": 64, "copied": 2**20}
    settings = [word for name, value in asked.items() for word in ("--set", f"experts.{name}={value}")]
    code, out, err = command("bench", "experts", "--record", "--results", str(file), "--limit", "60", *settings)
    assert code == 0
    assert "64 random tokens" in out
    assert [line.partition(":")[0] for line in err.splitlines()] == ["E=1", "E=2"]
    (line,) = map(json.loads, file.read_text().splitlines())
    assert line["benchmark"] == "experts"
    assert line["figures"]["E=2/E"] == 2


@pytest.mark.long
@eager
def test_sizes_are_those_of_the_models(command) -> None:
    got = json.loads(command("bench", "models", "--quick", "--json", "--sizes", "0.05M,0.12M").out)
    names = list(got["tables"][0]["rows"])
    assert names[0] == "0.05M rope dense"
    assert names[-1] == "0.12M rope s-base"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("model",), "(did you mean 'models'?)"),
        (("layer", "nonsense"), "sinkhorn, layer, experts, attention, models"),
        (("layer", "--sizes", "130M"), "--sizes is for the table models"),
        (("models", "--sizes", "131N"), "Unknown size '131N'"),
        (("layer", "--set", "layer.width=[8]"), "unknown key 'width' (did you mean 'widths'?)"),
        (("layer", "--set", "experts.width=8"), "--set takes layer, not 'experts'"),
        (("layer", "--set", "layer.tokens=many"), "tokens must be a whole number"),
        (("layer", "--quick", "--record"), "mean little: leave out --record"),
        (("layer", "--results", "here.jsonl"), "--results has no effect without --record"),
        (("layer", "--record", "--results", "/none/here.jsonl"), "there is no folder /none"),
    ],
)
def test_wrong_words_are_said_before_anything_is_measured(command, arguments, said) -> None:
    code, out, err = command("bench", *arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
