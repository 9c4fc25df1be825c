"""Says which certificates meet the name conditions of FoundationDB's rules for its peers. It verifies no chain: `Check.Valid=1`
always holds here.

    peers.py RULES FOLDER      prints each folder in FOLDER whose tls.crt meets RULES

RULES is a value of `tls-verify-peers`: rules between "|", of which one must be met, with conditions between ",". Each authority
here is a root that signs directly, so that a certificate's issuer is its root.
"""

import re
import subprocess
import sys
from pathlib import Path


def names(certificate):
    """The names of a certificate: by S (subject) and R (root), field and values."""
    shown = subprocess.run(
        ["openssl", "x509", "-noout", "-subject", "-issuer", "-ext", "subjectAltName", "-nameopt", "sep_multiline,sname", "-in", certificate],
        capture_output=True, text=True, check=True,
    ).stdout
    found, part = {}, ""
    for line in shown.splitlines():
        if line.startswith(("subject=", "issuer=", "X509v3")):
            part = {"s": "S", "i": "R", "X": "alternative"}[line[0]]
        elif part == "alternative":
            found[("S", "subjectAltName")] = [it.strip() for it in line.split(",")]
        elif match := re.match(r" +(\w+)=(.*)", line):
            found.setdefault((part, match[1]), []).append(match[2])
    return found


def is_met(condition, found):
    if condition == "Check.Valid=1":
        return True
    match = re.fullmatch(r"([SR])\.(CN|O|OU|subjectAltName)([<>]?=)(.+)", condition)
    if not match:
        sys.exit(f"peers.py: the condition {condition!r} is unknown")
    place, field, comparison, text = match.groups()
    values = found.get((place, field), [])
    if field == "subjectAltName":
        # A prefix or suffix is of the name, not of its kind.
        kind, text = text.split(":", 1)
        values = [it.removeprefix(f"{kind}:") for it in values if it.startswith(f"{kind}:")]
    elif len(values) != 1:
        return False
    compare = {"=": str.__eq__, ">=": str.startswith, "<=": str.endswith}[comparison]
    return any(compare(it, text) for it in values)


def main(rules, folder):
    for certificate in sorted(Path(folder).glob("*/tls.crt")):
        found = names(certificate)
        if any(all(is_met(it, found) for it in rule.split(",")) for rule in rules.split("|")):
            print(certificate.parent.name)


main(*sys.argv[1:])
