"""The learning rate of a step: linear warm-up, then a cosine down to a share of the peak at the last step."""

from __future__ import annotations

import math

from routelaw.specs.run import TrainSpec


def warmup_steps(train: TrainSpec) -> int:
    """As asked, but at most a tenth of the run: a short run still reaches the peak."""
    return min(train.warmup_steps, max(train.steps // 10, 1))


def learning_rate(train: TrainSpec, step: int) -> float:
    """Rate at step 0 … steps−1."""
    warmup = warmup_steps(train)
    if step < warmup:
        return train.start_rate + (train.learning_rate - train.start_rate) * step / warmup
    done = (step - warmup) / max(train.steps - 1 - warmup, 1)
    final = train.final_share * train.learning_rate
    return final + (train.learning_rate - final) * 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))
