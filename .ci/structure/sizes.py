#!/usr/bin/env python3
"""Finds files, functions and structs that are larger than a person reads in one sitting, and types that are spread over many files.

It reads Rust, Go, TypeScript, Python and shell; structs and `impl` blocks in Rust alone. Tests and generated files are left out.
`sizes.json` lists what is larger today, with its size. A listed item may only shrink, an item that is not listed fails the check,
and so does one without a row in `whole.md`. A type whose `impl` blocks stand in more than IMPL_FILES files needs a row in
`whole.md` with the reason; the number of its files is free, because splitting one of them is welcome.

    .ci/structure/sizes.py            compares the tree with the list
    .ci/structure/sizes.py --write    removes from the list what is gone, and lowers what shrank; it never adds
    .ci/structure/sizes.py --accept   writes the list anew, after a merge or for an item that is better whole
"""

import ast
import collections
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIST = pathlib.Path(__file__).with_name("sizes.json")
REASONS = pathlib.Path(__file__).with_name("whole.md")

FILE_LINES = 400
FUNCTION_LINES = 60
COMPONENT_LINES = 130  # A component of React holds its markup.
STRUCT_FIELDS = 20
IMPL_FILES = 6

TESTS = re.compile(r"(^|/)(tests?|benches|fuzz)/|(^|[/_])(tests?|testing)(_\w+)?\.rs$")
FUNCTION = re.compile(r"^(\s*)(?:pub(?:\([^)]*\))? )?(?:const )?(?:async )?(?:unsafe )?fn (\w+)")
STRUCT = re.compile(r"^(\s*)(?:pub(?:\([^)]*\))? )?struct (\w+)[^;({]*\{$")
IMPL = re.compile(r"^(?:unsafe )?impl(?:<[^{;]*?>)? (?:[^{;]* for )?&?(?:'\w+ )?(?:mut )?(?:\w+::)*(\w+)", re.M)
SPREAD = re.compile(r"^\| `([^`]+)` `impl (\w+)`", re.M)
LANGUAGES = ("*.rs", "*.go", "*.ts", "*.tsx", "*.mjs", "*.py", "*.sh")
TESTS_ELSEWHERE = re.compile(r"(^|/)(tests?|acceptance|checks)/|_test\.(go|py|sh)$|\.test\.\w+$|(^|/)test_\w+\.py$")
GENERATED = re.compile(r"\A.{0,300}(Code generated|auto-generated|@generated)", re.S)
# A function at the left edge, which formatters close at the left edge; a parameter list of several lines continues it.
BLOCKS = {
    "go": (re.compile(r"^func (?:\([^)]*\) )?(\w+)"), re.compile(r"^\}")),
    "sh": (re.compile(r"^(\w+)\(\) [{(]$"), re.compile(r"^[})]$")),
    "ts": (
        re.compile(r"^(?:export )?(?:default )?(?:(?:async )?function\*? (\w+)|const (\w+)\b.*=> [{(]$)"),
        re.compile(r"^[})\]](?!.*[{(\[]$)"),
    ),
}
FIELD = re.compile(r"^\s*(?:pub(?:\([^)]*\))? )?(?:r#)?\w+: ")


def end_of(lines, start, indent):
    """The line that closes what begins at `start`: rustfmt gives the brace the indent of the first line."""
    if lines[start].rstrip().endswith((";", "}")):
        return start
    return next((at for at in range(start, len(lines)) if lines[at] == indent + "}"), start)


def large(name, text):
    """The items of one file that are too large, by their name, with their size."""
    lines = text.splitlines()
    # A file's own tests stand at its end.
    tests = next((at for at, line in enumerate(lines) if line == "mod tests {"), len(lines))
    found = {}
    if tests > FILE_LINES:
        found[name] = tests
    for at, line in enumerate(lines[:tests]):
        if function := FUNCTION.match(line):
            size = end_of(lines, at, function[1]) - at + 1
            if size > FUNCTION_LINES:
                found[f"{name} fn {function[2]}"] = size
        elif struct := STRUCT.match(line):
            end = end_of(lines, at, struct[1])
            size = sum(1 for field in lines[at + 1 : end] if FIELD.match(field))
            if size > STRUCT_FIELDS:
                found[f"{name} struct {struct[2]}"] = size
    return found


def functions(name, text):
    """(name, lines) of the functions of a file that is not Rust."""
    suffix = name.rsplit(".", 1)[-1]
    if suffix == "py":
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        yield from ((at.name, at.end_lineno - at.lineno + 1) for at in ast.walk(ast.parse(text)) if isinstance(at, kinds))
        return
    begin, end = BLOCKS.get(suffix, BLOCKS["ts"])
    lines, start, of = text.splitlines(), None, ""
    for at, line in enumerate(lines):
        if start is None and (found := begin.match(line)):
            start, of = at, next(group for group in found.groups() if group)
        elif start is not None and end.match(line):
            yield of, at - start + 1
            start = None


def large_elsewhere(name, text):
    lines = text.count("\n")
    found = {name: lines} if lines > FILE_LINES else {}
    for of, size in functions(name, text):
        is_component = name.endswith(".tsx") and of[:1].isupper()
        if size > (COMPONENT_LINES if is_component else FUNCTION_LINES):
            found[f"{name} fn {of}"] = size
    return found


def tree():
    """The files without tests and without what programs write, by their name, with their text."""
    files = subprocess.run(["git", "ls-files", *LANGUAGES], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    files = [name for name in files if not (TESTS if name.endswith(".rs") else TESTS_ELSEWHERE).search(name)]
    texts = {name: (ROOT / name).read_text() for name in files if (ROOT / name).is_file()}
    return {name: text for name, text in texts.items() if not GENERATED.search(text)}


def spread(files):
    """The types whose `impl` blocks stand in more than IMPL_FILES files, by crate and name, with the number of files."""
    found = collections.defaultdict(set)
    for name, text in files.items():
        for of in IMPL.findall(text.split("\nmod tests {")[0]):
            found[name.split("/src/")[0], of].add(name)
    return {item: len(names) for item, names in found.items() if len(names) > IMPL_FILES}


def wrong_spreads(files, reasons):
    """Yields a text for each spread type without a reason, and for each reason without such a type."""
    found, allowed = spread(files), set(SPREAD.findall(reasons))
    for (crate, name), count in sorted(found.items()):
        if (crate, name) not in allowed:
            yield f"{crate}: impl {name} stands in {count} files, {IMPL_FILES} at most: split the type, or say why not in .ci/structure/whole.md"
    for crate, name in sorted(allowed - found.keys()):
        yield f"{crate}: impl {name} stands in {IMPL_FILES} files or fewer: remove its row from .ci/structure/whole.md"


def without_reason(found, reasons):
    """The large items that no row of `whole.md` names: the path below the crate's folder, and the function or struct."""
    rows = [line.split(" | ")[0] for line in reasons.splitlines() if line.startswith("| `")]
    for item in sorted(found):
        path, _, name = item.partition(" ")
        name = name.partition(" ")[2]
        if not any(path.rsplit("/", 1)[-1] in row and (not name or f"`{name}`" in row) for row in rows):
            yield item


def write(sizes):
    LIST.write_text(json.dumps(sizes, indent=1, sort_keys=True) + "\n")


def main(arguments):
    files = tree()
    found = {}
    for name, text in files.items():
        found |= large(name, text) if name.endswith(".rs") else large_elsewhere(name, text)
    files = {name: text for name, text in files.items() if name.endswith(".rs")}
    listed = json.loads(LIST.read_text()) if LIST.exists() else {}
    if "--accept" in arguments:
        write(found)
        return 0
    if "--write" in arguments:
        write({item: min(size, found[item]) for item, size in listed.items() if item in found})
        return 0
    grown = {item: size for item, size in found.items() if size > listed.get(item, 0)}
    for item, size in sorted(grown.items()):
        unit = "fields" if " struct " in item else "lines"
        limit = STRUCT_FIELDS if " struct " in item else FUNCTION_LINES if " fn " in item else FILE_LINES
        if ".tsx fn " in item and item.split()[-1][:1].isupper():
            limit = COMPONENT_LINES
        print(f"{item}: {size} {unit}, {listed.get(item, limit)} at most")
    reasons = REASONS.read_text()
    problems = list(wrong_spreads(files, reasons))
    problems += [f"{item} has no row in .ci/structure/whole.md" for item in without_reason(found, reasons)]
    for problem in problems:
        print(problem)
    print(f"sizes: {len(found)} large items, {len(listed)} listed")
    if grown:
        print("FAILED: sizes: split it; if it is better whole, say why in .ci/structure/whole.md and run .ci/structure/sizes.py --accept")
    if problems:
        print("FAILED: sizes: the rows of .ci/structure/whole.md")
    return bool(grown or problems)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
