#!/usr/bin/env python3
"""Runs `cargo test` and, when tests fail, runs just these a second time, one after the other.

A test that passes alone after it failed beside hundreds of others depends on the machine's load. Such a test is named in a line that
starts with FLAKY, so that somebody mends it, and does not fail the run. A test that fails both times fails the run.

    .ci/rust_tests.py [argument of cargo test ...]
"""

import re
import subprocess
import sys

# More failures than this are no matter of load.
RETRIES_MAX = 12

RUNNING = re.compile(r"^\s*Running .*\((?P<binary>[^()]+)\)\s*$")
DOC_TESTS = re.compile(r"^\s*Doc-tests ")
TEST = re.compile(r"^test (?P<name>.+?)(?: - should panic)? \.\.\. (?P<result>ok|FAILED)\s*$")
RESULT = re.compile(r"^test result: (?P<result>ok|FAILED)")


class Reader:
    """Learns from cargo's output which tests passed and failed, and which test binaries ended without a result."""

    def __init__(self):
        self.binary = None
        self.is_ended = True
        self.passed = []
        self.failed = []
        self.broken = []

    def line(self, line):
        if running := RUNNING.match(line):
            self.begin(running["binary"])
        elif DOC_TESTS.match(line):
            self.begin("documentation")
        elif test := TEST.match(line):
            (self.passed if test["result"] == "ok" else self.failed).append(test["name"])
        elif RESULT.match(line):
            self.is_ended = True

    def begin(self, binary):
        self.end()
        self.binary, self.is_ended = binary, False

    def end(self):
        """A binary without a result was ended by a signal or did not start."""
        if not self.is_ended:
            self.broken.append(self.binary)
        self.is_ended = True


def run(arguments):
    """Runs cargo with its output shown. Returns its exit code and what was read of it."""
    reader = Reader()
    command = ["cargo", "test", "--no-fail-fast", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as cargo:
        for line in cargo.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            reader.line(line)
    reader.end()
    return cargo.returncode, reader


def judge(code, first, again):
    """Whether the run passed. `again(names)` runs these tests a second time, and answers as `run` does."""
    if code == 0:
        return True
    if first.broken or not first.failed:
        print(f"FAILED: cargo test ended with {code}; no result from: {first.broken or 'the build'}")
        return False
    if len(first.failed) > RETRIES_MAX:
        print(f"FAILED: {len(first.failed)} tests, too many to run them again")
        return False
    print(f"== {len(first.failed)} tests failed and run again, one after the other")
    _, second = again(sorted(set(first.failed)))
    passed = True
    for name in first.failed:
        if name in second.passed and name not in second.failed and not second.broken:
            print(f"FLAKY: {name} failed beside other tests and passed alone")
        else:
            print(f"FAILED: {name}")
            passed = False
    return passed


def main(arguments):
    code, first = run(arguments)
    return judge(code, first, lambda names: run([*arguments, "--", "--exact", "--test-threads=1", *names]))


if __name__ == "__main__":
    sys.exit(0 if main(sys.argv[1:]) else 1)
