"""A shuffled order of n things that is computed, not stored: where the i-th goes costs the same for any n.

A Feistel network permutes the numbers of an even count of bits whatever its round function; numbers that fall outside
[0, n) go through it again until they are inside (cycle walking), which leaves a permutation of [0, n). No cryptographic
strength is claimed or needed: six rounds of a 64-bit mixer pass the tests of uniformity kept with it.
"""

from __future__ import annotations

import hashlib

import numpy as np

ROUNDS = 6


def permute(numbers: np.ndarray, n: int, key: str) -> np.ndarray:
    """Images of `numbers`, all in [0, n), under the permutation named by `key`."""
    half = np.uint64(max(1, ((n - 1).bit_length() + 1) // 2))
    keys = np.frombuffer(hashlib.blake2b(key.encode(), digest_size=8 * ROUNDS).digest(), "<u8")
    images = _network(numbers.astype(np.uint64), half, keys)
    while (outside := images >= n).any():
        images[outside] = _network(images[outside], half, keys)
    return images.astype(np.int64)


def draw(n: int, key: str) -> int:
    """A number in [0, n) named by `key`. Its bias is below n·2^-64."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "little") % n


def _network(x: np.ndarray, half: np.uint64, keys: np.ndarray) -> np.ndarray:
    mask = (np.uint64(1) << half) - np.uint64(1)
    left, right = x >> half, x & mask
    for key in keys:
        left, right = right, left ^ (_mix(right ^ key) & mask)
    return (left << half) | right


def _mix(x: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64 (Steele, Lea and Flood, 2014); products wrap at 64 bits."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
