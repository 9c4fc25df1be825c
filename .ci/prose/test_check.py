#!/usr/bin/env python3
"""Tests of the prose check: each plants something in a small tree and looks at what the check says."""

import contextlib
import io
import json
import tempfile
import unittest
from pathlib import Path

import check
import pages
import rules
import sources

CLEAN = "//! Delivers messages.\n\nfn deliver() {}\n"


class Tree(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.write(".ci/prose/baseline.json", '{"findings": {}, "density": {}}')
        self.write("services/a/src/lib.rs", CLEAN + "\n" * 40)
        self.write("README.md", "# A\n\nThe server answers.\n")

    def write(self, path, text):
        path = self.root / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run_check(self, *arguments):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            code = check.main(list(arguments), self.root)
        return code, out.getvalue()

    def baseline(self):
        return json.loads((self.root / ".ci/prose/baseline.json").read_text())["findings"]


class Baseline(Tree):
    def test_a_clean_tree_passes(self):
        code, out = self.run_check()
        self.assertEqual(code, 0, out)

    def test_a_planted_sentence_fails_with_its_file_line_and_text(self):
        self.write("services/a/src/lib.rs", CLEAN + "\n// Waits.\n// Who finds no room is refused.\n" + "\n" * 40)
        code, out = self.run_check()
        self.assertEqual(code, 1)
        self.assertIn("services/a/src/lib.rs:6: ", out)
        self.assertIn("Who finds no room is refused.", out)

    def test_a_finding_of_the_baseline_passes_and_one_more_fails(self):
        self.write("PAGE.md", "The server is told.\n")
        self.assertEqual(self.run_check("--accept-rise")[0], 0)
        self.assertEqual(self.run_check()[0], 0)
        self.write("PAGE.md", "The server is told. What comes next is lost.\n")
        self.assertEqual(self.run_check()[0], 1)

    def test_write_lowers_the_baseline_but_does_not_raise_it(self):
        self.write("PAGE.md", "The server is told.\n\nThe client is told.\n")
        self.run_check("--accept-rise")
        self.assertEqual(self.baseline(), {"PAGE.md": 2})
        self.write("PAGE.md", "The server is told.\n")
        self.write("OTHER.md", "Those wait.\n")
        code, _ = self.run_check("--write")
        self.assertEqual(code, 1)
        self.assertEqual(self.baseline(), {"PAGE.md": 1})

    def test_too_many_comments_fail(self):
        self.write("services/a/src/lib.rs", "// Adds one.\nlet a = 1;\n" * 40)
        code, out = self.run_check()
        self.assertEqual(code, 1)
        self.assertIn("services/a: 500 comment sentences per 1,000 lines", out)

    def test_a_second_public_type_of_a_name_fails(self):
        self.write("services/a/src/a.rs", "pub struct Outcome;\n" + "\n" * 40)
        self.assertEqual(self.run_check()[0], 0)
        self.write("services/b/src/b.rs", "pub enum Outcome {}\n\n#[cfg(test)]\nmod tests {\npub struct Outcome;\n}\n")
        code, out = self.run_check()
        self.assertEqual(code, 1)
        self.assertIn("Outcome: 2 types have this name", out)

    def test_a_second_type_of_a_name_in_the_server_fails(self):
        types = "struct Outcome<T> {}\ntrait A {\n    type Item;\n}\n" + "\n" * 40
        self.write("services/a/src/a.rs", types)
        for path in ["services/a/src/simulation/a.rs", "services/a/src/testing.rs", "loadtests/src/a.rs", "storage/simulation/src/a.rs"]:
            self.write(path, types)
        self.write("services/b/src/a.rs", "trait B {\n    type Item;\n}\n" + "\n" * 40)
        self.assertEqual(self.run_check()[0], 0)
        for second in ["struct Outcome;", "mod b {\n    enum Outcome {}\n}", "type Outcome = u8;", "pub(crate) trait Outcome {}"]:
            self.write("services/b/src/b.rs", second + "\n" * 40)
            code, out = self.run_check()
            self.assertEqual(code, 1, second)
            self.assertIn("Outcome in the server: 2 types have this name", out)

    def test_a_second_type_of_a_name_in_a_load_test_fails(self):
        self.write("loadtests/src/a.rs", "struct Outcome;\n" + "\n" * 40)
        self.write("loadtests/src/b.rs", "struct Outcome;\n" + "\n" * 40)
        self.assertIn("Outcome in loadtests: 2 types have this name", self.run_check()[1])

    def test_a_local_name_may_repeat_but_not_where_other_files_can_use_it(self):
        for path in ["services/a/src/a.rs", "services/b/src/b.rs"]:
            self.write(path, "struct State {}\n" + "\n" * 40)
        self.write("storage/src/c.rs", "pub(super) enum State {}\n" + "\n" * 40)
        self.assertEqual(self.run_check()[0], 0)
        self.write("services/b/src/c.rs", "mod c {\n    pub(super) struct State;\n}\n" + "\n" * 40)
        code, out = self.run_check()
        self.assertEqual(code, 1)
        self.assertIn("State in the server: 2 types have this name: one name, one thing: services/b/src/c.rs, storage/src/c.rs", out)

    def test_sentences_of_tests_are_read_and_their_comments_not_counted(self):
        many = "    // Waits.\n" * 40
        self.write("services/a/tests/one.rs", f"// Who finds no room waits.\n{many}")
        self.write("services/a/src/b.rs", f"fn b() {{}}\n\n#[cfg(test)]\nmod tests {{\n    // Those wait.\n\n{many}}}\n")
        code, out = self.run_check()
        self.assertEqual(code, 1)
        self.assertIn("services/a/tests/one.rs:1: ", out)
        self.assertIn("services/a/src/b.rs:5: ", out)
        self.assertNotIn("per 1,000 lines,", out.replace("per 1,000 lines, 0 shared", ""))


    def test_private_terms_in_names_of_items_and_files_fail(self):
        items = ["pub(crate) const fn is_fresh() {}", "struct RateMeter {", "    async fn tell_pods(&self) {", "static DESKS: u8 = 1;", "    pub(super) fresh: bool,"]
        self.write("services/a/src/hooks.rs", "\n".join(items) + "\n" * 40)
        code, out = self.run_check()
        self.assertEqual(code, 1)
        for line, name in [(1, "is_fresh"), (2, "RateMeter"), (3, "tell_pods"), (4, "DESKS"), (5, "fresh"), (1, "hooks")]:
            self.assertIn(f"services/a/src/hooks.rs:{line}: ", out)
            self.assertIn(f"in the name {name}: ", out)

    def test_other_names_pass(self):
        items = ["fn parameter() {}", "fn panic_hook() {}", "struct WebhookRefresh;", "fn stored() {}"]
        tests = "#[cfg(test)]\nmod tests {\n    fn fresh() {}\n}\n"
        self.write("services/a/src/b.rs", "\n".join(items) + "\n" * 40 + tests)
        code, out = self.run_check()
        self.assertEqual(code, 0, out)


class Languages(Tree):
    def test_comments_of_each_language_are_read_with_their_lines(self):
        planted = {
            "services/console/src/a.ts": "const a = 'http://a' // Who waits.\n",
            "services/console/src/b.tsx": "/** Shows\n * a page. Those\n * wait. */\nconst b = <p>don't {/* The desk. */}</p>\n",
            "loadtests/a.go": "package a\n\n// What is sent.\nvar a = \"// Who waits.\"\n",
            "dashboards/a.py": '"""The desk."""\n# Who waits.\na = "# Those wait."\n',
            "gateway/a.sh": "#!/bin/sh\n# It is told.\necho a#b\n",
        }
        for path, text in planted.items():
            self.write(path, text + "\n" * 40)
        code, out = self.run_check()
        self.assertEqual(code, 1)
        found = sorted(line.split(": ")[0].strip() for line in out.splitlines() if line.startswith("  "))
        self.assertEqual(
            found,
            ["dashboards/a.py:1", "dashboards/a.py:2", "gateway/a.sh:2", "loadtests/a.go:3"]
            + ["services/console/src/a.ts:1", "services/console/src/b.tsx:2", "services/console/src/b.tsx:4"],
        )

    def test_their_tests_are_read(self):
        tests = ["services/console/tests/a.test.mjs", "loadtests/a_test.go", "loadtests/tests/a.js"]
        for path in tests:
            self.write(path, "// Who waits.\n")
        self.write("dashboards/test_a.py", "# Who waits.\n")
        code, out = self.run_check()
        self.assertEqual(code, 1)
        for path in [*tests, "dashboards/test_a.py"]:
            self.assertIn(f"{path}:1: ", out)

    def test_descriptions_of_attributes_are_read(self):
        self.write("terraform/a.go", 'package a\n\nvar a = b{\n\tDescription: "Who waits.",\n\turl: urlAttribute("Who waits.", 1),\n}\n')
        code, out = self.run_check()
        self.assertEqual(code, 1)
        self.assertIn("terraform/a.go:4: ", out)
        self.assertIn("terraform/a.go:5: ", out)

    def test_instructions_for_tools_are_not_read(self):
        self.write("gateway/a.sh", "# shellcheck disable=SC2034 # is told by the caller\n" + "\n" * 40)
        code, out = self.run_check()
        self.assertEqual(code, 0, out)

    def test_too_many_comments_of_a_folder_fail(self):
        self.write("gateway/a.sh", "# Adds one.\na=1\n" * 40)
        code, out = self.run_check()
        self.assertEqual(code, 1)
        self.assertIn("sh gateway: 500 comment sentences per 1,000 lines", out)


class Pages(Tree):
    def test_a_long_readme_fails(self):
        most = pages.LINES_MAX["README.md"]
        self.write("README.md", "text\n" * (most + 1))
        self.assertIn(f"README.md: {most + 1} lines, {most} at most", self.run_check()[1])

    def test_a_wrong_number_of_lines_fails(self):
        self.write("services/a/src/hand.rs", "let a = 1;\n" * 90 + "#[cfg(test)]\nmod tests {\n" + "    x();\n" * 90 + "}\n")
        self.write("services/a/src/hand/tests.rs", "x();\n" * 90)
        self.write("services/a/src/hand/tool.rs", "//! A tool for tests.\n" + "x();\n" * 90)
        self.write("ARCHITECTURE.md", "# A\n\n- **Hand** (`a/src/hand`, 95 lines, most of them declarations): small.\n")
        code, out = self.run_check()
        self.assertEqual(code, 0, out)
        self.write("services/a/src/hand/more.rs", "let a = 1;\n" * 20)
        code, out = self.run_check()
        self.assertEqual(code, 1)
        self.assertIn("a/src/hand has 110 lines without tests, not 95", out)

    def test_a_dead_link_and_a_missing_heading_fail(self):
        self.write("PAGE.md", "See [here](gone.md), [there](README.md#b) and [this](README.md#a).\n")
        code, out = self.run_check()
        self.assertEqual(code, 1)
        self.assertIn("the link to gone.md leads nowhere", out)
        self.assertIn("README.md has no heading #b", out)
        self.assertNotIn("#a\n", out)

    def test_links_in_code_are_not_followed(self):
        self.write("PAGE.md", "```\n[here](gone.md)\n```\n")
        self.assertEqual(self.run_check()[0], 0)

    def test_a_wide_line_of_a_decision_fails(self):
        self.write("a/decisions/0001-b.md", "x " * 51 + "\n")
        code, out = self.run_check()
        self.assertEqual(code, 1)
        self.assertIn("a/decisions/0001-b.md:1: 102 columns", out)

    def test_a_decision_must_be_listed(self):
        self.write("a/decisions/0001-b.md", "# 0001: why b\n")
        code, out = self.run_check()
        self.assertEqual(code, 1)
        self.assertIn("- [a 0001](a/decisions/0001-b.md): why b", out)
        self.write("ARCHITECTURE.md", "- [a 0001](a/decisions/0001-b.md): why b\n")
        self.assertEqual(self.run_check()[0], 0)

    def test_a_decision_needs_a_number(self):
        self.write("a/decisions/b.md", "text\n")
        self.assertEqual(self.run_check()[0], 1)

    def test_anchors_are_those_of_headings(self):
        self.assertEqual(pages.anchors("# One: `two`, three\n## A\n## A\n"), {"one-two-three", "a", "a-1"})


class Sentences(unittest.TestCase):
    def texts(self, rust):
        return [sentence for _, _, sentence in sources.rust(rust)[0]]

    def test_a_sentence_goes_over_lines_and_ends_at_its_full_stop(self):
        self.assertEqual(self.texts("/// One goes\n/// on here. Two `a.b` ends.\nfn a() {}"), ["One goes on here.", "Two `a.b` ends."])

    def test_strings_are_no_comments(self):
        self.assertEqual(self.texts('let a = "// Who"; let b = r#"// "What" //"#; let c = \'"\'; // Yes it is.'), ["Yes it is."])

    def test_citations_and_code_are_left_out(self):
        self.assertEqual(self.texts("//= [MQTT-4.3.2-4] v5\n//# Who MUST\n/// ```\n/// let who = 1;\n/// ```\nfn a() {}"), [])

    def test_help_strings_are_read(self):
        self.assertEqual(self.texts('#[arg(help = "Who may \\"enter\\".")]'), ['Who may "enter".'])

    def test_errors_and_log_lines_are_read(self):
        rust = '#[error("the pod {0} is gone")]\nGone(u64),\nfn a() { warn!(%error, count = a.len(), "cannot write"); println!("no log"); }'
        self.assertEqual(self.texts(rust), ["the pod {0} is gone", "cannot write"])

    def test_cells_of_a_table_are_paragraphs(self):
        found = [sentence for _, _, sentence in sources.markdown("| a1 | Who waits |\n|---|---|\n| bb | Those |\n")]
        self.assertIn("Who waits", found)
        self.assertIn("Those", found)


class Rules(unittest.TestCase):
    def wrong(self, sentence):
        return list(rules.findings(sentence))

    def test_beginnings(self):
        for sentence in ["Who waits is refused.", "**What is left** goes.", "Of one that follows: it.", "Of the payload.", "Those wait.", "Whoever comes waits."]:
            self.assertEqual(len(self.wrong(sentence)), 1, sentence)
        for sentence in ["Who may connect?", "Whole packets only.", "The client whose id it is.", "What's new?"]:
            self.assertEqual(self.wrong(sentence), [], sentence)

    def test_private_terms(self):
        for sentence in [
            "It is told.", "The desk waits.", "It was left with the store.", "It lets clients in.", "Its place is known.",
            "The session goes on.", "The broker takes no clients now.", "It is so today.", "The pod waits for so long.", "The first rule that fits decides.",
        ]:
            self.assertEqual(len(self.wrong(sentence)), 1, sentence)

    def test_allowed_uses(self):
        for sentence in [
            "The password is long.", "A dead letter is kept.", "It decodes in place.", "`tell` is a function.", "It is behind a proxy.", "64-bit words.",
            "Clients come and go on all pods.", "It waits for so long that the lease ends.", "The rules fit into one packet.",
        ]:
            self.assertEqual(self.wrong(sentence), [], sentence)


class Configuration(Tree):
    def test_comments_and_descriptions_of_configuration_are_read(self):
        self.write("terraform/main.tf", '# Who may connect.\nvariable "a" {\n  description = "What it is."\n}\n')
        self.write("chart/values.yaml", "# What runs.\na: 1 # Of one.\n")
        self.assertEqual(self.run_check()[0], 1)
        found, *_ = check.read(self.root)
        self.assertEqual({path: len(wrong) for path, wrong in found.items()}, {"terraform/main.tf": 2, "chart/values.yaml": 2})


if __name__ == "__main__":
    unittest.main()
