"""Likelihoods against hand computations: a uniform model, a model that knows, and the windows' effect on context."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_runs import ROUTERS, make_spec, make_text

from routelaw.corpus import Corpus, build_corpus, validation_windows
from routelaw.corpus.sources import Reading
from routelaw.errors import InputError
from routelaw.evaluation import texts
from routelaw.evaluation.likelihood import likelihood, token_losses
from routelaw.evaluation.measure import run_trial
from routelaw.evaluation.texts import TokenStream, read_passages
from routelaw.model.transformer import Transformer
from routelaw.training.state import tell_token_counts


def make_model(corpus: Corpus, router: str = "dense", scale: float = 1.0) -> Transformer:
    model = Transformer(make_spec(corpus, router))
    tell_token_counts(model, corpus)
    with torch.no_grad():
        model.embedding.mul_(scale)
    return model.double()


def test_a_uniform_model_is_as_perplexed_as_it_has_words(tiny_corpus: Corpus, tmp_path: Path) -> None:
    model = make_model(tiny_corpus, scale=0.0)
    text = tmp_path / "a.txt"
    text.write_text("some words é of text\n<|endoftext|>\nand more\n")
    trial = run_trial(model, tiny_corpus.tokenizer, "a", text, "cpu")
    ids = [tiny_corpus.tokenizer.encode(part) for part in ("some words é of text", "and more")]
    tokens, size = sum(map(len, ids)) + 2, len("some words é of textand more".encode())
    assert trial.tokens == tokens
    assert (trial.figures["documents"], trial.figures["bytes"]) == (2, size)
    assert trial.figures["perplexity"] == pytest.approx(model.spec.model.vocabulary, rel=1e-12)
    assert trial.figures["nats_per_token"] == pytest.approx(math.log(320), rel=1e-12)
    assert trial.figures["bits_per_byte"] == pytest.approx(tokens * math.log2(320) / size, rel=1e-12)
    assert trial.load == {}


def test_strided_windows_against_one_window_per_token(tiny_corpus: Corpus, tmp_path: Path) -> None:
    """Stride 1 gives every token all the context there can be; each token by itself gives the same sum."""
    model = make_model(tiny_corpus, "switch", scale=40.0)
    text = tmp_path / "a.txt"
    text.write_text(make_text(1, seed=1))
    tokenizer = tiny_corpus.tokenizer
    stream = np.concatenate(list(TokenStream(text, tokenizer, Reading())))
    length, nats = 16, 0.0
    for at in range(1, len(stream)):
        before = stream[max(0, at - length) : at + 1]
        nats += float(token_losses(model, torch.from_numpy(before)[None])[0][0, -1])
    trial = run_trial(model, tokenizer, "a", text, "cpu", stride=1)
    assert trial.figures["nats_per_token"] * trial.tokens == pytest.approx(nats, rel=1e-9)
    coarse = run_trial(model, tokenizer, "a", text, "cpu", stride=16)
    assert coarse.tokens == trial.tokens == len(stream) - 1
    assert abs(coarse.figures["nats_per_token"] - trial.figures["nats_per_token"]) > 1e-4
    assert run_trial(model, tokenizer, "a", text, "cpu").figures["stride"] == 8


@pytest.mark.parametrize("name", [name for name in ROUTERS if name != "dense"])
def test_load_counts_each_token_once(tiny_corpus: Corpus, tmp_path: Path, name: str) -> None:
    """Overlap and filling do not count: any stride gives the load of as many tokens, and of hash the very same."""
    model = make_model(tiny_corpus, name)
    text = tmp_path / "a.txt"
    text.write_text(make_text(1, seed=2))
    loads = [run_trial(model, tiny_corpus.tokenizer, "a", text, "cpu", stride=s).load for s in (16, 5, 1)]
    for load in loads:
        (shares,) = load.values()
        assert sum(shares) == pytest.approx(1)
    if name.startswith("hash"):
        assert loads[0] == loads[1] == loads[2]
        stream = np.concatenate(list(TokenStream(text, tiny_corpus.tokenizer, Reading())))[:-1]
        table = model.blocks[0].router.table_VK[:, 0].numpy()
        assert loads[0][1] == pytest.approx((np.bincount(table[stream], minlength=4) / len(stream)).tolist())


def test_corpus_and_its_text_agree(tiny_corpus: Corpus, tmp_path: Path) -> None:
    model, tokenizer = make_model(tiny_corpus), tiny_corpus.tokenizer
    text = tmp_path / "b.txt"
    text.write_text(make_text(5, seed=3))
    given = tiny_corpus.path / "tokenizer.model"
    reading = Reading(documents="line")
    built = build_corpus([text], tmp_path / "b", tokenizer=given, validation=0.0, reading=reading, workers=1)
    stored = run_trial(model, tokenizer, "b", built.path, "cpu")
    encoded = run_trial(model, tokenizer, "b", text, "cpu", documents="line")
    assert stored.figures == encoded.figures
    few = [run_trial(model, tokenizer, "b", p, "cpu", documents="line", limit=2) for p in (built.path, text)]
    assert few[0].figures == few[1].figures
    assert few[0].figures["documents"] == 2
    held = run_trial(model, tokenizer, "c", tiny_corpus.path, "cpu")
    assert held.figures["documents"] == tiny_corpus.validation.documents


def test_another_tokenizer_is_refused(tiny_corpus: Corpus, tmp_path: Path) -> None:
    text = tmp_path / "b.txt"
    text.write_text(make_text(20, seed=3))
    other = build_corpus([text], tmp_path / "b", vocabulary=290, reading=Reading(documents="line"), workers=1)
    with pytest.raises(InputError, match="another tokenizer"):
        run_trial(make_model(tiny_corpus), tiny_corpus.tokenizer, "b", other.path, "cpu")


def test_a_damaged_corpus_has_no_loss(tiny_corpus: Corpus, tmp_path: Path) -> None:
    for file in ("validation-00000.tokens", "validation.index"):
        damaged = Path(shutil.copytree(tiny_corpus.path, tmp_path / file))
        content = bytearray((damaged / file).read_bytes())
        content[64] ^= 1
        (damaged / file).write_bytes(content)
        with pytest.raises(InputError, match=f"{file}: the content is damaged"):
            run_trial(make_model(tiny_corpus), tiny_corpus.tokenizer, "a", damaged, "cpu")


def test_nothing_to_evaluate(tiny_corpus: Corpus, tmp_path: Path) -> None:
    empty = tmp_path / "empty.txt"
    empty.write_text("\n \n")
    with pytest.raises(InputError, match=r"there is no text in .*empty\.txt"):
        run_trial(make_model(tiny_corpus), tiny_corpus.tokenizer, "a", empty, "cpu")
    with pytest.raises(InputError, match="no such file"):
        run_trial(make_model(tiny_corpus), tiny_corpus.tokenizer, "a", tmp_path / "nowhere.txt", "cpu")


def test_quick_evaluation_is_the_mean_of_its_windows(tiny_corpus: Corpus) -> None:
    model = make_model(tiny_corpus, "s-base")
    windows = list(validation_windows(tiny_corpus, 16, 4))
    measured = likelihood(model, windows, "cpu")
    losses = torch.cat([token_losses(model, torch.from_numpy(w))[0].flatten() for w in windows])
    assert measured.tokens == losses.numel()
    assert measured.nats_per_token == pytest.approx(float(losses.mean()), rel=1e-9)


def test_passages_are_whole_documents(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"text": "one two"}\n{"text": " "}\n{"text": "three\\nfour"}\n')
    assert list(read_passages(path, Reading())) == ["one two", "three\nfour"]
    assert list(read_passages(path, Reading(), limit=1)) == ["one two"]


def test_a_passage_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "LONGEST_PASSAGE", 20)
    path = tmp_path / "p.txt"
    path.write_text("some fifteen xx\nsome fifteen xx\n")
    assert len(list(read_passages(path, Reading(documents="line")))) == 2
    with pytest.raises(InputError, match="passage 1 is longer"):
        list(read_passages(path, Reading(documents="file")))
