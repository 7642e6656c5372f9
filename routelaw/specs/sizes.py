"""Model sizes by name: the paper's table, a miniature ladder below it, and a finer one of the same proportions."""

from functools import cache
from math import log

from routelaw.errors import InputError
from routelaw.specs.counting import Architecture, dense_params
from routelaw.specs.names import nearest_hint

PAPER_SIZES: dict[str, Architecture] = {
    "15M": Architecture(d_model=512, blocks=6, heads=8, kv_size=32),
    "25M": Architecture(d_model=512, blocks=8, heads=8, kv_size=64),
    "55M": Architecture(d_model=640, blocks=10, heads=12, kv_size=64),
    "130M": Architecture(d_model=896, blocks=12, heads=16, kv_size=64),
    "370M": Architecture(d_model=1536, blocks=12, heads=12, kv_size=128),
    "870M": Architecture(d_model=2048, blocks=16, heads=16, kv_size=128),
    "1.3B": Architecture(d_model=2048, blocks=24, heads=16, kv_size=128),
    "7B": Architecture(d_model=4096, blocks=32, heads=32, kv_size=128),
}
"""The seven sizes of the paper's table of architectures, and the 7B model of its appendix on the limit in N."""

MINIATURE_SIZES: dict[str, Architecture] = {
    "0.05M": Architecture(d_model=32, blocks=4, heads=2, kv_size=16),
    "0.12M": Architecture(d_model=48, blocks=4, heads=3, kv_size=16),
    "0.2M": Architecture(d_model=64, blocks=4, heads=2, kv_size=32),
    "0.5M": Architecture(d_model=96, blocks=4, heads=3, kv_size=32),
    "0.8M": Architecture(d_model=128, blocks=4, heads=4, kv_size=32),
    "2M": Architecture(d_model=192, blocks=4, heads=6, kv_size=32),
    "3M": Architecture(d_model=256, blocks=4, heads=8, kv_size=32),
    "5M": Architecture(d_model=256, blocks=6, heads=8, kv_size=32),
    "8M": Architecture(d_model=320, blocks=6, heads=10, kv_size=32),
    "12M": Architecture(d_model=384, blocks=6, heads=6, kv_size=64),
    "20M": Architecture(d_model=448, blocks=8, heads=7, kv_size=64),
}
"""For a CPU or an afternoon: heads that together are as wide as the model, an even number of blocks, width over depth
from 8 to 64 as a small model allows (the paper's smallest have 64 to 85)."""

NAMED_SIZES = PAPER_SIZES | MINIATURE_SIZES

RUNG_RATIO = 1.06
"""Neighbouring rungs of the fine ladder differ by about this factor in active parameters."""
WIDEST = 16_384


def get_size(name: str) -> Architecture:
    """A size of the paper, a miniature, or a rung of the fine ladder, by name; case does not matter.

    >>> rl.get_size("370M").blocks
    12
    """
    wanted = name.strip().upper()
    sizes = NAMED_SIZES if wanted in NAMED_SIZES else _whole_ladder()
    if wanted not in sizes:
        raise InputError(
            f"Unknown size '{name}'{nearest_hint(wanted, NAMED_SIZES)}; the named sizes are "
            f"{', '.join(MINIATURE_SIZES)} and the paper's {', '.join(PAPER_SIZES)}."
        )
    return sizes[wanted]


def size_label(active_params: float) -> str:
    """The name where the count is exactly that of a named size, else three digits: `205M`, `1.31B`."""
    for name, architecture in NAMED_SIZES.items():
        if active_params == dense_params(architecture):
            return name
    return _three_digits(active_params)


def fine_ladder(lowest: float, highest: float) -> dict[str, Architecture]:
    """Architectures with `lowest` ≤ active parameters ≤ `highest`, smallest first.

    For planning between and beyond the paper's sizes. Rungs are about 6 % apart, and up to 30 % below 100M, where
    64 more in width is itself a large step. A rung has one name whatever range is asked for, never that of a
    named size, and `get_size` knows it.
    """
    if not 0 < lowest <= highest:
        raise InputError(f"A ladder needs 0 < lowest ≤ highest, not {lowest:g} and {highest:g}.")
    return {n: a for n, a in _whole_ladder().items() if lowest <= dense_params(a) <= highest}


@cache
def _whole_ladder() -> dict[str, Architecture]:
    """On each step of a geometric grid, the candidate whose depth is nearest to the usual one at its width."""
    best: dict[int, tuple[float, Architecture]] = {}
    for width in range(128, WIDEST + 1, 64):
        usual = _usual_depth(width)
        for depth in range(2, 2 * round(usual), 2):  # even, so that half of the blocks is a whole number
            stretch = abs(log(depth / usual))
            if stretch > log(4 / 3):
                continue
            architecture = _proportioned(width, depth)
            step = round(log(dense_params(architecture)) / log(RUNG_RATIO))
            if step not in best or stretch < best[step][0]:
                best[step] = stretch, architecture
    rungs = [architecture for _, (_, architecture) in sorted(best.items())]
    named = {_three_digits(dense_params(rung)): rung for rung in rungs}
    return {name: rung for name, rung in named.items() if name not in NAMED_SIZES}


def _usual_depth(width: int) -> float:
    """The paper's sizes run from 6–8 blocks at width 512 to 32 at 4096; a power law through both ends."""
    return 7 * (width / 512) ** 0.73


def _proportioned(width: int, depth: int) -> Architecture:
    """Heads of 64, and of 128 from width 1536 on as in the paper, that together are as wide as the model."""
    kv_size = 128 if width >= 1536 and width % 128 == 0 else 64
    return Architecture(d_model=width, blocks=depth, heads=width // kv_size, kv_size=kv_size)


def _three_digits(parameters: float) -> str:
    for scale, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")):
        if parameters >= 0.9995 * scale:
            return f"{float(f'{parameters / scale:.3g}'):g}{unit}"
    return f"{parameters:.3g}"
