"""What devices can do, by their data sheets: products, memory, and the links between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from routelaw.errors import InputError
from routelaw.specs.names import nearest_hint

BEST_SHARE, HALF_WIDTH = 0.8, 260
"""A product of width d reaches .8·d²/(d² + 260²) of the peak: .16, .41, .58, .72 and .76 of it were measured on an H200
at 128, 256, 448, 896 and 1536, and are .16, .39, .60, .74 and .78 by this."""
NODE = 8
"""GPUs that share a fast link, in every machine of the data sheets."""


@dataclass(frozen=True)
class Device:
    """What a device can do."""

    name: str
    flops: Callable[[int], float]
    """Operations per second in products of a given width."""
    bandwidth: float
    """Bytes per second."""
    gpu: bool
    memory: int | None = None
    """Where it is not here to be asked."""
    link: float = 0.0
    """Bytes per second that it sends to the others of its node; 0 where not known."""
    network: float = 0.0
    """Bytes per second that it sends to other nodes."""


def _of_data_sheet(
    name: str, tera_flops: float, tera_bytes: float, memory: float, link: float, network: float
) -> Device:
    def flops(width: int) -> float:
        return tera_flops * 1e12 * BEST_SHARE * width**2 / (width**2 + HALF_WIDTH**2)

    return Device(name, flops, tera_bytes * 1e12, True, int(memory * 1e9), link * 1e9, network * 1e9)


KNOWN = {
    "a100": _of_data_sheet("a100", 312, 2.04, 80, 300, 25),
    "h100": _of_data_sheet("h100", 989, 3.35, 80, 450, 50),
    "h200": _of_data_sheet("h200", 989, 4.8, 141, 450, 50),
    "b200": _of_data_sheet("b200", 2250, 7.7, 180, 900, 50),
    "l40s": _of_data_sheet("l40s", 362, 0.864, 48, 32, 12.5),
    "l4": _of_data_sheet("l4", 121, 0.3, 24, 32, 12.5),
}
"""NVIDIA's data sheets: bfloat16 without sparsity (TFLOP/s), memory bandwidth (TB/s) and memory (GB) of the A100 80GB
SXM, H100 SXM, H200 SXM, HGX B200, L40S and L4. Links (GB/s in one direction): half of what the sheets give for NVLink
(600, 900, 900 and 1,800 in both), and of PCIe 4.0 × 16 (64) for the two that have none. Networks (GB/s for each GPU):
one adapter for each in the DGX A100 (200 Gb/s), H100, H200 and B200 (400 Gb/s); 100 Gb/s is a guess for the others."""


def known_device(name: str) -> Device:
    key = name.strip().lower().replace(" ", "-")
    if key not in KNOWN:
        raise InputError(f"unknown device {name!r}{nearest_hint(key, KNOWN)}; there are {', '.join(KNOWN)}.")
    return KNOWN[key]
