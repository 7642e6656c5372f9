import io

import numpy as np
import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from routelaw.corpus import Corpus, Tokenizer
from routelaw.corpus.fragments import Fragment
from routelaw.corpus.tokenizer import END_OF_TEXT, sample_passages, token_type, train_tokenizer
from routelaw.errors import InputError

any_text = st.one_of(
    st.text(max_size=80),
    st.lists(
        st.sampled_from([*"ab \n\t\r_.1é\u2581\u2585\0", "end", "  ", END_OF_TEXT, "<0x0A>", "</s>", "\u0301", "日本"])
    ).map("".join),
)


@settings(max_examples=400, deadline=None)
@given(any_text)
def test_any_text_comes_back(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


@settings(max_examples=400, deadline=None)
@given(any_text)
def test_units_equal_sentencepiece(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.by_units
    assert tokenizer.encode_packed(text) == tokenizer.encode_plain(text)


def test_units_equal_sentencepiece_on_whole_documents(tokenizer: Tokenizer, documents: list[str]) -> None:
    for text in documents:
        if "\u2581" not in text:
            assert tokenizer.encode(text).tolist() == tokenizer._pieces.encode(text)
        assert tokenizer.encode_packed(text) == tokenizer.encode_plain(text)


def test_layout_of_the_ids(corpus: Corpus) -> None:
    tokenizer = corpus.tokenizer
    assert (tokenizer.piece(0), tokenizer.piece(1), tokenizer.end_of_text) == ("<unk>", END_OF_TEXT, 1)
    assert [tokenizer.piece(2 + byte) for byte in (0, 255)] == ["<0x00>", "<0xFF>"]
    assert tokenizer.decode([1]) == ""
    assert 1 not in tokenizer.encode(END_OF_TEXT)
    # Merged pieces come roughly from frequent to rare: the hash router relies on it.
    merged_V = corpus.train.frequencies_V[258:350]
    assert merged_V[:30].sum() > merged_V[-30:].sum()


def training_text(texts: list[str]) -> list[Fragment]:
    return [Fragment(text.encode(), True, ("here", 0)) for text in texts]


def test_training_is_deterministic(documents: list[str]) -> None:
    first, second = (train_tokenizer(training_text(documents), 400) for _ in range(2))
    assert first == second


def test_the_largest_vocabulary_is_named_and_works() -> None:
    texts = training_text(["abc def abc abc def"])
    with pytest.raises(InputError, match=r"larger than this text allows: pass --vocabulary (\d+) or less") as error:
        train_tokenizer(texts, 1000)
    largest = int(str(error.value).partition("--vocabulary ")[2].split()[0])
    assert Tokenizer(train_tokenizer(texts, largest)).vocabulary == largest


def test_the_smallest_vocabulary_is_named_and_works() -> None:
    texts = training_text(["abc def abc abc def"])
    with pytest.raises(
        InputError, match=r"below the characters of this text: pass --vocabulary (\d+) or more"
    ) as error:
        train_tokenizer(texts, 10)
    smallest = int(str(error.value).partition("--vocabulary ")[2].split()[0])
    assert Tokenizer(train_tokenizer(texts, smallest)).decode([2 + ord("z")]) == "z"


def test_no_text_no_tokenizer() -> None:
    with pytest.raises(InputError, match="no text"):
        train_tokenizer(training_text(["\n\n", ""]), 300)


def test_words_of_any_length_may_be_trained_on(tokenizer: Tokenizer) -> None:
    long = "ab" * 100_000
    model = Tokenizer(train_tokenizer(training_text([long, "some words"]), 266))
    assert model.decode(model.encode(long)) == long
    assert len(tokenizer._units) < 1 << 17


def test_the_sample_is_bounded_and_spread() -> None:
    texts = [f"{number:05d} " * 2000 for number in range(200)]
    sample = sample_passages(training_text(texts), 200_000)
    assert 150_000 < sum(map(len, sample)) <= 200_000
    numbers = [int(passage.split()[0]) for passage in sample]
    assert numbers == sorted(numbers)
    assert 60 < np.mean(numbers) < 140


def foreign_model(**settings: object) -> bytes:
    model = io.BytesIO()
    words = [f"some words number {n} are here" for n in range(200)]
    defaults = {"vocab_size": 330, "model_type": "bpe", "byte_fallback": True, "minloglevel": 2}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(words), model_writer=model, **{**defaults, **settings}
    )
    return model.getvalue()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"normalization_rule_name": "identity", "add_dummy_prefix": False},
        {"model_type": "unigram", "vocab_size": 300, "normalization_rule_name": "identity"},
        {"split_by_whitespace": False, "normalization_rule_name": "identity"},
        {"byte_fallback": False, "vocab_size": 60},
    ],
)
def test_a_model_from_elsewhere_encodes_as_itself(settings: dict) -> None:
    model = foreign_model(**settings)
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model)
    ours = Tokenizer(model)
    for text in ("some words  are\nhere ", " x1. ﬁ é", "", "\n\nnumber 12 are日"):
        assert ours.encode(text).tolist() == theirs.encode(text)


def test_unsuitable_models_are_named() -> None:
    with pytest.raises(InputError, match=r"given\.model: the tokenizer has no end-of-sentence"):
        Tokenizer(foreign_model(eos_id=-1), "given.model")
    for damaged in (b"", b"hello", foreign_model()[:500]):
        with pytest.raises(InputError, match="not a SentencePiece model, or a damaged one"):
            Tokenizer(damaged)


def test_a_piece_that_is_not_utf8_is_damage() -> None:
    """SentencePiece loads such a model, and fails where the piece is first asked for."""
    model = foreign_model()
    for piece in ("\u2581some", "number", "<unk>"):
        at = model.index(piece.encode()) + len(piece.encode()) - 2
        damaged = model[:at] + b"\xff" + model[at + 1 :]
        with pytest.raises(InputError, match=r"given\.model: this is not a SentencePiece model, or a damaged one"):
            Tokenizer(damaged, "given.model")


def test_two_bytes_where_they_suffice() -> None:
    assert token_type(65_536) == "<u2"
    assert token_type(65_537) == "<u4"
