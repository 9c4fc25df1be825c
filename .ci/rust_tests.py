#!/usr/bin/env python3
"""Runs `cargo test` and, when tests fail, runs just these a second time, one after the other.

A test that passes alone after it failed beside hundreds of others depends on the machine's load. Such a test is named in a line that
starts with FLAKY, so that somebody mends it, and does not fail the run. A test that fails both times fails the run.

    .ci/rust_tests.py [argument of cargo test ...]
"""

import concurrent.futures
import re
import subprocess
import sys

# More failures than this are no matter of load.
RETRIES_MAX = 12

RUNNING = re.compile(r"^\s*Running .*\((?P<binary>[^()]+)\)\s*$")
DOC_TESTS = re.compile(r"^\s*Doc-tests ")
TEST = re.compile(r"^test (?P<name>.+?)(?: - should panic)? \.\.\. (?P<result>ok|FAILED)\s*$")
RESULT = re.compile(r"test result: (?:ok|FAILED)\. \d+ passed; (?P<failed>\d+) failed")


class Reader:
    """Learns from cargo's output which tests passed and failed, and which test binaries ended without a result."""

    def __init__(self):
        self.binary = None
        self.is_ended = True
        self.passed = []
        self.failed = []
        # As the binaries count them: what a child process writes may hide the line of a test.
        self.failures = 0
        self.broken = []

    @classmethod
    def joined(cls, readers):
        all_of = cls()
        for reader in readers:
            all_of.passed += reader.passed
            all_of.failed += reader.failed
            all_of.failures += reader.failures
            all_of.broken += reader.broken
        return all_of

    def line(self, line):
        if running := RUNNING.match(line):
            self.begin(running["binary"])
        elif DOC_TESTS.match(line):
            self.begin("documentation")
        elif test := TEST.match(line):
            (self.passed if test["result"] == "ok" else self.failed).append(test["name"])
        elif result := RESULT.search(line):
            self.is_ended = True
            self.failures += int(result["failed"])

    def begin(self, binary):
        self.end()
        self.binary, self.is_ended = binary, False

    def end(self):
        """A binary without a result was ended by a signal or did not start."""
        if not self.is_ended:
            self.broken.append(self.binary)
        self.is_ended = True


def test(arguments, show):
    """Runs `cargo test`, gives each line of its output to `show`, and returns its exit code and what was read of it."""
    reader = Reader()
    command = ["cargo", "test", "--no-fail-fast", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as cargo:
        for line in cargo.stdout:
            show(line)
            reader.line(line)
    reader.end()
    return cargo.returncode, reader


def print_line(line):
    sys.stdout.write(line)
    sys.stdout.flush()


def run_all(arguments):
    """Builds all tests, then runs those of the libraries and programs beside those of the folders `tests`: both often wait."""
    build, built = test(["--no-run", *arguments], print_line)
    if build != 0:
        return build, built
    late = []
    with concurrent.futures.ThreadPoolExecutor() as pool:
        beside = pool.submit(test, ["--test", "*", *arguments], late.append)
        runs = [test([*kind, *arguments], print_line) for kind in (["--lib", "--bins"], ["--doc"])]
        runs.append(beside.result())
    print_line("".join(late))
    return max(code for code, _ in runs), Reader.joined([reader for _, reader in runs])


def judge(code, first, again):
    """Whether the run passed. `again(names)` runs these tests a second time, and answers as `run` does."""
    if code == 0:
        return True
    if first.broken or not first.failed:
        print(f"FAILED: cargo test ended with {code}; no result from: {first.broken or 'the build'}")
        return False
    if first.failures != len(first.failed):
        print(f"FAILED: {first.failures} tests failed, of which {len(first.failed)} could be read")
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
    code, first = run_all(arguments)
    return judge(code, first, lambda names: test([*arguments, "--", "--exact", "--test-threads=1", *names], print_line))


if __name__ == "__main__":
    sys.exit(0 if main(sys.argv[1:]) else 1)
