package acceptance

import (
	"net/http"
	"os"
	"regexp"
	"testing"
)

// The first example of README.md is applied as it stands, but for the server's address. The second one has a fixed date, so
// Terraform only validates it. The token has the scopes that FIRST-DEVICE.md asks for.
func TestTheExampleOfTheReadme(t *testing.T) {
	page, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)```hcl\n(.*?)```").FindAllSubmatch(page, -1)
	if len(found) != 2 {
		t.Fatalf("README.md has %d examples instead of 2", len(found))
	}
	w := newWorkspace(t)
	w.environment = []string{"MILLRACE_TOKEN=" + tokenOfThePage(t)}
	w.write("main.tf", regexp.MustCompile(`(?s)provider "millrace" \{.*?\n\}\n`).ReplaceAll(found[0][1], nil))
	expect(t, w.apply(), "3 added, 0 changed, 0 destroyed")
	w.isEmpty("after create")
	expect(t, w.must("destroy", "-auto-approve"), "3 destroyed")
	w.write("second.tf", found[1][1])
	w.must("validate")
}

func tokenOfThePage(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../FIRST-DEVICE.md")
	if err != nil {
		t.Fatal(err)
	}
	var scopes []string
	for _, found := range regexp.MustCompile("`([a-z]+:[a-z]+)`").FindAllSubmatch(page, -1) {
		scopes = append(scopes, string(found[1]))
	}
	var made struct{ Secret string }
	body := map[string]any{"name": "first device", "scopes": scopes}
	if _, err := millrace.send(http.MethodPost, "tokens", body, nil, &made); err != nil {
		t.Fatalf("a token with the scopes %v of FIRST-DEVICE.md: %v", scopes, err)
	}
	return made.Secret
}
