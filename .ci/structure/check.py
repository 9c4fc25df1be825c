#!/usr/bin/env python3
"""Finds modules of a crate that import each other in circles.

A top-level module is a file or a folder under a crate's `src`. Imports between them should run one way, so that a reader can begin at
the bottom. `circles.txt` lists the imports that are part of a circle today. An import that is not listed there fails the check.

    .ci/structure/check.py            compares the tree with the list
    .ci/structure/check.py --write    removes from the list what is gone; it never adds
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIST = pathlib.Path(__file__).with_name("circles.txt")

TESTS = re.compile(r"(^|_)(tests?|testing)(_\w+)?\.rs$")
COMMENT = re.compile(r"//.*")
STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
TEST_CODE = re.compile(r"#\[cfg\((?:all\()?test\b.*?(?:;|\{)", re.S)
GROUP = re.compile(r"\bcrate::\{")
NAME = re.compile(r"\bcrate::(\w+)")
SUPER = re.compile(r"(?<!\w)((?:super::)+)(\w+)")


def without_tests(code):
    """The code without strings, comments and items behind `#[cfg(test)]`."""
    code = STRING.sub('""', COMMENT.sub("", code))
    while found := TEST_CODE.search(code):
        end = found.end()
        if code[end - 1] == "{":
            depth = 1
            while depth and end < len(code):
                depth += {"{": 1, "}": -1}.get(code[end], 0)
                end += 1
        code = code[: found.start()] + code[end:]
    return code


def grouped(code):
    """The first names in `crate::{a::x, b::{y, z}}`."""
    for found in GROUP.finditer(code):
        depth, start, end = 1, found.end(), found.end()
        while depth and end < len(code):
            if code[end] in "{}":
                depth += 1 if code[end] == "{" else -1
            if depth == 0 or (code[end] == "," and depth == 1):
                if name := re.match(r"\s*(\w+)", code[start:end]):
                    yield name[1]
                start = end + 1
            end += 1


def imports_of(source):
    """The imports between the top-level modules of one `src` folder, as a set of pairs."""
    modules = {path.stem for path in source.iterdir() if path.is_dir() or path.suffix == ".rs"} - {"lib", "main"}
    found = set()
    for path in sorted(source.rglob("*.rs")):
        parts = path.relative_to(source).with_suffix("").parts
        if TESTS.search(path.name) or "tests" in parts[:-1] or parts[0] not in modules:
            continue
        code = without_tests(path.read_text())
        names = set(NAME.findall(code)) | set(grouped(code))
        # `super` of a module at depth n leads to the crate's root after n steps; `mod.rs` stands for its folder.
        depth = len(parts) - (parts[-1] == "mod")
        names |= {name for steps, name in SUPER.findall(code) if steps.count("super") == depth}
        found |= {(parts[0], name) for name in names if name in modules and name != parts[0]}
    return found


def in_circles(edges):
    """The edges that are part of a circle: their end leads back to their start."""
    after = {}
    for start, end in edges:
        after.setdefault(start, set()).add(end)

    def reach(start):
        seen, left = set(), [start]
        while left:
            for name in after.get(left.pop(), ()):
                if name not in seen:
                    seen.add(name)
                    left.append(name)
        return seen

    reached = {start: reach(start) for start in after}
    return {(start, end) for start, end in edges if start in reached.get(end, ())}


def lines_of(root):
    """A line for each import in a circle of the tree."""
    for manifest in sorted(root.glob("**/Cargo.toml")):
        source = manifest.parent / "src"
        if "target" in manifest.parts or not source.is_dir():
            continue
        crate = manifest.parent.relative_to(root)
        yield from (f"{crate}: {start} -> {end}" for start, end in sorted(in_circles(imports_of(source))))


def main(arguments):
    known = {line for line in LIST.read_text().splitlines() if line} if LIST.exists() else set()
    today = set(lines_of(ROOT))
    if "--write" in arguments:
        LIST.write_text("".join(f"{line}\n" for line in sorted(known & today)))
        return 0
    for line in sorted(today - known):
        print(f"FAILED: an import in a circle: {line}. Move what both need below both, or hand in a function or a sender.")
    for line in sorted(known - today):
        print(f"gone, remove it with .ci/structure/check.py --write: {line}")
    print(f"structure: {len(today)} imports in circles, {len(known)} listed")
    return 1 if today - known else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
