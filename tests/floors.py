#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Refuses headers that include upwards. The table "Floors" of docs/architecture.md says which folder may include which:
    floors.py REPOSITORY [--self-test]"""
import pathlib
import re
import sys

INCLUDE = re.compile(r"^\s*#\s*include\s*<replicator/([^>]+)>", re.MULTILINE)
ROW = re.compile(r"^\| `([\w/]+)/` \|(.*?)\|", re.MULTILINE)


def read_floors(page):
    """{folder: folders it may include}, from the rows of the table, the lowest first."""
    section = page.split("## Floors\n", 1)[-1].split("\n## ", 1)[0]
    floors = {}
    for folder, below in ROW.findall(section):
        names = re.findall(r"`([\w/]+)/`", below)
        unknown = [name for name in names if name not in floors]
        if unknown:
            sys.exit(f"docs/architecture.md: the row of {folder}/ names {unknown[0]}/, which no row above it has: a floor lies on lower ones")
        floors[folder] = set(names)
    return floors


def row_of(header, floors):
    """The longest row that a header's folder lies in; empty where there is none."""
    folder = header.rpartition("/")[0]
    while folder and folder not in floors:
        folder = folder.rpartition("/")[0]
    return folder


def allowed(row, target, floors):
    """Another top folder brings what lies below it; of its own one a row has what it names."""
    if target == row or target in floors[row]:
        return True
    return target.split("/")[0] != row.split("/")[0] and any(target.startswith(name + "/") for name in floors[row])


def upward(headers, floors):
    """One sentence for every include that is not allowed. `headers`: {name: text}."""
    for name, text in sorted(headers.items()):
        if "/" not in name:
            continue  # the public face includes what it likes
        row = row_of(name, floors)
        if not row:
            yield f"{name}: the folder {name.split('/')[0]}/ is not in the table of docs/architecture.md, \"Floors\": add its row"
            continue
        for match in INCLUDE.finditer(text):
            if match[1].startswith("with/"):  # what this build has
                continue
            target = row_of(match[1], floors)
            if target and allowed(row, target, floors):
                continue
            line = text.count("\n", 0, match.start(1)) + 1
            below = ", ".join(sorted(one + "/" for one in floors[row])) or "nothing"
            yield (f"{name}:{line}: includes {match[1]}: {row}/ may include {below} (docs/architecture.md, \"Floors\"). "
                   "Move what both need to a lower floor")


def self_test(headers, floors):
    """An include upwards, into a subfolder, of the public face, from an unknown folder: each is found."""
    for name, include, found in (("core/a.hpp", "graph/node.hpp", "core/a.hpp:2: includes graph/node.hpp: core/ may include nothing"),
                                 ("data/files/a.hpp", "replicate/step.hpp", "data/files/ may include core/, data/, io/"),
                                 ("collectives/a.hpp", "collectives/run/run.hpp", "collectives/ may include core/"),
                                 ("world/a.hpp", "graph/node.hpp", "world/ may include"),
                                 ("engine/state/a.hpp", "async/staleness.hpp", "engine/ may include"),
                                 ("ops/a.hpp", "replicator.hpp", "ops/a.hpp:2: includes replicator.hpp"),
                                 ("attic/a.hpp", "core/error.hpp", "the folder attic/ is not in the table")):
        told = list(upward({**headers, name: f"#pragma once\n#include <replicator/{include}>\n"}, floors))
        if len(told) != 1 or found not in told[0]:
            sys.exit(f"self-test: {name} that includes {include} gave {told}")


def main():
    root = pathlib.Path(sys.argv[1])
    include = root / "include" / "replicator"
    headers = {str(path.relative_to(include)): path.read_text() for path in include.rglob("*") if path.suffix in (".hpp", ".cuh", ".h")}
    floors = read_floors((root / "docs" / "architecture.md").read_text())
    told = [*upward(headers, floors)]
    empty = [folder for folder in floors if not any(row_of(name, floors) == folder for name in headers)]
    told += [f"docs/architecture.md, \"Floors\": there is no folder {folder}/" for folder in empty]
    if not told and "--self-test" in sys.argv:
        self_test(headers, floors)
    print("\n".join(told) or f"{len(headers)} headers on {len(floors)} floors include downwards only")
    return 1 if told else 0


sys.exit(main())
