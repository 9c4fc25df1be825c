"""Tests of check.py: a planted circle is found, tests and comments are no imports."""

import pathlib
import tempfile
import unittest

import check


class Circles(unittest.TestCase):
    def tree(self, files):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        root = pathlib.Path(folder.name)
        (root / "Cargo.toml").write_text("[package]\n")
        for name, code in files.items():
            path = root / "src" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(code)
        return [line.split(": ", 1)[1] for line in check.lines_of(root)]

    def test_one_way_is_no_circle(self):
        self.assertEqual(self.tree({"a.rs": "use crate::b::X;", "b.rs": ""}), [])

    def test_two_modules_that_import_each_other_are_found(self):
        self.assertEqual(self.tree({"a.rs": "use crate::b::X;", "b/mod.rs": "", "b/c.rs": "use crate::{d, a::Y};"}), ["a -> b", "b -> a"])

    def test_super_leads_to_the_root(self):
        self.assertEqual(self.tree({"a.rs": "use super::b;", "b/c.rs": "use super::super::a::Y;"}), ["a -> b", "b -> a"])

    def test_a_circle_of_three_is_found(self):
        found = self.tree({"a.rs": "crate::b::f();", "b.rs": "crate::c::f();", "c.rs": "crate::a::f();", "d.rs": "crate::a::f();"})
        self.assertEqual(found, ["a -> b", "b -> c", "c -> a"])

    def test_tests_and_comments_are_no_imports(self):
        code = "// crate::a\n#[cfg(test)]\nmod tests { use crate::a::Y; fn f() { {} } }\n"
        self.assertEqual(self.tree({"a.rs": "use crate::b;", "b.rs": code, "b_tests.rs": "use crate::a;"}), [])


if __name__ == "__main__":
    unittest.main()
