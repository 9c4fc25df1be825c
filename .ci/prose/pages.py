"""Rules for whole pages: README and ARCHITECTURE keep to 200 lines, decisions to 100 columns and are listed, relative links lead
somewhere."""

import os
import re
from pathlib import Path
from urllib.parse import unquote

import sources

LINES_MAX = {"README.md": 200, "ARCHITECTURE.md": 200}
COLUMNS_MAX = 100
# The lines of what is written by hand, such as (`router/src/pmap.rs`, 313 lines), may be wrong by this part.
HAND_WRITTEN = re.compile(r"\(`([a-z0-9_/.]+)`, (\d+) lines")
LINES_OFF_MAX = 0.1
DECISION = re.compile(r"(^|/)decisions/\d{4}-[a-z0-9-]+\.md$")
LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)")
CODE = re.compile(r"^ *(```|~~~).*?^ *\1", re.M | re.S)


def anchors(text):
    """The anchors that GitHub makes of a page's headings."""
    found, seen = set(), {}
    for heading in re.findall(r"^#{1,6} +(.*?) *#*$", CODE.sub("", text), re.M):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        count = seen.get(name, 0)
        seen[name] = count + 1
        found.add(f"{name}-{count}" if count else name)
    return found | set(re.findall(r'<a (?:id|name)="([^"]+)"', text))


def markdown_files(root, skip):
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in skip)
        yield from (Path(folder) / name for name in sorted(names) if name.endswith(".md"))


def wide_lines(path, text):
    """The lines of a decision that are too wide, as findings. A link or a row of a table cannot be broken."""
    if DECISION.search(path):
        for number, line in enumerate(text.splitlines(), 1):
            if len(line) > COLUMNS_MAX and "](" not in line and not line.lstrip().startswith("|"):
                yield number, f"{len(line)} columns, {COLUMNS_MAX} at most in a decision", line


def lines_of(path):
    """Lines without tests of a file, or of a module with the files below it."""
    files = [path] if path.suffix == ".rs" else [path.with_suffix(".rs"), *sorted(path.rglob("*.rs"))]
    texts = [file.read_text() for file in files if file.exists() and not sources.is_test(file.as_posix())]
    return sum(sources.rust(text)[1] for text in texts if " for tests" not in text.partition("\n")[0])


def wrong_counts(root, architecture):
    """Yields a text for each number of lines in ARCHITECTURE.md that is not true any more."""
    for match in HAND_WRITTEN.finditer(architecture):
        path, said = match.group(1), int(match.group(2))
        found = lines_of(root / "services" / path)
        if abs(found - said) > said * LINES_OFF_MAX:
            yield f"ARCHITECTURE.md: {path} has {found} lines without tests, not {said}"


def problems(root, skip):
    """Yields a text for each page that is too long or badly named, each decision that ARCHITECTURE.md lacks, and each dead link."""
    architecture = root / "ARCHITECTURE.md"
    index = architecture.read_text() if architecture.exists() else ""
    yield from wrong_counts(root, index)
    for path in markdown_files(root, skip):
        name, text = path.relative_to(root).as_posix(), path.read_text()
        lines = text.splitlines()
        if len(lines) > LINES_MAX.get(name, len(lines)):
            yield f"{name}: {len(lines)} lines, {LINES_MAX[name]} at most"
        if "/decisions/" in name and not DECISION.search(name):
            yield f"{name}: a decision is called NNNN-title.md"
        elif DECISION.search(name) and f"({name})" not in index:
            area, number = path.parent.parent.name, path.name[:4]
            title = re.sub(r"^#+ *[0-9]*[:.]? *", "", lines[0]) if lines else ""
            yield f"ARCHITECTURE.md: a decision is missing, add a line: - [{area} {number}]({name}): {title}"
        for match in LINK.finditer(CODE.sub(lambda code: "\n" * code.group(0).count("\n"), text)):
            target = match.group(1)
            if re.match(r"[a-z]+:", target):
                continue
            file, _, anchor = target.partition("#")
            to = (path.parent / unquote(file)) if file else path
            if not to.exists():
                yield f"{name}: the link to {target} leads nowhere"
            elif anchor and to.suffix == ".md" and anchor not in anchors(to.read_text()):
                yield f"{name}: {to.name} has no heading #{anchor}"
