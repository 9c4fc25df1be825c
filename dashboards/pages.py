"""Checks that all names in a runbook exist: metrics, alerts, dashboards, log messages, settings, limits, routes, systemd units.

`Known` reads the names from the sources, and `unknown` compares a page with them. lint.py runs it, and gives the names of series, alerts
and titles of dashboards; test_pages.py has examples.
"""

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Messages of other programs. lint.py reports a message that no page quotes any more.
SAID_BY_OTHERS = {
    "No space left on device",  # the kernel
    "Performance limited by",  # fdbcli
    "Replication health - Healthy",
    "Fault Tolerance - 1 machines",
    "Fault Tolerance - 0 zones",
    "The database is available",
    "Server available",  # the collector
}
# Names of other programs: of fdbcli, iostat, openssl and tracing's levels.
NAMES_OF_OTHERS = {
    "f_await", "w_await", "log_server_write_queue", "storage_server_write_queue_size", "recovery_state", "s_client", "ERROR", "panic",
}
# Identifiers that look like names of alerts.
PROPER_NAMES = {"FoundationDB", "QoS", "KiB", "MiB", "ChaCha20"}


def sources(folders, *patterns):
    for folder in folders:
        for pattern in patterns:
            yield from (ROOT / folder).rglob(pattern)


def rust():
    for path in sources(["services", "storage"], "*.rs"):
        if "src" in path.parts and path.name != "tests.rs" and "tests" not in path.parts:
            text = path.read_text().split("#[cfg(test)]")[0]
            yield re.sub(r"\\\n\s*", "", re.sub(r"^\s*//.*$", "", text, flags=re.M))


class Known:
    def __init__(self, series, alerts, titles):
        self.series, self.alerts, self.titles = series, alerts, titles
        code = "\n".join(rust())
        self.said = code
        others = [*sources(["gateway", "dashboards/collector", "dashboards/prometheus", "runbooks/drills", "terraform/modules"], "*.*"), ROOT / "Makefile"]
        others += [*(ROOT / "dashboards").glob("*.py"), *(ROOT / "dashboards/grafana/json").glob("*.json"), ROOT / "services/edge/metrics.toml"]
        texts = [path.read_text(errors="ignore") for path in others if path.is_file() and path.name not in ("pages.py", "test_pages.py")]
        api = json.loads((ROOT / "services/control/openapi.json").read_text())
        self.words = set(re.findall(r"\w+", "\n".join([code, *texts, json.dumps(api["components"])])))
        self.routes = [(re.sub(r"\{\w+\}", r"\\w+", path), {method.upper() for method in methods}) for path, methods in api["paths"].items()]
        files = [*others, *sources(["services/millrace/packaging"], "*.service")]
        self.units = set(re.findall(r"([a-z-]+)\.(?:service|timer)", "\n".join([*texts, *(path.name for path in files)])))

    def says(self, text):
        """Whether the code has this message. Numbers and names in capitals stand for values that the server fills in."""
        parts = re.split(r"\b([A-Z]+|\d+)\b", text)
        filled = [rf"(?:{part}|\{{[^{{}}\n]*\}})" if place % 2 else re.escape(part) for place, part in enumerate(parts)]
        return re.search("".join(filled), self.said) is not None

    def serves(self, method, path):
        """The end of a route is enough."""
        asked = re.sub(r"\{\w+\}", "NAME", path)
        ends = [("/".join(route.split("/")[-asked.count("/") :]), methods) for route, methods in self.routes]
        return any(method in methods and re.fullmatch(f"/{end}", asked) for end, methods in ends)


def unknown(page, known):
    """Yields a sentence for each name of a page that nothing has."""
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.M | re.S)
    prose = re.sub(r"^```.*?^```", "", page, flags=re.M | re.S)
    spans = re.findall(r"`([^`]+)`", prose)
    plain = re.sub(r"`[^`]+`", "", prose)
    comments = "\n".join(re.findall(r"\s# (.*)$", "\n".join(blocks), re.M))
    commands = "\n".join([*blocks, *spans])

    for quoted in re.findall(r'"([^"]*)"', f"{plain}\n{comments}"):
        quoted = " ".join(quoted.split())
        if " " in quoted and quoted not in known.titles | SAID_BY_OTHERS and not known.says(quoted):
            yield f'nothing says "{quoted}"'
    for patterns in re.findall(r"journalctl -u millrace\b[^|\n]*\| grep (?:-\w+ )*('[^']*'|\S+)", commands):
        for pattern in patterns.strip("'").split("|"):
            if pattern.lower() not in known.said.lower() and pattern not in NAMES_OF_OTHERS:
                yield f'no line of the log has "{pattern}"'
    for name in re.findall(r"(?<!:)\b(?:millrace|process)_[a-z0-9_]+\b(?!:)", commands):
        if name not in known.series:
            yield f"there is no metric {name}"
    for span in spans:
        name = re.fullmatch(r"(\w+)(?:\{.*\})?", span)
        if name and "_" in span and name[1] not in known.words | known.series | NAMES_OF_OTHERS:
            yield f"nothing is called {name[1]}"
    for name in re.findall(r"\b(?:GATEWAY|MILLRACE|OBSERVE)_[A-Z_]+\b", commands):
        if name not in known.words and name.removeprefix("MILLRACE_").lower() not in known.words:
            yield f"nothing reads {name}"
    for name in re.findall(r"\b(?:broker|client)\.([a-z_]+)=", commands):
        if name not in known.words:
            yield f"there is no limit {name}"
    for method, path in re.findall(r"\b(GET|PUT|POST|DELETE) \.\.\.(/[^\s`?]*)", commands):
        if not known.serves(method, path):
            yield f"the API has no {method} {path}"
    for unit in re.findall(r"(?:systemctl [a-z]+|journalctl -u) ([a-z][a-z-]*)", commands):
        if unit not in known.units:
            yield f"there is no unit {unit}"
    for name in re.findall(r"\b[A-Z][a-z]+[A-Z]\w*\b", plain):
        if name not in known.alerts | PROPER_NAMES:
            yield f"there is no alert {name}"
