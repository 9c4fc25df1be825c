// The resource millrace_spend_cap: the most that a month may cost.

package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"millrace/terraform/provider/internal/api"
)

type spendCapModel struct {
	Broker        types.String `tfsdk:"broker"`
	MonthlyMicros types.Int64  `tfsdk:"monthly_micros"`
	Action        types.String `tfsdk:"action"`
}

// wholeOrganisation stands in an import id for a cap without a broker. Names of brokers have 12 characters.
const wholeOrganisation = "organisation"

type capOperations struct{ get, set, delete api.Operation }

var spendCap = kind[spendCapModel]{
	name:     "spend_cap",
	importID: []string{"broker"},
	schema: schema.Schema{
		Description: "The most that a broker, or the whole organisation, may cost in a month (UTC).",
		Attributes: map[string]schema.Attribute{
			"broker": schema.StringAttribute{
				Optional:      true,
				Description:   "Name of the broker. Left out: all brokers of the organisation together.",
				Validators:    []validator.String{stringvalidator.LengthAtLeast(1), stringvalidator.NoneOf(wholeOrganisation)},
				PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
			},
			"monthly_micros": schema.Int64Attribute{
				Required:    true,
				Description: "Millionths of the region's currency.",
				Validators:  []validator.Int64{int64validator.AtLeast(1)},
			},
			"action": choice("At the cap: stop refuses clients and what they publish, continue only writes to the audit log.", "",
				api.Stop, api.Continue),
		},
	},
	create: func(ctx context.Context, client *api.Client, plan *spendCapModel) (string, error) {
		return setCap(ctx, client, plan, "")
	},
	read: func(ctx context.Context, client *api.Client, state *spendCapModel) (string, error) {
		if state.Broker.ValueString() == wholeOrganisation {
			state.Broker = types.StringNull()
		}
		operations, path := state.at()
		var found api.SpendCap
		if _, err := client.Do(ctx, api.Request{Operation: operations.get, Path: path}, &found); err != nil {
			return "", err
		}
		state.MonthlyMicros = types.Int64Value(found.MonthlyMicros)
		state.Action = types.StringValue(string(found.Action))
		return "", nil
	},
	update: func(ctx context.Context, client *api.Client, plan, _ *spendCapModel, _ string) (string, error) {
		return setCap(ctx, client, plan, "*")
	},
	remove: func(ctx context.Context, client *api.Client, state *spendCapModel, _ string) error {
		operations, path := state.at()
		_, err := client.Do(ctx, api.Request{Operation: operations.delete, Path: path, IfMatch: "*"}, nil)
		return err
	},
}

func (m *spendCapModel) at() (capOperations, []string) {
	if m.Broker.IsNull() {
		return capOperations{api.OpGetSpendCap, api.OpSetSpendCap, api.OpDeleteSpendCap}, nil
	}
	operations := capOperations{api.OpGetBrokerSpendCap, api.OpSetBrokerSpendCap, api.OpDeleteBrokerSpendCap}
	return operations, []string{m.Broker.ValueString()}
}

// setCap states no version when it replaces a cap: the server changes the version when the cap is reached.
func setCap(ctx context.Context, client *api.Client, plan *spendCapModel, match string) (string, error) {
	operations, path := plan.at()
	body := api.NewSpendCap{MonthlyMicros: plan.MonthlyMicros.ValueInt64(), Action: api.CapAction(plan.Action.ValueString())}
	request := api.Request{Operation: operations.set, Path: path, Body: body, IfMatch: match, IsNew: match == ""}
	_, err := client.Do(ctx, request, nil)
	return "", err
}
