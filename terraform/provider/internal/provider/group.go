// The resource millrace_group: rules that several users share.

package provider

import (
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"millrace/terraform/provider/internal/api"
)

type groupModel struct {
	Broker types.String `tfsdk:"broker"`
	Name   types.String `tfsdk:"name"`
	Rules  []rule       `tfsdk:"rules"`
}

// partKind (parts.go) says what each function must do. The rules of the resource are the whole list: a group without rules sends
// an empty one.
var groups = partResource(partKind[groupModel]{
	name: "group",
	schema: schema.Schema{
		Description: "Users with rules in common.",
		Attributes: map[string]schema.Attribute{
			"broker": brokerKey(),
			"name":   nameKey(),
			"rules":  rulesAttribute("Rules of the members. They come after a member's own and before the broker's."),
		},
	},
	get: api.OpGetGroup, put: api.OpPutGroup, delete: api.OpDeleteGroup,
	at: func(m *groupModel) (types.String, types.String) { return m.Broker, m.Name },
	settings: func(plan, _ *groupModel) (any, error) {
		rules := sentRules(plan.Rules)
		return api.GroupSettings{Rules: &rules}, nil
	},
	target: func(state *groupModel) (any, func() error) {
		var found api.ShownGroup
		return &found, func() error {
			state.Rules = shownRules(or(found.Rules, nil))
			return nil
		}
	},
})
