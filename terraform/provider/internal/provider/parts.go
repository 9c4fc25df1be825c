// Resources of a broker that differ only in their settings: this file has their operations, group.go, client_ca.go, jwt_issuer.go
// and webhook.go have their settings.

package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"millrace/terraform/provider/internal/api"
)

// partKind is a kind of resource that a broker has several of by name, each written as a whole (PUT).
type partKind[M any] struct {
	name             string
	schema           schema.Schema
	get, put, delete api.Operation
	at               func(*M) (broker, name types.String)
	// settings is the body of the request. state is nil for a new one.
	settings func(plan, state *M) (any, error)
	// target returns the value that the response is decoded into, and a function that copies that value into the state.
	target func(state *M) (into any, copyToState func() error)
}

func partResource[M any](of partKind[M]) kind[M] {
	path := func(model *M) []string {
		broker, name := of.at(model)
		return []string{broker.ValueString(), name.ValueString()}
	}
	send := func(ctx context.Context, client *api.Client, plan, state *M, etag string) (string, error) {
		body, err := of.settings(plan, state)
		if err != nil {
			return "", err
		}
		request := api.Request{Operation: of.put, Path: path(plan), Body: body, IfMatch: etag, IsNew: state == nil}
		return client.Do(ctx, request, nil)
	}
	return kind[M]{
		name:     of.name,
		schema:   of.schema,
		importID: []string{"broker", "name"},
		create: func(ctx context.Context, client *api.Client, plan *M) (string, error) {
			return send(ctx, client, plan, nil, "")
		},
		read: func(ctx context.Context, client *api.Client, state *M) (string, error) {
			into, copyToState := of.target(state)
			etag, err := client.Do(ctx, api.Request{Operation: of.get, Path: path(state)}, into)
			if err != nil {
				return "", err
			}
			return etag, copyToState()
		},
		update: send,
		remove: func(ctx context.Context, client *api.Client, state *M, etag string) error {
			_, err := client.Do(ctx, api.Request{Operation: of.delete, Path: path(state), IfMatch: etag}, nil)
			return err
		},
	}
}

// writeOnly is what is sent for a secret that the API never shows: its value, or an empty text that takes it away.
func writeOnly(plan, state types.String) *string {
	if plan.IsNull() && !state.IsNull() {
		empty := ""
		return &empty
	}
	return plan.ValueStringPointer()
}
