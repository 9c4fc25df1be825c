#!/usr/bin/env python3
"""Stands in for fdbmonitor: starts each process of foundationdb.conf as the database's user, and again when it ends."""

import configparser
import os
import signal
import subprocess
import sys
import threading
import time

# Options that fdbmonitor reads itself.
OWN = {"command", "restart-delay"}


def command(name, conf):
    """The command line of a section such as fdbserver.4500: its own options come before those of its kind and the general ones."""
    kind, _, number = name.partition(".")
    options = {**conf["general"], **conf[kind], **conf[name]}
    flags = [f"--{key}={value.replace('$ID', number)}" for key, value in options.items() if key not in OWN]
    return [options["command"], *flags]


def keep(name, conf):
    account = {"user": conf["fdbmonitor"]["user"], "group": conf["fdbmonitor"]["group"], "extra_groups": []}
    delay_s = float(conf["general"]["restart-delay"])
    while True:
        code = subprocess.run(command(name, conf), **account).returncode
        print(f"{name} ended with {code}; it starts again in {delay_s} s", flush=True)
        time.sleep(delay_s)


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    conf = configparser.ConfigParser(interpolation=None)
    conf.optionxform = str
    with open(sys.argv[sys.argv.index("--conffile") + 1]) as file:
        conf.read_file(file)
    for name in conf.sections():
        # The backup's agent is left out where it is not installed.
        if "." in name and os.access(command(name, conf)[0], os.X_OK):
            threading.Thread(target=keep, args=(name, conf), daemon=True).start()
    while True:
        signal.pause()


main()
