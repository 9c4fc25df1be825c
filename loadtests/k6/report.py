"""The report of a run of k6 as one HTML page that needs no network: verdict, thresholds, times, counts, CPU and settings;
and the record of figures in README.md. `metrics` is what k6 measured, by the name of the metric (its --summary-export)."""

import datetime
import html
import re

STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { margin-bottom: 0; } h2 { margin-top: 2rem; font-size: 1.1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #8884; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
.passed { color: #009e73; font-weight: 600; } .failed { color: #d55e00; font-weight: 600; }
"""
STATISTICS = ["med", "p(90)", "p(99)", "p(99.9)", "max"]
# Metrics of k6's own HTTP client and virtual users, which say nothing about MQTT; and load_roles_finished, which counts roles that
# came to their end (scenarios/lib.js) and matters only as a threshold.
HIDDEN = ("vus", "vus_max", "iterations", "iteration_duration", "data_sent", "data_received", "load_roles_finished")


def milliseconds(value):
    return f"{value:,.3g} ms" if value < 100 else f"{value:,.0f} ms"


def count(value):
    return f"{value:,.0f}"


def is_trend(metric):
    return "med" in metric


def measured(metric, expression):
    """The value that a threshold such as p(99)<1000 is about."""
    value = metric.get(re.match(r"[\w().]+", expression)[0], metric.get("value"))
    if value is None:
        return ""
    return milliseconds(value) if is_trend(metric) else f"{value:,.4g}"


def rows(cells, numbers_from=1):
    """Escapes each text but the verdicts of this file, which begin with <span."""
    def cell(place, text):
        kind = ' class="number"' if place >= numbers_from else ""
        return f"<td{kind}>{text if text.startswith('<span') else html.escape(text)}</td>"

    return "".join("<tr>" + "".join(cell(place, text) for place, text in enumerate(row)) + "</tr>\n" for row in cells)


def table(heads, cells, numbers_from=1):
    classes = ["" if place < numbers_from else ' class="number"' for place in range(len(heads))]
    head = "".join(f"<th{kind}>{html.escape(text)}</th>" for kind, text in zip(classes, heads))
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{rows(cells, numbers_from)}</tbody></table>\n"


def thresholds(metrics):
    """A row for each threshold; k6 says true of those that were crossed."""
    for name, metric in sorted(metrics.items()):
        for expression, is_crossed in metric.get("thresholds", {}).items():
            verdict = '<span class="failed">crossed</span>' if is_crossed else '<span class="passed">held</span>'
            yield [name, expression, measured(metric, expression), verdict]


def beside_record(slow):
    """A section with the verdicts of slowdown.py, which compares a run with the record of a quiet machine (quiet.json)."""
    cells = [
        [name, "missing" if value is None else f"{value:g}", f"{before:g}", "" if ratio is None else f"{ratio:.2f}",
         '<span class="failed">too slow</span>' if is_slow else '<span class="passed">held</span>']
        for name, value, before, ratio, is_slow in slow
    ]
    return ["<h2>Beside the record of a quiet machine</h2>", table(["figure", "measured", "record", "ratio", "verdict"], cells)] if cells else []


def recorded(scenario, metrics, figures):
    """A row of a Markdown table: each threshold of a run with its measured value, and the figures that later runs are compared with."""
    held = [
        f"`{name}` {expression}: {value}{' **CROSSED**' if 'crossed' in verdict else ''}"
        for name, expression, value, verdict in thresholds(metrics) if name != "load_roles_finished"
    ]
    yield f"| `{scenario}` | {'<br>'.join(held)} | " + "<br>".join(f"{name}: {value:g}" for name, value in figures.items()) + " |"


RECORD = re.compile(r"(<!-- record -->\n).*?(<!-- end of the record -->)", re.S)


def inserted(text, made, lines):
    """The text of README.md with these lines of `recorded` in place of its record; `made` says when and where they were measured."""
    head = (f"{made['date']}, server of commit {made['commit']}, {made['cpus']} CPUs, load average {made['load_average']:g} before the runs.\n\n"
            "| scenario | thresholds with the measured value | figures that a record has |\n|---|---|---|\n")
    return RECORD.sub(lambda found: found[1] + head + "".join(f"{line}\n" for line in lines) + found[2], text)


def page(scenario, code, metrics, used, settings, graphs, slow=()):
    """`used` is the CPU that a message cost, where the server is this machine's own; `graphs` is k6's page of the run over time;
    `slow` has the rows of slowdown.py."""
    shown = {name: metric for name, metric in sorted(metrics.items()) if name not in HIDDEN and "{" not in name}
    trends = [[name, *(milliseconds(metric[one]) if one in metric else "" for one in STATISTICS)] for name, metric in shown.items() if is_trend(metric)]
    counts = [[name, count(metric["count"]), f"{metric['rate']:,.1f}/s"] for name, metric in shown.items() if "count" in metric and not is_trend(metric)]
    verdict = '<span class="passed">passed</span>' if code == 0 else f'<span class="failed">failed (k6 exit code {code})</span>'
    parts = [
        f"<h1>{html.escape(scenario)}</h1><p>{datetime.datetime.now():%Y-%m-%d %H:%M} · {verdict} · "
        f'<a href="{html.escape(graphs)}">k6\'s graphs over time</a></p>',
        "<h2>Thresholds</h2>", table(["metric", "threshold", "measured", "verdict"], thresholds(metrics), 2),
        *beside_record(slow),
        "<h2>Times</h2>", table(["metric", *STATISTICS], trends),
        "<h2>Counts</h2>", table(["metric", "all", "rate"], counts),
    ]
    if used:
        parts += ["<h2>Cost</h2>", table(["what", "value"], [[name.replace("_", " "), f"{value:,}"] for name, value in used.items()])]
    if settings:
        parts += ["<h2>Settings</h2>", table(["variable", "value"], sorted(settings.items()))]
    return (f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
            f"<title>{html.escape(scenario)}: load test</title><style>{STYLE}</style>\n" + "\n".join(parts) + "</html>\n")
