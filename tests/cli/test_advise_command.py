"""`routelaw advise`, end to end: what it prints, its JSON, and tables that lack much."""

import json

import pandas as pd
import pytest

VERDICTS = {"holds", "holds in part", "does not hold", "not supported", "cannot tell"}


def strict(text: str) -> dict:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_the_text_and_the_json_say_the_same(command, table) -> None:
    code, out, err = command("advise", table)
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 100
    got = strict(command("advise", table, "--json").out)
    assert [each["number"] for each in got["recommendations"]] == [1, 2, 3, 4, 5, 6]
    for each in got["recommendations"]:
        assert f"{each['number']}. {each['title']}: {each['verdict']}" in out.splitlines()
        assert {each["verdict"], *(finding["verdict"] for finding in each["findings"])} <= VERDICTS
        assert all(finding["why"] for finding in each["findings"])


def test_options_reach_the_advice(command, losses: pd.DataFrame, tmp_path) -> None:
    path = tmp_path / "two.csv"
    losses.assign(loss_c4=losses["loss_validation"] * 1.1, variant="positions=rope").to_csv(path, index=False)
    got = strict(command("advise", path, "--json", "--target", "loss_c4", "--gain", 2.5, "--level", 0.8).out)
    assert (got["target"], got["level"]) == ("loss_c4", 0.8)
    assert got["recommendations"][2]["gain_percent"] == 2.5
    asked = strict(command("advise", path, "--json", "--variant", "positions=rope").out)
    usual = strict(command("advise", path, "--json").out)
    assert asked["recommendations"] == usual["recommendations"]


@pytest.mark.parametrize(
    "keep",
    [
        "router == 'dense'",
        "router != 'dense'",
        "experts == 1 or experts == 8",
        "active_params < 2e7",
        "router == 'hash' and experts == 2",
    ],
)
def test_tables_that_lack_much_get_an_answer(command, losses: pd.DataFrame, tmp_path, keep: str) -> None:
    path = tmp_path / "few.csv"
    losses.query(keep).to_csv(path, index=False)
    code, out, err = command("advise", path, "--json")
    assert (code, err) == (0, "")
    assert any(each["verdict"] == "cannot tell" for each in strict(out)["recommendations"])


def test_names_from_a_table_are_printed_as_text(command, losses: pd.DataFrame, tmp_path) -> None:
    path = tmp_path / "mine.csv"
    losses.assign(router=losses["router"].replace("hash", "[red]\x1b[31m")).to_csv(path, index=False)
    code, out, _ = command("advise", path)
    assert code == 0
    assert "\x1b" not in out
    assert "[red]\\x1b[31m" in out
