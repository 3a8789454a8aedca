#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles every header alone, and reads the objects: a strong symbol is a function or variable that lacks `inline`.

    tests/headers_alone.py [--self-test] [--jobs N] INCLUDE LIST OBJECTS -- COMPILER FLAG ...

INCLUDE: the folder of replicator/; LIST: a file with a header in each line, as #include names it; OBJECTS: a folder for the results.

One compilation serves a chain of headers, each of which includes the one before it. What stands before a header is then only what it
includes itself, so each of the chain is tested as if it were alone, for the cost of the last one. The fewest chains are found as a
maximum matching (Dilworth's theorem; Kuhn's algorithm)."""
import argparse
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

INCLUDE = re.compile(r"^\s*#\s*include\s*<(replicator/[^>]+)>", re.MULTILINE)
STRONG = set("TDBRGS")  # of nm: what a program may define once


def closures(include, headers):
    """{header: all headers of replicator that it includes, also indirectly}"""
    direct = {}

    def read(header):
        if header not in direct:
            path = include / header
            direct[header] = set(INCLUDE.findall(path.read_text())) if path.exists() else set()
            for each in direct[header]:
                read(each)

    for header in headers:
        read(header)
    result = {}
    for header in headers:
        seen, todo = set(), [header]
        while todo:
            for each in direct[todo.pop()] - seen:
                seen.add(each)
                todo.append(each)
        result[header] = seen
    return result


def find_chains(closure):
    """[[header, the next one, ...]]: each header once, and each includes the one before it."""
    # Of two headers that include each other, none comes before the other one.
    users = {h: sorted((g for g in closure if h in closure[g] and g not in closure[h]), key=lambda g: (len(closure[g]), g)) for h in closure}
    before = {}  # header -> the one before it in its chain

    def place(header, tried):
        for user in users[header]:
            if user in tried:
                continue
            tried.add(user)
            if user not in before or place(before[user], tried):
                before[user] = header
                return True
        return False

    for header in sorted(closure):
        place(header, set())
    chains = []
    for last in sorted(set(closure) - set(before.values())):
        chain = [last]
        while chain[-1] in before:
            chain.append(before[chain[-1]])
        chains.append(chain[::-1])
    return chains


def compile_chain(command, chain, folder):
    """The compiler's messages, empty where all is well."""
    source = folder / (chain[-1].replace("/", "_") + ".cpp")
    text = "".join(f"#include <{header}>\n" for header in chain)
    if not source.exists() or source.read_text() != text:  # ccache knows it by its content
        source.write_text(text)
    done = subprocess.run([*command, "-c", source, "-o", source.with_suffix(".o")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.stdout if done.returncode else ""


def strong_symbols(objects):
    found = []
    for first in range(0, len(objects), 100):
        text = subprocess.run(["nm", "-C", "-A", "--defined-only", "--extern-only", *objects[first:first + 100]], capture_output=True, text=True, check=True).stdout
        for line in text.splitlines():
            name, rest = line.split(":", 1)
            _, kind, symbol = rest.split(maxsplit=2)
            if kind in STRONG:
                found.append(f"{Path(name).stem}: {symbol} lacks inline: two files of a program would both define it")
    return found


def check(include, headers, folder, command, jobs):
    """[fault]"""
    folder.mkdir(parents=True, exist_ok=True)
    chains = find_chains(closures(include, headers))
    with ThreadPoolExecutor(jobs) as pool:
        faults = [message for message in pool.map(lambda chain: compile_chain(command, chain, folder), chains) if message]
    objects = [folder / (chain[-1].replace("/", "_") + ".o") for chain in chains]
    faults += strong_symbols([path for path in objects if path.exists()])
    print(f"{len(headers)} headers in {len(chains)} compilations: {len(faults)} faults")
    return faults


def self_test(command):
    """A header that needs another one and does not include it, a function without inline, both in the middle of a chain, and one
    of two headers that include each other."""
    with tempfile.TemporaryDirectory() as name:
        include = Path(name)
        (include / "replicator").mkdir()
        texts = {"a": "struct A {};", "b": "#include <replicator/a.hpp>\nstruct B { A a; };", "c": "#include <replicator/b.hpp>\nint planted() { return 1; }",
                 "d": "#include <replicator/c.hpp>\n", "needs_a": "struct Broken { A a; };", "e": "#include <replicator/a.hpp>\n#include <replicator/needs_a.hpp>\n",
                 "f": "#include <replicator/g.hpp>\n", "g": "#include <replicator/f.hpp>\nstruct Mutual { A a; };"}
        for header, text in texts.items():
            (include / f"replicator/{header}.hpp").write_text("#pragma once\n" + text + "\n")
        faults = check(include, [f"replicator/{header}.hpp" for header in texts], include / "objects", [*command, f"-I{include}"], 2)
        planted = ("struct Broken", "planted() lacks inline", "struct Mutual")
        if any(sum(each in fault for fault in faults) == 0 for each in planted):
            sys.exit("self-test: planted " + str(planted) + ", found " + str(faults))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("include", type=Path)
    parser.add_argument("list", type=Path)
    parser.add_argument("objects", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--self-test", action="store_true")
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options = parser.parse_args(sys.argv[1:split])
    command = sys.argv[split + 1:]
    if not command:
        parser.error("a compiler is missing behind --")
    if options.self_test:
        self_test(command)
    faults = check(options.include, options.list.read_text().split(), options.objects, command, options.jobs)
    print(*faults, sep="\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
