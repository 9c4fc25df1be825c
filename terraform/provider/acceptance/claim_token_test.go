package acceptance

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"
)

func claimTokenBlock(label, broker string, usesMax int, expires time.Time) string {
	return fmt.Sprintf(`
resource "millrace_claim_token" %q {
  broker        = %q
  name          = "line 2"
  user_prefix   = "pump-"
  uses_max      = %d
  expires_at_ms = %d
  group         = millrace_group.pumps.name
  rules         = [{ effect = "allow", action = "publish", filter = "pumps/%%u/#" }]
}
resource "millrace_group" "pumps" {
  broker = %q
  name   = "pumps"
}
`, label, broker, usesMax, expires.UnixMilli(), broker)
}

// A device claims a credential with the secret of the state, and connects. The claim token is then used up: the plan stays empty.
// The imported credential names its claim token.
func TestAClaimTokenThatIsUsedUp(t *testing.T) {
	t.Parallel()
	const address = "millrace_claim_token.line"
	broker := millrace.broker(t)
	token := claimTokenBlock("line", broker, 1, time.Now().Add(24*time.Hour))
	w := newWorkspace(t)
	w.configure(token)
	expect(t, w.apply(), "2 added")
	w.isEmpty("after create")
	made := w.attributes(address)
	if made["uses"] != 0.0 {
		t.Fatalf("uses is %v", made["uses"])
	}

	device := server{base: millrace.base}
	var claimed struct {
		Username  string
		Password  string
		Endpoints struct{ Mqtt struct{ URL string } }
	}
	claim := func(user string, out any) error {
		key := map[string]string{"Idempotency-Key": "a key that only this device knows/" + user}
		_, err := device.send(http.MethodPost, "/claim", map[string]any{"token": made["secret"], "user": user}, key, out)
		return err
	}
	if err := claim("pump-7", &claimed); err != nil {
		t.Fatal(err)
	}
	mqtt, err := url.Parse(claimed.Endpoints.Mqtt.URL)
	if err != nil {
		t.Fatal(err)
	}
	if code := connect(t, mqtt.Host, "pump-7", claimed.Username, claimed.Password); code != 0 {
		t.Fatalf("CONNACK %d with the claimed password", code)
	}
	if err := claim("pump-8", nil); err == nil {
		t.Fatal("the claim token is not used up")
	}
	w.isEmpty("with a claim token that is used up")
	w.must("apply", "-refresh-only", "-auto-approve")
	if now := w.attributes(address); now["uses"] != 1.0 || now["secret"] != made["secret"] || now["id"] != made["id"] {
		t.Fatalf("the state after the claim: %v", now)
	}
	w.isEmpty("after the state has the use")

	const credential = "millrace_credential.pump"
	block := func(more string) string {
		return token + fmt.Sprintf(`
resource "millrace_credential" "pump" {
  broker    = %q
  user      = "pump-7"
  client_id = "pump-7"
  group     = millrace_group.pumps.name
  rules     = millrace_claim_token.line.rules
  %s
}
`, broker, more)
	}
	w.configure(block(""))
	w.must("import", credential, broker+"/pump-7")
	w.isEmpty("after the import of the credential")
	w.configure(block("enabled = false"))
	expect(t, w.apply(), "0 added, 1 changed, 0 destroyed")
	w.isEmpty("after a change of the credential")
	if now := w.attributes(credential); now["claim_token"] != made["id"] {
		t.Fatalf("the credential is of claim token %v instead of %v", now["claim_token"], made["id"])
	}
	expect(t, w.must("destroy", "-auto-approve"), "3 destroyed")
}

// The server deletes an expired claim token. The state keeps it, so the plan stays empty until the end is another one.
func TestAClaimTokenThatHasExpired(t *testing.T) {
	t.Parallel()
	const address = "millrace_claim_token.line"
	broker := millrace.broker(t)
	w := newWorkspace(t)
	w.configure(claimTokenBlock("line", broker, 5, time.Now().Add(30*time.Second)))
	expect(t, w.apply(), "2 added")
	w.isEmpty("before the end")
	first := w.attributes(address)
	at := "brokers/" + broker + "/claim-tokens/"
	deadline := time.Now().Add(patience)
	for {
		if _, err := millrace.get(at + first["id"].(string)); err != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the server has not deleted the expired claim token")
		}
		time.Sleep(time.Second)
	}
	w.isEmpty("after the server deleted it")
	expect(t, w.apply(), "0 added, 0 changed, 0 destroyed")
	w.must("apply", "-refresh-only", "-auto-approve")
	if w.attributes(address)["id"] != first["id"] {
		t.Fatal("the state has another claim token")
	}

	w.configure(claimTokenBlock("line", broker, 5, time.Now().Add(time.Hour)))
	expect(t, w.apply(), "1 added, 0 changed, 1 destroyed")
	w.isEmpty("with another end")
	second := w.attributes(address)
	if second["secret"] == first["secret"] || second["secret"] == nil {
		t.Fatal("the claim token was not replaced")
	}
	expect(t, w.must("destroy", "-auto-approve"), "2 destroyed")
	if _, err := millrace.get(at + second["id"].(string)); err == nil {
		t.Fatal("it was not destroyed")
	}
}
