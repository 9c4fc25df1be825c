package acceptance

import (
	"fmt"
	"strings"
	"testing"
)

// A wrong value is refused with the attribute's name: by the plan where it can be known, else by the server.
func TestErrorsNameTheAttribute(t *testing.T) {
	broker := millrace.broker(t)
	cases := []struct {
		name, configuration string
		// named is in the message: the line of the attribute, or its path.
		named []string
	}{
		{"filter", `resource "millrace_group" "it" {
  broker = %q
  name   = "it"
  rules  = [{ effect = "allow", action = "all", filter = "plant#" }]
}`, []string{"rules[0].filter:", "stand for whole levels"}},
		{"enumeration", `resource "millrace_access" "it" {
  broker       = %q
  certificates = "sometimes"
}`, []string{`certificates = "sometimes"`, "must be one of"}},
		{"key", `resource "millrace_jwt_issuer" "it" {
  broker     = %q
  name       = "it"
  algorithms = ["RS256"]
  key        = { kind = "jwks", pem = "-----BEGIN PUBLIC KEY-----" }
}`, []string{`takes no "pem"`, `needs "url"`}},
		{"group of the server", `resource "millrace_credential" "it" {
  broker = %q
  user   = "it"
  group  = "nobody"
}`, []string{`group  = "nobody"`, "millrace_credential: cannot make it"}},
		{"prefix", `resource "millrace_claim_token" "it" {
  broker        = %q
  name          = "it"
  user_prefix   = "pump/"
  uses_max      = 5
  expires_at_ms = 1
}`, []string{`user_prefix   = "pump/"`, "must have letters"}},
		{"end of the server", `resource "millrace_claim_token" "it" {
  broker        = %q
  name          = "it"
  user_prefix   = "pump-"
  uses_max      = 5
  expires_at_ms = 1
}`, []string{`expires_at_ms = 1`, "is over already"}},
		{"algorithm of the server", `resource "millrace_jwt_issuer" "it" {
  broker     = %q
  name       = "it"
  algorithms = ["RS256"]
  key        = { kind = "secret", secret = "0123456789abcdef0123456789abcdef" }
}`, []string{`algorithms = ["RS256"]`, "does not go with the kind of key"}},
	}
	for _, it := range cases {
		t.Run(it.name, func(t *testing.T) {
			t.Parallel()
			w := newWorkspace(t)
			w.configure(fmt.Sprintf(it.configuration, broker))
			output, code := w.try("apply", "-auto-approve")
			if code != 1 {
				t.Fatalf("exit code %d:\n%s", code, output)
			}
			for _, text := range it.named {
				if !strings.Contains(strings.Join(strings.Fields(output), " "), strings.Join(strings.Fields(text), " ")) {
					t.Errorf("%q is not in:\n%s", text, output)
				}
			}
		})
	}
}
