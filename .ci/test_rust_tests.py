"""Tests of rust_tests.py: what fails twice must fail the run."""

import contextlib
import io
import unittest

import rust_tests

HEAD = "     Running unittests src/lib.rs (target/debug/deps/a-1)\n"
OK = "test one ... ok\n"
FAILED = "test two ... FAILED\n"
RESULT = "test result: FAILED. 1 passed; 1 failed; 0 ignored\n"
ALL_PASSED = "test result: ok. 1 passed; 0 failed; 0 ignored\n"


def read(*lines):
    reader = rust_tests.Reader()
    for line in lines:
        reader.line(line)
    reader.end()
    return reader


def judge(first, second):
    with contextlib.redirect_stdout(io.StringIO()) as output:
        passed = rust_tests.judge(101, first, lambda _: (0, second))
    return passed, output.getvalue()


class Retries(unittest.TestCase):
    def test_a_test_that_passes_alone_is_named_and_does_not_fail_the_run(self):
        passed, output = judge(read(HEAD, OK, FAILED, RESULT), read(HEAD, "test two ... ok\n", ALL_PASSED))
        self.assertTrue(passed)
        self.assertIn("FLAKY: two", output)

    def test_a_test_that_fails_twice_fails_the_run(self):
        passed, output = judge(read(HEAD, OK, FAILED, RESULT), read(HEAD, FAILED, RESULT))
        self.assertFalse(passed)
        self.assertIn("FAILED: two", output)

    def test_a_test_that_did_not_run_again_fails_the_run(self):
        self.assertFalse(judge(read(HEAD, FAILED, RESULT), read(HEAD, ALL_PASSED))[0])

    def test_a_test_that_should_panic_is_found_by_its_name(self):
        first = read(HEAD, "test two - should panic ... FAILED\n", RESULT)
        self.assertEqual(first.failed, ["two"])

    def test_a_binary_without_a_result_fails_the_run(self):
        first = read(HEAD, OK, FAILED)
        self.assertEqual(first.broken, ["target/debug/deps/a-1"])
        self.assertFalse(judge(first, read(HEAD, OK, "test two ... ok\n", ALL_PASSED))[0])

    def test_a_build_that_fails_fails_the_run(self):
        self.assertFalse(judge(read("error: could not compile\n"), read())[0])

    def test_many_failures_are_not_run_again(self):
        many = [f"test t{number} ... FAILED\n" for number in range(rust_tests.RETRIES_MAX + 1)]
        result = f"test result: FAILED. 0 passed; {len(many)} failed; 0 ignored\n"
        passed, output = judge(read(HEAD, *many, result), read())
        self.assertFalse(passed)
        self.assertIn("too many", output)

    def test_a_failure_whose_line_a_child_process_has_spoilt_fails_the_run(self):
        spoilt = "a child saystest three ... FAILED\n"
        two = "test result: FAILED. 1 passed; 2 failed; 0 ignored\n"
        first = read(HEAD, FAILED, spoilt, two)
        passed, _ = judge(first, read(HEAD, "test two ... ok\n", ALL_PASSED))
        self.assertFalse(passed)

    def test_what_runs_side_by_side_is_judged_together(self):
        both = rust_tests.Reader.joined([read(HEAD, OK, ALL_PASSED), read(HEAD, FAILED, RESULT)])
        self.assertEqual((both.failed, both.failures, both.passed), (["two"], 1, ["one"]))


if __name__ == "__main__":
    unittest.main()
