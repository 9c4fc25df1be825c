"""Writes rules/objectives.yaml: error ratios over several windows, and alerts on how fast they use the error budget up."""

from dataclasses import dataclass, field
from pathlib import Path

WINDOWS = ["5m", "30m", "1h", "6h", "3d"]
# Severity, long window, short window, how many times the sustainable speed, and for how long.
# One failure in a quiet hour is a large share, and no reason to wake somebody.
FAILURES_MIN = 10
BURNS = [("page", "1h", "5m", 14.4, "2m"), ("page", "6h", "30m", 6, "15m"), ("ticket", "3d", "6h", 1, "1h")]
HEAD = """\
# Written by objectives.py. Multi-window, multi-burn-rate: the long window shows that the errors matter, the short one that they
# continue. 14.4 uses 2 % of a month's budget in an hour, 6 uses 5 % in six hours, 1 uses 10 % in three days.
groups:
"""


@dataclass
class Objective:
    name: str
    alert: str
    runbook: str
    promise: str
    failure: str
    allowed: float
    # Sums of rates over [W].
    bad: list[str]
    good: list[str]
    # Failures of a single tenant's own making: counters with a broker. Somebody is paged for failures of other brokers, or if most
    # of the region fails.
    own: list[str] = field(default_factory=list)


def rate(selector):
    return f"(sum(rate({selector}[W])) or vector(0))"


WITHIN = rate('millrace_message_commit_seconds_bucket{le="0.05"}')
# Refusals that are the service's own doing: `rate` is the limit of a pod. One broker's own limit is `broker_rate`, one client's `client_rate`.
OURS = 'reason=~"busy|unavailable|store|rate|draining"'
# Drops that a limit of the server or a slow reader causes. The publisher sets `expired`, the receiver `packet_too_large`.
LOST = 'reason=~"busy_socket|queue_full|queue_memory|matching_work"'
OBJECTIVES = [
    Objective(
        "commit",
        "CommitsLate",
        "commits-late",
        "99 % of QoS 1 and 2 messages are committed, so acknowledged, within 50 ms; a message that the store refuses is late.",
        "messages are committed late or refused",
        0.01,
        [
            f"({rate('millrace_message_commit_seconds_count')} - {WITHIN})",
            rate('millrace_publishes_refused_total{reason="store"}'),
        ],
        [WITHIN],
    ),
    Objective(
        "connect",
        "ConnectsFail",
        "connects-fail",
        "99.9 % of CONNECT packets are accepted, not counting those that the client or its tenant got wrong.",
        "CONNECT packets are refused",
        0.001,
        [
            rate(f"millrace_connects_refused_total{{{OURS}}}"),
            rate('millrace_connections_refused_total{reason=~"connections_max|open_files"}'),
        ],
        [rate("millrace_connects_total")],
    ),
    Objective(
        "delivery",
        "DeliveryFails",
        "delivery-fails",
        "99.9 % of messages to subscribers are sent: a full queue, a busy socket, a limit of memory or work, or a trimmed stream loses the others.",
        "messages do not reach their subscribers",
        0.001,
        [
            rate(f"millrace_messages_dropped_total{{{LOST}}}"),
            rate("millrace_messages_missed_total"),
        ],
        [rate("millrace_messages_sent_total")],
        [f'millrace_messages_dropped_total{{{LOST}, broker!="_other"}}', 'millrace_messages_missed_total{broker!="_other"}'],
    ),
]


def record(objective, window):
    bad = " + ".join(objective.bad)
    all_ = " + ".join(objective.bad + objective.good)
    expr = f"(({bad}) / (({all_}) > 0)) or vector(0)".replace("[W]", f"[{window}]")
    return f"      - record: region:{objective.name}_errors:ratio_rate{window}\n        expr: {expr}\n"


def record_wide(objective, window):
    """Without the broker that fails most. Small brokers share a series, which stays."""
    bad = " + ".join(objective.bad)
    all_ = " + ".join(objective.bad + objective.good)
    worst = " - ".join(f"(max(sum by (broker) (rate({own}[W]))) or vector(0))" for own in objective.own)
    ratio = f"region:{objective.name}_errors:ratio_rate[W]"
    expr = f"({ratio} > 0.5) or (({bad} - {worst}) / (({all_}) > 0)) or vector(0)"
    expr = expr.replace("ratio_rate[W]", f"ratio_rate{window}").replace("[W]", f"[{window}]")
    return f"      - record: region:{objective.name}_errors_wide:ratio_rate{window}\n        expr: {expr}\n"


def record_failures(objective, window):
    bad = " + ".join(objective.bad).replace("rate(", "increase(").replace("[W]", f"[{window}]")
    return f"      - record: region:{objective.name}_errors:increase{window}\n        expr: {bad}\n"


def alert(objective, burn, of=""):
    severity, long, short, factor, wait = burn
    failures = f"region:{objective.name}_errors:increase{long} > {FAILURES_MIN}"
    over = f"region:{objective.name}_errors{of}:ratio_rate%s > {factor} * {objective.allowed}"
    but = ", not counting the worst broker" if of else ""
    return f"""\
      - alert: {objective.alert}
        expr: {over % long} and {over % short} and {failures}
        for: {wait}
        labels: {{severity: {severity}, window: {long}}}
        annotations:
          summary: "{{{{ $value | humanizePercentage }}}} of {objective.failure}{but}; {100 * objective.allowed:g} % are allowed"
          runbook_url: runbooks/{objective.runbook}.md
"""


def alerts(objective):
    if not objective.own:
        return "".join(alert(objective, burn) for burn in BURNS)
    pages = [burn for burn in BURNS if burn[0] == "page"]
    text = "".join(record_wide(objective, window) for window in WINDOWS if any(window in burn for burn in pages))
    text += "".join(alert(objective, burn, "_wide") for burn in pages)
    tickets = [("ticket", *pages[0][1:]), *(burn for burn in BURNS if burn[0] == "ticket")]
    return text + "".join(alert(objective, burn) for burn in tickets)


def render():
    text = HEAD
    for objective in OBJECTIVES:
        text += f"  - name: objective_{objective.name}\n    rules:\n      # {objective.promise}\n"
        text += "".join(record(objective, window) for window in WINDOWS)
        text += "".join(record_failures(objective, long) for _, long, *_ in BURNS)
        text += alerts(objective)
    return text


if __name__ == "__main__":
    (Path(__file__).parent / "rules/objectives.yaml").write_text(render())
