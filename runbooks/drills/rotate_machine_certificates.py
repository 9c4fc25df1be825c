"""A certificate between the machines of a region ends soon; secrets.sh makes it again by the same authority."""

import json
import sys
from pathlib import Path
from unittest import mock

from observe import HERE

BOOT = HERE.parent / "terraform/modules/machine/boot"
SECRETS = HERE.parent / "terraform/secrets.sh"
# The drill divides the three weeks of the rule, too, so a day is left where a region would have twelve.
SHORT = (
    "openssl x509 -req -in <(openssl req -new -key secrets/nats/tls.key -subj /O=Millrace/CN=nats) -CA secrets/ca.crt -CAkey secrets/ca.key "
    "-CAcreateserial -days 1 -out secrets/nats/tls.crt 2>/dev/null && openssl x509 -in secrets/nats/tls.crt -noout -enddate"
)
LEFT = "(x509_cert_not_after - time()) / 86400"


def run(drill):
    sys.path.insert(0, str(BOOT))
    # The program of the machines reads their settings at its start. None of them is needed here.
    with mock.patch.object(Path, "read_text", return_value='{"region": "drill", "endpoint": null}'):
        import boot

    boot.METRICS = drill.folder / "boot/metrics"
    drill.node_exporter_flags = ["--collector.textfile", f"--collector.textfile.directory={boot.METRICS}"]
    files = [drill.folder / f"secrets/{role}/tls.crt" for role in ("nats", "foundationdb", "edge")]

    def fetch():
        """A machine fetches its secret, and boot.py writes when the certificates end."""
        boot.show_ends({f"/etc/millrace/secrets/{path.parent.name}/tls.crt": path.read_text() for path in files})

    region = json.dumps({"nats_addresses": ["10.0.1.5", "10.0.2.5", "10.0.3.5"], "domain": "mqtt.example"})
    (drill.folder / "region.json").write_text(region)
    make = f"{SECRETS} make secrets --self-signed <region.json"
    drill.run(make)
    drill.run(SHORT)
    drill.say("FAULT the certificate of the NATS servers ends in a day")
    fetch()
    drill.server()
    drill.until_value(LEFT, lambda values: len(values) == 3)
    drill.fires("MachineCertificateExpires")
    drill.query(LEFT)
    drill.say("ACT   make again what ends within 400 days, and have the machine fetch it")
    said = drill.run(make)
    drill.check("the other certificates stay", said.strip() == "makes the certificate of nats")
    drill.run("openssl verify -CAfile secrets/ca.crt secrets/nats/tls.crt && openssl x509 -in secrets/nats/tls.crt -noout -enddate")
    fetch()
    drill.ends("MachineCertificateExpires")
    drill.until_value(LEFT, lambda values: len(values) == 3 and min(values) > 400)
