package acceptance

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// says expects texts in what terraform prints, whose lines are wrapped.
func says(t *testing.T, output string, texts ...string) {
	t.Helper()
	whole := strings.Join(strings.FieldsFunc(output, func(it rune) bool { return strings.ContainsRune(" \n│╷╵", it) }), " ")
	for _, text := range texts {
		if !strings.Contains(whole, text) {
			t.Errorf("%q is not in:\n%s", text, output)
		}
	}
}

func fails(t *testing.T, w *workspace, texts []string, arguments ...string) {
	t.Helper()
	output, code := w.try(arguments...)
	if code != 1 {
		t.Fatalf("terraform %s: exit code %d instead of 1\n%s", strings.Join(arguments, " "), code, output)
	}
	says(t, output, texts...)
}

const plant = `
resource "millrace_broker" "plant" {
  display_name = "Plant 7"
}
resource "millrace_access" "plant" {
  broker = millrace_broker.plant.name
  tokens = true
}
resource "millrace_group" "pumps" {
  broker = millrace_broker.plant.name
  name   = "pumps"
  rules  = [{ effect = "allow", action = "publish", filter = "pumps/%c/#" }]
}
`

func pump(group string) string {
	return fmt.Sprintf(`
resource "millrace_credential" "pump" {
  broker = millrace_broker.plant.name
  user   = "pump-7"
  group  = %s
}
`, group)
}

const rightGroup = "millrace_group.pumps.name"

// A mistake ends an apply half way. The corrected configuration makes only what is missing.
func TestAnApplyThatEndsHalfWay(t *testing.T) {
	t.Parallel()
	w := newWorkspace(t)
	w.configure(plant + pump(`"pomps"`))
	fails(t, w, []string{`group = "pomps"`}, "apply", "-auto-approve")
	name := w.attributes("millrace_broker.plant")["name"]
	w.configure(plant + pump(rightGroup))
	expect(t, w.apply(), "1 added, 0 changed, 0 destroyed")
	w.isEmpty("after the second apply")
	if now := w.attributes("millrace_broker.plant")["name"]; now != name {
		t.Fatalf("the second apply made the broker %v beside %v", now, name)
	}
	expect(t, w.must("destroy", "-auto-approve"), "4 destroyed")
}

// Terraform was killed between the server's answer and the state: what has a name of its own is not made over, and the error says how to continue.
func TestAThingThatTheStateDoesNotHave(t *testing.T) {
	t.Parallel()
	w := newWorkspace(t)
	w.configure(plant + pump(rightGroup))
	w.apply()
	broker := w.attributes("millrace_broker.plant")["name"].(string)
	secret := w.attributes("millrace_credential.pump")["secret"]
	w.must("state", "rm", "millrace_credential.pump")
	id := broker + "/pump-7"
	fails(t, w, []string{"there is a credential with this user name", "terraform import millrace_credential.NAME " + id}, "apply", "-auto-approve")
	w.must("import", "millrace_credential.pump", id)
	w.apply()
	w.isEmpty("after the import")
	if w.attributes("millrace_credential.pump")["secret"] == secret {
		t.Fatal("the state has a secret that the server shows once")
	}
	w.must("destroy", "-auto-approve")
}

func TestABrokerThatSomebodyRenamesAndDeletes(t *testing.T) {
	t.Parallel()
	w := newWorkspace(t)
	w.configure(plant + pump(rightGroup))
	w.apply()
	name := w.attributes("millrace_broker.plant")["name"].(string)

	millrace.do(t, http.MethodPatch, "brokers/"+name, map[string]any{"display_name": "Plant of somebody else"})
	w.differs("after a rename by the API", "millrace_broker.plant", "Plant of somebody else", "1 to change")
	expect(t, w.apply(), "0 added, 1 changed, 0 destroyed")
	w.isEmpty("after the broker has its name again")

	millrace.do(t, http.MethodDelete, "brokers/"+name, nil)
	w.differs("after the deletion of the broker by the API", "4 to add, 0 to change, 0 to destroy")
	expect(t, w.apply(), "4 added, 0 changed, 0 destroyed")
	w.isEmpty("after the broker was made again")
	millrace.do(t, http.MethodDelete, "brokers/"+w.attributes("millrace_broker.plant")["name"].(string), nil)
	expect(t, w.must("destroy", "-auto-approve"), "0 destroyed")
}

// The state is lost. Import blocks bring back all of it, and the plan changes nothing.
func TestEverythingIsImported(t *testing.T) {
	t.Parallel()
	w := newWorkspace(t)
	whole := plant + `
resource "millrace_credential" "pump" {
  broker = millrace_broker.plant.name
  user   = "pump-7"
}
resource "millrace_client_ca" "factory" {
  broker = millrace_broker.plant.name
  name   = "factory"
  pem    = ` + strings.ReplaceAll(quoted(certificate()), "%%", "%") + `
}
resource "millrace_jwt_issuer" "login" {
  broker     = millrace_broker.plant.name
  name       = "login"
  algorithms = ["RS256"]
  key        = { kind = "jwks", url = "https://login.example.org/keys" }
}
resource "millrace_webhook" "alarms" {
  broker = millrace_broker.plant.name
  name   = "alarms"
  url    = "https://example.org/hook"
  events = ["connect"]
}
resource "millrace_spend_cap" "plant" {
  broker         = millrace_broker.plant.name
  monthly_micros = 5000000
  action         = "continue"
}
resource "millrace_claim_token" "line" {
  broker        = millrace_broker.plant.name
  name          = "line 2"
  user_prefix   = "pump-"
  uses_max      = 5
  expires_at_ms = ` + fmt.Sprint(time.Now().Add(24*time.Hour).UnixMilli()) + `
}
resource "millrace_token" "reader" {
  name   = "reader of ` + t.Name() + `"
  scopes = ["brokers:read"]
}
resource "millrace_member" "bob" {
  email = "bob@example.org"
  role  = "viewer"
}
`
	w.configure(whole)
	w.apply()
	broker := w.attributes("millrace_broker.plant")["name"].(string)
	ids := [][2]string{
		{"millrace_broker.plant", broker}, {"millrace_access.plant", broker}, {"millrace_spend_cap.plant", broker},
		{"millrace_group.pumps", broker + "/pumps"}, {"millrace_credential.pump", broker + "/pump-7"},
		{"millrace_client_ca.factory", broker + "/factory"}, {"millrace_jwt_issuer.login", broker + "/login"},
		{"millrace_webhook.alarms", broker + "/alarms"},
		{"millrace_claim_token.line", broker + "/" + w.attributes("millrace_claim_token.line")["id"].(string)},
		{"millrace_token.reader", w.attributes("millrace_token.reader")["id"].(string)}, {"millrace_member.bob", "bob@example.org"},
	}
	again := newWorkspace(t)
	for _, it := range ids {
		whole += fmt.Sprintf("import {\n  to = %s\n  id = %q\n}\n", it[0], it[1])
	}
	again.configure(whole)
	expect(t, again.apply(), fmt.Sprintf("%d imported, 0 added, 0 changed, 0 destroyed", len(ids)))
	again.isEmpty("after the import of everything")
	expect(t, again.must("destroy", "-auto-approve"), fmt.Sprintf("%d destroyed", len(ids)))
}

func TestAnImportOfAThingThatIsNotThere(t *testing.T) {
	t.Parallel()
	w := newWorkspace(t)
	broker := millrace.broker(t)
	w.configure(fmt.Sprintf("resource \"millrace_group\" \"it\" {\n  broker = %q\n  name = \"it\"\n}\n", broker))
	fails(t, w, []string{`"pumps" is not BROKER/NAME`}, "import", "millrace_group.it", "pumps")
	fails(t, w, []string{"non-existent remote object"}, "import", "millrace_group.it", broker+"/pumps")
}

// The server is not reached: the error says where the provider looked and what to do, and the state keeps everything.
func TestAServerThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	w := newWorkspace(t)
	w.configure(plant)
	w.apply()
	for name, it := range map[string]struct {
		endpoint string
		texts    []string
	}{
		"stopped":        {"http://127.0.0.1:9", []string{"http://127.0.0.1:9 does not answer", "connection refused", "Check that the server runs", "MILLRACE_ENDPOINT"}},
		"no such host":   {"http://console.invalid", []string{"http://console.invalid does not answer", "Check that the server runs"}},
		"not the API":    {millrace.base + "/docs", []string{"not found there", "check the endpoint", "The state is as it was"}},
		"without scheme": {"console.example.org", []string{`"endpoint" (or MILLRACE_ENDPOINT) must begin with https:// or http://`}},
	} {
		w.environment = []string{"MILLRACE_ENDPOINT=" + it.endpoint}
		if output, code := w.try("plan"); code != 1 {
			t.Errorf("%s: exit code %d:\n%s", name, code, output)
		} else {
			says(t, output, it.texts...)
		}
	}
	w.environment = nil
	w.isEmpty("after the server answers again")
	w.must("destroy", "-auto-approve")
}

// A token that has expired is no reason to make everything again: the error says that the token is at fault.
func TestATokenThatHasExpired(t *testing.T) {
	t.Parallel()
	w := newWorkspace(t)
	w.configure(plant)
	w.apply()
	var made struct{ Secret string }
	ends := time.Now().Add(2 * time.Second)
	body := map[string]any{"name": "ends soon", "scopes": []string{"brokers:read", "access:read"}, "expires_at_ms": ends.UnixMilli()}
	if _, err := millrace.send(http.MethodPost, "tokens", body, nil, &made); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Until(ends.Add(time.Second)))
	advice := []string{"this API token is unknown, deleted or expired", "Make another API token", "MILLRACE_TOKEN"}
	w.environment = []string{"MILLRACE_TOKEN=" + made.Secret}
	fails(t, w, advice, "plan")
	w.environment = []string{"MILLRACE_TOKEN=mlr_nothing"}
	fails(t, w, advice, "plan")
	w.environment = nil
	w.isEmpty("with a token that is good")
	w.must("destroy", "-auto-approve")
}

func TestATokenThatMayNot(t *testing.T) {
	t.Parallel()
	w := newWorkspace(t)
	var made struct{ Secret string }
	body := map[string]any{"name": "reader", "scopes": []string{"brokers:read"}}
	if _, err := millrace.send(http.MethodPost, "tokens", body, nil, &made); err != nil {
		t.Fatal(err)
	}
	w.configure(plant)
	w.environment = []string{"MILLRACE_TOKEN=" + made.Secret}
	fails(t, w, []string{"brokers:write"}, "apply", "-auto-approve")
}

// With the id of another organisation the server finds nothing. Terraform must not take that for a reason to make all of it again, or
// to forget it.
func TestAnotherOrganisation(t *testing.T) {
	t.Parallel()
	w := newWorkspace(t)
	w.configure(plant)
	w.apply()
	advice := []string{"there is no such organisation", "MILLRACE_ORGANISATION", "The state is as it was"}
	w.environment = []string{"MILLRACE_ORGANISATION=01a20571-479a-7fc1-b273-d2279a12fb2f"}
	fails(t, w, advice, "plan")
	fails(t, w, advice, "destroy", "-auto-approve", "-refresh=false")
	fresh := newWorkspace(t)
	fresh.configure(plant)
	fresh.environment = w.environment
	fails(t, fresh, advice[:2], "apply", "-auto-approve")
	w.environment = []string{"MILLRACE_ORGANISATION=Plant"}
	fails(t, w, []string{`"organisation" (or MILLRACE_ORGANISATION) must be a UUID in lower case, not "Plant"`}, "plan")
	w.environment = nil
	w.isEmpty("with the right organisation")
	expect(t, w.must("destroy", "-auto-approve"), "3 destroyed")
}
