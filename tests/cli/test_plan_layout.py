"""`routelaw plan layout`, as people and machines call it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

PAPER = ("plan", "layout", "--size", "1.3B", "--experts", 512, "--devices", 256, "--device", "h100")


def test_a_table_and_its_arithmetic(command) -> None:
    code, out, err = command(*PAPER, "--top", 3)
    assert (code, err) == (0, "")
    assert "on 256 × h100 in nodes of 8" in out
    assert "parameters of all but the experts, batch of 32" in out
    assert "--set router.group_tokens=2048" in out
    assert "more fit: --top" in out
    assert "Assumed: balanced routing" in out


def test_json(command) -> None:
    code, out, err = command(*PAPER, "--json")
    assert (code, err) == (0, "")
    got = json.loads(out)
    assert (got["devices"], got["device"], got["precision"]) == (256, "h100", "bfloat16")
    assert got["total_params"] == pytest.approx(207e9, rel=0.01)
    steps = [row["seconds"]["step"] for row in got["layouts"] if row["fits"]]
    assert steps == sorted(steps)
    assert [row["fits"] for row in got["layouts"]] == sorted((row["fits"] for row in got["layouts"]), reverse=True)
    for row in got["layouts"]:
        assert row["data"] * row["expert"] * row["tensor"] == 256
        kinds = [row["sent"][kind] for kind in ("gather", "reduce", "exchange", "shuffle", "tensor", "small")]
        assert row["sent"]["total"] == pytest.approx(sum(kinds))
        assert row["sent"]["between_nodes"] <= row["sent"]["total"]
        assert {"parameters", "masters", "optimizer", "activations", "exchange"} <= row["memory"].keys()
        assert (row["missing"] > 0) != row["fits"]
    assert got["notes"]
    assert got["arithmetic"]["time of a step"][-1]["what"] == "step"


def test_options_say_what_the_links_are(command) -> None:
    def step(*more: object) -> float:
        return json.loads(command(*PAPER, "--json", *more).out)["layouts"][0]["seconds"]["without_overlap"]

    assert step("--network", "5GB") > step() > step("--network", "400GB", "--link", "900GB")
    assert step("--node", 256) < step()


def test_a_file_is_read_and_options_win(command, tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(
        'corpus = "nowhere"\nmodel = { size = "25M" }\nrouter = { name = "hash", experts = 8 }\n'
        'train = { steps = 100, batch = 64 }\nexecution = { precision = "float32", data = 2 }\n'
    )
    got = json.loads(command("plan", "layout", "--spec", file, "--devices", 4, "--experts", 16, "--json").out)
    assert got["precision"] == "float32"
    assert max(row["expert"] for row in got["layouts"]) == 4
    assert "Rates are those of bfloat16" in command("plan", "layout", "--spec", file, "--devices", 4).out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--size", "370M", "--experts", 8, "--devices", 0), "at least one device, not 0"),
        (
            ("--size", "370M", "--experts", 8, "--devices", 8, "--device", "h1000"),
            "unknown device 'h1000' (did you mean 'h100'?)",
        ),
        (("--size", "371M", "--experts", 8, "--devices", 8), "Unknown size"),
        (("--experts", 8, "--devices", 8), "give a size"),
        (("--size", "370M", "--experts", 8, "--devices", 8, "--precision", "int8"), "--precision"),
        (
            ("--size", "370M", "--experts", 8, "--devices", 16, "--network", "fast"),
            "--network must be a positive number",
        ),
        (("--size", "370M", "--experts", 8, "--devices", 8, "--set", "router.experrts=2"), "unknown key"),
        (("--size", "1.3B", "--experts", 512, "--devices", 8), "the closest"),
        (("--size", "1.3B", "--devices", 8), "--experts"),
        (("--size", "370M", "--experts", 64, "--devices", 7), "is possible"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_input_is_one_sentence(command, arguments, said) -> None:
    code, out, err = command("plan", "layout", *arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.strip().splitlines()) == 1


def test_the_other_plan_is_still_the_usual_one(command) -> None:
    code, out, _ = command("plan", "--total-params", "1B", "--top", 1)
    assert code == 0
    assert "lowest predicted loss" in out
