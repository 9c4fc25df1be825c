#!/usr/bin/env python3
"""Checks that metrics, dashboards, alert rules and runbooks agree. It needs no server and takes seconds; `make lint` runs it.

lint.py --write writes metrics.md from services/edge/metrics.toml. If MILLRACE names a program, its help must have all commands
of the runbooks.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import expected
import pages
import queries

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
DECLARED = ROOT / "services/edge/metrics.toml"
CODE = ["services/edge/src", "services/control/src", "services/fabric/src", "services/millrace/src", "services/telemetry/src", "storage/src"]
UNITS = {"seconds", "bytes", "ratio"}
SECTIONS = {
    "alert": ["Symptom", "First", "Meaning", "Commands", "Expected output", "Over when"],
    "operation": ["When", "Commands", "Expected output", "Over when"],
}
# Strings of the code that look like metrics: names of crates in log filters.
NO_METRICS = {"millrace_edge", "millrace_session"}
# Metrics that no panel and no rule reads, each with the reason.
UNREAD = {
    "millrace_loop_filter_edits_total": "a cost that tests of the work budget count",
    "millrace_session_scan_slices_total": "a cost that tests of the work budget count",
    "millrace_session_scans_refused_total": "the API answers such a list with an error, and its errors have a panel",
    "millrace_wills_dropped_total": "only wills of builds from before the first release",
    "millrace_wills_refused_total": "each is an incident of its broker, which the tenant sees",
    "millrace_store_last_commit_seconds": "the histogram of commits says more",
    "millrace_key_sets": "a cache with a limit; what waits for keys has a panel",
    "process_virtual_memory_bytes": "a convention of Prometheus; resident memory has a panel",
    "process_threads": "a convention of Prometheus; it is as many as at the start",
}
problems = []


def problem(where, what):
    if (text := f"{where}: {what}") not in problems:
        problems.append(text)


def declared():
    return tomllib.loads(DECLARED.read_text())["metric"]


# -- metrics.toml, by the conventions of Prometheus


def check_declaration(metrics):
    names = [metric["name"] for metric in metrics]
    for name in {name for name in names if names.count(name) > 1}:
        problem(DECLARED.name, f"{name} is declared twice")
    for metric in metrics:
        name, kind, unit = metric["name"], metric["type"], metric.get("unit")
        stem = name.removesuffix("_total")
        if kind not in ("counter", "gauge", "histogram"):
            problem(name, f"type {kind}: counter, gauge or histogram")
        if (kind == "counter") != name.endswith("_total"):
            problem(name, "counters, and nothing else, end with _total")
        if unit and (unit not in UNITS or not stem.endswith(f"_{unit}")):
            problem(name, f"its unit is {unit}: a base unit ({', '.join(sorted(UNITS))}) ends the name, before _total")
        if not unit and any(stem.endswith(f"_{word}") for word in UNITS | {"ms", "millis", "micros", "kb", "percent", "permille"}):
            problem(name, "the unit in its name is not declared, or is no base unit")
        if not metric["help"].endswith("."):
            problem(name, "its help is not a sentence")


def check_code(metrics):
    """Every metric in the code is declared with the same type, help and values of labels, and all that is declared is in the code."""
    known = {metric["name"]: metric for metric in metrics}
    found, values = set(), {}
    line = re.compile(r'(?:"(counter|gauge)"|\b(Counter|Gauge))\s+"(\w+)"\s+\[(?:"((?:[^"\\]|\\.)*)")?\]\s+"([^"]*)"')
    for path in sorted(path for folder in CODE for path in (ROOT / folder).rglob("*.rs")):
        # Tests follow the code, and may name other metrics.
        text = path.read_text().split("#[cfg(test)]")[0]
        found |= set(re.findall(r'"((?:millrace|process)_[a-z0-9_]+)"', text)) - NO_METRICS
        found |= set(re.findall(r"# TYPE (\w+) ", text))
        for name, about in re.findall(r'"(millrace_\w+)",\s*"((?:[^"\\]|\\.)+\.)"', text):
            if name in known and known[name]["help"] != about:
                problem(name, f"its help in {path.relative_to(ROOT)} is not that of {DECLARED.name}")
        for match in line.finditer(text):
            kind, name, labels, about = (match[1] or match[2]).lower(), match[3], match[4] or "", match[5]
            found.add(name)
            metric = known.get(name)
            if metric is None:
                continue
            if metric["type"] != kind:
                problem(name, f"is a {kind} in {path.relative_to(ROOT)} and a {metric['type']} in {DECLARED.name}")
            if metric["help"] != about and "foundationdb" not in path.parts:
                problem(name, f"its help in {path.relative_to(ROOT)} is not that of {DECLARED.name}")
            for label, value in re.findall(r'(\w+)=\\"([^"\\]*)\\"', labels):
                values.setdefault((name, label), set()).add(value)
                if value not in metric.get("labels", {}).get(label, []):
                    problem(name, f'{label}="{value}" of the code is not declared')
    for (name, label), counted in values.items():
        for value in sorted(set(known[name].get("labels", {}).get(label, [])) - counted):
            problem(name, f'{label}="{value}" is declared and not in the code')
    for name in sorted(found - set(known)):
        problem(name, f"is in the code and not in {DECLARED.relative_to(ROOT)}: declare it there")
    for name in sorted(set(known) - found):
        problem(name, f"is declared in {DECLARED.relative_to(ROOT)} and not in the code")


def page(metrics):
    text = f"# Metrics\n\nWritten from `{DECLARED.relative_to(ROOT)}` by `dashboards/lint.py --write`. What `/metrics` of a server has:\n"
    for part in dict.fromkeys(metric["part"] for metric in metrics):
        text += f"\n## {part.capitalize()}\n\n| metric | type | unit | labels | meaning |\n|---|---|---|---|---|\n"
        for metric in (metric for metric in metrics if metric["part"] == part):
            labels = "; ".join(
                f"`{label}`" + (": " + ", ".join(values) if values else "") for label, values in metric.get("labels", {}).items()
            )
            needs = f" Only with {metric['needs']}." if "needs" in metric else ""
            text += f"| `{metric['name']}` | {metric['type']} | {metric.get('unit', '')} | {labels} | {metric['help']}{needs} |\n"
    return text


# -- what reads metrics


def check_query(where, expr, known):
    for what in queries.unknown(expr, known):
        problem(where, what)


def boards():
    for path in sorted((HERE / "grafana/json").glob("*.json")):
        board = json.loads(path.read_text())
        for panel in board["panels"]:
            for inner in (panel, *panel.get("panels", [])):
                yield path, board, inner


def check_read(metrics):
    """Each metric is on a panel or in a rule, or UNREAD says why not."""
    asked = [target["expr"] for _, _, panel in boards() if panel["type"] != "row" for target in panel["targets"]]
    read = set(queries.WORDS.findall("\n".join([*asked, *(rule["expr"] for _, rule in rules())])))
    for metric in metrics:
        is_read = not read.isdisjoint(queries.Known([metric], set()).labels)
        if is_read == (metric["name"] in UNREAD):
            problem(metric["name"], "is read, so UNREAD must not list it" if is_read else "no panel and no rule reads it: show it, or say in UNREAD why not")


def check_boards(known):
    seen = set()
    for path, board, panel in boards():
        if panel["type"] == "row":
            continue
        where = f"{path.name}: {panel['title']}"
        if not panel.get("description") or not panel["fieldConfig"]["defaults"].get("unit"):
            problem(where, "a panel needs a description and a unit")
        for target in panel["targets"]:
            check_query(where, target["expr"], known)
        place = (path, tuple(panel["gridPos"].values()))
        if place in seen:
            problem(where, "stands where another panel does")
        seen.add(place)


def check_pictures():
    """Each dashboard's picture was drawn from its present JSON: draw.py writes down the hash."""
    folder = HERE / "grafana/pictures"
    written = folder / "drawn.json"
    drawn = json.loads(written.read_text()) if written.exists() else {}
    for path in sorted((HERE / "grafana/json").glob("*.json")):
        is_there = (folder / f"{path.stem}.png").exists()
        if not is_there or drawn.get(path.stem) != hashlib.sha256(path.read_bytes()).hexdigest():
            problem(f"{path.stem}.png", "is not of the present dashboard: make check-dashboards ARGS=--draw")


def rule_files():
    """The rules of every region, and the rules that the chart installs beside them."""
    return sorted((HERE / "prometheus").glob("rules*/*.yaml"))


def rules():
    import yaml

    for path in rule_files():
        for group in yaml.safe_load(path.read_text())["groups"]:
            yield from ((path, rule) for rule in group["rules"])


def check_rules(known):
    import yaml

    tests = [test for path in (HERE / "prometheus/tests").glob("*.yaml") for test in yaml.safe_load(path.read_text())["tests"]]
    for what in expected.untested([rule for _, rule in rules()], tests):
        problem("prometheus/tests", what)
    for path, rule in rules():
        name = rule.get("alert") or rule["record"]
        check_query(f"{path.name}: {name}", rule["expr"], known)
        if "alert" not in rule:
            continue
        if rule["labels"].get("severity") not in ("page", "ticket") and name != "Watchdog":
            problem(name, "severity: page or ticket")
        url = rule["annotations"].get("runbook_url", "")
        text = (ROOT / url).read_text() if url.startswith("runbooks/") and (ROOT / url).is_file() else ""
        if name not in text:
            problem(name, f"its runbook {url or '(none)'} does not exist or does not name it")


def check_runbooks():
    index = (ROOT / "runbooks/README.md").read_text()
    drills = {path.stem for path in (ROOT / "runbooks/drills").glob("*.py")}
    for path in sorted((ROOT / "runbooks").glob("*.md")):
        if path.stem in ("README", "threat-model"):
            continue
        text = path.read_text()
        headings = re.findall(r"^## (.*)$", text, re.M)
        if not any(headings[: len(sections)] == sections for sections in SECTIONS.values()):
            problem(path.name, f"its sections are {headings}: begin with {' or '.join(map(str, SECTIONS.values()))}")
        if f"]({path.name})" not in index:
            problem(path.name, "is not in runbooks/README.md")
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            if not (path.parent / link).exists():
                problem(path.name, f"links to {link}, which is not there")
        for drill in re.findall(r"make drill NAME=([\w-]+)", text):
            if drill.replace("-", "_") not in drills:
                problem(path.name, f"there is no drill {drill}")
    for drill in sorted(drills - {"tenants"}):
        name = drill.replace("_", "-")
        if f"`{name}`" not in index or not (ROOT / f"runbooks/transcripts/{name}.txt").exists():
            problem("runbooks/README.md", f"the drill {name} is not in it, or has no transcript: make drill NAME={name} ARGS=--write")
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", index):
        if not (ROOT / "runbooks" / link).exists():
            problem("runbooks/README.md", f"links to {link}, which is not there")


def check_commands(known):
    """The queries of pages and drills and the pages' targets of make exist, and no page calls the operator API, because `millrace` has
    commands for it."""
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.M))
    for path in sorted((ROOT / "runbooks").glob("*.md")):
        text = path.read_text()
        for expr in re.findall(r"'query=([^']*)'", text):
            check_query(path.name, expr, known)
        for asked in re.findall(r"v1/operator\S*", text):
            problem(path.name, f"calls {asked}: millrace tenants, region-plans or pods has a command for it")
        for target in re.findall(r"(?:^|`)make ([a-z0-9-]+)", text, re.M):
            if target not in targets:
                problem(path.name, f"there is no make {target}")
        text = re.sub(r"'query=[^']*'", "", text)
        for what in queries.unknown_values(text, known):
            problem(path.name, what)
    for path in sorted((ROOT / "runbooks/drills").glob("*.py")):
        for what in queries.unknown_values(path.read_text(), known):
            problem(path.name, what)


def check_names(names):
    """The pages name nothing that does not exist, and the index has the alerts that there are."""
    alerts = {rule["alert"] for _, rule in rules() if "alert" in rule}
    titles = {title for _, board, panel in boards() for title in (board["title"], panel["title"])}
    known = pages.Known(names, alerts, titles)
    texts = {path.name: path.read_text() for path in sorted((ROOT / "runbooks").glob("*.md"))}
    for name, text in texts.items():
        for what in pages.unknown(text, known):
            problem(name, what)
    listed = [alert for row in re.findall(r"^\| \[\S+ \| (\w+(?:, \w+)*) \| (?:page|ticket|none)", texts["README.md"], re.M) for alert in row.split(", ")]
    for alert in sorted(alerts ^ set(listed)):
        problem("runbooks/README.md", f"{alert} is in its table or in the rules, but not in both")
    for said in sorted(pages.SAID_BY_OTHERS - {said for said in pages.SAID_BY_OTHERS if any(said in text for text in texts.values())}):
        problem("pages.py", f'no runbook has "{said}"')


def check_program(program):
    """The pages' commands of millrace, with their options, are those of a program."""
    helps = {}

    def help_of(words):
        if words not in helps:
            said = subprocess.run([program, *words, "--help"], capture_output=True, text=True)
            helps[words] = said.stdout if said.returncode == 0 else None
        return helps[words]

    for path in sorted((ROOT / "runbooks").glob("*.md")):
        text = path.read_text().replace("\\\n", " ")
        blocks = re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S) + re.findall(r"`(millrace [^`]*)`", text)
        for line in re.findall(r"(?:^|sudo -u millrace )(millrace [^#|\n]*)", "\n".join(blocks), re.M):
            words = line.split()[1:]
            name = tuple(words[:1]) if words[:1] in (["serve"], ["backup"], ["restore"]) else ()
            for word in () if name else words:
                deeper = name + (word,)
                if not re.fullmatch(r"[a-z-]+", word) or word.startswith("-") or f"  {word} " not in (help_of(name) or ""):
                    break
                name = deeper
            if not name:
                problem(path.name, f"millrace has no command {words[0]}")
                continue
            for option in re.findall(r"(?<!\S)--[a-z-]+", line):
                if not re.search(rf"{option}\b", help_of(name) or ""):
                    problem(path.name, f"millrace {' '.join(name)} has no {option}")
    print(f"dashboards: the runbooks' commands are those of {program}")


def run(*command):
    said = subprocess.run(command, capture_output=True, text=True)
    if said.returncode:
        problem(" ".join(map(str, command[:3])), (said.stdout + said.stderr).strip())


def main():
    metrics = declared()
    written = HERE / "metrics.md"
    if "--write" in sys.argv:
        written.write_text(page(metrics))
    check_declaration(metrics)
    check_code(metrics)
    if written.read_text() != page(metrics):
        problem("metrics.md", "is not what metrics.toml says: run dashboards/lint.py --write")
    try:
        recorded = {rule["record"] for _, rule in rules() if "record" in rule}
    except ImportError:
        print("SKIPPED: dashboards and rules: run it with the Python of target/dashboards, which make lint makes")
    else:
        known = queries.Known(metrics, recorded)
        check_boards(known)
        check_read(metrics)
        # With --draw, check_dashboards.py draws the pictures after this check.
        if "--draw" not in sys.argv:
            check_pictures()
        check_rules(known)
        check_commands(known)
        check_names(set(known.labels))
        run(sys.executable, HERE / "grafana/generate.py", "--check")
    sys.path.insert(0, str(HERE / "prometheus"))
    import objectives

    if (HERE / "prometheus/rules/objectives.yaml").read_text() != objectives.render():
        problem("objectives.yaml", "is not what objectives.py writes: run it")
    check_runbooks()
    if program := os.environ.get("MILLRACE"):
        check_program(program)
    else:
        print("SKIPPED: options of millrace in the runbooks: MILLRACE names no program; make check-dashboards looks at them")
    try:
        run("promtool", "check", "rules", *rule_files())
        run("promtool", "test", "rules", *sorted((HERE / "prometheus/tests").glob("*.yaml")))
    except FileNotFoundError:
        print("SKIPPED: tests of alerting rules: there is no promtool: apt-get install prometheus")
    for text in problems:
        print(f"dashboards: {text}")
    print(f"dashboards: {len(metrics)} metrics, {len(problems)} problems")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
