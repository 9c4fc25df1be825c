// The resource millrace_webhook: a service that gets events of a broker.

package provider

import (
	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/setvalidator"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"millrace/terraform/provider/internal/api"
)

type webhookModel struct {
	Broker     types.String `tfsdk:"broker"`
	Name       types.String `tfsdk:"name"`
	Url        types.String `tfsdk:"url"`
	Events     []string     `tfsdk:"events"`
	Filters    []string     `tfsdk:"filters"`
	SigningKey types.String `tfsdk:"signing_key"`
	BatchMax   types.Int32  `tfsdk:"batch_max"`
	Enabled    types.Bool   `tfsdk:"enabled"`
}

var webhooks = partResource(partKind[webhookModel]{
	name: "webhook",
	schema: schema.Schema{
		Description: "A service of yours, which gets events of a broker by POST.",
		Attributes: map[string]schema.Attribute{
			"broker": brokerKey(),
			"name":   nameKey(),
			"url":    urlAttribute("Where the service gets the requests."),
			"events": schema.SetAttribute{
				Required:    true,
				ElementType: types.StringType,
				Description: "Events to send: connect, disconnect, message, limit_reached.",
				Validators: []validator.Set{
					setvalidator.SizeAtLeast(1),
					setvalidator.ValueStringsAre(oneOf(api.Connect, api.Disconnect, api.Message, api.LimitReached)),
				},
			},
			"filters":     textList("Topic filters: messages on these topics are events.", listvalidator.ValueStringsAre(topicFilter{})),
			"signing_key": secretText("Signs the body (HMAC-SHA-256). The API never shows it, so a change elsewhere is not noticed."),
			"batch_max":   number("Most events in one request.", 1, 1, 100),
			"enabled":     flag("False: no events are sent or queued.", true),
		},
	},
	get: api.OpGetWebhook, put: api.OpPutWebhook, delete: api.OpDeleteWebhook,
	at: func(m *webhookModel) (types.String, types.String) { return m.Broker, m.Name },
	settings: func(plan, state *webhookModel) (any, error) {
		before := types.StringNull()
		if state != nil {
			before = state.SigningKey
		}
		return api.WebhookSettings{
			Url: plan.Url.ValueString(), Events: values[api.WebhookEvent](plan.Events), Filters: &plan.Filters,
			SigningKey: writeOnly(plan.SigningKey, before), BatchMax: plan.BatchMax.ValueInt32Pointer(),
			Enabled: plan.Enabled.ValueBoolPointer(),
		}, nil
	},
	target: func(state *webhookModel) (any, func() error) {
		var found api.ShownWebhook
		return &found, func() error {
			state.Url = types.StringValue(found.Url)
			state.Events = texts(found.Events)
			state.Filters = or(found.Filters, []string{})
			state.BatchMax = types.Int32Value(or(found.BatchMax, 1))
			state.Enabled = types.BoolValue(or(found.Enabled, true))
			return nil
		}
	},
})
