package provider

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"millrace/terraform/provider/internal/api"
)

// The server deletes expired tokens when an organisation has no room for another one. Only then a missing token is no reason for a
// new one, which could not be made, because its end is over.
func TestOnlyAnExpiredTokenStaysInTheState(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := json.NewEncoder(w).Encode(map[string]any{"items": []api.Token{}}); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	client := api.New(server.URL, "secret", "o", "test")
	for _, it := range []struct {
		name    string
		expires types.Int64
		stays   bool
	}{
		{"before its end", types.Int64Value(time.Now().Add(time.Hour).UnixMilli()), false},
		{"after its end", types.Int64Value(time.Now().UnixMilli()), true},
		{"without an end, or of an import", types.Int64Null(), false},
	} {
		state := &tokenModel{ID: types.StringValue(uuid.NewString()), Name: types.StringValue("reader"), ExpiresAtMs: it.expires}
		_, err := token.read(t.Context(), client, state)
		if it.stays && err != nil || !it.stays && !api.IsNotFound(err) {
			t.Errorf("%s: %v", it.name, err)
		}
		if it.stays && (state.Name.ValueString() != "reader" || state.ExpiresAtMs != it.expires) {
			t.Errorf("%s: the state changed: %+v", it.name, state)
		}
	}
}
