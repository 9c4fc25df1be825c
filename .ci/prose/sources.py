"""Reads the sentences that check.py checks: comments, help texts, errors and log lines of Rust, comments of TypeScript, Go, Python
and shell, Markdown, configuration files, and the help texts of metrics.toml.

A sentence is (line number, kind, text). The kind is "comment", "help", "message" or "page".
"""

import ast
import bisect
import io
import re
import tokenize

# Strings and characters match too, because slashes in them begin no comment.
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
HELP = re.compile(r'(?:\b(?:help|long_help|about|long_about|after_help|description)\s*=\s*|\.(?:help|about)\()"((?:\\.|[^"\\])*)"', re.S)
# Texts of error types and of log lines, without fields that have brackets within brackets.
MESSAGE = re.compile(
    r'''\#\[error\(\s*"(?P<error>(?:\\.|[^"\\])*)"
      | \b(?:trace|debug|info|warn|error)!\((?:[^"()]|\([^()]*\))*?"(?P<log>(?:\\.|[^"\\])*)"''',
    re.X | re.S,
)
TEST_MODULE = re.compile(r"^( *)#\[cfg\(test\)\]\n(?: *#\[[^\n]*\]\n)* *(?:pub(?:\([a-z]+\))? )?mod \w+ \{\n.*?^\1\}\n", re.M | re.S)
TEST_PATH = re.compile(r"(^|/)(tests?|benches|examples|fuzz|test_\w+)(/|\.(?:rs|py)$)|_tests?\.(?:rs|go|py)$|\.test\.\w+$")
# JSX text and regular expressions hold quotes and slashes, so a comment of TypeScript is found by the space before it.
TYPESCRIPT = re.compile(r"(?:^|(?<=[\s{;]))(?://(?P<line>[^\n]*)|/\*(?P<block>.*?)\*/)", re.M | re.S)
GO = re.compile(r"//(?P<line>[^\n]*)|/\*(?P<block>.*?)\*/|`[^`]*`|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+'", re.S)
DESCRIPTION = re.compile(r'\b(?:Description:\s*|(?:\w*(?:Attribute|Text|List|[nN]umber)|choice|flag|key|group|limit|computed|invited)\()"((?:\\.|[^"\\\n])*)"')
SHELL = re.compile(r"(?:^|(?<=\s))#(?P<line>(?!!)[^\n]*)(?P<block>)", re.M)
# Instructions for tools, and code that is switched off.
DIRECTIVE = re.compile(r"^(?:go:|nolint|\s*(?:eslint-|prettier-|biome-|@ts-|@vite|noqa|type: ignore|shellcheck |pylint|fmt:|/ <))")
ITEM_NAME = re.compile(r"^ *(?:pub(?:\([^)]*\))? )?(?:const |async |unsafe |static )*(?:fn|struct|enum|trait|type|mod|union) (\w+)|^ *(?:pub(?:\([^)]*\))? )?(?:const|static) (\w+):", re.M)
FIELD_NAME = re.compile(r"^ +(?:pub(?:\([^)]*\))? )?(\w+): [^=;{}]*,$", re.M)
PUBLIC_TYPE = re.compile(r"^pub (?:struct|enum|trait|type|union) (\w+)", re.M)
# An indented `type` belongs to a trait.
TYPE = re.compile(r"^(?: *(pub(?:\([^)]*\))? )?(?:struct|enum|trait|union)|(pub(?:\([^)]*\))? )?type) (\w+)", re.M)
TEST_ONLY = re.compile(r"/src/(?:.*/)?(?:simulation|testing)(?:/|\.rs$)")
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


def rust(text, with_tests=False):
    """Returns the sentences of a Rust file and how many lines it has, both outside its test modules unless `with_tests`."""
    skipped = 0
    if not with_tests:
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
        # Citations of the standard are quotations.
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


def by_pattern(pattern):
    """Makes a reader of a language whose comments a pattern finds, in its groups `line` and `block`."""

    def read(text):
        breaks = [index for index, letter in enumerate(text) if letter == "\n"]
        lines = []
        for match in pattern.finditer(text):
            number = bisect.bisect_left(breaks, match.start()) + 1
            if match.group("line") is not None:
                lines.append((number, match.group("line")))
            elif match.group("block") is not None:
                block = match.group("block").splitlines()
                lines += [(number + index, line.strip().lstrip("*").strip()) for index, line in enumerate(block)]
        return of_comments(lines), len(text.splitlines())

    return read


def go(text):
    found, count = by_pattern(GO)(text)
    for match in DESCRIPTION.finditer(text):
        number = text.count("\n", 0, match.start()) + 1
        found += [(number, "help", sentence) for _, sentence in sentences_of([(number, match.group(1))])]
    return sorted(found), count


def of_comments(lines):
    """The sentences of comments, [(line number, text)], without instructions for tools."""
    return [
        (number, "comment", sentence)
        for group in paragraphs([(number, line) for number, line in lines if not DIRECTIVE.match(line)])
        for number, sentence in sentences_of(group)
    ]


def python(text):
    """Returns the sentences of a Python file's comments, docstrings and help texts, and how many lines the file has."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comments = [(token.start[0], token.string[1:]) for token in tokens if token.type == tokenize.COMMENT]
    found = of_comments([(number, line) for number, line in comments if not line.startswith("!")])
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(node):
            first = node.body[0].value
            found += of_comments(list(enumerate(first.value.splitlines(), first.lineno)))
    for match in HELP.finditer(text):
        number = text.count("\n", 0, match.start()) + 1
        found += [(number, "help", sentence) for _, sentence in sentences_of([(number, match.group(1).replace("%%", "%"))])]
    return sorted(found), len(text.splitlines())


def public_types(text):
    return PUBLIC_TYPE.findall(TEST_MODULE.sub("", text))


def types(path, text):
    """(name, whether other files can use it) of each type outside modules for tests, which imitate other code."""
    if TEST_ONLY.search(path):
        return set()
    return {(match.group(3), bool(match.group(1) or match.group(2))) for match in TYPE.finditer(TEST_MODULE.sub("", text))}


def items(text):
    """(line number, name) of each function, type, module, constant and field of a Rust file, outside its test modules."""
    text = TEST_MODULE.sub(lambda match: "\n" * match.group(0).count("\n"), text)
    found = [(text.count("\n", 0, match.end()) + 1, match.group(1) or match.group(2)) for match in ITEM_NAME.finditer(text)]
    return found + [(text.count("\n", 0, match.end()) + 1, match.group(1)) for match in FIELD_NAME.finditer(text)]


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


def configuration(text):
    """The sentences of a configuration file: comments that begin with `#`, and descriptions."""
    found, _ = by_pattern(SHELL)(text)
    for match in HELP.finditer(text):
        number = text.count("\n", 0, match.start()) + 1
        found += [(number, "help", sentence) for _, sentence in sentences_of([(number, match.group(1))])]
    return sorted(found)


CONFIGURATION = (".tf", ".tftpl", ".hcl", ".yaml", ".yml", ".toml", ".tpl", ".tmpl", ".conf", ".service", ".timer", ".nft")

# Reads a file of each suffix: text to (sentences, lines).
LANGUAGES = {
    ".rs": rust,
    ".ts": by_pattern(TYPESCRIPT),
    ".tsx": by_pattern(TYPESCRIPT),
    ".mjs": by_pattern(TYPESCRIPT),
    ".js": by_pattern(TYPESCRIPT),
    ".go": go,
    ".py": python,
    ".sh": by_pattern(SHELL),
}
