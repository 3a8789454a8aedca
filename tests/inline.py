#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails where an object that holds headers alone defines a strong symbol: a function or variable of a header lacks `inline`.

    tests/inline.py [--self-test] FOLDER ...     folders with object files, at any depth"""
import subprocess
import sys
import tempfile
from pathlib import Path

STRONG = set("TDBRGS")  # of nm: functions and variables that a program may define once


def strong_symbols(path):
    """[(object, symbol)]"""
    objects = sorted(Path(path).rglob("*.o"))
    found = []
    for first in range(0, len(objects), 100):
        batch = objects[first:first + 100]
        text = subprocess.run(["nm", "-C", "-A", "--defined-only", "--extern-only", *batch], capture_output=True, text=True, check=True).stdout
        for line in text.splitlines():
            name, rest = line.split(":", 1)
            _, kind, symbol = rest.split(maxsplit=2)
            if kind in STRONG and not symbol.startswith(("__cuda", "__fatbin", "fatbinData")):  # what nvcc adds to each file
                found.append((name, symbol))
    return len(objects), found


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "planted.cpp"
        source.write_text("inline int good() { return 1; }\nint planted() { return good(); }\n")
        subprocess.run(["c++", "-c", source, "-o", Path(folder) / "planted.o"], check=True)
        _, found = strong_symbols(folder)
        if [symbol for _, symbol in found] != ["planted()"]:
            sys.exit(f"self-test: a planted function without inline was not found: {found}")


def main():
    arguments = sys.argv[1:]
    if "--self-test" in arguments:
        arguments.remove("--self-test")
        self_test()
    if not arguments:
        sys.exit(__doc__)
    total = 0
    bad = []
    for folder in arguments:
        count, found = strong_symbols(folder)
        if count == 0:
            sys.exit(f"{folder}: there is no object file: build it first")
        total += count
        bad += found
    for name, symbol in bad:
        print(f"{Path(name).name} defines {symbol}: it lacks inline, so two files of a program would both define it")
    print(f"{total} objects of headers define {len(bad)} strong symbols")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
