"""The four numbers that fix a transformer of the paper's family."""

from dataclasses import dataclass

from routelaw.errors import InputError


@dataclass(frozen=True)
class Architecture:
    """A decoder-only transformer: pre-LayerNorm, FFW of width 4·d_model, no linear biases."""

    d_model: int
    """Width of the residual stream."""
    blocks: int
    """Attention + FFW pairs; some of the FFWs are routed."""
    heads: int
    kv_size: int
    """Size of keys and values per head; heads · kv_size need not equal d_model (it does not at 15M, 55M and 130M)."""

    def __post_init__(self) -> None:
        for name in ("d_model", "blocks", "heads", "kv_size"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name)}.")
