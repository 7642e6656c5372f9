"""A corpus small enough to be built in a moment."""

from pathlib import Path

import pytest
from corpus_text import VOCABULARY, make_documents, write_documents

from routelaw.corpus import Corpus, Tokenizer, build_corpus


@pytest.fixture(scope="session")
def documents() -> list[str]:
    return make_documents()


@pytest.fixture(scope="session")
def text_file(documents: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_documents(documents, tmp_path_factory.mktemp("text") / "text.txt")


@pytest.fixture(scope="session")
def corpus(text_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """With shards so short that most documents lie across several."""
    out = tmp_path_factory.mktemp("built") / "corpus"
    return build_corpus([text_file], out, vocabulary=VOCABULARY, validation=0.1, workers=1, shard_tokens=1000)


@pytest.fixture(scope="session")
def tokenizer(corpus: Corpus) -> Tokenizer:
    return corpus.tokenizer
