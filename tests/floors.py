#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Refuses headers that include upwards. The table of docs/architecture.md, "Floors", says which folder may include which:
    floors.py REPOSITORY [--self-test]"""
import pathlib
import re
import sys

INCLUDE = re.compile(r"^\s*#\s*include\s*<replicator/([^>]+)>", re.MULTILINE)
ROW = re.compile(r"^\| `(\w+)/` \|(.*?)\|", re.MULTILINE)
# Usable alone, on raw buffers: what it reaches lies in these folders only.
ALONE = {"collectives/world.hpp": {"core", "transport", "collectives"}}


def read_floors(page):
    """{folder: folders it may include}, from the rows of the table, the lowest first."""
    section = page.split("## Floors\n", 1)[-1].split("\n## ", 1)[0]
    floors = {}
    for folder, below in ROW.findall(section):
        names = re.findall(r"`(\w+)/`", below)
        unknown = [name for name in names if name not in floors]
        if unknown:
            sys.exit(f"docs/architecture.md: the row of {folder}/ names {unknown[0]}/, which no row above it has: a floor lies on lower ones")
        floors[folder] = set(names)
    return floors


def folder_of(header):
    return header.split("/")[0] if "/" in header else ""


def upward(headers, floors):
    """One sentence for every include that is not allowed. `headers`: {name: text}."""
    for name, text in sorted(headers.items()):
        folder = folder_of(name)
        if not folder:
            continue  # the public face includes what it likes
        if folder not in floors:
            yield f"{name}: the folder {folder}/ is not in the table of docs/architecture.md, \"Floors\": add its row"
            continue
        for match in INCLUDE.finditer(text):
            target = folder_of(match[1])
            if target in (folder, "with") or target in floors[folder]:  # with/: what this build has
                continue
            line = text.count("\n", 0, match.start(1)) + 1
            below = ", ".join(sorted(one + "/" for one in floors[folder])) or "nothing"
            yield (f"{name}:{line}: includes {match[1]}: {folder}/ may include {below} (docs/architecture.md, \"Floors\"). "
                   "Move what both need to a lower floor")


def reached(headers, start):
    seen, todo = set(), [start]
    while todo:
        name = todo.pop()
        if name in seen or name not in headers:
            continue
        seen.add(name)
        todo += INCLUDE.findall(headers[name])
    return seen


def not_alone(headers):
    for start, folders in ALONE.items():
        for name in sorted(reached(headers, start)):
            if folder_of(name) not in folders:
                yield f"{start}: reaches {name}, but it is to be usable with {', '.join(sorted(folders))} alone"


def self_test(headers, floors):
    """An include upwards, of the public face, from an unknown folder: each is found."""
    for name, include, found in (("core/a.hpp", "graph/node.hpp", "core/a.hpp:2: includes graph/node.hpp: core/ may include nothing"),
                                 ("data/a.hpp", "replicate/step.hpp", "data/ may include core/, io/"),
                                 ("ops/a.hpp", "replicator.hpp", "ops/a.hpp:2: includes replicator.hpp"),
                                 ("attic/a.hpp", "core/error.hpp", "the folder attic/ is not in the table")):
        told = list(upward({**headers, name: f"#pragma once\n#include <replicator/{include}>\n"}, floors))
        if len(told) != 1 or found not in told[0]:
            sys.exit(f"self-test: {name} that includes {include} gave {told}")
    world = {**headers, "core/error.hpp": "#include <replicator/graph/node.hpp>\n"}
    if not any("world.hpp: reaches graph/node.hpp" in told for told in not_alone(world)):
        sys.exit("self-test: world.hpp may reach graphs")


def main():
    root = pathlib.Path(sys.argv[1])
    include = root / "include" / "replicator"
    headers = {str(path.relative_to(include)): path.read_text() for path in include.rglob("*") if path.suffix in (".hpp", ".cuh", ".h")}
    floors = read_floors((root / "docs" / "architecture.md").read_text())
    if "--self-test" in sys.argv:
        self_test(headers, floors)
    told = [*upward(headers, floors), *not_alone(headers)]
    empty = [folder for folder in floors if not any(folder_of(name) == folder for name in headers)]
    told += [f"docs/architecture.md, \"Floors\": there is no folder {folder}/" for folder in empty]
    print("\n".join(told) or f"{len(headers)} headers on {len(floors)} floors include downwards only")
    return 1 if told else 0


sys.exit(main())
