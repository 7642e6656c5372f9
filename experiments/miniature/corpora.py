"""The corpora of the miniature: the text that is trained on and the sets that are evaluated, in one tokenizer."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from experiments.miniature.studies import HERE
from routelaw.corpus import Reading, build_corpus
from routelaw.corpus.manifest import MANIFEST
from routelaw.errors import InputError

TOKENIZER = HERE / "tokenizer.model"
"""Trained once: routelaw corpus build mix.txt.xz --vocabulary 8192 --validation 0.01."""
TRAINING, VALIDATION_SHARE = "corpus", 0.01
TEXTS = {
    TRAINING: ("mix.txt.xz", "separator"),
    "wikitext103": ("eval/wikitext103_test.detok.txt.xz", "separator"),
    "c4": ("eval/c4_sample.jsonl.xz", "separator"),
    "pile_cc": ("eval/pile_test_pile_cc.jsonl.xz", "separator"),
    "lambada_text": ("eval/lambada_dev_plain_text.txt.xz", "line"),
}
"""Corpus → its file in the folder of texts, and what a document is there."""
QUICK_VOCABULARY = 320


def build_corpora(place: Path, texts: Path | None, say: Callable[[str], None]) -> None:
    """Make those that are not there yet; each appears whole or not at all."""
    for name, (file, documents) in TEXTS.items():
        if (place / name / MANIFEST).is_file():
            continue
        if texts is None:
            raise InputError(f"{place / name} is not there: say where the texts are, with --texts.")
        share = VALIDATION_SHARE if name == TRAINING else 0.0
        reading = Reading(documents=documents)
        corpus = build_corpus([texts / file], place / name, tokenizer=TOKENIZER, validation=share, reading=reading)
        say(f"{name}: {sum(len(split.tokens) for split in corpus.splits.values()):,} tokens, id {corpus.id[:12]}")


def build_quick_corpora(place: Path) -> None:
    """Text of no meaning, for all of them."""
    draw = random.Random(7)
    words = ["".join(draw.choices("aeiobdglmnrst", k=draw.randint(2, 6))) for _ in range(60)]
    text = place / "text.txt"
    place.mkdir(parents=True, exist_ok=True)
    text.write_text("".join(" ".join(draw.choices(words, k=40)) + "\n" for _ in range(200)))
    reading, tokenizer = Reading(documents="line"), None
    for name in TEXTS:
        if not (place / name / MANIFEST).is_file():
            build_corpus(
                [text],
                place / name,
                vocabulary=QUICK_VOCABULARY,
                tokenizer=tokenizer,
                validation=0.1,
                reading=reading,
                workers=1,
            )
        tokenizer = place / TRAINING / "tokenizer.model"
