"""Llama and Mixtral of Hugging Face transformers, as large as one of our sizes and at its FLOPs per token.

Ours has an FFW of two matrices, d × 4d. Theirs is gated and has three, d × 8d/3, rounded to 64: the same products, so
the same FLOPs and as many parameters. Positions are rotary, embeddings tied, attention is torch's (`sdpa`), experts are
`grouped_mm`, one expert a token. Mixtral's balance loss is left out, as it is by its default: ours pays for one.
"""

from __future__ import annotations

from typing import Any

import torch
from gpu_clock import CUDA, DEVICE, DTYPE
from torch import Tensor, nn

from routelaw.specs.architecture import Architecture

STEP = 64
"""FFW widths are multiples of this: the tensor cores' tiles."""
BACKEND = "inductor" if CUDA else "aot_eager"
"""On a CPU only the way is tried, and there the compiler takes a minute."""


def intermediate(width: int) -> int:
    """Of the gated FFW with the FLOPs of an ungated one of 4d."""
    return max(STEP, round(8 * width / 3 / STEP) * STEP)


def config_of(architecture: Architecture, vocabulary: int, length: int, experts: int = 0) -> Any:
    """Llama's, or with experts Mixtral's with all blocks routed."""
    from transformers import LlamaConfig, MixtralConfig

    shape = {
        "vocab_size": vocabulary,
        "hidden_size": architecture.d_model,
        "intermediate_size": intermediate(architecture.d_model),
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
    if not experts:
        return LlamaConfig(**shape)
    return MixtralConfig(**shape, num_local_experts=experts, num_experts_per_tok=1)


def built_theirs(architecture: Architecture, vocabulary: int, length: int, experts: int = 0) -> nn.Module:
    """Drawn on the device in the type it computes in; Mixtral's compiler knows `grouped_mm` in bfloat16 alone."""
    from transformers import AutoModelForCausalLM

    config = config_of(architecture, vocabulary, length, experts)
    chosen = {"experts_implementation": "grouped_mm"} if experts else {}
    dtype = torch.bfloat16 if experts else DTYPE
    with torch.device(DEVICE):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa", **chosen)
    if experts and model.config._experts_implementation != "grouped_mm":
        raise RuntimeError(f"experts run by {model.config._experts_implementation}, not by grouped_mm")
    return model.train()


def compiled(model: nn.Module) -> nn.Module:
    return torch.compile(model, backend=BACKEND)  # pyrefly: ignore


def loss_of(model: nn.Module, tokens_BS: Tensor) -> Tensor:
    """As their users write it; the model shifts the labels itself."""
    ids_BS = tokens_BS[:, :-1].contiguous()
    return model(input_ids=ids_BS, labels=ids_BS).loss
