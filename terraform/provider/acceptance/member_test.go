package acceptance

import (
	"net/http"
	"testing"
)

// A person who accepts the invitation stays one resource: the plan is empty, another role is a drift, the role changes in place,
// and an import finds the member. TestResources/member has the life of an invitation.
func TestAMemberWhoAcceptsTheInvitation(t *testing.T) {
	const address, email = "millrace_member.bob", "bob@example.org"
	configuration := func(role string) string {
		return "resource \"millrace_member\" \"bob\" {\n  email = \"" + email + "\"\n  role = \"" + role + "\"\n}\n"
	}
	w := newWorkspace(t)
	w.configure(configuration("viewer"))
	w.apply()
	token := w.attributes(address)["invitation_token"].(string)
	bob := map[string]any{"email": email, "name": "Bob", "password": "a sentence that nobody knows", "token": token}
	stranger := server{base: millrace.base}
	if _, err := stranger.send(http.MethodPost, "/sign-up", bob, nil, nil); err != nil {
		t.Fatal(err)
	}
	w.isEmpty("after the person accepted")
	w.must("apply", "-refresh-only", "-auto-approve")
	user, ok := w.attributes(address)["user"].(string)
	if !ok || w.attributes(address)["invitation"] != nil {
		t.Fatalf("the state has no member: %v", w.attributes(address))
	}

	millrace.do(t, http.MethodPatch, "members/"+user, map[string]any{"role": "operator"})
	w.differs("after another role by the API", address, "role")
	w.configure(configuration("operator"))
	w.isEmpty("with the role that the API gave")
	w.configure(configuration("viewer"))
	expect(t, w.apply(), "0 added, 1 changed, 0 destroyed")
	w.isEmpty("after the role was mended")
	if w.attributes(address)["user"] != user {
		t.Fatal("the member is another person")
	}

	w.must("state", "rm", address)
	w.must("import", address, email)
	w.isEmpty("after import")
	expect(t, w.must("destroy", "-auto-approve"), "1 destroyed")
	if listed("members", "email")(t, map[string]any{"email": email}) {
		t.Fatal("the person is a member still")
	}
}
