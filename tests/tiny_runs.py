"""A corpus and runs so small that a step takes milliseconds: the text is made of seeded words."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from routelaw.corpus import Corpus, Reading, build_corpus
from routelaw.specs.counting import Architecture
from routelaw.specs.run import ExecutionSpec, ModelSpec, RouterSpec, RunSpec, TrainSpec

VOCABULARY = 320
ROUTERS: dict[str, RouterSpec] = {
    "dense": RouterSpec(),
    "hash": RouterSpec("hash", 4),
    "hash greedy": RouterSpec("hash", 4, options={"scheme": "greedy"}),
    "switch": RouterSpec("switch", 4),
    "s-base": RouterSpec("s-base", 4),
    "base": RouterSpec("base", 4),
    "rl-r": RouterSpec("rl-r", 4),
}
EXECUTION = ExecutionSpec(
    device="cpu", threads=1, evaluate_every=4, evaluate_tokens=256, log_every=1, save_every=3, keep=2
)


def make_text(documents: int = 120, seed: int = 7) -> str:
    """Sentences in which a word says much about the next: there is something to learn."""
    draw = random.Random(seed)
    words = ["".join(draw.choices("aeiobdglmnrst", k=draw.randint(2, 6))) for _ in range(40)]
    following = {word: draw.sample(words, 3) for word in words}
    lines = []
    for _ in range(documents):
        word, sentence = draw.choice(words), []
        for _ in range(30):
            sentence.append(word)
            word = draw.choice(following[word])
        lines.append(" ".join(sentence))
    return "\n".join(lines) + "\n"


def build(folder: Path) -> Corpus:
    text = folder / "text.txt"
    text.write_text(make_text())
    return build_corpus(
        [text],
        folder / "corpus",
        vocabulary=VOCABULARY,
        validation=0.1,
        reading=Reading(documents="line"),
        workers=1,
    )


@pytest.fixture(scope="session")
def tiny_corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return build(tmp_path_factory.mktemp("tiny"))


def make_spec(
    corpus: Corpus, router: RouterSpec | str = "s-base", model: Mapping[str, Any] | None = None, **train: Any
) -> RunSpec:
    if isinstance(router, str):
        router = ROUTERS[router]
    chosen = {"steps": 10, "batch": 4, "learning_rate": 3e-3, **train}
    return RunSpec(
        model=ModelSpec(
            Architecture(16, 2, 2, 8), **{"vocabulary": VOCABULARY, "sequence_length": 16, **(model or {})}
        ),
        router=router if router.name == "dense" else replace(router, group_tokens=router.group_tokens or 32),
        train=TrainSpec(**chosen),
        corpus=corpus.id,
    )
