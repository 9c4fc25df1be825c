package provider

import (
	"maps"
	"slices"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
)

func TestFieldsOfTheServerBecomeAttributes(t *testing.T) {
	for field, want := range map[string]string{
		"rules[2].filter": "rules[2].filter",
		"rules":           "rules",
		"webhook.url":     "webhook.url",
		"webhook.what":    "webhook",
		"what":            "",
	} {
		at, ok := attributePath(access.schema.Attributes, field)
		if ok != (want != "") || at.String() != want {
			t.Errorf("%s: %q %v", field, at, ok)
		}
	}
	// Elements of a set have no index.
	if at, _ := attributePath(jwtIssuers.schema.Attributes, "algorithms[1]"); at.String() != "algorithms" {
		t.Error(at)
	}
}

func TestFilters(t *testing.T) {
	for _, right := range []string{"#", "+", "a/+/b/#", "/", "$SYS/#", "pumps/%c/up"} {
		if wrong := wrongFilter(right); wrong != "" {
			t.Errorf("%s: %s", right, wrong)
		}
	}
	for _, wrong := range []string{"", "a#", "a/#/b", "+a", "$share/g/a", "a\x00"} {
		if wrongFilter(wrong) == "" {
			t.Errorf("%q is taken", wrong)
		}
	}
}

func TestSchemasAreRight(t *testing.T) {
	of := New("test")()
	var own provider.SchemaResponse
	of.Schema(t.Context(), provider.SchemaRequest{}, &own)
	if found := own.Schema.ValidateImplementation(t.Context()); found.HasError() {
		t.Error(found)
	}
	for _, make := range of.Resources(t.Context()) {
		var response resource.SchemaResponse
		make().Schema(t.Context(), resource.SchemaRequest{}, &response)
		if found := response.Schema.ValidateImplementation(t.Context()); found.HasError() {
			t.Error(found)
		}
	}
}

// Terraform prints each attribute that is not sensitive, in plans and in the logs of CI.
func TestSecretsAreNotPrinted(t *testing.T) {
	secrets := []string{"secret", "password", "token", "signing_key", "invitation_token", "private_key"}
	found := 0
	var look func(kind string, attributes map[string]schema.Attribute)
	look = func(kind string, attributes map[string]schema.Attribute) {
		for name, attribute := range maps.All(attributes) {
			if nested, ok := attribute.(schema.SingleNestedAttribute); ok {
				look(kind+"."+name, nested.Attributes)
			}
			if slices.Contains(secrets, name) {
				found++
				if !attribute.IsSensitive() {
					t.Errorf("%s.%s is printed", kind, name)
				}
			}
		}
	}
	for _, make := range New("test")().Resources(t.Context()) {
		var response resource.SchemaResponse
		it := make()
		it.Schema(t.Context(), resource.SchemaRequest{}, &response)
		var named resource.MetadataResponse
		it.Metadata(t.Context(), resource.MetadataRequest{ProviderTypeName: "millrace"}, &named)
		look(named.TypeName, response.Schema.Attributes)
	}
	if found < 7 {
		t.Fatalf("only %d secrets were found", found)
	}
}
