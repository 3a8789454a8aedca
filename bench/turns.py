# SPDX-License-Identifier: Apache-2.0
"""The same as turns.hpp, for programs in Python."""
import sys

# The environment in which PyTorch's allocator keeps its pages, huge ones if possible.
kept_pages = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "100000000000", "MALLOC_TOP_PAD_": "1000000000",
              "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


def take_turns(turns, measure):
    if not turns:
        measure()
        return
    print("ready", flush=True)
    for _ in sys.stdin:
        measure()
        print("ready", flush=True)
