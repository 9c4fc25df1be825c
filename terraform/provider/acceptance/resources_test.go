package acceptance

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"
)

// trial is the life of one resource: it is made, changed, changed by somebody else, imported, deleted by somebody else, destroyed.
type trial struct {
	name    string
	address string
	// Bodies of the resource's block. %s stands for the name of a broker that is there already.
	made, changed string
	// isReplaced says that the change makes a new thing.
	isReplaced bool
	// drift changes the thing by the API; the plan must name attribute.
	drift     func(t *testing.T, broker string, state map[string]any)
	attribute string
	// path is where the API has the thing.
	path func(broker string, state map[string]any) string
	// isThere says whether the API has it, for what a list shows.
	isThere func(t *testing.T, state map[string]any) bool
	id      func(broker string, state map[string]any) string
	// hidden are the attributes that the API never shows: an import does not have them.
	hidden []string
	// isLasting says that the thing is not deleted without its broker.
	isLasting bool
}

func TestResources(t *testing.T) {
	below := func(kind string) func(string, map[string]any) string {
		return func(broker string, state map[string]any) string { return fmt.Sprintf("brokers/%s/%s/it", broker, kind) }
	}
	named := func(broker string, _ map[string]any) string { return broker + "/it" }
	put := func(kind string, body map[string]any) func(*testing.T, string, map[string]any) {
		return func(t *testing.T, broker string, state map[string]any) {
			millrace.do(t, http.MethodPut, below(kind)(broker, state), body)
		}
	}
	inADay := fmt.Sprintf("expires_at_ms = %d\n", time.Now().Add(24*time.Hour).UnixMilli())
	trials := []trial{
		{
			name:    "broker",
			made:    `display_name = "Plant 7"`,
			changed: "display_name = \"Plant 8\"\nsuspended = true\nlimits = {\n  broker = { connections = 500 }\n  client = { queue_age_s = 3600 }\n}",
			drift: func(t *testing.T, _ string, state map[string]any) {
				limits := map[string]any{"broker": map[string]any{"connections": 9}}
				millrace.do(t, http.MethodPatch, "brokers/"+state["name"].(string), map[string]any{"limits": limits})
				millrace.do(t, http.MethodPost, "brokers/"+state["name"].(string)+"/resume", nil)
			},
			attribute: "suspended",
			path:      func(_ string, state map[string]any) string { return "brokers/" + state["name"].(string) },
			id:        func(_ string, state map[string]any) string { return state["name"].(string) },
		},
		{
			name:    "access",
			made:    "broker = %q\ntokens = true",
			changed: "broker = %q\npasswords = false\ncertificates = \"required\"\nwebhook = {\n  url = \"https://who.example.org/mqtt\"\n  signing_key = \"a long secret\"\n}\nrules = [{ effect = \"allow\", action = \"all\", filter = \"plant/#\", qos_max = 1 }]",
			drift: func(t *testing.T, broker string, _ map[string]any) {
				millrace.do(t, http.MethodPut, "brokers/"+broker+"/access", map[string]any{"anonymous": true})
			},
			attribute: "anonymous",
			path:      func(broker string, _ map[string]any) string { return "brokers/" + broker + "/access" },
			id:        func(broker string, _ map[string]any) string { return broker },
			hidden:    []string{"webhook.signing_key"},
			isLasting: true,
		},
		{
			name:    "credential",
			made:    "broker = %q\nuser = \"it\"",
			changed: "broker = %q\nuser = \"it\"\nenabled = false\nexpires_at_ms = 4102444800000\nrules = [{ effect = \"allow\", action = \"publish\", filter = \"pumps/%%c/#\", retain = false }]",
			drift:   put("credentials", map[string]any{"enabled": true}), attribute: "enabled",
			path: below("credentials"), id: named, hidden: []string{"secret"},
		},
		{
			name:    "credential",
			address: "millrace_credential.bound",
			made:    "broker = %q\nuser = \"it\"\nclient_id = \"first\"",
			changed: "broker = %q\nuser = \"it\"\nclient_id = \"second\"",
			drift:   put("credentials", map[string]any{"enabled": true, "client_id": "third"}), attribute: "third",
			path: below("credentials"), id: named, hidden: []string{"secret"},
		},
		{
			name:    "group",
			made:    "broker = %q\nname = \"it\"",
			changed: "broker = %q\nname = \"it\"\nrules = [\n  { effect = \"deny\", action = \"subscribe\", filter = \"private/#\" },\n  { effect = \"allow\", action = \"all\", filter = \"#\" },\n]",
			drift:   put("groups", map[string]any{"rules": []any{}}), attribute: "private/#",
			path: below("groups"), id: named,
		},
		{
			name:    "client_ca",
			made:    "broker = %q\nname = \"it\"\npem = " + quoted(certificate()),
			changed: "broker = %q\nname = \"it\"\nenabled = false\nuser = \"san_dns\"\npem = " + quoted(certificate()),
			drift:   put("client-cas", map[string]any{"pem": certificate()}), attribute: "san_dns",
			path: below("client-cas"), id: named,
		},
		{
			name:    "jwt_issuer",
			made:    "broker = %q\nname = \"it\"\nalgorithms = [\"HS256\"]\nkey = { kind = \"secret\", secret = \"0123456789abcdef0123456789abcdef\" }",
			changed: "broker = %q\nname = \"it\"\nalgorithms = [\"RS256\", \"ES256\"]\nkey = { kind = \"jwks\", url = \"https://login.example.org/keys\" }\nissuer = \"https://login.example.org\"\naudience = [\"plant\"]\nleeway_s = 5\ndisconnect_at_expiry = false\nclaims = { client_id = \"device\" }",
			drift: put("jwt-issuers", map[string]any{
				"algorithms": []string{"ES256", "RS256"}, "key": map[string]any{"kind": "jwks", "url": "https://login.example.org/other"},
			}),
			attribute: "https://login.example.org/other",
			path:      below("jwt-issuers"), id: named,
		},
		{
			name:    "webhook",
			made:    "broker = %q\nname = \"it\"\nurl = \"https://example.org/hook\"\nevents = [\"connect\"]\nsigning_key = \"a long secret\"",
			changed: "broker = %q\nname = \"it\"\nurl = \"https://example.org/hook\"\nevents = [\"message\", \"limit_reached\"]\nfilters = [\"plant/+/alarm\"]\nbatch_max = 50\nenabled = false",
			drift: put("webhooks", map[string]any{
				"url": "https://example.org/other", "events": []string{"limit_reached", "message"}, "filters": []string{"plant/+/alarm"},
			}),
			attribute: "https://example.org/other",
			path:      below("webhooks"), id: named,
		},
		{
			name:    "spend_cap",
			made:    "broker = %q\nmonthly_micros = 5000000\naction = \"stop\"",
			changed: "broker = %q\nmonthly_micros = 9000000\naction = \"continue\"",
			drift: func(t *testing.T, broker string, _ map[string]any) {
				millrace.do(t, http.MethodPut, "brokers/"+broker+"/spend-cap", map[string]any{"monthly_micros": 1, "action": "continue"})
			},
			attribute: "monthly_micros",
			path:      func(broker string, _ map[string]any) string { return "brokers/" + broker + "/spend-cap" },
			id:        func(broker string, _ map[string]any) string { return broker },
		},
		{
			name:    "spend_cap",
			address: "millrace_spend_cap.all",
			made:    "monthly_micros = 5000000\naction = \"continue\"",
			changed: "monthly_micros = 7000000\naction = \"continue\"",
			drift: func(t *testing.T, _ string, _ map[string]any) {
				millrace.do(t, http.MethodPut, "spend-cap", map[string]any{"monthly_micros": 8000000, "action": "continue"})
			},
			attribute: "monthly_micros",
			path:      func(string, map[string]any) string { return "spend-cap" },
			id:        func(string, map[string]any) string { return "organisation" },
		},
		{
			name:       "claim_token",
			made:       "broker = %q\nname = \"it\"\nuser_prefix = \"pump-\"\nuses_max = 5\n" + inADay,
			changed:    "broker = %q\nname = \"it\"\nuser_prefix = \"pump-\"\nuses_max = 5\nbind_client_id = false\nrules = [{ effect = \"allow\", action = \"all\", filter = \"pumps/%%u/#\", qos_max = 1 }]\n" + inADay,
			isReplaced: true,
			path: func(broker string, state map[string]any) string {
				return "brokers/" + broker + "/claim-tokens/" + state["id"].(string)
			},
			id:     func(broker string, state map[string]any) string { return broker + "/" + state["id"].(string) },
			hidden: []string{"secret"},
		},
		{
			name:       "token",
			made:       "name = \"it\"\nscopes = [\"brokers:read\"]",
			changed:    "name = \"it\"\nscopes = [\"brokers:read\", \"access:read\"]\nexpires_at_ms = 4102444800000",
			isReplaced: true,
			path:       func(_ string, state map[string]any) string { return "tokens/" + state["id"].(string) },
			isThere:    listed("tokens", "id"),
			id:         func(_ string, state map[string]any) string { return state["id"].(string) },
			hidden:     []string{"secret"},
		},
		{
			name:    "member",
			made:    "email = \"ann@example.org\"\nrole = \"viewer\"",
			changed: "email = \"ann@example.org\"\nrole = \"operator\"",
			path:    func(_ string, state map[string]any) string { return "invitations/" + state["invitation"].(string) },
			isThere: listed("invitations", "email"),
			id:      func(_ string, state map[string]any) string { return state["email"].(string) },
			hidden:  []string{"invitation_token"},
		},
	}
	for _, it := range trials {
		if it.address == "" {
			it.address = "millrace_" + it.name + ".it"
		}
		t.Run(strings.TrimPrefix(it.address, "millrace_"), func(t *testing.T) {
			t.Parallel()
			it.run(t)
		})
	}
}

func (it trial) run(t *testing.T) {
	broker := millrace.broker(t)
	w := newWorkspace(t)
	label := it.address[strings.LastIndex(it.address, ".")+1:]
	block := func(body string) string {
		if strings.Contains(body, "%") {
			body = fmt.Sprintf(body, broker)
		}
		return fmt.Sprintf("resource \"millrace_%s\" %q {\n%s\n}\n", it.name, label, body)
	}
	isThere := func(state map[string]any) bool {
		if it.isThere != nil {
			return it.isThere(t, state)
		}
		_, err := millrace.get(it.path(broker, state))
		return err == nil
	}

	w.configure(block(it.made))
	expect(t, w.apply(), "1 added, 0 changed, 0 destroyed")
	w.isEmpty("after create")
	if !isThere(w.attributes(it.address)) {
		t.Fatal("the API does not have it")
	}

	w.configure(block(it.changed))
	if it.isReplaced {
		expect(t, w.apply(), "1 added, 0 changed, 1 destroyed")
	} else {
		expect(t, w.apply(), "0 added, 1 changed, 0 destroyed")
	}
	w.isEmpty("after change")
	state := w.attributes(it.address)

	if it.drift != nil {
		it.drift(t, broker, state)
		w.differs("after a change by the API", it.address, it.attribute)
		expect(t, w.apply(), "0 added, 1 changed, 0 destroyed")
		w.isEmpty("after the drift was mended")
	}

	before := w.attributes(it.address)
	w.must("state", "rm", it.address)
	w.must("import", it.address, it.id(broker, state))
	after := w.attributes(it.address)
	if !reflect.DeepEqual(without(before, it.hidden), without(after, it.hidden)) {
		t.Fatalf("imported:\n%v\ninstead of:\n%v", after, before)
	}
	w.apply()
	w.isEmpty("after import")

	if !it.isLasting {
		millrace.do(t, http.MethodDelete, it.path(broker, w.attributes(it.address)), nil)
		w.differs("after a deletion by the API", it.address, "1 to add")
		w.apply()
	}
	state = w.attributes(it.address)
	expect(t, w.must("destroy", "-auto-approve"), "1 destroyed")
	if it.isLasting {
		found, err := millrace.get(it.path(broker, state))
		if err != nil || found["passwords"] != true {
			t.Fatalf("it has not its defaults: %v %v", found, err)
		}
	} else if isThere(state) {
		t.Fatal("it was not destroyed")
	}
}

func expect(t *testing.T, output, text string) {
	t.Helper()
	if !strings.Contains(output, text) {
		t.Fatalf("%q is not in:\n%s", text, output)
	}
}

// listed says whether a list of the API has an item with the same value of a field as the state.
func listed(list, field string) func(*testing.T, map[string]any) bool {
	return func(t *testing.T, state map[string]any) bool {
		found, err := millrace.get(list)
		if err != nil {
			t.Fatal(err)
		}
		for _, it := range found["items"].([]any) {
			if it.(map[string]any)[field] == state[field] {
				return true
			}
		}
		return false
	}
}

// without leaves attributes out, such as webhook.signing_key.
func without(values map[string]any, names []string) map[string]any {
	values = maps.Clone(values)
	for _, name := range names {
		outer, inner, isNested := strings.Cut(name, ".")
		if nested, ok := values[outer].(map[string]any); ok && isNested {
			values[outer] = without(nested, []string{inner})
		} else {
			delete(values, outer)
		}
	}
	return values
}

// quoted is a text as Terraform's language has it. JSON's escapes are a part of HCL's.
func quoted(text string) string {
	encoded, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return strings.ReplaceAll(string(encoded), "%", "%%")
}
