// All resources share this file: create, read, update, delete and import, on top of the functions that a kind has of its own.

package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"millrace/terraform/provider/internal/api"
)

// kind describes one kind of resource. M is the model of its state: the attributes as Go values.
type kind[M any] struct {
	// name follows "millrace_".
	name   string
	schema schema.Schema
	// importID names the attributes that an import id is made of, in order and separated by slashes.
	importID []string

	// create fills the computed attributes of the plan and returns the version (ETag), if the API has one.
	create func(ctx context.Context, client *api.Client, plan *M) (string, error)
	// read brings the state up to date. A 404 says that the object is gone.
	read func(ctx context.Context, client *api.Client, state *M) (string, error)
	// update is nil when each change replaces the object. etag is the version that was read last.
	update func(ctx context.Context, client *api.Client, plan, state *M, etag string) (string, error)
	remove func(ctx context.Context, client *api.Client, state *M, etag string) error
}

// partialError says that the object exists, but not as planned: the state keeps the object, so that Terraform can replace it.
type partialError struct{ error }

func (e partialError) Unwrap() error { return e.error }

type kindResource[M any] struct {
	kind[M]
	client *api.Client
}

func newResource[M any](of kind[M]) func() resource.Resource {
	return func() resource.Resource { return &kindResource[M]{kind: of} }
}

func (r *kindResource[M]) Metadata(_ context.Context, request resource.MetadataRequest, response *resource.MetadataResponse) {
	response.TypeName = request.ProviderTypeName + "_" + r.name
}

func (r *kindResource[M]) Schema(_ context.Context, _ resource.SchemaRequest, response *resource.SchemaResponse) {
	response.Schema = r.schema
}

func (r *kindResource[M]) Configure(_ context.Context, request resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	if client, ok := request.ProviderData.(*api.Client); ok {
		r.client = client
	}
}

func (r *kindResource[M]) Create(ctx context.Context, request resource.CreateRequest, response *resource.CreateResponse) {
	var plan M
	response.Diagnostics.Append(request.Plan.Get(ctx, &plan)...)
	if response.Diagnostics.HasError() {
		return
	}
	etag, err := r.create(ctx, r.client, &plan)
	if isConflict(err) {
		err = r.orImport(ctx, request.Plan, err)
	}
	r.explain(&response.Diagnostics, "make", r.isThere(ctx, err))
	var partial partialError
	if err != nil && !errors.As(err, &partial) {
		return
	}
	response.Diagnostics.Append(response.State.Set(ctx, &plan)...)
	response.Diagnostics.Append(response.Private.SetKey(ctx, etagKey, stored(etag))...)
}

func (r *kindResource[M]) Read(ctx context.Context, request resource.ReadRequest, response *resource.ReadResponse) {
	var state M
	response.Diagnostics.Append(request.State.Get(ctx, &state)...)
	if response.Diagnostics.HasError() {
		return
	}
	etag, err := r.read(ctx, r.client, &state)
	err = r.isThere(ctx, err)
	if isGone(err) {
		response.State.RemoveResource(ctx)
		return
	}
	r.explain(&response.Diagnostics, "read", err)
	if err != nil {
		return
	}
	response.Diagnostics.Append(response.State.Set(ctx, &state)...)
	response.Diagnostics.Append(response.Private.SetKey(ctx, etagKey, stored(etag))...)
}

func (r *kindResource[M]) Update(ctx context.Context, request resource.UpdateRequest, response *resource.UpdateResponse) {
	var plan, state M
	response.Diagnostics.Append(request.Plan.Get(ctx, &plan)...)
	response.Diagnostics.Append(request.State.Get(ctx, &state)...)
	old, diagnostics := request.Private.GetKey(ctx, etagKey)
	response.Diagnostics.Append(diagnostics...)
	if response.Diagnostics.HasError() {
		return
	}
	if r.update == nil {
		response.Diagnostics.AddError("Nothing of it can be changed", "millrace_"+r.name+" is replaced instead. This is a bug of the provider.")
		return
	}
	etag, err := r.update(ctx, r.client, &plan, &state, loaded(old))
	r.explain(&response.Diagnostics, "change", err)
	if err != nil {
		return
	}
	response.Diagnostics.Append(response.State.Set(ctx, &plan)...)
	response.Diagnostics.Append(response.Private.SetKey(ctx, etagKey, stored(etag))...)
}

func (r *kindResource[M]) Delete(ctx context.Context, request resource.DeleteRequest, response *resource.DeleteResponse) {
	var state M
	response.Diagnostics.Append(request.State.Get(ctx, &state)...)
	old, diagnostics := request.Private.GetKey(ctx, etagKey)
	response.Diagnostics.Append(diagnostics...)
	if response.Diagnostics.HasError() {
		return
	}
	if err := r.isThere(ctx, r.remove(ctx, r.client, &state, loaded(old))); !isGone(err) {
		r.explain(&response.Diagnostics, "delete", err)
	}
}

func (r *kindResource[M]) ImportState(ctx context.Context, request resource.ImportStateRequest, response *resource.ImportStateResponse) {
	parts := strings.SplitN(request.ID, "/", len(r.importID))
	for _, part := range parts {
		if part == "" || len(parts) != len(r.importID) {
			wanted := strings.ToUpper(strings.Join(r.importID, "/"))
			response.Diagnostics.AddError("The import id is wrong", fmt.Sprintf("%q is not %s.", request.ID, wanted))
			return
		}
	}
	for i, part := range parts {
		response.Diagnostics.Append(response.State.SetAttribute(ctx, path.Root(r.importID[i]), types.StringValue(part))...)
	}
}

// explain turns an error into diagnostics. Fields that the server names become attributes.
func (r *kindResource[M]) explain(diagnostics *diag.Diagnostics, what string, err error) {
	if err == nil {
		return
	}
	summary := fmt.Sprintf("millrace_%s: cannot %s it", r.name, what)
	var problem *api.Error
	if !errors.As(err, &problem) || problem.Problem.Fields == nil || len(*problem.Problem.Fields) == 0 {
		if problem != nil && problem.Problem.Status == 412 {
			err = fmt.Errorf("it was made or changed by somebody else meanwhile: plan again, or import it (%w)", err)
		}
		diagnostics.AddError(summary, err.Error()+advice(err))
		return
	}
	for _, field := range *problem.Problem.Fields {
		detail := fmt.Sprintf("%s: %s", field.Field, field.Detail)
		if at, ok := attributePath(r.schema.Attributes, field.Field); ok {
			diagnostics.AddAttributeError(at, summary, detail)
		} else {
			diagnostics.AddError(summary, detail)
		}
	}
}

const etagKey = "etag"

// stored is an ETag as the private state takes it: as JSON.
func stored(etag string) []byte {
	text, err := json.Marshal(etag)
	if err != nil {
		return []byte(`""`)
	}
	return text
}

// loaded is the precondition of a change: the version that was read last, or any.
func loaded(stored []byte) string {
	var etag string
	if json.Unmarshal(stored, &etag) != nil || etag == "" {
		return "*"
	}
	return etag
}
