"""Llama and Mixtral of Hugging Face transformers, as large as one of our sizes and at its FLOPs per token.

Ours has an FFW of two matrices, d × 4d. Theirs is gated and has three, d × 8d/3, rounded to 64: the same products, so
the same FLOPs and as many parameters. Positions are rotary, embeddings tied, attention is torch's (`sdpa`), experts are
`grouped_mm`, one expert a token. Mixtral's balance loss is left out, as it is by its default: ours pays for one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from routelaw.bench.clock import CUDA, DEVICE, DTYPE
from routelaw.specs.counting import Architecture

STEP = 64
"""FFW widths are multiples of this: the tensor cores' tiles."""
MASKLESS = "causal_sdpa"
FORMS = ("eager", "flash", "compiled")
BACKEND = "inductor" if CUDA else "aot_eager"
"""On a CPU only the way is tried, and there the compiler takes a minute."""


def intermediate(width: int) -> int:
    """The width of a gated FFW with the FLOPs of an ungated one of 4d."""
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


def built_theirs(
    architecture: Architecture, vocabulary: int, length: int, experts: int = 0, form: str = "eager"
) -> nn.Module:
    """Drawn on the device in the type it computes in; Mixtral's compiler knows `grouped_mm` in bfloat16 alone.

    Forms: `eager`; `compiled`, as it comes; `flash`, compiled with one correction. Under a compiler transformers 5.17
    hands the attention a causal mask as a tensor, which flash attention does not take; eager, it leaves the mask out.
    """
    from transformers import AttentionInterface, AutoModelForCausalLM

    if form not in FORMS:
        raise ValueError(f"a form is {', '.join(FORMS)}, not {form!r}")
    AttentionInterface.register(MASKLESS, maskless)
    config = config_of(architecture, vocabulary, length, experts)
    chosen = {"experts_implementation": "grouped_mm"} if experts else {}
    chosen["attn_implementation"] = MASKLESS if form == "flash" else "sdpa"
    dtype = torch.bfloat16 if experts else DTYPE
    with torch.device(DEVICE):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, **chosen)
    if experts and model.config._experts_implementation != "grouped_mm":
        raise RuntimeError(f"experts run by {model.config._experts_implementation}, not by grouped_mm")
    return model.train()


def maskless(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: None, scaling: float, **_: Any
) -> tuple[Tensor, None]:
    """Whole sequences without padding: causal is all there is to say. As many keys as queries, as in `config_of`."""
    mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling)
    return mixed.transpose(1, 2).contiguous(), None


def loss_of(model: nn.Module, form: str) -> Callable[[Tensor], Tensor]:
    """As their users write it; the model shifts the labels itself."""
    called = model if form == "eager" else torch.compile(model, backend=BACKEND)

    def loss(tokens_BS: Tensor) -> Tensor:
        ids_BS = tokens_BS[:, :-1].contiguous()
        return called(input_ids=ids_BS, labels=ids_BS).loss  # pyrefly: ignore

    return loss
