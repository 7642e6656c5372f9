"""`routelaw demo --data`: what a small table does not allow is one sentence, and nothing is written."""

import pytest


@pytest.mark.parametrize(
    ("kept", "why"),
    [
        (lambda t: t[t["active_params"] < 1e8], "without one of the 2 sizes"),
        (lambda t: t[t["router"] == "dense"], "there are only dense runs"),
        (lambda t: t[t["experts"].isin([1, 2]) & (t["active_params"] < 1e8)], "too little for the demo"),
    ],
    ids=["two sizes", "dense alone", "few points"],
)
def test_too_little(command, losses, tmp_path, kept, why) -> None:
    kept(losses).to_csv(tmp_path / "mine.csv", index=False)
    code, out, err = command("demo", "--data", tmp_path / "mine.csv", "--out", tmp_path / "out")
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert "mine.csv: " in err
    assert why in err
    assert not (tmp_path / "out").exists()


def test_laws_that_cannot_be_judged_on_every_router_are_not_ranked(command, losses, tmp_path) -> None:
    """Six points of a router are enough for a law of three parameters with a size left out, not for the others."""
    few = losses[losses["experts"].isin([1, 2]) & (losses["active_params"] < 5e8)]
    few.to_csv(tmp_path / "mine.csv", index=False)
    code, out, err = command("demo", "--data", tmp_path / "mine.csv", "--out", tmp_path / "out")
    assert (code, err) == (0, "")
    assert "Not ranked, for want of points: bilinear, saturated, irreducible." in out
    assert "nan" not in out
    assert "Under saturated" not in out
    assert (tmp_path / "out" / "index.html").is_file()
