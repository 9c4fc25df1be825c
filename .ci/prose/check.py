#!/usr/bin/env python3
"""Checks the project's prose: comments, help texts and pages. `make lint` runs it; it takes seconds.

check.py [--write | --accept-rise] [--all] [PATH...]

A finding is a sentence that begins without naming its subject or has a private term (rules.py), in tests too, or a private term in
the name of an item, a field or a file of Rust outside tests.

baseline.json counts the findings that each file still has, and without tests the comment sentences per 1,000 lines of each crate (or
language of a folder) and the types that share a name: public ones of all crates, and all types of the server and of each other
program but for the names that rules.py allows with a reason. All may only shrink: --write lowers the baseline to what is there,
--accept-rise also raises it, after a merge.
"""

import argparse
import json
import os
import re
import sys
from collections import defaultdict
from pathlib import Path

import pages
import rules
import sources

ROOT = Path(__file__).resolve().parents[2]
BASELINE = "baseline.json"
SKIP = {"target", "node_modules", "__pycache__", ".git", "dist", "data", "corpus", "artifacts"}
# Written by programs: their sources are checked instead. The test plants wrong sentences.
NOT_READ = {
    ".ci/prose/test_check.py",
    "dashboards/metrics.md",
    "terraform/provider/internal/api/operations.gen.go",
    "terraform/provider/internal/api/types.gen.go",
}
# The table of settings comes from doc comments, which are checked where they stand.
SETTINGS = re.compile(r"<!-- settings: begin -->.*?<!-- settings: end -->", re.S)
LANGUAGE = {".tsx": "ts", ".mjs": "ts", ".js": "ts"}
# Comment sentences per 1,000 lines; a crate above it may not rise.
DENSITY_MAX = 85


def files(root):
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in SKIP)
        for name in sorted(names):
            path = (Path(folder) / name).relative_to(root).as_posix()
            if path.endswith((*sources.LANGUAGES, ".md", *sources.CONFIGURATION)):
                if path not in NOT_READ:
                    yield path


def crate_of(path):
    """The crate of a Rust file; of another language the suffix and the folder, such as `py dashboards`."""
    if path.endswith(".rs"):
        return path.split("/src/")[0].removesuffix("/build.rs")
    folders = path.split("/")[:-1]
    area = "/".join(folders[: 2 if folders[:1] == ["services"] else 1]) or "."
    return f"{LANGUAGE.get(Path(path).suffix, Path(path).suffix[1:])} {area}"


def program_of(path):
    crate = crate_of(path)
    return "the server" if crate.startswith(("services/", "storage")) and crate not in rules.NOT_OF_THE_SERVER else crate


def read(root):
    """Returns findings by file, [(line, what, sentence)], comment sentences per 1,000 lines by crate and of all Rust, and the
    files of each name that several types have."""
    found, code, comments, types = {}, defaultdict(int), defaultdict(int), defaultdict(list)
    for path in files(root):
        text = SETTINGS.sub(lambda table: "\n" * table.group(0).count("\n"), (root / path).read_text())
        if reader := sources.LANGUAGES.get(Path(path).suffix):
            sentences, lines = reader(text)
            if not sources.is_test(path):
                if path.endswith(".rs"):
                    for name in sources.public_types(text):
                        types[name].append(path)
                    for name, is_shared in sources.types(path, text):
                        if name not in rules.SAME_THING and (is_shared or name not in rules.LOCAL_NAMES):
                            types[f"{name} in {program_of(path)}"].append(path)
                code[crate_of(path)] += lines
                comments[crate_of(path)] += sum(kind == "comment" for _, kind, _ in sentences)
            if path.endswith(".rs"):
                sentences, _ = sources.rust(text, with_tests=True)
        elif path.endswith("metrics.toml"):
            sentences = sources.help_texts(text)
        else:
            sentences = (sources.markdown if path.endswith(".md") else sources.configuration)(text)
        wrong = [(line, what, sentence) for line, _, sentence in sentences for what in rules.findings(sentence)]
        if path.endswith(".rs") and not sources.is_test(path):
            names = [(1, Path(path).stem), *sources.items(text)]
            wrong += [(line, what, name) for line, name in names for what in rules.findings_of_name(name)]
        wrong += pages.wide_lines(path, text)
        if wrong:
            found[path] = wrong
    density = {crate: round(1000 * comments[crate] / lines) for crate, lines in code.items() if lines}
    rust = [crate for crate in code if " " not in crate]
    total = round(1000 * sum(comments[crate] for crate in rust) / max(1, sum(code[crate] for crate in rust)))
    shared = {name: paths for name, paths in sorted(types.items()) if len(paths) > 1}
    return found, density, total, shared


def compare(found, density, shared, baseline):
    """Yields a text for each rise over the baseline."""
    for path, wrong in sorted(found.items()):
        before = baseline["findings"].get(path, 0)
        if len(wrong) > before:
            yield f"{path}: {len(wrong)} findings, {before} before. New ones are among these:"
            for line, what, sentence in wrong:
                yield f"  {path}:{line}: {what}: {sentence}"
    for crate, now in sorted(density.items()):
        before = max(baseline["density"].get(crate, 0), DENSITY_MAX)
        if now > before:
            yield f"{crate}: {now} comment sentences per 1,000 lines, {before} at most: delete comments that say what the code says"
    for name, paths in shared.items():
        if len(paths) > baseline["names"].get(name, 1):
            yield f"{name}: {len(paths)} types have this name: one name, one thing: {', '.join(paths)}"


def lowered(found, density, shared, baseline, accept):
    """The new baseline: what is there, and without `accept` nothing above the old one."""
    counts = {path: len(wrong) for path, wrong in found.items()}
    high = {crate: now for crate, now in density.items() if now > DENSITY_MAX}
    names = {name: len(paths) for name, paths in shared.items()}
    if not accept:
        names = {name: min(count, baseline["names"].get(name, 1)) for name, count in names.items()}
        counts = {path: min(count, baseline["findings"].get(path, 0)) for path, count in counts.items()}
        high = {crate: min(now, baseline["density"].get(crate, 0)) for crate, now in high.items()}
    return {
        "findings": {path: count for path, count in sorted(counts.items()) if count},
        "density": {crate: now for crate, now in sorted(high.items()) if now > DENSITY_MAX},
        "names": {name: count for name, count in sorted(names.items()) if count > 1},
    }


def main(arguments=None, root=ROOT):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="lower the baseline to what is there")
    parser.add_argument("--accept-rise", action="store_true", help="raise it, too: for merges")
    parser.add_argument("--all", action="store_true", help="print every finding, of the baseline too")
    parser.add_argument("path", nargs="*", help="with --all: only files that begin with one of these")
    options = parser.parse_args(arguments)

    stored = root / ".ci/prose" / BASELINE
    baseline = {"findings": {}, "density": {}, "names": {}}
    if stored.exists():
        baseline |= json.loads(stored.read_text())
    found, density, total, shared = read(root)
    if options.all:
        for path, wrong in sorted(found.items()):
            if not options.path or path.startswith(tuple(options.path)):
                for line, what, sentence in wrong:
                    print(f"{path}:{line}: {what}: {sentence}")
        for crate, now in sorted(density.items()):
            print(f"{crate}: {now} comment sentences per 1,000 lines")
        for name, paths in shared.items():
            print(f"{name}: {len(paths)} types: {', '.join(paths)}")
        return 0
    if options.write or options.accept_rise:
        baseline = lowered(found, density, shared, baseline, options.accept_rise)
        stored.write_text(json.dumps(baseline, indent=1) + "\n")
    problems = list(compare(found, density, shared, baseline)) + list(pages.problems(root, SKIP))
    for problem in problems:
        print(problem)
    known = sum(baseline["findings"].values())
    now = sum(len(wrong) for wrong in found.values())
    print(f"prose: {now} findings ({known} in the baseline), {total} comment sentences per 1,000 lines, {len(shared)} shared type names")
    if now < known:
        print("prose: fewer findings than the baseline: .ci/prose/check.py --write lowers it")
    if problems:
        print("FAILED: prose: write it in plain words, or after a merge run .ci/prose/check.py --accept-rise")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
