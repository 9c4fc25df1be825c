"""Asks a kube-apiserver about every object of the chart, and about mistakes that it must refuse.

    objects.py MANIFEST SERVER TOKEN

Nothing is stored: every request is a dry run with strict validation of fields. The namespace `strict`, which
kubernetes.sh makes, takes restricted pods only.
"""

import copy
import json
import ssl
import sys
import urllib.error
import urllib.request

import yaml

MANIFEST, SERVER, TOKEN = sys.argv[1:]
CONTEXT = ssl._create_unverified_context()

# A kind, where the mistake goes, and what the server's refusal must name.
MISTAKES = [
    ("StatefulSet", "spec.template.spec", {"terminationGracePeriodSecs": 30}, "terminationGracePeriodSecs"),
    ("StatefulSet", "spec.template.spec.topologySpreadConstraints.0", {"topologyKeys": "zone"}, "topologyKeys"),
    ("StatefulSet", "spec.template.spec.topologySpreadConstraints.0", {"whenUnsatisfiable": "Maybe"}, "whenUnsatisfiable"),
    ("StatefulSet", "spec.template.spec.containers.0", {"lifecycle": {"preStop": {}}}, "preStop"),
    ("PodDisruptionBudget", "spec", {"maxUnavailible": 1}, "maxUnavailible"),
    ("PodDisruptionBudget", "spec", {"minAvailable": 1}, "minAvailable and maxUnavailable"),
    ("HorizontalPodAutoscaler", "spec", {"maxReplica": 9}, "maxReplica"),
    ("HorizontalPodAutoscaler", "spec", {"maxReplicas": 1}, "maxReplicas"),
    ("NetworkPolicy", "spec", {"policyTypes": ["Both"]}, "policyTypes"),
]
# Without one of these the chart would not do what its page says.
NEEDED = {"StatefulSet", "Deployment", "Service", "PodDisruptionBudget", "HorizontalPodAutoscaler", "NetworkPolicy", "ConfigMap"}


def ask(path, body=None):
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(SERVER + path, data=data, headers=headers)
    with urllib.request.urlopen(request, context=CONTEXT, timeout=60) as answer:
        return json.load(answer)


def folder(document, known={}):
    """The path of a kind's objects, as the server itself lists it."""
    version = document["apiVersion"]
    base = f"/apis/{version}" if "/" in version else f"/api/{version}"
    if base not in known:
        known[base] = {it["kind"]: it["name"] for it in ask(base)["resources"] if "/" not in it["name"]}
    return f"{base}/namespaces/default/{known[base][document['kind']]}"


def refusal(document, namespace="default"):
    """The reason why the server does not take an object, or None."""
    path = folder(document).replace("/namespaces/default/", f"/namespaces/{namespace}/")
    try:
        ask(f"{path}?dryRun=All&fieldValidation=Strict", document)
    except urllib.error.HTTPError as error:
        return json.loads(error.read())["message"]
    return None


def mistaken(document, path, change):
    document = copy.deepcopy(document)
    at = document
    for part in path.split("."):
        at = at[int(part) if part.isdigit() else part]
    at.update(change)
    return document


def main():
    documents = [it for it in yaml.safe_load_all(open(MANIFEST)) if it]
    wrong = [f"there is no {kind} in the chart" for kind in sorted(NEEDED - {it["kind"] for it in documents})]
    for document in documents:
        name = f"{document['kind']} {document['metadata']['name']}"
        if reason := refusal(document):
            wrong.append(f"{name} is refused: {reason}")
        if document["kind"] in ("Deployment", "StatefulSet"):
            spec = document["spec"]["template"]["spec"]
            if not spec.get("topologySpreadConstraints"):
                wrong.append(f"{name} has no topologySpreadConstraints")
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": document["metadata"]["name"]}, "spec": spec}
            if reason := refusal(pod, "strict"):
                wrong.append(f"{name} breaks the restricted pod security standard: {reason}")
    print(f"taken by the API server: {len(documents)} objects; their pods also where only restricted ones are allowed")
    for kind, path, change, expected in MISTAKES:
        document = next(it for it in documents if it["kind"] == kind)
        reason = refusal(mistaken(document, path, change))
        if reason is None or expected not in reason:
            wrong.append(f"NOT CAUGHT: {kind} with {change} at {path}: {reason}")
        else:
            print(f"caught by the API server: {kind} with {json.dumps(change)}")
    print("\n".join(wrong), file=sys.stderr, end="\n" if wrong else "")
    return 1 if wrong else 0


sys.exit(main())
