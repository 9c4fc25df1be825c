"""Whether the commands of pages can be typed today: programs, subcommands, flags, targets of make, scripts.

    commands.py MILLRACE ROOT PAGE...

It looks at code blocks and at `code` in sentences. `millrace --help` says which subcommands and flags there are.
"""

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

MILLRACE, ROOT = sys.argv[1], Path(sys.argv[2])
COMMAND = re.compile(r"(?:^|[|&;(]|\bsudo )\s*(?:sudo )?(millrace|make) ([^|&;)#]*)")
# Absolute paths are of the machine that the page sets up.
SCRIPT = re.compile(r"(?<![\w/.~-])((?:\.\./)*[\w.-][\w./-]*\.(?:sh|py))\b")


# Pages that type commands of Terraform do it where its state is: in an example, or a copy of one.
STATE = ROOT / "terraform/examples/small"


@cache
def names():
    """A sentence may name a program without its folder, which the page says elsewhere."""
    return {path.name for folder in ("dashboards", "gateway", "runbooks", "terraform") for path in (ROOT / folder).rglob("*.*")}


@cache
def help_of(*words):
    return subprocess.run([MILLRACE, *words, "--help"], capture_output=True, text=True, timeout=60).stdout


def subcommands(words):
    listed = re.search(r"^Commands:\n(.*?)(?:\n\n|\Z)", help_of(*words), re.M | re.S)
    return set(re.findall(r"^  ([a-z][\w-]*)", listed[1], re.M)) if listed else set()


def of_millrace(arguments):
    words = arguments.split()
    path = []
    while words and words[0] in subcommands(tuple(path)):
        path.append(words.pop(0))
    command = " ".join(["millrace", *path])
    if words and subcommands(tuple(path)) and not words[0].startswith("-"):
        return f"`{command}` has no command {words[0]}"
    flags = set(re.findall(r"(?<!\w)(--?[a-z][\w-]*)", help_of(*path)))
    return next((f"`{command}` has no flag {it}" for it in words
                 if it.startswith("-") and it.split("=")[0] not in flags), None)


def of_make(arguments):
    targets = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.M))
    return next((f"make has no target {it}" for it in arguments.split() if "=" not in it and it not in targets), None)


def of_page(page):
    text = page.read_text()
    blocks = re.findall(r"^ *```sh\n(.*?)^ *```", text, re.M | re.S)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    lines += re.findall(r"`([^`\n]+)`", re.sub(r"^ *```.*?^ *```", "", text, flags=re.M | re.S))
    folder = page.parent
    for line in lines:
        if moved := re.match(r"\s*cd (terraform/\S+)", line):
            folder = ROOT / moved[1]
        for program, arguments in COMMAND.findall(line):
            yield {"millrace": of_millrace, "make": of_make}[program](re.sub(r'"[^"]*"|\'[^\']*\'', "TEXT", arguments))
        for script in SCRIPT.findall(line):
            places = [folder, ROOT, page.parent, STATE]
            yield None if script in names() or any((place / script).exists() for place in places) else f"there is no {script}"


def main():
    wrong, count = [], 0
    for name in sys.argv[3:]:
        for found in of_page(ROOT / name):
            count += 1
            wrong += [f"{name}: {found}"] if found else []
    print("\n".join(wrong), file=sys.stderr, end="\n" if wrong else "")
    print(f"commands of {len(sys.argv) - 3} pages: {count} looked at, {len(wrong)} wrong")
    # A pattern that matches nothing would find nothing wrong.
    return 1 if wrong or count < 20 else 0


sys.exit(main())
