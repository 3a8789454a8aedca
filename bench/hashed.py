# SPDX-License-Identifier: Apache-2.0
"""The same as hashed.hpp, for programs in Python."""
import numpy as np


def hashed(count, salt):
    """Numbers in [-0.5, 0.5) that are easy to reproduce in any language: the finaliser of MurmurHash3 over (salt, index)."""
    with np.errstate(over="ignore"):
        h = np.arange(count, dtype=np.uint32) + np.uint32(salt) * np.uint32(0x9E3779B9)
        h ^= h >> np.uint32(16)
        h *= np.uint32(0x85EBCA6B)
        h ^= h >> np.uint32(13)
        h *= np.uint32(0xC2B2AE35)
        h ^= h >> np.uint32(16)
    return (h >> np.uint32(8)).astype(np.float32) * np.float32(2.0 ** -24) - np.float32(0.5)
