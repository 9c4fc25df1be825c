// The resource millrace_token: an API token of the organisation.

package provider

import (
	"context"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/setvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/setplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"millrace/terraform/provider/internal/api"
)

type tokenModel struct {
	ID          types.String `tfsdk:"id"`
	Name        types.String `tfsdk:"name"`
	Scopes      []string     `tfsdk:"scopes"`
	ExpiresAtMs types.Int64  `tfsdk:"expires_at_ms"`
	Secret      types.String `tfsdk:"secret"`
}

// token has no update: the API changes no token, so that nobody gives more rights to a secret that is out already.
var token = kind[tokenModel]{
	name:     "token",
	importID: []string{"id"},
	schema: schema.Schema{
		Description: "An API token of the organisation. The server shows a secret once, so Terraform's state keeps it: encrypt the state.",
		Attributes: map[string]schema.Attribute{
			"id":   computed("Id of the token."),
			"name": key("Name of the token, for people.", stringvalidator.UTF8LengthAtMost(100)),
			"scopes": schema.SetAttribute{
				Required:    true,
				ElementType: types.StringType,
				Description: "Its permissions: no more than those of the provider's own token.",
				Validators: []validator.Set{
					setvalidator.SizeAtLeast(1),
					setvalidator.ValueStringsAre(oneOf(
						api.OrganisationRead, api.OrganisationWrite, api.BrokersRead, api.BrokersWrite, api.AccessRead, api.AccessWrite,
						api.ClientsRead, api.ClientsWrite, api.AuditRead, api.MessagesRead, api.MessagesWrite)),
				},
				PlanModifiers: []planmodifier.Set{setplanmodifier.RequiresReplace()},
			},
			"expires_at_ms": schema.Int64Attribute{
				Optional: true,
				Description: "Until when it is good, Unix milliseconds; for ever if it is left out. The server may delete the token then; " +
					"the state keeps it until this changes.",
				Validators:    []validator.Int64{int64validator.AtLeast(1)},
				PlanModifiers: []planmodifier.Int64{int64planmodifier.RequiresReplace()},
			},
			"secret": schema.StringAttribute{
				Computed:      true,
				Sensitive:     true,
				Description:   "The text that programs send. Null after an import.",
				PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
			},
		},
	},
	create: func(ctx context.Context, client *api.Client, plan *tokenModel) (string, error) {
		body := api.NewToken{
			Name: plan.Name.ValueString(), Scopes: values[api.Permission](plan.Scopes), ExpiresAtMs: plan.ExpiresAtMs.ValueInt64Pointer(),
		}
		var made api.MadeToken
		if _, err := client.Do(ctx, api.Request{Operation: api.OpCreateToken, Body: body}, &made); err != nil {
			return "", err
		}
		plan.ID = types.StringValue(made.Id.String())
		plan.Secret = types.StringValue(made.Secret)
		return "", nil
	},
	read: func(ctx context.Context, client *api.Client, state *tokenModel) (string, error) {
		found, err := api.Find(ctx, client, api.OpListTokens, func(it *api.Token) bool { return it.Id.String() == state.ID.ValueString() })
		if api.IsNotFound(err) && hasExpired(state.ExpiresAtMs, time.Now()) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		state.Name = types.StringValue(found.Name)
		state.Scopes = texts(found.Scopes)
		state.ExpiresAtMs = types.Int64PointerValue(found.ExpiresAtMs)
		return "", nil
	},
	remove: func(ctx context.Context, client *api.Client, state *tokenModel, _ string) error {
		_, err := client.Do(ctx, api.Request{Operation: api.OpDeleteToken, Path: []string{state.ID.ValueString()}}, nil)
		return err
	},
}
