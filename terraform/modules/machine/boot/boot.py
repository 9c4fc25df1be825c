#!/usr/bin/env python3
"""First start of a machine: disks, programs, secrets, units. Each step can be repeated, and is until it works. systemd starts this
again with a machine that was stopped before all was done.

boot.py              all of it
boot.py disks        mounts the disks; the file system of a larger disk grows to its size
boot.py secrets      fetches the secrets again; exit code 0 if one has changed, 3 if none has
boot.py pods TAG=..  prints the addresses of the instances with these tags, one a line
boot.py backup-credentials FILE OWNER
                     writes the role's temporary credentials as fdbbackup reads them
"""

import json
import os
import pathlib
import pwd
import re
import shutil
import ssl
import subprocess
import sys
import time
import urllib.request

from aws import Aws, credentials, metadata

CONFIG = json.loads(pathlib.Path("/etc/millrace-boot.json").read_text())
AWS = Aws(CONFIG["region"], CONFIG["endpoint"])
RETRY_S = 5
# The node exporter shows the files of this folder.
METRICS = pathlib.Path("/var/lib/millrace-boot/metrics")
PEM = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.S)


def say(text):
    print(f"millrace-boot: {text}", flush=True)


def run(*command):
    subprocess.run(command, check=True)


def is_empty(device):
    """Whether a disk has no signature of any kind. A disk that cannot be read, or has several signatures, is an error."""
    code = subprocess.run(["blkid", "--probe", str(device)], stdout=subprocess.DEVNULL).returncode
    if code not in (0, 2):
        raise LookupError(f"blkid --probe {device} ends with {code}: a person must look at this disk")
    with open(device, "rb") as file:
        file.read(1)
    return code == 2


def mount(disk):
    """Mounts a disk, and makes a file system only where there is none. One on a disk that has become larger grows."""
    device = pathlib.Path(disk["device"])
    while not device.exists():
        say(f"waiting for the disk {device}")
        time.sleep(RETRY_S)
    if is_empty(device):
        run("mkfs.ext4", "-q", "-m", "1", str(device))
    pathlib.Path(disk["path"]).mkdir(parents=True, exist_ok=True)
    line = f"{device} {disk['path']} ext4 defaults,noatime,nofail 0 2\n"
    table = pathlib.Path("/etc/fstab")
    if line not in table.read_text():
        with table.open("a") as file:
            file.write(line)
    if not os.path.ismount(disk["path"]):
        run("mount", disk["path"])
    run("resize2fs", str(device))


def install(artifact):
    """Fetches and installs a program or a Debian package. A settings file of the package that exists already stays as it is."""
    name = artifact["key"].rsplit("/", 1)[-1]
    to = f"/var/cache/millrace-boot/{name}"
    pathlib.Path(to).parent.mkdir(parents=True, exist_ok=True)
    AWS.fetch(CONFIG["bucket"], artifact["key"], to, artifact["sha256"])
    if name.endswith(".deb"):
        run("dpkg", "--force-confold", "--install", to)
        os.unlink(to)
    else:
        os.chmod(to, 0o755)
        shutil.move(to, artifact["path"])
    say(f"installed {name}")


def own(path, owner):
    """Gives a folder with all that is in it to a user. On a disk of a machine before, the files may have another number for the same user."""
    pathlib.Path(path).exists() or pathlib.Path(path).mkdir(parents=True)
    run("chown", "--recursive", "--no-dereference", f"{owner}:{owner}", path)


def secrets():
    """Writes the files of this machine's secret. Returns whether one has changed, or None without a secret."""
    secret = CONFIG["secret"]
    if secret is None:
        return None
    values = AWS.secret(secret["name"])
    if values is None:
        raise LookupError(f"the secret {secret['name']} has no value yet: terraform/secrets.sh stores one")
    directory = pathlib.Path(secret["directory"])
    directory.mkdir(parents=True, exist_ok=True)
    changed = False
    for name, text in values.items():
        path = directory / name
        if "/" in name or (path.exists() and path.read_text() == text):
            continue
        put(path, text, secret["owner"])
        changed = True
    show_ends({directory / name: text for name, text in values.items() if PEM.search(text)})
    return changed


def show_ends(files):
    """Writes when the certificates of this machine end, so that an alert comes before. Without the list the machine works, too."""
    try:
        make_metrics()
        lines = [f'x509_cert_not_after{{filepath="{path}"}} {end(text)}' for path, text in sorted(files.items())]
        new = METRICS / ".certificates.new"
        new.write_text("\n".join(["# HELP x509_cert_not_after Unix time at which the first certificate of a file ends.",
                                  "# TYPE x509_cert_not_after gauge", *lines, ""]))
        new.chmod(0o644)
        new.rename(METRICS / "certificates.prom")
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        say(f"nobody watches when the certificates end: {error}")


def make_metrics():
    """A machine without certificates has the folder, too: the node exporter reports a missing one as an error."""
    for path in (METRICS.parent, METRICS):
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o755)


def end(text):
    """Unix time at which the first of the certificates in `text` ends."""
    command = ["openssl", "x509", "-noout", "-enddate"]
    said = [subprocess.run(command, input=pem, capture_output=True, text=True, check=True).stdout for pem in PEM.findall(text)]
    return min(ssl.cert_time_to_seconds(line.strip().removeprefix("notAfter=")) for line in said)


def backup_credentials(path, owner):
    keys = credentials()
    account = {"api_key": keys["AccessKeyId"], "secret": keys["SecretAccessKey"], "token": keys["Token"]}
    put(pathlib.Path(path), json.dumps({"accounts": {f"@s3.{CONFIG['region']}.amazonaws.com": account}}), owner)


def serves(ready):
    """Completes the lifecycle hook of Auto Scaling once the program of this machine serves. An upgrade waits for it."""
    with urllib.request.urlopen(ready["url"], timeout=5):
        AWS.machine_serves(ready["group"], ready["hook"], metadata("meta-data/instance-id"))


def put(path, text, owner):
    """Replaces a secret file as a whole: whoever reads it sees the old or the new one.

    The folder may belong to the owner, who could put a link in the file's place. So the file must be new, and is changed through
    its descriptor.
    """
    user = pwd.getpwnam(owner)
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400), "w") as file:
        file.write(text)
        os.fchown(file.fileno(), user.pw_uid, user.pw_gid)
    new.rename(path)


def until_it_works(step, *arguments):
    while True:
        try:
            return step(*arguments)
        # dpkg ends with an error while Debian's own upgrades hold its lock.
        except (OSError, LookupError, ValueError, subprocess.CalledProcessError) as error:
            say(f"{step.__name__}: {error}; next try in {RETRY_S} s")
            time.sleep(RETRY_S)


def boot():
    for disk in CONFIG["disks"]:
        until_it_works(mount, disk)
    for user in CONFIG["users"]:
        subprocess.run(["systemd-sysusers", "-"], input=f"u {user} - {user}\n".encode(), check=True)
    for artifact in CONFIG["artifacts"]:
        until_it_works(install, artifact)
    for path, owner in CONFIG["owners"].items():
        own(path, owner)
    until_it_works(secrets)
    until_it_works(make_metrics)
    run("systemctl", "daemon-reload")
    for unit in CONFIG["units"]:
        run("systemctl", "enable", "--quiet", unit)
        # A unit may wait for another machine, so this does not wait for the unit.
        run("systemctl", "restart", "--no-block", unit)
        say(f"starts {unit}")
    if CONFIG["ready"]:
        until_it_works(serves, CONFIG["ready"])
        say("the program serves")
    # The condition of millrace-boot.service.
    (METRICS.parent / "done").touch()


def main(arguments):
    if not arguments:
        boot()
    elif arguments[0] == "disks":
        for disk in CONFIG["disks"]:
            mount(disk)
    elif arguments[0] == "secrets":
        return 0 if secrets() else 3
    elif arguments[0] == "pods":
        print("\n".join(AWS.instances(dict(pair.split("=", 1) for pair in arguments[1:]))))
    elif arguments[0] == "backup-credentials":
        backup_credentials(*arguments[1:])
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
