// Checks of attributes that a plan can make without the server.

package provider

import (
	"context"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
)

// topicFilter checks section 4.7 of MQTT before the server does, so that a plan fails and not an apply.
type topicFilter struct{}

func (topicFilter) Description(context.Context) string {
	return "must be a topic filter without share name"
}

func (v topicFilter) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

func (topicFilter) ValidateString(_ context.Context, request validator.StringRequest, response *validator.StringResponse) {
	if request.ConfigValue.IsNull() || request.ConfigValue.IsUnknown() {
		return
	}
	if wrong := wrongFilter(request.ConfigValue.ValueString()); wrong != "" {
		response.Diagnostics.AddAttributeError(request.Path, "This is not a topic filter", request.Path.String()+": "+wrong)
	}
}

func wrongFilter(filter string) string {
	switch {
	case filter == "":
		return "The topic filter is empty: write # for every topic."
	case len(filter) > 65535:
		return "The topic filter is longer than 65535 bytes."
	case strings.ContainsRune(filter, 0):
		return "The topic filter has a character U+0000."
	case strings.HasPrefix(filter, "$share/"):
		return "Write the topic filter without $share and the share name."
	}
	levels := strings.Split(filter, "/")
	for i, level := range levels {
		if len(level) > 1 && strings.ContainsAny(level, "+#") {
			return "+ and # stand for whole levels: there must be nothing else between the slashes."
		}
		if level == "#" && i < len(levels)-1 {
			return "# must be the last level of the topic filter."
		}
	}
	return ""
}
