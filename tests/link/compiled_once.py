#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that programs compile no function `template <class = void>` that replicator::compiled holds.

    tests/link/compiled_once.py [--nm NM] --compiled OBJECT ... --programs OBJECT ...

A function in both is missing from the lists of `extern template`.
Exit code: 0, or 1 with one line for each such function.
"""
import argparse
import re
import subprocess
import sys
from pathlib import Path


def functions(text):
    """The names of the functions f<void>(...) in nm's output."""
    names = (line.split(" ", 2)[2] for line in text.splitlines() if re.match(r"\S* [Ww] ", line))
    return {name for name in names if re.search(r"\breplicator::[^(]*\w<void>\(", name)}


def functions_of(objects, nm):
    missing = [each for each in objects if not Path(each).exists()]
    if missing:
        sys.exit(f"{missing[0]} is not built: build the target all")
    return functions(subprocess.run([nm, "-C", "--defined-only", "--extern-only", *objects], stdout=subprocess.PIPE, text=True, check=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nm", default="nm")
    parser.add_argument("--compiled", nargs="+", required=True, metavar="OBJECT")
    parser.add_argument("--programs", nargs="+", required=True, metavar="OBJECT")
    options = parser.parse_args()

    seen = functions("0000 W void replicator::f<void>(int)\n0000 W void replicator::X<float>::g<void>()\n0000 W std::vector<void>::~vector()\n0000 T main\n")
    assert seen == {"void replicator::f<void>(int)", "void replicator::X<float>::g<void>()"}, seen
    compiled = functions_of(options.compiled, options.nm)
    assert len(compiled) > 100, f"only {len(compiled)} functions in replicator::compiled: are its functions still named so?"

    twice = [f"{program}: {name}" for program in options.programs for name in sorted(compiled & functions_of([program], options.nm))]
    for line in twice:
        print(line)
    if twice:
        print("Add these functions to with/instantiations.hpp or with/graphs.hpp.")
    return 1 if twice else 0


if __name__ == "__main__":
    sys.exit(main())
