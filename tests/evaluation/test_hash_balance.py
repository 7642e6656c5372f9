"""Hash balance from real frequencies: the paper's figure, and what it shows."""

import json

import numpy as np
import pytest

from routelaw.cli import main as command_line
from routelaw.corpus import build_corpus, open_corpus
from routelaw.errors import InputError
from routelaw.evaluation.hash_balance import balances


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("balance")
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("abcdefghij"), 4)) for _ in range(200)]
    shares = 1 / np.arange(1, 201)  # Zipf, as in text
    documents = [" ".join(rng.choice(words, 300, p=shares / shares.sum())) for _ in range(40)]
    (folder / "text.txt").write_text("\n<|endoftext|>\n".join(documents))
    build_corpus([folder / "text.txt"], folder / "corpus", vocabulary=400, validation=0.2)
    return open_corpus(folder / "corpus")


def test_loads_count_every_token_once_and_greedy_is_the_most_even(corpus) -> None:
    found = {(b.scheme, b.experts): b for b in balances(corpus, (4, 16))}
    for (_, experts), balance in found.items():
        assert balance.load.shape == (experts,)
        assert balance.load.mean() == pytest.approx(1.0)
        assert np.all(np.diff(balance.load) <= 0)
    counts = np.asarray(corpus.validation.frequencies_V, float)
    by_hand = np.bincount(np.arange(len(counts)) % 4, weights=counts, minlength=4)
    assert found["modulo", 4].load == pytest.approx(np.sort(by_hand / by_hand.mean())[::-1])
    assert found["greedy", 4].load[0] < min(found["modulo", 4].load[0], found["random", 4].load[0])


def test_more_experts_are_less_even(corpus) -> None:
    few, many = (next(b for b in balances(corpus, (e,)) if b.scheme == "modulo") for e in (4, 64))
    assert many.load[0] > few.load[0]
    assert many.overflow > few.overflow
    # One token type cannot be shared out: the fullest expert holds at least the commonest type.
    counts = np.asarray(corpus.validation.frequencies_V, float)
    assert many.load[0] >= counts.max() / counts.sum() * 64 - 1e-9


def test_the_command_draws_and_reports(corpus, tmp_path, capsys, monkeypatch) -> None:
    call = [
        "routelaw",
        "corpus",
        "balance",
        str(corpus.path),
        "--out",
        str(tmp_path / "b.png"),
        "--experts",
        "4,8",
        "--json",
    ]
    monkeypatch.setattr("sys.argv", call)
    with pytest.raises(SystemExit) as ended:
        command_line.main()
    assert ended.value.code == 0
    rows = json.loads(capsys.readouterr().out)["balance"]
    assert [(r["experts"], r["scheme"]) for r in rows[:3]] == [(4, "modulo"), (4, "random"), (4, "greedy")]
    assert (tmp_path / "b.png").read_bytes().startswith(b"\x89PNG")


def test_nothing_held_out_is_no_balance(corpus, tmp_path) -> None:
    """It used to be a table of nan."""
    text = tmp_path / "a.txt"
    text.write_text("some words\n")
    given = corpus.path / "tokenizer.model"
    whole = build_corpus([text], tmp_path / "whole", tokenizer=given, validation=0.0, workers=1)
    with pytest.raises(InputError, match="nothing is held out"):
        balances(whole, [4])
