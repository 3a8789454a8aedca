#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the links between the pages of a repository: every relative link of a Markdown file must name a file, and its anchor a heading there.
Source files that pages name as code, such as `cpu/map.hpp`, must exist, too; a changelog may name old ones.

    links.py REPOSITORY [--self-test]

Reads README.md, CONTRIBUTING.md, CHANGELOG.md and docs/**/*.md. Anchors are formed as GitHub forms them."""
import fnmatch
import pathlib
import re
import sys
import tempfile

LINK = re.compile(r"\]\(\s*<?([^()\s<>]+)>?(?:\s+\"[^\"]*\")?\s*\)|^\s*\[[^\]^]+\]:\s+(\S+)|<(?:a|img)\b[^>]*?\b(?:href|src)=\"([^\"]+)\"", re.IGNORECASE)
CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)")
SOURCE = re.compile(r"`((?:[\w*-]+/)+[\w*-]+\.(?:hpp|cuh|cpp|cu))`")
OUTSIDE = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)  # https:, mailto:


def pages(root):
    root = pathlib.Path(root)
    return sorted(page for page in [*root.glob("*.md"), *root.glob("docs/**/*.md")] if page.is_file())


def prose(text):
    """(number of the line, line) outside of blocks of code."""
    fence = None
    for number, line in enumerate(text.split("\n"), 1):
        mark = re.match(r" {0,3}(```+|~~~+)", line)
        if mark and (fence is None or (line.strip().startswith(fence) and not line.strip().strip(fence[0]))):
            fence = None if fence else mark[1]
        elif fence is None and not line.startswith("    "):
            yield number, line


def links(text):
    """(number of the line, target) of each relative link."""
    for number, line in prose(text):
        for match in LINK.finditer(CODE.sub(lambda code: "`" * len(code[0]), line)):
            target = next(group for group in match.groups() if group)
            if not OUTSIDE.match(target):
                yield number, target


def anchors(text):
    """The anchors that GitHub gives to the headings; the second of equal ones ends with -1."""
    found = {}
    for _, line in prose(text):
        heading = re.match(r" {0,3}#{1,6}\s+(.*?)\s*#*\s*$", line)
        if heading:
            words = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).lower()
            slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
            number = found.get(slug, 0)
            found[slug] = number + 1
            yield f"{slug}-{number}" if number else slug
        yield from re.findall(r"<a\s+(?:name|id)=\"([^\"]+)\"", line)


def sources(root):
    """The source files of a repository, without builds."""
    return ["/" + file.relative_to(root).as_posix() for file in root.rglob("*.[ch][pu]*") if not file.relative_to(root).parts[0].startswith("build")]


def faults(root):
    """One sentence for each broken link, or name of a source file that is not there."""
    root = pathlib.Path(root).resolve()
    known = {}
    there = sources(root)
    for page in pages(root):
        text = page.read_text(encoding="utf-8")
        for number, line in prose(text) if page.name != "CHANGELOG.md" else ():
            for name in SOURCE.findall(line):
                if not fnmatch.filter(there, "*/" + name):
                    yield f"{page.relative_to(root)}:{number}: no source file is called {name}"
        for number, target in links(text):
            path, _, anchor = target.partition("#")
            file = (root / path[1:] if path.startswith("/") else page.parent / path).resolve() if path else page
            where = f"{page.relative_to(root)}:{number}: the link {target}"
            if not file.is_relative_to(root):
                yield f"{where} leaves the repository"
            elif not file.exists():
                yield f"{where} names no file"
            elif anchor and file.suffix == ".md":
                if file not in known:
                    known[file] = set(anchors(file.read_text(encoding="utf-8")))
                if anchor not in known[file]:
                    yield f"{where} names no heading of {file.relative_to(root)}"


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "docs").mkdir()
        (root / "docs" / "a.md").write_text("# `rp::sum` of a *tensor*, [twice](b.md)\n## Same\n## Same\n[top](../README.md#replicator) [self](#same-1) [b](b.md)\n")
        (root / "docs" / "b.md").write_text("[a](a.md#rpsum-of-a-tensor-twice) `[no](link.md)`\n\n    [no](link.md)\n\n```cpp\n[no](link.md)\n# no heading\n```\n")
        (root / "README.md").write_text("# replicator\n[docs](docs) [site](https://example.org/x.md#y)\n")
        assert list(faults(root)) == [], list(faults(root))
        (root / "README.md").write_text("# replicator\n[a](docs/c.md) [b](docs/b.md#no-heading) [c](../x)\n\n[d]: docs/d.md\n<img src=\"e.png\">\n")
        told = [fault.split(": ", 1)[1] for fault in faults(root)]
        assert told == ["the link docs/c.md names no file", "the link docs/b.md#no-heading names no heading of docs/b.md", "the link ../x leaves the repository",
                        "the link docs/d.md names no file", "the link e.png names no file"], told
        (root / "build").mkdir()
        (root / "docs" / "a.hpp").touch()
        (root / "build" / "b.hpp").touch()
        (root / "README.md").write_text("# replicator\n`docs/a.hpp` `docs/*.hpp` `build/b.hpp` `a/docs/a.hpp`\n")
        told = [fault.split(": ", 1)[1] for fault in faults(root)]
        assert told == ["no source file is called build/b.hpp", "no source file is called a/docs/a.hpp"], told


def main():
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__, file=sys.stdout if sys.argv[1:] else sys.stderr)
        return 0 if sys.argv[1:] else 2
    if "--self-test" in sys.argv[2:]:
        self_test()
    told = list(faults(sys.argv[1]))
    for fault in told:
        print(fault)
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
