#!/usr/bin/env python3
"""Types the commands of the alerts' pages into a shell, as written, beside a server and Prometheus: `make check-runbooks`.

Everything runs in namespaces of its own, with /etc and /var/lib of its own, so that ports and paths are as on the pages. Placeholders
such as NAME become names of a tenant that this program makes. A command must end with 0, and a query must be accepted. Programs that
need systemd, FoundationDB, NATS or Envoy are not tried: TRIED_BY_NOBODY. `make test` runs it, so it ends with SKIPPED and 0 where it cannot run.

    runbooks/typed.py [PAGE...]
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "dashboards"), str(HERE / "drills")]
from observe import Missing, program, until  # noqa: E402
from stage import Part, alone, get, millrace  # noqa: E402
from tenants import Tenant  # noqa: E402

TRIED_BY_NOBODY = {
    "systemctl", "journalctl", "fdbcli", "fdbbackup", "chronyc", "timedatectl", "iostat", "iotop", "dmesg", "smartctl", "apt-get", "make", "kubectl",
    "millrace-boot", "nats-server", "terraform", "helm", "aws",
}
# Hosts of parts that are not here, and pages that are not of a server.
ELSEWHERE = re.compile(r"http://(NATS|GATEWAY)\b|\bFOLDER\b|127\.0\.0\.1:(13133|8889|7777|9093)\b|example\.org|/run/millrace-gateway|/mnt/")
COMMAND_SECONDS_MAX = 60
PROMETHEUS = """
global: { scrape_interval: 1s, evaluation_interval: 1s }
rule_files: [ %s/*.yaml ]
scrape_configs:
- { job_name: millrace, static_configs: [ { targets: [ "127.0.0.1:8090" ] } ] }
"""
SHELL = """
typed() {
  eval "$1" </dev/null >"$OUT" 2>&1
  printf '%s\\n' "$?" >"$CODE"
}
"""


def mount(*arguments):
    said = subprocess.run(["mount", *arguments], capture_output=True, text=True)
    if said.returncode:
        raise Missing(f"folders of its own need the right to mount: {said.stderr.strip()}")


@contextlib.contextmanager
def own_folders(folder):
    """A copy of /etc that may change, an empty /var/lib, and a home."""
    own = folder / "own"
    own.mkdir()
    mount("-t", "tmpfs", "tmpfs", own)
    for name in ("etc", "work", "lib", "home"):
        (own / name).mkdir()
    mount("-t", "overlay", "overlay", "-o", f"lowerdir=/etc,upperdir={own}/etc,workdir={own}/work", "/etc")
    mount("--bind", own / "lib", "/var/lib")
    os.environ["HOME"] = str(own / "home")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", "/var/lib", "/etc", own], check=True)


def settings():
    """Makes the files that the Debian package and the pages begin with: settings, the operators' token, certificates, the folder of backups."""
    for name, to in (("tls", "/etc/millrace/tls"), ("new", f"{os.environ['HOME']}/new")):
        subprocess.run([millrace(), "dev-certs", "--out", to, "--host", "acme.mqtt.example"], check=True, capture_output=True)
    for kind in ("crt", "key"):
        Path(f"{os.environ['HOME']}/new/tls.{kind}").rename(f"{os.environ['HOME']}/new.{kind}")
    secrets = Path("/etc/millrace/secrets")
    secrets.mkdir()
    token = secrets / "operator-token"
    token.write_text("a-token-of-the-operators-that-nobody-knows\n")
    token.chmod(0o600)
    Path("/var/lib/millrace-backups").mkdir()
    Path("/etc/millrace/millrace.toml").write_text(
        'data_dir = "/var/lib/millrace"\nsign_up = "anybody"\nws_listen = "off"\nmetrics_brokers_max = 20\ntls_dir = "/etc/millrace/tls"\n'
        'operator_token_file = "/etc/millrace/secrets/operator-token"\n'
    )


def stubs(folder):
    """`sudo` that runs the command as it is, because the data is this user's."""
    sudo = folder / "bin/sudo"
    sudo.parent.mkdir()
    sudo.write_text('#!/bin/sh\n[ "$1" != -u ] || shift 2\nexec "$@"\n')
    sudo.chmod(0o755)
    return f"{sudo.parent}:{millrace().parent}:{os.environ['PATH']}:/usr/sbin"


def pages():
    """The alerts' pages."""
    table = (HERE / "README.md").read_text().partition("## Alerts")[2].partition("## Operations")[0]
    return re.findall(r"^\| \[([\w-]+\.md)\]", table, re.M)


def commands(page):
    """The lines of the page's blocks; a line that ends with a backslash continues."""
    for block in re.findall(r"^```sh\n(.*?)^```", (HERE / page).read_text(), re.M | re.S):
        yield from (line for line in block.replace("\\\n", " ").splitlines() if line.strip())


def is_elsewhere(line):
    command = re.sub(r"\bsudo (-u \w+ )?", "", line.partition(" #")[0])
    words = set(re.findall(r"(?:^|[|;&(])\s*([\w-]+)", command))
    return bool(words & TRIED_BY_NOBODY) or bool(ELSEWHERE.search(line))


class Shell:
    """One shell of an operator, in which variables stay."""

    def __init__(self, folder, path):
        self.out, self.code = folder / "out", folder / "code"
        environment = os.environ | {"PATH": path, "OUT": str(self.out), "CODE": str(self.code)}
        self.bash = subprocess.Popen(["bash"], stdin=subprocess.PIPE, text=True, env=environment, cwd=folder)
        self.write(SHELL)

    def write(self, text):
        self.bash.stdin.write(text)
        self.bash.stdin.flush()

    def type(self, line):
        """The exit code and the output. A command that asks for a terminal first is typed again with the flag that it names."""
        code, said = self.once(line)
        if "add --yes" in said:
            command, mark, comment = line.partition(" #")
            code, said = self.once(f"{command.rstrip()} --yes{mark}{comment}")
        return code, said

    def once(self, line):
        self.code.unlink(missing_ok=True)
        quoted = line.replace("'", "'\\''")
        self.write(f"typed '{quoted}'\n")
        until(lambda: self.code.exists() and self.code.read_text().endswith("\n"), f"no end of: {line}", COMMAND_SECONDS_MAX)
        return int(self.code.read_text()), self.out.read_text(errors="replace")

    def leave(self):
        self.bash.stdin.close()
        self.bash.wait()


def wrong(line, code, said):
    """Says why a result is not the one that an operator expects, or None."""
    if code:
        return f"exit code {code}: {said.strip()[-400:]}"
    if not line.startswith("curl") or "/metrics" in line or "/healthz" in line or not said.strip():
        return None
    try:
        answer = json.loads(said)
    except ValueError:
        return f"the answer is no JSON: {said[:200]}"
    if "query=" in line and answer.get("status") != "success":
        return f"Prometheus refuses the query: {said[:200]}"
    return None


class Region:
    """A server with a tenant, whose broker has a persistent client, a webhook and a loud publisher."""

    def __init__(self, folder):
        self.parts = [Part("millrace", folder / "millrace.log", [millrace(), "serve", "--config", "/etc/millrace/millrace.toml"])]
        until(self.is_well, "millrace is not well")
        prometheus = folder / "prometheus.yml"
        prometheus.write_text(PROMETHEUS % (HERE.parent / "dashboards/prometheus/rules"))
        self.parts.append(Part("prometheus", folder / "prometheus.log", [
            program("prometheus", how="apt-get install prometheus"), f"--config.file={prometheus}", f"--storage.tsdb.path={folder}/tsdb",
            "--web.listen-address=127.0.0.1:9090"]))
        tenant = Tenant("ann")
        tenant.log_in()
        broker = tenant.broker("Plant 7")
        user, secret = tenant.device(broker, "pump-7")
        tenant.ask(f"/organisations/{tenant.organisation}/brokers/{broker}/webhooks/hook", {"url": "https://hooks.example/", "events": ["connect"]}, "PUT")
        self.login = ["-u", user, "-P", secret, "-q", "1"]
        # Two more sessions, because a page ends one each.
        for name in ("pump-8", "pump-9"):
            subprocess.run(["mosquitto_sub", "-c", "-i", name, "-t", "plant/#", "-E", *self.login], check=True)
        subprocess.run(["mosquitto_pub", "-t", "plant/a", "-m", "21.5", *self.login], check=True)
        until(self.is_scraped, "Prometheus does not reach the server", 60)
        pod = json.loads(subprocess.check_output(
            [millrace(), "pods", "show", "--json", "--operator-token-file", "/etc/millrace/secrets/operator-token"]))["name"]
        self.names = {"NAME": broker, "ID": tenant.organisation, "POD": "127.0.0.1", "HOOK": "hook", "WEBHOOK": "hook", "POD_NAME": pod}

    def connected(self):
        """Connects pump-7, unless it is: a page may have refused it."""
        if not self.parts[2:] or self.parts[-1].process.poll() is not None:
            log = self.parts[0].log.with_name("pump-7.log")
            del self.parts[2:]
            self.parts.append(Part("pump-7", log, ["mosquitto_sub", "-c", "-i", "pump-7", "-t", "plant/#", *self.login]))
        listing = [millrace(), "clients", "list", "--broker", self.names["NAME"]]
        until(lambda: b"pump-7" in subprocess.run(listing, capture_output=True).stdout, "pump-7 does not connect", COMMAND_SECONDS_MAX)

    @staticmethod
    def is_well():
        try:
            return get("http://127.0.0.1:8080/healthz")
        except OSError:
            return False

    @staticmethod
    def is_scraped():
        # Prometheus may not listen yet.
        try:
            return json.loads(get("http://127.0.0.1:9090/api/v1/query?query=up%3D%3D1"))["data"]["result"]
        except OSError:
            return False

    def filled(self, line, page):
        # Each page ends a session of its own.
        client = {"connects-fail.md": "pump-8", "store-nearly-full.md": "pump-9"}.get(page, "pump-7")
        line = re.sub(r"\bpump-7\b", client, line)
        return re.sub(r"\b(CLIENT|" + "|".join(self.names) + r")\b", lambda found: {"CLIENT": client, **self.names}[found[1]], line)

    def stop(self):
        for part in reversed(self.parts):
            part.stop()


def main():
    alone()
    chosen = sys.argv[1:] or pages()
    for name in ("mosquitto_sub", "mosquitto_pub"):
        program(name, how="apt-get install mosquitto-clients")
    with tempfile.TemporaryDirectory() as name, own_folders(Path(name)):
        folder = Path(name)
        settings()
        path = stubs(folder)
        region = Region(folder)
        typed = left_out = failed = 0
        try:
            for page in chosen:
                region.connected()
                shell = Shell(folder, path)
                for line in commands("README.md"):
                    shell.type(line)
                for line in commands(page):
                    if is_elsewhere(line):
                        left_out += 1
                        continue
                    typed += 1
                    if found := wrong(line, *shell.type(region.filled(line, page))):
                        failed += 1
                        print(f"FAILED: {page}: {line.strip()}\n    {found}", flush=True)
                shell.leave()
        finally:
            region.stop()
    print(f"typed: {typed - failed} passed, {failed} failed, {left_out} skipped")
    return 1 if failed or not typed else 0


if __name__ == "__main__":
    began = time.monotonic()
    try:
        code = main()
    except Missing as missing:
        print(f"SKIPPED: the commands of the runbooks: {missing}")
        sys.exit(0)
    print(f"{time.monotonic() - began:.0f} s")
    sys.exit(code)
