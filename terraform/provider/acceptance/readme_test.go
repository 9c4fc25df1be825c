package acceptance

import (
	"os"
	"regexp"
	"testing"
)

// The example of README.md is applied as it stands, but for the server's address.
func TestTheExampleOfTheReadme(t *testing.T) {
	page, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)```hcl\n(.*?)```").FindSubmatch(page)
	if found == nil {
		t.Fatal("README.md has no example")
	}
	w := newWorkspace(t)
	w.write("main.tf", regexp.MustCompile(`(?s)provider "millrace" \{.*?\n\}\n`).ReplaceAll(found[1], nil))
	expect(t, w.apply(), "3 added, 0 changed, 0 destroyed")
	w.isEmpty("after create")
	expect(t, w.must("destroy", "-auto-approve"), "3 destroyed")
}
