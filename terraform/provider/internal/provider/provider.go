// Package provider is what Terraform sees of Millrace: the schemas of resources, and how their attributes go to the API and come
// back. It knows nothing of HTTP.
package provider

import (
	"context"
	"fmt"
	"os"
	"regexp"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"millrace/terraform/provider/internal/api"
)

type millrace struct{ version string }

type settings struct {
	Endpoint     types.String `tfsdk:"endpoint"`
	Token        types.String `tfsdk:"token"`
	Organisation types.String `tfsdk:"organisation"`
}

// New makes the provider for a server of plugins.
func New(version string) func() provider.Provider {
	return func() provider.Provider { return &millrace{version: version} }
}

func (p *millrace) Metadata(_ context.Context, _ provider.MetadataRequest, response *provider.MetadataResponse) {
	response.TypeName = "millrace"
	response.Version = p.version
}

func (p *millrace) Schema(_ context.Context, _ provider.SchemaRequest, response *provider.SchemaResponse) {
	response.Schema = schema.Schema{
		Description: "Brokers of an organisation, and who may connect to them.",
		Attributes: map[string]schema.Attribute{
			"endpoint": schema.StringAttribute{
				Optional:    true,
				Description: "Where people reach Millrace, such as https://console.mqtt.example.org. Or the variable MILLRACE_ENDPOINT.",
				Validators:  []validator.String{httpURL()},
			},
			"token": schema.StringAttribute{
				Optional:    true,
				Sensitive:   true,
				Description: "API token. Or the variable MILLRACE_TOKEN, which keeps it out of files.",
				Validators:  []validator.String{stringvalidator.LengthAtLeast(1)},
			},
			"organisation": schema.StringAttribute{
				Optional:    true,
				Description: "Id of the organisation that the token belongs to. Or the variable MILLRACE_ORGANISATION.",
				Validators:  []validator.String{organisationID()},
			},
		},
	}
}

func organisationID() validator.String {
	return stringvalidator.RegexMatches(regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`), "must be a UUID in lower case")
}

func (p *millrace) Configure(ctx context.Context, request provider.ConfigureRequest, response *provider.ConfigureResponse) {
	var given settings
	response.Diagnostics.Append(request.Config.Get(ctx, &given)...)
	if response.Diagnostics.HasError() {
		return
	}
	value := func(name, variable string, configured types.String) string {
		if configured.IsUnknown() {
			response.Diagnostics.AddAttributeError(path.Root(name), "The value is not known yet",
				fmt.Sprintf("%q depends on a resource that is not made yet: apply that first, or set %s.", name, variable))
			return ""
		}
		if text := configured.ValueString(); text != "" {
			return text
		}
		text := os.Getenv(variable)
		if text == "" {
			response.Diagnostics.AddAttributeError(path.Root(name), "A setting is missing", fmt.Sprintf("Set %q, or the variable %s.", name, variable))
		}
		return text
	}
	endpoint := value("endpoint", "MILLRACE_ENDPOINT", given.Endpoint)
	token := value("token", "MILLRACE_TOKEN", given.Token)
	organisation := value("organisation", "MILLRACE_ORGANISATION", given.Organisation)
	// The schema's validators do not see variables.
	for name, it := range map[string]struct {
		value, variable string
		validator       validator.String
	}{"endpoint": {endpoint, "MILLRACE_ENDPOINT", httpURL()}, "organisation": {organisation, "MILLRACE_ORGANISATION", organisationID()}} {
		var judged validator.StringResponse
		it.validator.ValidateString(ctx, validator.StringRequest{Path: path.Root(name), ConfigValue: types.StringValue(it.value)}, &judged)
		if it.value != "" && judged.Diagnostics.HasError() {
			response.Diagnostics.AddAttributeError(path.Root(name), "A setting is wrong",
				fmt.Sprintf("%q (or %s) %s, not %q.", name, it.variable, it.validator.Description(ctx), it.value))
		}
	}
	if response.Diagnostics.HasError() {
		return
	}
	client := api.New(endpoint, token, organisation, p.version)
	response.ResourceData = client
	response.DataSourceData = client
}

func (p *millrace) Resources(context.Context) []func() resource.Resource {
	return []func() resource.Resource{
		newResource(access), newResource(broker), newResource(claimToken), newResource(clientCas), newResource(credential),
		newResource(groups), newResource(jwtIssuers), newResource(member), newResource(spendCap), newResource(token),
		newResource(webhooks),
	}
}

func (p *millrace) DataSources(context.Context) []func() datasource.DataSource {
	return []func() datasource.DataSource{newData(brokerSource), newData(regionsSource)}
}
