"""Tests of the check of sizes."""

import unittest

import sizes


class Sizes(unittest.TestCase):
    def test_a_function_counts_from_its_signature_to_its_brace(self):
        body = "    x();\n" * 59
        self.assertEqual(sizes.large("a.rs", f"fn small() {{\n{body[:-9]}}}\n"), {})
        self.assertEqual(sizes.large("a.rs", f"    pub(super) fn big(\n        x: u8,\n    ) {{\n{body}    }}\n"), {"a.rs fn big": 63})

    def test_a_declaration_without_body_is_small(self):
        self.assertEqual(sizes.large("a.rs", "    fn one(&self);\n" + "\n" * 100 + "    }\n"), {})

    def test_a_file_counts_without_its_tests(self):
        self.assertEqual(sizes.large("a.rs", "\n" * 399 + "mod tests {\n" + "\n" * 100), {})
        self.assertEqual(sizes.large("a.rs", "\n" * 401 + "mod tests {\n"), {"a.rs": 401})

    def test_files_of_tests_are_left_out(self):
        for name in ("a/tests/b.rs", "a/tests.rs", "a/b_tests.rs", "a/test_client.rs", "a/testing.rs", "a/benches/b.rs"):
            self.assertTrue(sizes.TESTS.search(name), name)
        for name in ("a/attests.rs", "a/latest.rs", "a/contests/b.rs"):
            self.assertFalse(sizes.TESTS.search(name), name)

    def test_a_struct_counts_its_fields(self):
        fields = "    /// One: a comment.\n    pub field: u8,\n" * 21
        self.assertEqual(sizes.large("a.rs", f"pub struct Many {{\n{fields}}}\n"), {"a.rs struct Many": 21})

    def test_a_type_in_more_than_six_files_needs_a_reason(self):
        blocks = ["impl Core {\n", "impl<'a> Display for Core<'a> {\n", "unsafe impl Send for Core {}\n", "impl<T: Fn(u8)> From<T> for super::Core {\n"]
        files = {f"a/src/{at}.rs": (blocks * 2)[at] for at in range(7)}
        self.assertEqual([*sizes.wrong_spreads(files, "")][0].split(",")[0], "a: impl Core stands in 7 files")
        self.assertEqual([*sizes.wrong_spreads(files, "| `a` `impl Core` | one state |\n")], [])
        del files["a/src/6.rs"]
        self.assertEqual([*sizes.wrong_spreads(files, "")], [])
        self.assertEqual(len([*sizes.wrong_spreads(files, "| `a` `impl Core` | one state |\n")]), 1)

    def test_a_large_item_needs_a_reason(self):
        found = {"services/a/src/b.rs": 401, "services/a/src/b.rs fn big": 61, "services/a/src/c.rs struct Many": 21}
        self.assertEqual(len([*sizes.without_reason(found, "")]), 3)
        reasons = "| `a/src/b.rs` `big` | one arm for each kind |\n| `a/src/c.rs` `Other` | `Many` |\n"
        self.assertEqual([*sizes.without_reason(found, reasons)], ["services/a/src/c.rs struct Many"])

    def test_impls_of_other_crates_and_of_tests_are_apart(self):
        files = {f"{'ab'[at % 2]}/src/{at}.rs": "impl Core {\n" for at in range(12)} | {"a/src/t.rs": "mod x;\nmod tests {\nimpl Core {\n"}
        self.assertEqual(sizes.spread(files), {})


if __name__ == "__main__":
    unittest.main()
