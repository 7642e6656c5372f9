"""What one forward pass leaves in memory for the backward pass, block by block, in bytes.

Read off the code of the model: every tensor that an operation saves for its gradient, counted once however many use
it, a few small ones left out. The tests compare it with what autograd really keeps, over sizes, lengths, techniques and
precisions: it was within 3 % everywhere. Whoever changes an operation in model/ or routers/ may have to change its
line here.

Shapes: T tokens, D width, I = heads · key size, H heads, S sequence, E experts, K choices, N = T·K assignments,
V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

from routelaw.specs.run import RunSpec

LOGIT_ROWS = 8192
"""Logits are made for so many tokens at a time (model/token_loss.py)."""
EVALUATED_TOKENS = 8192
"""Of a forward pass in evaluation, or one sequence if that is longer (evaluation/windows.py)."""
WIDE = 4
"""Router, softmax and loss are in float32 at least."""
INDEX = 8
LEAST_ALIGNED = 8
"""Fused attention with a mask wants keys of a multiple of this."""
SCORES_AT_ONCE = 2
"""Copies of the scores S × S that attention with relative positions holds in passing, beside the one it keeps."""


@dataclass(frozen=True)
class Pass:
    """One micro-batch of a run: how many tokens, in how many bytes each number."""

    spec: RunSpec
    tokens: int
    number: int
    """Bytes of a number in compute precision."""
    fused: bool
    """Whether attention is one kernel that keeps no probabilities (on a GPU)."""

    @property
    def wide(self) -> int:
        return max(self.number, WIDE)

    @property
    def blocks(self) -> list[int]:
        """Kept by each block, first to last."""
        routed = self.spec.routed_blocks
        deciding = routed[:1] if self.spec.router.shared_decisions else routed
        return [
            self._attention + (self._experts if block in routed else self._ffw) + (block in deciding) * self._router
            for block in range(1, self.spec.model.architecture.blocks + 1)
        ]

    @property
    def last(self) -> int:
        """The final LayerNorm's input and output."""
        return 2 * self._stream

    @property
    def logits(self) -> int:
        """Not the logits themselves: the gradients of the last hidden rows and of the embedding."""
        return self._stream + self.spec.model.vocabulary * self.spec.model.architecture.d_model * self.wide

    @property
    def logits_in_passing(self) -> int:
        """Of a piece: logits that become their gradient; where they are narrow, both and a wide copy between them."""
        rows = self.tokens / -(-self.tokens // LOGIT_ROWS)
        copies = self.wide + (2 * self.number if self.number < self.wide else 0)
        return int(rows * self.spec.model.vocabulary * copies)

    @property
    def block_in_passing(self) -> int:
        """On the way back: scores, or the gradient of a hidden layer."""
        scores = SCORES_AT_ONCE * self._scores * self.wide if self.spec.model.positions == "xl" else 0
        return max(scores, 4 * self.spec.router.k * self._stream)

    @property
    def without_gradients(self) -> int:
        """The most that a forward pass in evaluation holds: logits and their logarithms, or what passes in a block."""
        rows = min(self.tokens, LOGIT_ROWS) * self.spec.model.vocabulary
        logits = rows * (2 * self.wide + (self.number if self.number < self.wide else 0))
        scores = 3 * self._scores * self.number if self.spec.model.positions == "xl" else 0
        tables = 8 * self.tokens * self.spec.router.experts * self.wide if self._router else 0
        return max(logits, scores, tables, 11 * self.spec.router.k * self._stream)

    @property
    def _stream(self) -> int:
        return self.tokens * self.spec.model.architecture.d_model * self.number

    @property
    def _scores(self) -> int:
        return self.tokens * self.spec.model.architecture.heads * self.spec.model.sequence_length

    @property
    def _attention(self) -> int:
        """With its LayerNorm (input, output, mean, deviation): queries, keys, values, what they mix to, scores."""
        shape = self.spec.model.architecture
        norm = 2 * self._stream + 2 * self.tokens * self.number
        inner = self.tokens * shape.heads * shape.kv_size
        per_row = self.tokens * shape.heads * WIDE
        if self.spec.model.positions == "rope":
            return norm + 5 * inner * self.number + per_row
        length = self.spec.model.sequence_length
        norm += length * ((shape.d_model + shape.heads * shape.kv_size) * self.number + length)  # distances and mask
        if self.fused and shape.kv_size % LEAST_ALIGNED == 0:
            return norm + 4 * inner * self.number + self._scores * self.number + per_row
        return norm + inner * (2 * self.number + 3 * self.wide) + self._scores * self.wide

    @property
    def _ffw(self) -> int:
        """With its LayerNorm; the hidden layer before and after GELU."""
        return 2 * self._stream + 2 * self.tokens * self.number + 8 * self._stream

    @property
    def _experts(self) -> int:
        """Sorted rows, their hidden layers, and what comes back where it is weighted; the order, both ways."""
        k, stacked = self.spec.router.k, self.spec.router.ffws_per_expert - 1
        rows = k * self._stream
        norm = 2 * self._stream + 2 * self.tokens * self.number
        weighted = rows + k * self.tokens * self.number if self.spec.router.name not in UNWEIGHTED else 0
        order = k * self.tokens * (2 * INDEX + 1)
        return norm + 9 * rows + stacked * 12 * rows + weighted + order

    @property
    def _router(self) -> int:
        """Its input in wide numbers, log-probabilities, probabilities and the balance loss's coefficients."""
        router, width = self.spec.router, self.spec.model.architecture.d_model
        if router.name == "hash":
            return 0
        widened = self.tokens * width * WIDE if self.number < WIDE else 0
        table = self.tokens * router.experts * self.wide
        if router.name != "rl-r":
            sigmoid = router.options.get("weight") == "sigmoid"
            return widened + (3 + sigmoid) * table
        hidden = self.tokens * max(width // 8, 1) * self.wide if has_baseline(self.spec) else 0
        return widened + 4 * table + 2 * hidden + (widened if hidden else 0)


UNWEIGHTED = ("hash", "rl-r")
"""Techniques whose experts' outputs are summed as they are."""


def has_baseline(spec: RunSpec) -> bool:
    """Variant B of rl-r, the default, has a value network."""
    return spec.router.name == "rl-r" and spec.router.options.get("variant", "B") == "B"
