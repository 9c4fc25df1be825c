package provider

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"millrace/terraform/provider/internal/api"
)

// accounts is an API with one credential, which refuses fields that openapi.json does not have. A change replaces all of the credential.
func accounts(t *testing.T) *api.Client {
	t.Helper()
	shown := map[string]any{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		refuse := func(err error) {
			t.Errorf("%s: %v", r.Method, err)
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
		strict := json.NewDecoder(r.Body)
		strict.DisallowUnknownFields()
		switch r.Method {
		case http.MethodPost:
			var body api.NewCredential
			if err := strict.Decode(&body); err != nil {
				refuse(err)
				return
			}
			shown = map[string]any{"user": body.User, "client_id": body.ClientId, "enabled": true, "rules": body.Rules}
		case http.MethodPut:
			var body api.CredentialChange
			if err := strict.Decode(&body); err != nil {
				refuse(err)
				return
			}
			shown = map[string]any{"user": shown["user"], "client_id": body.ClientId, "enabled": body.Enabled, "rules": body.Rules}
		}
		if err := json.NewEncoder(w).Encode(shown); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return api.New(server.URL, "secret", "o", "test")
}

func TestTheClientIDOfACredentialIsKeptChangedAndTakenAway(t *testing.T) {
	client := accounts(t)
	plan := func(clientID types.String, isEnabled bool) *credentialModel {
		return &credentialModel{
			Broker: types.StringValue("b"), User: types.StringValue("pump-7"), ClientID: clientID, Enabled: types.BoolValue(isEnabled),
		}
	}
	// The state as an import begins it.
	expect := func(want types.String) {
		t.Helper()
		state := credentialModel{Broker: types.StringValue("b"), User: types.StringValue("pump-7")}
		if _, err := credential.read(t.Context(), client, &state); err != nil {
			t.Fatal(err)
		}
		if !state.ClientID.Equal(want) {
			t.Fatalf("the client id is %s instead of %s", state.ClientID, want)
		}
	}
	for _, isEnabled := range []bool{true, false} {
		if _, err := credential.create(t.Context(), client, plan(types.StringValue("first"), isEnabled)); err != nil {
			t.Fatal(err)
		}
		expect(types.StringValue("first"))
	}
	state := plan(types.StringValue("first"), false)
	for _, next := range []types.String{types.StringValue("second"), types.StringNull()} {
		changed := plan(next, true)
		if _, err := credential.update(t.Context(), client, changed, state, "*"); err != nil {
			t.Fatal(err)
		}
		expect(next)
		state = changed
	}
}

func TestAPasswordIsSentByANewCredential(t *testing.T) {
	for name, it := range map[string]struct {
		state    credentialModel
		password types.String
		replaces bool
	}{
		"made with a secret":   {credentialModel{Secret: types.StringValue("s")}, types.StringValue("p"), true},
		"made with a password": {credentialModel{Password: types.StringValue("o")}, types.StringValue("p"), true},
		"password taken away":  {credentialModel{Password: types.StringValue("o")}, types.StringNull(), true},
		"imported":             {credentialModel{}, types.StringValue("p"), false},
		"unchanged":            {credentialModel{Secret: types.StringValue("s")}, types.StringNull(), false},
	} {
		state := tfsdk.State{Schema: credential.schema}
		plan := tfsdk.Plan{Schema: credential.schema}
		planned := it.state
		planned.Password = it.password
		if found := append(state.Set(t.Context(), &it.state), plan.Set(t.Context(), &planned)...); found.HasError() {
			t.Fatal(found)
		}
		request := planmodifier.StringRequest{State: state, StateValue: it.state.Password, Plan: plan, PlanValue: it.password}
		response := planmodifier.StringResponse{PlanValue: it.password}
		replaceUnlessImported().PlanModifyString(t.Context(), request, &response)
		if response.Diagnostics.HasError() || response.RequiresReplace != it.replaces {
			t.Errorf("%s: replaced %v: %v", name, response.RequiresReplace, response.Diagnostics)
		}
	}
}

func TestACredentialNamesItsClaimToken(t *testing.T) {
	const id = "01a20571-479a-7fc1-b273-d2279a12fb2f"
	shown := map[string]any{"user": "pump-7", "enabled": true, "rules": []any{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := json.NewEncoder(w).Encode(shown); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	client := api.New(server.URL, "secret", "o", "test")
	plan := credentialModel{Broker: types.StringValue("b"), User: types.StringValue("pump-7"), Enabled: types.BoolValue(true), ClaimToken: types.StringUnknown()}
	if _, err := credential.create(t.Context(), client, &plan); err != nil || !plan.ClaimToken.IsNull() {
		t.Fatal(plan.ClaimToken, err)
	}
	shown["claim_token"] = id
	if _, err := credential.read(t.Context(), client, &plan); err != nil || plan.ClaimToken.ValueString() != id {
		t.Fatal(plan.ClaimToken, err)
	}
}
