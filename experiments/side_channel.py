"""How much does balancing a group of tokens tell a token about those that come after it?

    python experiments/side_channel.py CORPUS [--size 0.2M] [--experts 16] [--runs RUN_FOLDER …]

Routers that balance whole groups in training (s-base, base; any router through drops) decide about a token by looking
at later ones too: the side channel for which the paper shuffles tokens between groups. For every router this replaces
all tokens from t on, in untrained models and in the trained runs given, and prints which share of the decisions
before t changed, and the loss there, in training; in evaluation nothing may change. Cost: seconds. Result and date:
docs/log/2026-11-15-training-side-channel.md.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import torch

from routelaw.corpus import open_corpus
from routelaw.corpus.batches import batch
from routelaw.evaluation.causality import Audit, audit
from routelaw.model.transformer import Transformer
from routelaw.routers.router import all_routers
from routelaw.specs.run import ModelSpec, RouterSpec, RunSpec, TrainSpec
from routelaw.specs.sizes import get_size
from routelaw.training.step import step_context
from routelaw.training.trained import open_trained

SEQUENCES, LENGTH = 16, 128


def line(label: str, found: Audit) -> str:
    training = found.training
    return f"| {label} | {'yes' if found.causal else 'NO'} | {training.decisions:.2%} | {training.nats:.1e} |"


def audited(model: Transformer, tokens_BS: torch.Tensor) -> Audit:
    """With the groups of the spec, and its shuffle if it has one."""
    return audit(model, tokens_BS, training_context=lambda ids_BS: step_context(model.spec, 0, ids_BS, 0))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--size", default="0.2M")
    parser.add_argument("--experts", type=int, default=16)
    parser.add_argument("--runs", type=Path, nargs="*", default=[])
    options = parser.parse_args()
    corpus = open_corpus(options.corpus)
    tokens_BS = torch.from_numpy(batch(corpus, "train", 0, 0, SEQUENCES, LENGTH)[:, :-1].copy())
    print("| model | causal in evaluation | decisions changed in training | loss changed (nats) |\n|---|---|---|---|")
    for name in all_routers():
        for shuffle in (1, 4):
            spec = RunSpec(
                ModelSpec(get_size(options.size), vocabulary=corpus.vocabulary, sequence_length=LENGTH),
                RouterSpec(name, options.experts, capacity_factor=0.0, group_tokens=4 * LENGTH, shuffle_groups=shuffle),
                TrainSpec(steps=1, batch=SEQUENCES),
                corpus=corpus.id,
            )
            label = f"{name}, untrained, dropless" + (", shuffled over 4 groups" if shuffle > 1 else "")
            print(line(label, audited(Transformer(spec), tokens_BS)), flush=True)
    for folder in options.runs:
        model = open_trained(folder).model
        train = replace(model.spec.train, batch=SEQUENCES)
        model.spec = replace(model.spec, train=train)
        print(line(f"{model.spec.router.name}, {folder.name}", audited(model, tokens_BS)), flush=True)


if __name__ == "__main__":
    main()
