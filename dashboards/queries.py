"""Checks that a query names only series, labels and label values that metrics.toml declares, and series that a rule records.

lint.py reads the declarations and gives it the queries of rules, panels and runbooks; test_queries.py has examples. It knows no metric
of other programs.
"""

import re

# A quoted value may have braces and parentheses in it.
QUOTED = r'"(?:[^"\\]|\\.)*"'
SELECTOR = re.compile(rf"\b((?:millrace|process)_[a-z0-9_]+)\{{((?:[^\"{{}}]|{QUOTED})*)\}}")
MATCHER = re.compile(rf"(\w+)\s*(=~|!~|!=|=)\s*({QUOTED})")
WORDS = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
GROUPED = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
# Labels that the scrape adds.
SCRAPED = {"job", "instance"}


class Known:
    """Declared metrics, by the names of their series: a histogram has three."""

    def __init__(self, metrics, recorded):
        self.labels, self.recorded = {}, recorded
        for metric in metrics:
            labels = metric.get("labels", {})
            if metric["type"] == "histogram":
                self.labels |= {f"{metric['name']}_{suffix}": labels for suffix in ("sum", "count")}
                self.labels[f"{metric['name']}_bucket"] = labels | {"le": []}
            else:
                self.labels[metric["name"]] = labels


def unknown(expr, known):
    """Yields a sentence for each name and each value of a query that nothing has."""
    bare = re.sub(QUOTED, "", expr)
    words = WORDS.findall(bare)
    series = [word for word in words if word.startswith(("millrace_", "process_"))]
    for word in series:
        if word not in known.labels:
            yield f"{word} is not declared in services/edge/metrics.toml"
    for word in words:
        if word.count(":") == 2 and word not in known.recorded:
            yield f"no rule records {word}"
    yield from unknown_values(expr, known)
    if series and all(word in known.labels for word in series):
        labels = SCRAPED.union(*(known.labels[word] for word in series))
        grouped = {label.strip() for group in GROUPED.findall(bare) for label in group.split(",") if label.strip()}
        # A series of another program or of a rule, beside ours, has labels that are not known here.
        if not re.search(r"\b(?:envoy|nats|foundationdb|node)_|\w:\w|\bup\b", bare):
            yield from (f"{', '.join(sorted(set(series)))} has no label {label}" for label in sorted(grouped - labels))


def unknown_values(text, known):
    """The same for the selectors alone, such as `name{label="value"}` in the text of a page."""
    for name, matchers in SELECTOR.findall(text):
        labels = known.labels.get(name)
        for label, how, quoted in MATCHER.findall(matchers) if labels is not None else []:
            values = labels.get(label)
            if values is None and label not in SCRAPED:
                yield f"{name} has no label {label}"
            for value in asked(quoted[1:-1], how) if values else []:
                if not matches(value, how, values):
                    yield f'{name} has no {label}="{value}"'


def asked(value, how):
    """The values that a matcher asks for. Grafana fills in those with a dollar."""
    parts = value.split("|") if how.endswith("~") and not re.search(r"[()\[]", value) else [value]
    return [part for part in parts if "$" not in part and part]


def matches(value, how, values):
    if how.endswith("~"):
        return any(re.fullmatch(value, one) for one in values)
    return value in values
