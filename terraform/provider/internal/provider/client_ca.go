// The resource millrace_client_ca: an authority whose certificates a broker accepts, and its revoked ones.

package provider

import (
	"regexp"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"millrace/terraform/provider/internal/api"
)

type clientCaModel struct {
	Broker  types.String `tfsdk:"broker"`
	Name    types.String `tfsdk:"name"`
	Enabled types.Bool   `tfsdk:"enabled"`
	Pem     types.String `tfsdk:"pem"`
	Revoked types.String `tfsdk:"revoked"`
	User    types.String `tfsdk:"user"`
	Group   types.String `tfsdk:"group"`
}

func pemOf(label string) validator.String {
	begin := "-----BEGIN " + label + "-----"
	return stringvalidator.RegexMatches(regexp.MustCompile(regexp.QuoteMeta(begin)), "must be PEM with "+begin)
}

var clientCas = partResource(partKind[clientCaModel]{
	name: "client_ca",
	schema: schema.Schema{
		Description: "An authority whose client certificates the broker accepts. millrace_access says whether clients may or must present a certificate.",
		Attributes: map[string]schema.Attribute{
			"broker":  brokerKey(),
			"name":    nameKey(),
			"enabled": flag("False: the broker refuses its certificates.", true),
			"pem": schema.StringAttribute{
				Required:    true,
				Description: "PEM of the authority's own certificates, and of intermediate ones that clients do not send.",
				Validators:  []validator.String{pemOf("CERTIFICATE")},
			},
			"revoked": optionalText("PEM of its revocation lists.", pemOf("X509 CRL")),
			"user": choice("The part of a certificate that becomes the user name.", api.CommonName,
				api.CommonName, api.SanDns, api.SanUri, api.SanEmail),
			"group": group("Name of the group whose rules its users have, unless the credential of a user names another group."),
		},
	},
	get: api.OpGetClientCa, put: api.OpPutClientCa, delete: api.OpDeleteClientCa,
	at: func(m *clientCaModel) (types.String, types.String) { return m.Broker, m.Name },
	settings: func(plan, _ *clientCaModel) (any, error) {
		user := api.CertificateUser(plan.User.ValueString())
		return api.ClientCaSettings{
			Enabled: plan.Enabled.ValueBoolPointer(), Pem: plan.Pem.ValueString(), Revoked: plan.Revoked.ValueStringPointer(),
			User: &user, Group: plan.Group.ValueStringPointer(),
		}, nil
	},
	target: func(state *clientCaModel) (any, func() error) {
		var found api.ShownClientCa
		return &found, func() error {
			state.Enabled = types.BoolValue(or(found.Enabled, true))
			state.Pem = types.StringValue(found.Pem)
			state.Revoked = types.StringPointerValue(found.Revoked)
			state.User = types.StringValue(string(or(found.User, api.CommonName)))
			state.Group = types.StringPointerValue(found.Group)
			return nil
		}
	},
})
