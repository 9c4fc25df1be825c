"""Says which values of the chart have no effect: each one is changed, and the chart is rendered again.

    values.py HELM CHART KUBERNETES_VERSION CLUSTER_FILE

A value that the chart refuses has an effect, too.
"""

import concurrent.futures
import copy
import functools
import json
import subprocess
import sys
from pathlib import Path

import yaml

HELM, CHART, VERSION, CLUSTER_FILE = sys.argv[1:]
# All options are on, so that each value has an effect.
ON = {
    "pullSecrets": [{"name": "registry"}],
    "secretKey": {"secretName": "key"},
    "control": {"ingress": {"enabled": True}, "proxies": ["10.244.0.0/16"], "files": {"secretName": "files"}},
    "gateway": {"service": {"sourceRanges": ["192.0.2.0/24"]}},
    "foundationdb": {
        "verifyPeers": "Check.Valid=1,S.CN=foundationdb",
        "external": {"clusterFile": CLUSTER_FILE},
        "backup": {"url": "blobstore://@s3.example.org/millrace?bucket=b", "image": {"tag": "7.4.6"}},
    },
    "telemetry": {"serviceMonitors": True, "rules": True, "runbooksUrl": "https://git.example.org/runbooks", "otlpEndpoint": "http://collector:4318"},
}
# Values whose effect depends on another value.
BESIDE = {
    "foundationdb.operator": {"foundationdb": {"mode": "operator"}},
    # The chart's collector stands in place of otlpEndpoint.
    "telemetry.collector.enabled": {"telemetry": {"otlpEndpoint": ""}},
    "telemetry.collector.": {"telemetry": {"otlpEndpoint": "", "collector": {"enabled": True}}},
    "nats.urls": {"nats": {"enabled": False}},
    "nats.to": {"nats": {"enabled": False, "urls": ["tls://nats.example.org"]}},
    "control.mailTo": {"control": {"settings": {"smtp_host": "smtp.example.org"}}},
    "migration.": {"stopped": True, "migration": {"claim": "move"}},
}


def merged(below, above):
    below = copy.deepcopy(below)
    for name, value in above.items():
        below[name] = merged(below[name], value) if isinstance(value, dict) and isinstance(below.get(name), dict) else value
    return below


def leaves(values, path=()):
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*path, name))
        else:
            yield (*path, name), value


def other(value):
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    if isinstance(value, list):
        return [*value, {"name": "x"}] if value and isinstance(value[0], dict) else [*value, "10.9.0.0/16"]
    if isinstance(value, dict):
        return {"x": "y"}
    return f"{value}x"


def at(path, value):
    for name in reversed(path):
        value = {name: value}
    return value


@functools.cache
def render(values):
    command = [HELM, "template", "region", CHART, "--kube-version", VERSION, "--values", "-"]
    done = subprocess.run(command, input=values, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else "refused"


def has_effect(path, value):
    name = ".".join(path)
    values = merged(ON, next((it for prefix, it in BESIDE.items() if name.startswith(prefix)), {}))
    return render(json.dumps(values)) != render(json.dumps(merged(values, at(path, other(value)))))


def main():
    defaults = yaml.safe_load(Path(CHART, "values.yaml").read_text())
    known = list(leaves(merged(defaults, ON)))
    assert render(json.dumps(ON)) != "refused", "the chart refuses the values that turn everything on"
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        effects = list(pool.map(lambda leaf: has_effect(*leaf), known))
    dead = [".".join(path) for (path, _), effect in zip(known, effects) if not effect]
    print(f"values with an effect: {len(known) - len(dead)} of {len(known)}")
    if dead:
        print(f"these values have no effect: {', '.join(dead)}", file=sys.stderr)
    return 1 if dead else 0


sys.exit(main())
