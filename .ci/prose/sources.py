"""Sentences of the project: comments, help texts, errors and log lines of Rust, Markdown, and the help texts of metrics.toml.

A sentence is (line number, kind, text). The kind is "comment", "help", "message" or "page".
"""

import bisect
import re

TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*)
      | (?P<block>/\*.*?\*/)
      | \bb?r(?P<hashes>\#*)".*?"(?P=hashes)
      | "(?:\\.|[^"\\])*"
      | '(?:\\[^\n]{1,8}?|[^'\\\n])'
    """,
    re.X | re.S,
)
# Doc comments are the help of clap; these are the texts that are written as strings.
HELP = re.compile(r'(?:\b(?:help|long_help|about|long_about|after_help)\s*=\s*|\.(?:help|about)\()"((?:\\.|[^"\\])*)"', re.S)
# Texts of error types and of log lines, without fields that have brackets within brackets.
MESSAGE = re.compile(
    r'''\#\[error\(\s*"(?P<error>(?:\\.|[^"\\])*)"
      | \b(?:trace|debug|info|warn|error)!\((?:[^"()]|\([^()]*\))*?"(?P<log>(?:\\.|[^"\\])*)"''',
    re.X | re.S,
)
TEST_MODULE = re.compile(r"^( *)#\[cfg\(test\)\]\n(?: *#\[[^\n]*\]\n)* *(?:pub(?:\([a-z]+\))? )?mod \w+ \{\n.*?^\1\}\n", re.M | re.S)
TEST_PATH = re.compile(r"(^|/)(tests|benches|examples|fuzz|test_\w+)(/|\.rs$)|_tests?\.rs$|/test_\w+\.rs$")
PUBLIC_TYPE = re.compile(r"^pub (?:struct|enum|trait|type|union) (\w+)", re.M)
SENTENCE_END = re.compile(r"(?<![.\s][a-z])(?<!e\.g)(?<!i\.e)(?<!etc)[.!?][\"')*`_]*\s+(?=[\"'(\[*`_]*[A-Z`])")
ITEM = re.compile(r"^\s*(?:[-*+]|\d+\.)\s+")


def is_test(path):
    return bool(TEST_PATH.search(path))


def sentences_of(lines):
    """Splits one paragraph, [(line number, text)], into its sentences."""
    text, starts, numbers = "", [], []
    for number, line in lines:
        starts.append(len(text))
        numbers.append(number)
        text += line.strip() + " "
    begin = 0
    for end in [match.end() for match in SENTENCE_END.finditer(text)] + [len(text)]:
        sentence = text[begin:end]
        if re.search(r"[A-Za-z]{2}", sentence):
            at = begin + len(sentence) - len(sentence.lstrip())
            yield numbers[bisect.bisect_right(starts, at) - 1], sentence.strip()
        begin = end


def paragraphs(lines):
    """Groups (line number, text of a comment or page): an empty line, an item, a heading or a gap begins a new one."""
    group, before, fenced = [], None, False
    for number, line in lines:
        fence = line.lstrip().startswith(("```", "~~~"))
        apart = not line.strip() or ITEM.match(line) or line.lstrip().startswith(("#", "|", ">"))
        if group and (fence or apart or (before is not None and number != before + 1)):
            yield group
            group = []
        before = number
        if fence:
            fenced = not fenced
        elif not fenced and line.strip():
            group.append((number, ITEM.sub("", line)))
            if line.lstrip().startswith("#"):
                yield group
                group = []
    if group:
        yield group


def rust(text):
    """Returns the sentences of a Rust file and how many lines it has, both outside its test modules."""
    skipped = sum(match.group(0).count("\n") for match in TEST_MODULE.finditer(text))
    text = TEST_MODULE.sub(lambda match: "\n" * match.group(0).count("\n"), text)
    breaks = [index for index, letter in enumerate(text) if letter == "\n"]
    kinds, found = {"///": [], "//!": [], "//": []}, []
    for match in TOKEN.finditer(text):
        comment = match.group("comment") or match.group("block")
        if not comment:
            continue
        number = bisect.bisect_left(breaks, match.start()) + 1
        if match.group("block"):
            for index, line in enumerate(comment.strip("/*").splitlines()):
                kinds["//"].append((number + index, line.lstrip(" *")))
            continue
        # Citations of the standard are the standard's own words.
        if comment.startswith(("//=", "//#")):
            continue
        marker = comment[:3] if comment[:3] in kinds else "//"
        kinds[marker].append((number, comment[len(marker) :]))
    for lines in kinds.values():
        lines.sort()
        for group in paragraphs(lines):
            if group[0][1].lstrip().startswith("#"):
                continue
            found += [(number, "comment", sentence) for number, sentence in sentences_of(group)]
    texts = [(match.start(), "help", match.group(1)) for match in HELP.finditer(text)]
    texts += [(match.start(), "message", match.group("error") or match.group("log") or "") for match in MESSAGE.finditer(text)]
    for start, kind, words in texts:
        number = bisect.bisect_left(breaks, start) + 1
        words = re.sub(r"\\\n\s*", "", words).replace('\\"', '"')
        found += [(number, kind, sentence) for _, sentence in sentences_of([(number, words)])]
    return sorted(found), len(text.splitlines()) - skipped


def public_types(text):
    """The names of the public types of a Rust file, outside its test modules."""
    return PUBLIC_TYPE.findall(TEST_MODULE.sub("", text))


def markdown(text):
    """The sentences of a page outside code and headings; each cell of a table is a paragraph."""
    text = re.sub(r"<!--.*?-->", lambda match: "\n" * match.group(0).count("\n"), text, flags=re.S)
    found = []
    for group in paragraphs(list(enumerate(text.splitlines(), 1))):
        number, first = group[0]
        if first.lstrip().startswith("#"):
            continue
        if first.lstrip().startswith("|"):
            for cell in re.split(r"(?<!\\)\|", first):
                found += [(number, "page", sentence) for _, sentence in sentences_of([(number, cell)])]
        elif not all(line.startswith("    ") for _, line in group):
            found += [(at, "page", sentence) for at, sentence in sentences_of(group)]
    return found


def help_texts(text):
    """The sentences of `help = "..."` in a TOML file."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if match := re.match(r'\s*help = "((?:\\.|[^"\\])*)"', line):
            found += [(number, "help", sentence) for _, sentence in sentences_of([(number, match.group(1))])]
    return found
