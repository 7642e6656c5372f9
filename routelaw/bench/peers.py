"""Models of others that our steps on a CPU are timed against: plain torch, as short as it can be, and Qwen3-MoE.

`PlainTransformer` is the same model as ours written without any of our code: layers of torch, one loop over experts,
`torch.optim`. So it is both a peer to be as quick as (dense with rotary positions: nanoGPT's blocks) and an independent
reference: started from the same parameters it must train alike.

Shapes: B batch, S sequence, T = B·S tokens, D width, H heads, V key/value size, E experts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import count
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from routelaw.model.transformer import Transformer
from routelaw.specs.counting import Architecture
from routelaw.specs.run import RunSpec, TrainSpec
from routelaw.training.optimizer import learning_rate

GATED_MULTIPLE = 16
"""Widths of gated FFWs are multiples of this: what `grouped_mm` takes."""


class PlainBlock(nn.Module):
    def __init__(self, architecture: Architecture, positions: str, experts: int) -> None:
        super().__init__()
        width, inner = architecture.d_model, architecture.heads * architecture.kv_size
        self.heads, self.inner = architecture.heads, inner
        self.attention_norm, self.ffw_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * inner, bias=False)
        self.out = nn.Linear(inner, width, bias=False)
        self.relative = nn.Linear(width, inner, bias=False) if positions == "xl" else None
        self.router = nn.Linear(width, experts) if experts > 1 else None
        self.up = nn.ModuleList(nn.Linear(width, 4 * width, bias=False) for _ in range(experts))
        self.down = nn.ModuleList(nn.Linear(4 * width, width, bias=False) for _ in range(experts))

    def forward(self, x_BSD: Tensor, positions: tuple[Tensor, Tensor]) -> Tensor:
        x_BSD = x_BSD + self.attention(self.attention_norm(x_BSD), positions)
        normed_TD = self.ffw_norm(x_BSD).flatten(0, 1)
        added_TD = self.ffw(normed_TD, 0) if self.router is None else self.routed(normed_TD, self.router(normed_TD))
        return x_BSD + added_TD.view_as(x_BSD)

    def attention(self, x_BSD: Tensor, positions: tuple[Tensor, Tensor]) -> Tensor:
        B, S, _ = x_BSD.shape
        q, k, v = (x.view(B, S, self.heads, -1).transpose(1, 2) for x in self.qkv(x_BSD).split(self.inner, 2))
        if self.relative is None:
            cos, sin = positions
            mixed = F.scaled_dot_product_attention(rotated(q, cos, sin), rotated(k, cos, sin), v, is_causal=True)
        else:
            table, distance_SS = positions
            r_HSV = self.relative(table).view(S, self.heads, -1).transpose(0, 1)
            by_distance = q @ r_HSV.transpose(1, 2)
            by_key = by_distance.gather(3, distance_SS.clamp(min=0).expand_as(by_distance))
            scores = (q @ k.transpose(2, 3) + by_key) / math.sqrt(q.shape[-1])
            mixed = scores.masked_fill(distance_SS < 0, float("-inf")).softmax(3) @ v
        return self.out(mixed.transpose(1, 2).reshape(B, S, self.inner))

    def ffw(self, x_TD: Tensor, expert: int) -> Tensor:
        return self.down[expert](F.gelu(self.up[expert](x_TD)))

    def routed(self, x_TD: Tensor, logits_TE: Tensor) -> Tensor:
        """Every token by the expert of its highest logit, weighted by the softmax; nothing is dropped."""
        weight_T, expert_T = logits_TE.softmax(1).max(1)
        added_TD = torch.zeros_like(x_TD)
        for expert in range(len(self.up)):
            token_N = (expert_T == expert).nonzero()[:, 0]  # none at times: then its gradient is zero, not missing
            added_TD = added_TD.index_add(0, token_N, self.ffw(x_TD[token_N], expert) * weight_T[token_N, None])
        return added_TD


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class PlainTransformer(nn.Module):
    """The model of a spec: dense, or the softmax of one expert per token in every routed block."""

    def __init__(self, spec: RunSpec) -> None:
        super().__init__()
        shape, positions, length = spec.model.architecture, spec.model.positions, spec.model.sequence_length
        self.embedding = nn.Embedding(spec.model.vocabulary, shape.d_model)
        self.blocks = nn.ModuleList(
            PlainBlock(shape, positions, spec.router.experts if number in spec.routed_blocks else 1)
            for number in range(1, shape.blocks + 1)
        )
        self.final_norm = nn.LayerNorm(shape.d_model)
        width = shape.kv_size if positions == "rope" else shape.d_model
        place_S = torch.arange(length)
        angle = place_S[:, None] * 10_000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
        if positions == "rope":
            self.positions = angle.cos(), angle.sin()
        else:
            self.positions = torch.cat([angle.sin(), angle.cos()], 1), place_S[:, None] - place_S

    def forward(self, tokens_BS: Tensor) -> Tensor:
        """The mean loss of all tokens but the first of each sequence."""
        x_BSD = self.embedding(tokens_BS[:, :-1])
        first, second = self.positions
        positions = first.to(x_BSD), second.to(x_BSD) if second.is_floating_point() else second
        for block in self.blocks:
            x_BSD = block(x_BSD, positions)
        logits = self.final_norm(x_BSD) @ self.embedding.weight.T
        return F.cross_entropy(logits.flatten(0, 1), tokens_BS[:, 1:].flatten())

    @torch.no_grad()
    def start_as(self, model: Transformer) -> None:
        """Take over the parameters of ours, which lie otherwise: one by one, and matrices of experts transposed."""
        theirs = dict(model.named_parameters())
        self.embedding.weight.copy_(theirs["embedding"])
        for name in ("weight", "bias"):
            getattr(self.final_norm, name).copy_(theirs[f"final_norm.{name}"])
        for number, block in enumerate(self.blocks):
            assert isinstance(block, PlainBlock)
            given = {name.removeprefix(f"blocks.{number}."): p for name, p in theirs.items() if f"s.{number}." in name}
            block.qkv.weight.copy_(torch.cat([given[f"attention.{n}.weight"] for n in ("query", "key", "value")]))
            for name in [n for n in given if n.split(".")[0] in ("attention_norm", "ffw_norm", "router")]:
                block.get_parameter(name).copy_(given[name])
            for name in ("out", "relative") if block.relative is not None else ("out",):
                block.get_parameter(f"{name}.weight").copy_(given[f"attention.{name}.weight"])
            for expert in range(len(block.up)):
                block.up[expert].get_parameter("weight").copy_(given["experts.up.0"][expert].T)
                block.down[expert].get_parameter("weight").copy_(given["experts.down.0"][expert].T)


def transformers_shape(architecture: Architecture, vocabulary: int, length: int, multiple: int) -> dict[str, Any]:
    """The part of a configuration of transformers that gives it the size and FLOPs per token of our model."""
    return {
        "vocab_size": vocabulary,
        "hidden_size": architecture.d_model,
        "intermediate_size": gated_width(architecture.d_model, multiple),
        "num_hidden_layers": architecture.blocks,
        "num_attention_heads": architecture.heads,
        "num_key_value_heads": architecture.heads,
        "head_dim": architecture.kv_size,
        "max_position_embeddings": length,
        "tie_word_embeddings": True,
        "use_cache": False,
        "bos_token_id": 0,
        "eos_token_id": 0,
    }


def gated_width(width: int, multiple: int) -> int:
    """The width of a gated FFW with the FLOPs of an ungated one of 4d: it has three matrices where ours has two."""
    return max(multiple, round(8 * width / 3 / multiple) * multiple)


def qwen3_moe(architecture: Architecture, vocabulary: int, length: int, experts: int) -> nn.Module:
    """Qwen3-MoE of transformers with the FLOPs per token of our model: one expert a token in every other block, its
    balance loss with our weight, and the implementation of experts that it chooses by itself."""
    from transformers import AutoModelForCausalLM, Qwen3MoeConfig

    config = Qwen3MoeConfig(
        **transformers_shape(architecture, vocabulary, length, GATED_MULTIPLE),
        moe_intermediate_size=gated_width(architecture.d_model, GATED_MULTIPLE),
        num_experts=experts,
        num_experts_per_tok=1,
        decoder_sparse_step=2,
        norm_topk_prob=False,
        output_router_logits=True,
        router_aux_loss_coef=0.01,
    )
    return AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").train()


def qwen3_loss(model: nn.Module, tokens_BS: Tensor) -> Tensor:
    """As its users write it; the model shifts the labels itself."""
    ids_BS = tokens_BS[:, :-1]
    return model(input_ids=ids_BS, labels=ids_BS).loss


def torch_step(
    model: nn.Module, loss_of: Callable[[nn.Module, Tensor], Tensor], train: TrainSpec, **options: Any
) -> Callable[[Tensor], float]:
    """A training step as anybody writes it: schedule, backward, clip, torch's AdamW. Vectors do not decay."""
    decayed = [p for p in model.parameters() if p.ndim >= 2]
    plain = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": decayed, "weight_decay": train.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(groups, lr=train.learning_rate, betas=(train.beta1, train.beta2), **options)

    number = count()

    def step(tokens_BS: Tensor) -> float:
        rate = learning_rate(train, next(number))
        for group in adamw.param_groups:
            group["lr"] = rate
        loss = loss_of(model, tokens_BS)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), train.clip)
        adamw.step()
        adamw.zero_grad(set_to_none=True)
        return loss.item()

    return step
