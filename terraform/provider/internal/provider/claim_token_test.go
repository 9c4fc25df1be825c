package provider

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"millrace/terraform/provider/internal/api"
)

// claimTokens is an API with at most one claim token, which refuses fields that openapi.json does not have.
func claimTokens(t *testing.T, shown *api.MadeClaimToken) *api.Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any = shown
		switch {
		case r.Method == http.MethodPost:
			var body api.NewClaimToken
			strict := json.NewDecoder(r.Body)
			strict.DisallowUnknownFields()
			if err := strict.Decode(&body); err != nil {
				t.Error(err)
			}
			*shown = api.MadeClaimToken{
				Id: uuid.New(), MadeBy: uuid.New(), CreatedAtMs: 7, Secret: "mlc_1", Name: body.Name, UserPrefix: body.UserPrefix,
				UsesMax: body.UsesMax, ExpiresAtMs: body.ExpiresAtMs, Group: body.Group, Rules: *body.Rules, BindClientId: *body.BindClientId,
			}
		case r.URL.Path != "/api/v1/organisations/o/brokers/b/claim-tokens/"+shown.Id.String():
			w.WriteHeader(http.StatusNotFound)
			answer = api.Problem{Detail: "no such claim token"}
		case r.Method == http.MethodDelete:
			*shown = api.MadeClaimToken{}
			w.WriteHeader(http.StatusNoContent)
			return
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return api.New(server.URL, "secret", "o", "test")
}

func planOfClaimToken(expires time.Time) *claimTokenModel {
	return &claimTokenModel{
		Broker: types.StringValue("b"), Name: types.StringValue("line 2"), UserPrefix: types.StringValue("pump-"),
		UsesMax: types.Int64Value(5), ExpiresAtMs: types.Int64Value(expires.UnixMilli()), BindClientID: types.BoolValue(true),
		Rules: []rule{{Effect: "allow", Action: "all", Filter: "pumps/%u/#", Retain: true, QosMax: 1}},
	}
}

func TestAClaimTokenIsReadAsItWasMade(t *testing.T) {
	var shown api.MadeClaimToken
	client := claimTokens(t, &shown)
	state := planOfClaimToken(time.Now().Add(time.Hour))
	if _, err := claimToken.create(t.Context(), client, state); err != nil {
		t.Fatal(err)
	}
	if state.Secret.ValueString() != "mlc_1" || state.Uses.ValueInt64() != 0 || state.Uses.IsNull() || state.CreatedAtMs.ValueInt64() != 7 {
		t.Fatalf("%+v", state)
	}
	shown.Uses = 5
	if _, err := claimToken.read(t.Context(), client, state); err != nil || state.Uses.ValueInt64() != 5 {
		t.Fatal(state.Uses, err)
	}
	imported := claimTokenModel{Broker: state.Broker, ID: state.ID}
	if _, err := claimToken.read(t.Context(), client, &imported); err != nil {
		t.Fatal(err)
	}
	if !imported.Secret.IsNull() {
		t.Fatal("an import has the secret")
	}
	imported.Secret = state.Secret
	if !reflect.DeepEqual(imported, *state) {
		t.Fatalf("%+v instead of %+v", imported, *state)
	}
}

// The server deletes an expired claim token. Only then a missing claim token is no reason for a new one.
func TestOnlyAnExpiredClaimTokenStaysInTheState(t *testing.T) {
	client := claimTokens(t, &api.MadeClaimToken{})
	for _, it := range []struct {
		name    string
		expires types.Int64
		stays   bool
	}{
		{"before its end", types.Int64Value(time.Now().Add(time.Hour).UnixMilli()), false},
		{"after its end", types.Int64Value(time.Now().UnixMilli()), true},
		{"of an import", types.Int64Null(), false},
	} {
		state := planOfClaimToken(time.Now())
		state.ID = types.StringValue(uuid.NewString())
		state.ExpiresAtMs = it.expires
		_, err := claimToken.read(t.Context(), client, state)
		if it.stays && err != nil || !it.stays && !api.IsNotFound(err) {
			t.Errorf("%s: %v", it.name, err)
		}
		if err := claimToken.remove(t.Context(), client, state, ""); !api.IsNotFound(err) {
			t.Errorf("%s: the deletion says %v; Delete takes 404 for done", it.name, err)
		}
	}
}
