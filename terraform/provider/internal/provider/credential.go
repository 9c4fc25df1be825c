// The resource millrace_credential: a user of a broker. Its secret is in the state, because the API shows it once.

package provider

import (
	"context"
	"errors"

	"github.com/hashicorp/terraform-plugin-framework-validators/int32validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/boolplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"millrace/terraform/provider/internal/api"
)

type credentialModel struct {
	Broker        types.String `tfsdk:"broker"`
	User          types.String `tfsdk:"user"`
	Password      types.String `tfsdk:"password"`
	Secret        types.String `tfsdk:"secret"`
	SecretVersion types.Int64  `tfsdk:"secret_version"`
	OverlapS      types.Int32  `tfsdk:"overlap_s"`
	Keep          types.String `tfsdk:"keep"`
	ClientID      types.String `tfsdk:"client_id"`
	Group         types.String `tfsdk:"group"`
	Rules         []rule       `tfsdk:"rules"`
	Scram         types.Bool   `tfsdk:"scram"`
	Enabled       types.Bool   `tfsdk:"enabled"`
	ExpiresAtMs   types.Int64  `tfsdk:"expires_at_ms"`
	ClaimToken    types.String `tfsdk:"claim_token"`
}

var credential = kind[credentialModel]{
	name:     "credential",
	importID: []string{"broker", "user"},
	schema: schema.Schema{
		Description: "User name and password of a device. The server shows a secret once, so Terraform's state keeps it: encrypt the state.",
		Attributes: map[string]schema.Attribute{
			"broker": brokerKey(),
			"user":   key("User name, unique in the broker.", stringvalidator.UTF8LengthAtMost(256)),
			"password": schema.StringAttribute{
				Optional:    true,
				Sensitive:   true,
				Description: "A password that devices have already. Left out, the server makes a secret, which is safer. A change makes a new credential.",
				Validators: []validator.String{
					stringvalidator.LengthAtLeast(1),
					stringvalidator.ConflictsWith(path.MatchRoot("secret_version")),
				},
				PlanModifiers: []planmodifier.String{replaceUnlessImported()},
			},
			"secret": schema.StringAttribute{
				Computed:      true,
				Sensitive:     true,
				Description:   "The secret that the server made. Null with a password of yours, and after an import until secret_version changes.",
				PlanModifiers: []planmodifier.String{secretUntilRotated{}},
			},
			"secret_version": schema.Int64Attribute{
				Optional:    true,
				Description: "A number of yours. When it changes, the server makes a new secret.",
			},
			"overlap_s": schema.Int32Attribute{
				Optional:    true,
				Description: "After a change of secret_version the former secret is good for this long, too, seconds.",
				Validators: []validator.Int32{
					int32validator.Between(0, 2_592_000),
					int32validator.AlsoRequires(path.MatchRoot("secret_version")),
				},
			},
			"keep": schema.StringAttribute{
				Optional: true,
				Description: "The secret that stays good after a change of secret_version while two secrets are good. previous: the new one was " +
					"lost, and the one before it is good until its end, or for overlap_s if that is later. current: the one before it ends now; " +
					"needs overlap_s. Left out: with overlap_s the change is refused while two secrets are good.",
				Validators: []validator.String{
					oneOf(api.Current, api.Previous),
					stringvalidator.AlsoRequires(path.MatchRoot("secret_version")),
				},
			},
			"client_id": optionalText("The only client id that may connect by this name. Left out: any.",
				stringvalidator.LengthBetween(1, 1_024)),
			"group": group("Name of the group whose rules come after these."),
			"rules": rulesAttribute("The user's own rules; they come first."),
			"scram": schema.BoolAttribute{
				Optional:      true,
				Computed:      true,
				Default:       booldefault.StaticBool(false),
				Description:   "Clients may prove by SCRAM-SHA-256 that they know the password. A change makes a new credential.",
				PlanModifiers: []planmodifier.Bool{boolplanmodifier.RequiresReplace()},
			},
			"enabled": flag("False: nobody may connect by this name, and connected clients are disconnected.", true),
			"expires_at_ms": schema.Int64Attribute{
				Optional:    true,
				Description: "From then on nobody may connect by it, Unix milliseconds.",
				Validators:  []validator.Int64{int64validator.AtLeast(1)},
			},
			"claim_token": computed("Id of the claim token with which a device made the credential; null: it was made by other means."),
		},
	},
	create: func(ctx context.Context, client *api.Client, plan *credentialModel) (string, error) {
		rules := sentRules(plan.Rules)
		body := api.NewCredential{
			User: plan.User.ValueString(), Password: plan.Password.ValueStringPointer(), Group: plan.Group.ValueStringPointer(),
			Rules: &rules, ExpiresAtMs: plan.ExpiresAtMs.ValueInt64Pointer(), ClientId: plan.ClientID.ValueStringPointer(),
			Scram: plan.Scram.ValueBoolPointer(),
		}
		var made api.MadeCredential
		request := api.Request{Operation: api.OpCreateCredential, Path: []string{plan.Broker.ValueString()}, Body: body}
		etag, err := client.Do(ctx, request, &made)
		if err != nil {
			return "", err
		}
		plan.Secret = types.StringPointerValue(made.Secret)
		plan.ClaimToken = shownID(made.ClaimToken)
		if plan.Enabled.ValueBool() {
			return etag, nil
		}
		// The API makes credentials enabled. If this change fails, the state keeps the credential, and the next apply replaces it.
		if etag, err = changeCredential(ctx, client, plan, etag); err != nil {
			return "", partialError{err}
		}
		return etag, nil
	},
	read: func(ctx context.Context, client *api.Client, state *credentialModel) (string, error) {
		var found api.Credential
		etag, err := client.Do(ctx, api.Request{Operation: api.OpGetCredential, Path: state.path()}, &found)
		if err != nil {
			return "", err
		}
		state.ClientID = types.StringPointerValue(found.ClientId)
		state.Group = types.StringPointerValue(found.Group)
		state.Rules = shownRules(found.Rules)
		state.Scram = types.BoolValue(found.Scram != nil && *found.Scram)
		state.Enabled = types.BoolValue(found.Enabled)
		state.ExpiresAtMs = types.Int64PointerValue(found.ExpiresAtMs)
		state.ClaimToken = shownID(found.ClaimToken)
		return etag, nil
	},
	update: func(ctx context.Context, client *api.Client, plan, state *credentialModel, etag string) (string, error) {
		etag, err := changeCredential(ctx, client, plan, etag)
		if err != nil {
			return "", err
		}
		if plan.SecretVersion.Equal(state.SecretVersion) {
			plan.Secret = state.Secret
			return etag, nil
		}
		body := api.Rotation{
			OverlapS: plan.OverlapS.ValueInt32Pointer(), Keep: (*api.KeptPassword)(plan.Keep.ValueStringPointer()),
			Scram: plan.Scram.ValueBoolPointer(),
		}
		var made api.MadeCredential
		etag, err = client.Do(ctx, api.Request{Operation: api.OpRotateCredential, Path: plan.path(), Body: body}, &made)
		if err != nil {
			return "", err
		}
		if made.Secret == nil {
			return "", errors.New("the server made no new secret")
		}
		plan.Secret = types.StringPointerValue(made.Secret)
		return etag, nil
	},
	remove: func(ctx context.Context, client *api.Client, state *credentialModel, etag string) error {
		_, err := client.Do(ctx, api.Request{Operation: api.OpDeleteCredential, Path: state.path(), IfMatch: etag}, nil)
		return err
	},
}

func (m *credentialModel) path() []string {
	return []string{m.Broker.ValueString(), m.User.ValueString()}
}

func changeCredential(ctx context.Context, client *api.Client, plan *credentialModel, etag string) (string, error) {
	rules := sentRules(plan.Rules)
	body := api.CredentialChange{
		Group: plan.Group.ValueStringPointer(), Rules: &rules, Enabled: plan.Enabled.ValueBool(),
		ExpiresAtMs: plan.ExpiresAtMs.ValueInt64Pointer(), ClientId: plan.ClientID.ValueStringPointer(),
	}
	return client.Do(ctx, api.Request{Operation: api.OpChangeCredential, Path: plan.path(), Body: body, IfMatch: etag}, nil)
}

// replaceUnlessImported replaces the credential when its password changes, because the API cannot change a password. After an import
// the state has neither a password nor a secret, and the configured password is assumed to be that of the devices.
func replaceUnlessImported() planmodifier.String {
	const description = "A change makes a new credential."
	return stringplanmodifier.RequiresReplaceIf(
		func(ctx context.Context, request planmodifier.StringRequest, response *stringplanmodifier.RequiresReplaceIfFuncResponse) {
			var secret types.String
			response.Diagnostics.Append(request.State.GetAttribute(ctx, path.Root("secret"), &secret)...)
			response.RequiresReplace = !request.StateValue.IsNull() || !secret.IsNull()
		}, description, description)
}

// secretUntilRotated keeps the secret in the plan unless secret_version changes.
type secretUntilRotated struct{}

func (secretUntilRotated) Description(context.Context) string {
	return "The secret stays until secret_version changes."
}

func (m secretUntilRotated) MarkdownDescription(ctx context.Context) string {
	return m.Description(ctx)
}

func (secretUntilRotated) PlanModifyString(ctx context.Context, request planmodifier.StringRequest, response *planmodifier.StringResponse) {
	if request.State.Raw.IsNull() || request.Plan.Raw.IsNull() {
		return
	}
	var planned, now types.Int64
	at := path.Root("secret_version")
	response.Diagnostics.Append(request.Plan.GetAttribute(ctx, at, &planned)...)
	response.Diagnostics.Append(request.State.GetAttribute(ctx, at, &now)...)
	if !response.Diagnostics.HasError() && planned.Equal(now) {
		response.PlanValue = request.StateValue
	}
}
