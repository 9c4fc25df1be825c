package provider

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/types"

	"millrace/terraform/provider/internal/api"
)

func TestABrokerOfTheServersSettingsHasNoAccessUntilItIsSet(t *testing.T) {
	shown := map[string]any{"by_settings": true, "anonymous": true, "passwords": false, "scram": false}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			shown = map[string]any{}
			if err := json.NewDecoder(r.Body).Decode(&shown); err != nil {
				t.Error(err)
			}
			if shown["by_settings"] == true {
				w.WriteHeader(http.StatusUnprocessableEntity)
			}
		}
		if err := json.NewEncoder(w).Encode(shown); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	client := api.New(server.URL, "secret", "o", "test")
	state := accessModel{Broker: types.StringValue("default")}
	if _, err := access.read(t.Context(), client, &state); !api.IsNotFound(err) {
		t.Fatalf("it is read as %+v, %v", state, err)
	}
	plan := accessModel{
		Broker: types.StringValue("default"), Anonymous: types.BoolValue(true), Passwords: types.BoolValue(true),
		Scram: types.BoolValue(true), Tokens: types.BoolValue(false), Certificates: types.StringValue("off"),
	}
	if _, err := access.create(t.Context(), client, &plan); err != nil {
		t.Fatal(err)
	}
	if _, err := access.read(t.Context(), client, &state); err != nil || !state.Anonymous.ValueBool() {
		t.Fatalf("it is read as %+v, %v", state, err)
	}
}
