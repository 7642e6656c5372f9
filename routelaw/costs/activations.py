"""What one forward pass leaves in memory for the backward pass, block by block, in bytes.

Read off the code of the model: every tensor that an operation saves for its gradient, counted once however many use
it, a few small ones left out. The tests compare it with what autograd really keeps, over sizes, lengths, techniques and
precisions: it was within 3 % everywhere. On a layout of processes the tokens are those of one of them, heads and hidden
units its share, and as many rows come from other processes as go to them (balanced routing, none dropped): within 8 %
on layouts of two and four. Whoever changes an operation in model/ or routers/ may have to change its line here.

Shapes: T tokens, d width, I = heads · key size, H heads, S sequence, E experts, K choices, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

from routelaw.specs.layout import Layout
from routelaw.specs.run import RunSpec

LOGIT_ROWS = 8192
"""Logits are made for so many tokens at a time (model/token_loss.py)."""
EVALUATED_TOKENS = 8192
"""Tokens of a forward pass in evaluation, or one sequence if that is longer (evaluation/windows.py)."""
FP32 = 4
"""Router, softmax and loss are in float32 at least."""
INDEX = 8
PIECE = 512
"""On a GPU attention with relative positions takes so many queries at a time (model/relative_attention.py)."""
SCORES_AT_ONCE = 2
"""Copies of the scores S × S that attention with relative positions holds as transients beside the one it keeps."""


@dataclass(frozen=True)
class SavedTensor:
    """One part of what is kept: its bytes, and how they come about (t: tensor, b and w: bytes of an element in compute
    precision, and in float32 at least)."""

    name: str
    formula: str
    size: int


@dataclass(frozen=True)
class Pass:
    """One micro-batch of a run: how many tokens, of how many bytes an element."""

    spec: RunSpec
    tokens: int
    itemsize: int
    """Bytes of an element in compute precision."""
    gpu: bool
    """Whether its kernels are a GPU's: attention keeps no probabilities, or narrow ones, and the loss is one kernel."""
    layout: Layout = field(default_factory=Layout)
    recompute: bool = False
    """Whether blocks keep only their input and recompute the rest in the backward pass."""

    @property
    def alone_on_gpu(self) -> bool:
        """Then AdamW takes gradients as they are, in one pass (training/fused_adamw.py)."""
        return self.gpu and self.layout.world == 1

    @property
    def fp32_itemsize(self) -> int:
        """Bytes of an element where at least fp32 is used, whatever the model computes in."""
        return max(self.itemsize, FP32)

    @property
    def stream(self) -> int:
        """One tensor of the tokens at the model's width."""
        return self.tokens * self.spec.model.architecture.d_model * self.itemsize

    @cached_property
    def blocks(self) -> list[int]:
        """Kept by each block, first to last."""
        routed = self.spec.routed_blocks
        deciding = routed[:1] if self.spec.router.shared_decisions else routed
        plain, experts, router = (
            sum(part.size for part in parts) for parts in (self.ffw_parts, self.expert_parts, self.router_parts)
        )
        return [
            (self.stream if self.recompute else self.attention + (experts if block in routed else plain))
            + (router if block in deciding else 0)  # which the losses hold on to
            for block in range(1, self.spec.model.architecture.blocks + 1)
        ]

    @property
    def kept(self) -> int:
        """All of it, at the loss."""
        return sum(self.blocks) + self.last + self.logits

    @property
    def last(self) -> int:
        """The final LayerNorm's input and output."""
        return 2 * self.stream

    @property
    def logits(self) -> int:
        """Not the logits themselves: the gradients of the last hidden rows and of the embedding."""
        return self.stream + self.spec.model.vocabulary * self.spec.model.architecture.d_model * self.fp32_itemsize

    @property
    def transient_logits(self) -> int:
        """The logits of a piece, which become their gradient; in bfloat16, both and a float32 copy between
        them. On a GPU one kernel does it and there is no such copy (440 MB measured where this says 430)."""
        rows = self.tokens / -(-self.tokens // LOGIT_ROWS)
        copies = self.fp32_itemsize + (2 * self.itemsize if self.itemsize < self.fp32_itemsize else 0)
        if self.gpu:
            copies = (3 if self.itemsize < self.fp32_itemsize else 2) * self.itemsize
        return int(rows * self.spec.model.vocabulary * copies)

    @property
    def transient_block(self) -> int:
        """In the backward pass: scores, or the gradient of a hidden layer."""
        pairs = self._scores * min(PIECE, self.spec.model.sequence_length) // self.spec.model.sequence_length
        scores = SCORES_AT_ONCE * (2 * pairs if self.gpu else self._scores) * self.fp32_itemsize
        scores = scores if self.spec.model.positions == "xl" else 0
        hidden = 4 * self.spec.router.k * self.stream // self.layout.tensor
        again = max(replace(self, recompute=False).blocks) if self.recompute else 0
        return again + max(scores, hidden)

    @property
    def exchange(self) -> int:
        """All-to-all of a routed block: what goes, and what comes, to the experts or of a shuffle between processes."""
        rows = self.spec.router.k if self.layout.expert > 1 else self.span > 1
        return 2 * rows * self.stream if self.spec.routed_blocks else 0

    @property
    def span(self) -> int:
        """Processes that a shuffle block extends over; where groups do not matter, nothing is dealt out."""
        whole = self.spec.routed_blocks and self.tokens % self.spec.group_tokens == 0
        over = self.spec.block_tokens // self.tokens if whole else 1
        return min(max(over, 1), self.layout.batch)

    @property
    def without_gradients(self) -> int:
        """The most that a forward pass in evaluation holds: logits and their logarithms, or what passes in a block."""
        rows = min(self.tokens, LOGIT_ROWS) * self.spec.model.vocabulary
        logits = rows * (2 * self.fp32_itemsize + (self.itemsize if self.itemsize < self.fp32_itemsize else 0))
        scores = 3 * self._scores * self.itemsize if self.spec.model.positions == "xl" else 0
        tables = 8 * self.tokens * self.spec.router.experts * self.fp32_itemsize if self.router_parts else 0
        return max(logits, scores, tables, 11 * self.spec.router.k * self.stream)

    @property
    def _heads(self) -> int:
        return self.spec.model.architecture.heads // self.layout.tensor

    @property
    def _scores(self) -> int:
        return self.tokens * self._heads * self.spec.model.sequence_length

    @cached_property
    def attention(self) -> int:
        return sum(part.size for part in self.attention_parts)

    @property
    def attention_parts(self) -> list[SavedTensor]:
        shape, length, T = self.spec.model.architecture, self.spec.model.sequence_length, self.tokens
        inner, per_row = self._heads * shape.kv_size, T * self._heads * FP32
        if self.spec.model.positions == "rope":
            turned = SavedTensor(
                "queries, keys, values, turned, and their mix", "5·T·I·b", 5 * T * inner * self.itemsize
            )
            return [self._norm, turned, SavedTensor("sums of rows", "T·H·4", per_row)]
        distances = length * ((shape.d_model + inner) * self.itemsize + length)
        first = [self._norm, SavedTensor("distances and mask", "S·(d + I)·b + S²", distances)]
        if self.gpu:
            mixed = SavedTensor("queries, keys, values and their mix", "4·T·I·b", 4 * T * inner * self.itemsize)
            pairs = self._scores * (length + min(PIECE, length)) // (2 * length)
            return [
                *first,
                mixed,
                SavedTensor("weights of pairs up to each piece's end", "T·H·(S + P)/2·b", pairs * self.itemsize),
            ]
        scores = SavedTensor("scores", "T·H·S·w", self._scores * self.fp32_itemsize)
        if self.itemsize >= FP32:  # `eager_attention`
            return [
                *first,
                SavedTensor("queries, keys, values and their mix", "4·T·I·b", 4 * T * inner * self.itemsize),
                scores,
            ]
        mixed = T * inner * (2 * self.itemsize + 3 * self.fp32_itemsize)
        return [*first, SavedTensor("queries, keys, values and their mix", "T·I·(2·b + 3·w)", mixed), scores]

    @property
    def _norm(self) -> SavedTensor:
        """What a LayerNorm saves: input, output, mean and deviation."""
        return SavedTensor("norm", "2·T·(d + 1)·b", 2 * self.stream + 2 * self.tokens * self.itemsize)

    @property
    def ffw_parts(self) -> list[SavedTensor]:
        hidden = 8 * self.stream // self.layout.tensor
        return [self._norm, SavedTensor("hidden layer before and after GELU", "8·T·d·b/t", hidden)]

    @property
    def expert_parts(self) -> list[SavedTensor]:
        """Sorted rows, their hidden layers, and what comes back where it is weighted; the order, both ways."""
        k, stacked = self.spec.router.k, self.spec.router.ffws_per_expert - 1
        rows, T = k * self.stream, self.tokens
        hidden = 8 * rows // self.layout.tensor
        if not self.gpu and 0 < self.spec.router.capacity_factor < 1:  # nothing of the assignments dropped in any case
            hidden = int(self.spec.router.capacity_factor * hidden)
        kept = SavedTensor("their hidden layers", "8·K·T·d·b/t", hidden)
        parts = [self._norm, SavedTensor("sorted rows", "K·T·d·b", rows), kept]
        if stacked:
            more = stacked * (4 * rows + hidden)
            parts.append(SavedTensor("the FFWs stacked on it", f"{stacked}·(4 + 8/t)·K·T·d·b", more))
        if self.spec.router.name not in UNWEIGHTED:
            parts.append(SavedTensor("rows and weights", "K·T·(d + 1)·b", rows + k * T * self.itemsize))
        parts.append(SavedTensor("their order", "18·K·T", k * T * (2 * INDEX + 2)))
        if self.layout.expert > 1:
            parts.append(SavedTensor("the order of those that came", "16·K·T", 2 * k * T * INDEX))
        if self.span > 1:  # there and home, before and after each all-to-all
            ways = 4 + 2 * (stacked > 0)
            parts.append(SavedTensor("the shuffle's order", f"{ways}·8·T", ways * T * INDEX))
        return parts

    @property
    def router_parts(self) -> list[SavedTensor]:
        """Its input in fp32 (on a GPU as it is), log-probabilities, probabilities and the balance loss's
        coefficients."""
        router, width, T = self.spec.router, self.spec.model.architecture.d_model, self.tokens
        if router.name == "hash":
            return []
        widened = 0 if self.gpu or self.itemsize >= FP32 else T * width * FP32
        parts = [SavedTensor("the router's input", "T·d·4", widened)]
        if router.name in JITTERED and router.options.get("jitter"):
            both = 2 * T * width * self.fp32_itemsize
            parts = [SavedTensor("the router's input with jitter, and the noise", "2·T·d·w", both)]
        table = T * router.experts * self.fp32_itemsize
        if router.name != "rl-r":
            tables = 3 + (router.options.get("weight") == "sigmoid")
            return [*parts, SavedTensor("its tables", f"{tables}·T·E·w", tables * table)]
        parts.append(SavedTensor("its tables", "4·T·E·w", 4 * table))
        if layers := router.value_layers:
            hidden = 2 * layers * T * max(width // 8, 1) * self.fp32_itemsize
            formula = f"T·d·4 + {2 * layers}·T·d/8·w" if widened else f"{2 * layers}·T·d/8·w"
            parts.append(
                SavedTensor("the baseline's hidden layers, and its input where widened", formula, hidden + widened)
            )
        return parts


JITTERED = ("s-base", "switch")
"""Techniques with the option jitter."""
UNWEIGHTED = ("hash", "rl-r")
"""Techniques whose experts' outputs are summed as they are."""
