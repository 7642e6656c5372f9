"""The last word: which tokens it is, its loss and accuracy against a plain loop, and the real development set."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from test_likelihood import make_model
from tiny_runs import ROUTERS, make_text

from routelaw.corpus import Corpus
from routelaw.corpus.sources import Reading
from routelaw.errors import InputError
from routelaw.evaluation.likelihood import forward, token_losses
from routelaw.evaluation.measure import check_whole_texts, last_words, run_trial, split_passage
from routelaw.evaluation.texts import read_passages
from routelaw.training.optimizer import Optimizer
from routelaw.training.step import train_step

DEVELOPMENT = Path(__file__).parents[2] / ".." / "shared" / "data" / "corpus" / "eval" / "lambada_dev_plain_text.txt.xz"
PASSAGES = make_text(20).splitlines()


def test_the_target_is_the_last_word_with_the_space_before_it(tiny_corpus: Corpus) -> None:
    tokenizer = tiny_corpus.tokenizer
    for text, word in (("one two  three \n", "  three"), ("a\nb", "\nb"), ("he said 'no.'", " 'no.'")):
        passage = split_passage(text, tokenizer, 1000)
        assert passage.ids[0] == tokenizer.end_of_text
        assert tokenizer.decode(passage.ids[-passage.target :]) == word
        assert tokenizer.decode(passage.ids[1:]) == text.rstrip()
    short = split_passage(PASSAGES[0], tokenizer, 16)
    assert len(short.ids) == 17
    assert tokenizer.decode(short.ids[-short.target :]) == " " + PASSAGES[0].split()[-1]


def test_passages_that_cannot_be_scored(tiny_corpus: Corpus) -> None:
    with pytest.raises(InputError, match="needs a last word and something before it, not 'alone'"):
        split_passage("alone", tiny_corpus.tokenizer, 16)
    with pytest.raises(InputError, match="tokens, and a sequence only 16"):
        split_passage("a " + "xq" * 30, tiny_corpus.tokenizer, 16)
    with pytest.raises(InputError, match="no passages"):
        last_words(make_model(tiny_corpus), tiny_corpus.tokenizer, [], "cpu")


def by_hand(model, tokenizer) -> tuple[float, int, int]:
    nats, right, tokens = 0.0, 0, 0
    for text in PASSAGES:
        passage = split_passage(text, tokenizer, 16)
        row = torch.from_numpy(passage.ids)[None]
        nats += float(token_losses(model, row)[0][0, -passage.target :].sum())
        tokens += passage.target
        written = passage.ids[: -passage.target].tolist()
        for _ in range(passage.target):  # greedy decoding, a token at a time
            logits = forward(model, torch.tensor([written])).hidden_TD[-1] @ model.embedding.T
            written.append(int(logits.argmax()))
        right += written == passage.ids.tolist()
    return nats, right, tokens


def test_loss_and_accuracy_against_greedy_decoding(tiny_corpus: Corpus) -> None:
    """A model that has learnt half of the passages by heart, so that some words are right and some are not."""
    model = make_model(tiny_corpus, "switch")
    ids = [split_passage(text, tiny_corpus.tokenizer, 16).ids for text in PASSAGES[:10]]
    optimizer = Optimizer(model, model.spec.train)
    for _ in range(60):
        train_step(model, optimizer, torch.from_numpy(np.stack(ids)), model.spec, 1)
    nats, right, tokens = by_hand(model, tiny_corpus.tokenizer)
    found = last_words(model, tiny_corpus.tokenizer, PASSAGES, "cpu")
    assert found.passages == 20
    assert found.tokens == tokens
    assert found.nats == pytest.approx(nats, rel=1e-9)
    assert found.nats_per_word == pytest.approx(nats / 20, rel=1e-9)
    assert found.right == right
    assert found.accuracy == right / 20
    assert 0 < right < 20, "the test should see both"
    assert sum(found.load[1]) == pytest.approx(1)


def test_a_file_named_lambada(tiny_corpus: Corpus, tmp_path: Path) -> None:
    path = tmp_path / "l.txt"
    path.write_text("\n".join(PASSAGES))
    model = make_model(tiny_corpus)
    trial = run_trial(model, tiny_corpus.tokenizer, "lambada", path, "cpu", limit=7)
    assert trial.figures["passages"] == 7
    assert trial.figures["nats_per_word"] >= trial.figures["nats_per_token"] > 0
    assert "bits_per_byte" not in trial.figures


def test_the_real_development_set(tiny_corpus: Corpus) -> None:
    if not DEVELOPMENT.is_file():
        pytest.skip("LAMBADA is not beside the repository (shared/data/corpus/eval)")
    model, tokenizer = make_model(tiny_corpus, "s-base", scale=0.0), tiny_corpus.tokenizer
    trial = run_trial(model, tokenizer, "lambada_dev", DEVELOPMENT, "cpu", limit=40)
    assert trial.figures["passages"] == 40
    assert trial.figures["nats_per_token"] == pytest.approx(np.log(320))
    texts = list(read_passages(DEVELOPMENT, Reading(documents="line"), 40))
    words = [len(tokenizer.encode(" " + text.split()[-1])) for text in texts]
    assert trial.tokens == sum(words)


def test_one_name_is_one_metric(tiny_corpus: Corpus, tmp_path: Path) -> None:
    """loss_lambada is that of the last words, loss_lambada_text that of the whole text, wherever they are computed."""
    model = make_model(tiny_corpus)
    path = tmp_path / "passages.txt"
    path.write_text("one two three\nfour five six\n")
    last = run_trial(model, tiny_corpus.tokenizer, "lambada", path, "cpu")
    whole = run_trial(model, tiny_corpus.tokenizer, "lambada_text", path, "cpu", documents="line")
    assert "accuracy" in last.figures
    assert "bits_per_byte" in whole.figures
    assert whole.tokens > last.tokens
    other = run_trial(model, tiny_corpus.tokenizer, "any", path, "cpu", documents="line")
    assert whole.figures == other.figures
    for name in ("lambada", "LAMBADA", "lambada_test"):
        with pytest.raises(InputError, match=f"call this one {name}_text"):
            check_whole_texts(["c4", name])
    check_whole_texts(["c4", "lambada_text", "lambada_dev_text"])


def naive_last_word_loss(model, tokenizer, texts: list[str]) -> float:
    """Nats per token of the last words, written from the definition: a passage at a time, no filling, fp64."""
    nats, count = 0.0, 0
    for text in texts:
        text = text.rstrip()
        end = len(text) - len(text.split()[-1])
        while text[end - 1].isspace():
            end -= 1
        ids, context = tokenizer.encode(text).tolist(), tokenizer.encode(text[:end]).tolist()
        first = next(
            (i for i, (one, other) in enumerate(zip(ids, context, strict=False)) if one != other), len(context)
        )
        row = torch.tensor([[tokenizer.end_of_text, *ids]])[:, -model.spec.model.sequence_length - 1 :]
        logits = forward(model, row[:, :-1]).hidden_TD @ model.embedding.T
        log_p = logits.log_softmax(-1)[range(row.shape[1] - 1), row[0, 1:]]
        nats -= float(log_p[-(len(ids) - first) :].detach().sum())
        count += len(ids) - first
    return nats / count


@pytest.mark.parametrize("name", list(ROUTERS))
def test_the_loss_against_a_naive_scorer(tiny_corpus: Corpus, tmp_path: Path, name: str) -> None:
    """Passages of many lengths: what shares a batch with another, or fills it up, changes no loss."""
    texts = [" ".join(text.split()[: 2 + nth]) for nth, text in enumerate(make_text(40, seed=5).splitlines())]
    texts[3] += "  \n"
    path = tmp_path / "passages.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    model = make_model(tiny_corpus, name, scale=20.0)
    expected = naive_last_word_loss(model, tiny_corpus.tokenizer, texts)
    found = run_trial(model, tiny_corpus.tokenizer, "lambada", path, "cpu")
    assert found.nats_per_token == pytest.approx(expected, abs=1e-9)
    narrow = run_trial(model.float(), tiny_corpus.tokenizer, "lambada", path, "cpu")
    assert narrow.nats_per_token == pytest.approx(expected, abs=1e-5)
