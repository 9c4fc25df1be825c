// Shapes of attributes that several resources have.

package provider

import (
	"regexp"

	"github.com/google/uuid"
	"github.com/hashicorp/terraform-plugin-framework-validators/int32validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int32default"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/listdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"millrace/terraform/provider/internal/api"
)

// key is an attribute that identifies the object: a change of it replaces the object.
func key(description string, validators ...validator.String) schema.StringAttribute {
	return schema.StringAttribute{
		Required:      true,
		Description:   description,
		Validators:    append([]validator.String{stringvalidator.LengthAtLeast(1)}, validators...),
		PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
	}
}

func brokerKey() schema.StringAttribute { return key("Name of the broker.") }

func nameKey() schema.StringAttribute { return key("Name, unique in the broker.") }

func group(description string) schema.StringAttribute {
	return schema.StringAttribute{
		Optional:    true,
		Description: description,
		Validators:  []validator.String{stringvalidator.LengthAtLeast(1)},
	}
}

func optionalText(description string, validators ...validator.String) schema.StringAttribute {
	return schema.StringAttribute{Optional: true, Description: description, Validators: validators}
}

func secretText(description string) schema.StringAttribute {
	return schema.StringAttribute{
		Optional:    true,
		Sensitive:   true,
		Description: description,
		Validators:  []validator.String{stringvalidator.LengthAtLeast(1)},
	}
}

// computed is set by the server once and stays.
func computed(description string) schema.StringAttribute {
	return schema.StringAttribute{
		Computed:      true,
		Description:   description,
		PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
	}
}

func computedNumber(description string) schema.Int64Attribute {
	return schema.Int64Attribute{
		Computed:      true,
		Description:   description,
		PlanModifiers: []planmodifier.Int64{int64planmodifier.UseStateForUnknown()},
	}
}

func flag(description string, otherwise bool) schema.BoolAttribute {
	return schema.BoolAttribute{
		Optional:    true,
		Computed:    true,
		Description: description,
		Default:     booldefault.StaticBool(otherwise),
	}
}

func number(description string, otherwise, least, most int32) schema.Int32Attribute {
	return schema.Int32Attribute{
		Optional:    true,
		Computed:    true,
		Description: description,
		Default:     int32default.StaticInt32(otherwise),
		Validators:  []validator.Int32{int32validator.Between(least, most)},
	}
}

// choice is one of the values of an enumeration. Without a default it must be given.
func choice[E ~string](description string, otherwise E, values ...E) schema.StringAttribute {
	it := schema.StringAttribute{
		Required:    otherwise == "",
		Optional:    otherwise != "",
		Computed:    otherwise != "",
		Description: description,
		Validators:  []validator.String{oneOf(values...)},
	}
	if otherwise != "" {
		it.Default = stringdefault.StaticString(string(otherwise))
	}
	return it
}

func oneOf[E ~string](values ...E) validator.String {
	return stringvalidator.OneOf(texts(values)...)
}

func texts[E ~string](values []E) []string {
	texts := make([]string, 0, len(values))
	for _, value := range values {
		texts = append(texts, string(value))
	}
	return texts
}

func values[E ~string](texts []string) []E {
	values := make([]E, 0, len(texts))
	for _, text := range texts {
		values = append(values, E(text))
	}
	return values
}

func textList(description string, validators ...validator.List) schema.ListAttribute {
	return schema.ListAttribute{
		Optional:    true,
		Computed:    true,
		ElementType: types.StringType,
		Description: description,
		Default:     listdefault.StaticValue(types.ListValueMust(types.StringType, []attr.Value{})),
		Validators:  validators,
	}
}

type rule struct {
	Effect string `tfsdk:"effect"`
	Action string `tfsdk:"action"`
	Filter string `tfsdk:"filter"`
	Retain bool   `tfsdk:"retain"`
	QosMax int32  `tfsdk:"qos_max"`
}

func rulesAttribute(description string) schema.ListNestedAttribute {
	object := schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
		"effect": choice("Whether the rule allows or denies.", "", api.Allow, api.Deny),
		"action": choice("The action of the client: publish, subscribe or all.", "", api.Publish, api.Subscribe, api.All),
		"filter": schema.StringAttribute{
			Required:    true,
			Description: "Topic filter, without share name. %c stands for the client id, %u for the user name.",
			Validators:  []validator.String{topicFilter{}},
		},
		"retain":  flag("An allow rule lets messages be published with RETAIN.", true),
		"qos_max": number("The highest QoS that an allow rule permits.", 2, 0, 2),
	}}
	return schema.ListNestedAttribute{
		Optional:     true,
		Computed:     true,
		Description:  description,
		NestedObject: object,
		Default:      listdefault.StaticValue(types.ListValueMust(object.Type(), []attr.Value{})),
	}
}

func sentRules(rules []rule) []api.Rule {
	sent := make([]api.Rule, 0, len(rules))
	for i := range rules {
		it := &rules[i]
		sent = append(sent, api.Rule{
			Effect: api.Effect(it.Effect), Action: api.Action(it.Action), Filter: it.Filter, Retain: &it.Retain, QosMax: &it.QosMax,
		})
	}
	return sent
}

func shownRules(shown []api.Rule) []rule {
	rules := make([]rule, 0, len(shown))
	for _, it := range shown {
		rules = append(rules, rule{
			Effect: string(it.Effect), Action: string(it.Action), Filter: it.Filter,
			Retain: or(it.Retain, true), QosMax: or(it.QosMax, 2),
		})
	}
	return rules
}

// or returns the value behind the pointer, or `otherwise` for nil.
func or[T any](value *T, otherwise T) T {
	if value == nil {
		return otherwise
	}
	return *value
}

func httpURL() validator.String {
	return stringvalidator.RegexMatches(regexp.MustCompile(`^https?://[^\s/?#@]+([/?#]\S*)?$`), "must begin with https:// or http:// and a host")
}

func urlAttribute(description string) schema.StringAttribute {
	return schema.StringAttribute{Required: true, Description: description, Validators: []validator.String{httpURL()}}
}

func shownID(id *uuid.UUID) types.String {
	if id == nil {
		return types.StringNull()
	}
	return types.StringValue(id.String())
}
