// The resource millrace_claim_token, which devices exchange for a credential.

package provider

import (
	"context"
	"regexp"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/boolplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/listplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"millrace/terraform/provider/internal/api"
)

type claimTokenModel struct {
	ID           types.String `tfsdk:"id"`
	Broker       types.String `tfsdk:"broker"`
	Name         types.String `tfsdk:"name"`
	UserPrefix   types.String `tfsdk:"user_prefix"`
	UsesMax      types.Int64  `tfsdk:"uses_max"`
	ExpiresAtMs  types.Int64  `tfsdk:"expires_at_ms"`
	Group        types.String `tfsdk:"group"`
	Rules        []rule       `tfsdk:"rules"`
	BindClientID types.Bool   `tfsdk:"bind_client_id"`
	Secret       types.String `tfsdk:"secret"`
	Uses         types.Int64  `tfsdk:"uses"`
	MadeBy       types.String `tfsdk:"made_by"`
	CreatedAtMs  types.Int64  `tfsdk:"created_at_ms"`
}

const (
	claimTokenUsesMax  = 100_000
	claimTokenRulesMax = 100
)

var userPrefix = regexp.MustCompile(`^[A-Za-z0-9._:-]+$`)

// claimToken has no update: the API changes no claim token, because devices have copies of the secret.
var claimToken = kind[claimTokenModel]{
	name:     "claim_token",
	importID: []string{"broker", "id"},
	schema: schema.Schema{
		Description: "A claim token: devices without a credential exchange it for a credential of their own. " +
			"The server shows a secret once, so Terraform's state keeps it: encrypt the state.",
		Attributes: map[string]schema.Attribute{
			"id":     computed("Id of the claim token."),
			"broker": brokerKey(),
			"name":   key("Name, for people.", stringvalidator.UTF8LengthAtMost(100)),
			"user_prefix": key("The user name of each device begins with this prefix: letters (a to z), digits, dots, colons, underscores, hyphens.",
				stringvalidator.LengthAtMost(128),
				stringvalidator.RegexMatches(userPrefix, "must have letters (a to z), digits, dots, colons, underscores and hyphens only")),
			"uses_max": schema.Int64Attribute{
				Required:      true,
				Description:   "Number of credentials that devices can make with the claim token.",
				Validators:    []validator.Int64{int64validator.Between(1, claimTokenUsesMax)},
				PlanModifiers: []planmodifier.Int64{int64planmodifier.RequiresReplace()},
			},
			"expires_at_ms": schema.Int64Attribute{
				Required: true,
				Description: "End of the claim token, Unix milliseconds: at most 366 days ahead. The server then deletes the claim token; " +
					"the state keeps it until this changes. Credentials that devices have made stay.",
				Validators:    []validator.Int64{int64validator.AtLeast(1)},
				PlanModifiers: []planmodifier.Int64{int64planmodifier.RequiresReplace()},
			},
			"group": schema.StringAttribute{
				Optional:      true,
				Description:   "Name of the group of the credentials. Without a group and rules, only the broker's rules apply.",
				Validators:    []validator.String{stringvalidator.UTF8LengthBetween(1, 64)},
				PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
			},
			"rules": claimTokenRules(),
			"bind_client_id": schema.BoolAttribute{
				Optional:      true,
				Computed:      true,
				Default:       booldefault.StaticBool(true),
				Description:   "Each device can connect only with its user name as client id.",
				PlanModifiers: []planmodifier.Bool{boolplanmodifier.RequiresReplace()},
			},
			"secret": schema.StringAttribute{
				Computed:      true,
				Sensitive:     true,
				Description:   "The text that devices show. Null after an import.",
				PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
			},
			"uses":          computedNumber("Number of credentials that devices have made with the claim token."),
			"made_by":       computed("Id of the member who made the claim token. Devices cannot use it while that member may not change credentials."),
			"created_at_ms": computedNumber("Creation time, Unix milliseconds."),
		},
	},
	create: func(ctx context.Context, client *api.Client, plan *claimTokenModel) (string, error) {
		rules := sentRules(plan.Rules)
		body := api.NewClaimToken{
			Name: plan.Name.ValueString(), UserPrefix: plan.UserPrefix.ValueString(), UsesMax: plan.UsesMax.ValueInt64(),
			ExpiresAtMs: plan.ExpiresAtMs.ValueInt64(), Group: plan.Group.ValueStringPointer(), Rules: &rules,
			BindClientId: plan.BindClientID.ValueBoolPointer(),
		}
		var made api.MadeClaimToken
		request := api.Request{Operation: api.OpCreateClaimToken, Path: []string{plan.Broker.ValueString()}, Body: body}
		etag, err := client.Do(ctx, request, &made)
		if err != nil {
			return "", err
		}
		plan.ID = types.StringValue(made.Id.String())
		plan.Secret = types.StringValue(made.Secret)
		plan.Uses = types.Int64Value(made.Uses)
		plan.MadeBy = types.StringValue(made.MadeBy.String())
		plan.CreatedAtMs = types.Int64Value(made.CreatedAtMs)
		return etag, nil
	},
	read: func(ctx context.Context, client *api.Client, state *claimTokenModel) (string, error) {
		var found api.ClaimToken
		etag, err := client.Do(ctx, api.Request{Operation: api.OpGetClaimToken, Path: state.path()}, &found)
		if api.IsNotFound(err) && hasExpired(state.ExpiresAtMs, time.Now()) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		state.Name = types.StringValue(found.Name)
		state.UserPrefix = types.StringValue(found.UserPrefix)
		state.UsesMax = types.Int64Value(found.UsesMax)
		state.ExpiresAtMs = types.Int64Value(found.ExpiresAtMs)
		state.Group = types.StringPointerValue(found.Group)
		state.Rules = shownRules(found.Rules)
		state.BindClientID = types.BoolValue(found.BindClientId)
		state.Uses = types.Int64Value(found.Uses)
		state.MadeBy = types.StringValue(found.MadeBy.String())
		state.CreatedAtMs = types.Int64Value(found.CreatedAtMs)
		return etag, nil
	},
	remove: func(ctx context.Context, client *api.Client, state *claimTokenModel, _ string) error {
		_, err := client.Do(ctx, api.Request{Operation: api.OpDeleteClaimToken, Path: state.path()}, nil)
		return err
	},
}

func (m *claimTokenModel) path() []string {
	return []string{m.Broker.ValueString(), m.ID.ValueString()}
}

// hasExpired says whether the server may have deleted a token or claim token because of its end. The state keeps such a resource:
// otherwise each plan would create it again, and each apply would fail because the end is over. An import has no end yet.
func hasExpired(end types.Int64, now time.Time) bool {
	return !end.IsNull() && end.ValueInt64() <= now.UnixMilli()
}

func claimTokenRules() schema.ListNestedAttribute {
	it := rulesAttribute("Rules of the credentials.")
	it.Validators = []validator.List{listvalidator.SizeAtMost(claimTokenRulesMax)}
	it.PlanModifiers = []planmodifier.List{listplanmodifier.RequiresReplace()}
	return it
}
