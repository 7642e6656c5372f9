"""Text, its tokenizer, its token shards, and batches of them. No torch: batches are NumPy arrays."""

from routelaw.corpus.batches import batch, sequences, validation_windows, windows
from routelaw.corpus.build import build_corpus
from routelaw.corpus.shards import Corpus, Split, open_corpus
from routelaw.corpus.sources import Reading
from routelaw.corpus.tokenizer import Tokenizer

__all__ = [
    "Corpus",
    "Reading",
    "Split",
    "Tokenizer",
    "batch",
    "build_corpus",
    "open_corpus",
    "sequences",
    "validation_windows",
    "windows",
]
