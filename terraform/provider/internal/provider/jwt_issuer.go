// The resource millrace_jwt_issuer: an issuer whose tokens a broker accepts as passwords.

package provider

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework-validators/setvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"millrace/terraform/provider/internal/api"
)

type jwtIssuerModel struct {
	Broker             types.String `tfsdk:"broker"`
	Name               types.String `tfsdk:"name"`
	Enabled            types.Bool   `tfsdk:"enabled"`
	Algorithms         []string     `tfsdk:"algorithms"`
	Key                *issuerKey   `tfsdk:"key"`
	Issuer             types.String `tfsdk:"issuer"`
	Audience           []string     `tfsdk:"audience"`
	Claims             *claims      `tfsdk:"claims"`
	LeewayS            types.Int32  `tfsdk:"leeway_s"`
	Group              types.String `tfsdk:"group"`
	DisconnectAtExpiry types.Bool   `tfsdk:"disconnect_at_expiry"`
}

type issuerKey struct {
	Kind   string       `tfsdk:"kind"`
	Secret types.String `tfsdk:"secret"`
	Base64 bool         `tfsdk:"base64"`
	Pem    types.String `tfsdk:"pem"`
	Url    types.String `tfsdk:"url"`
}

type claims struct {
	User     string  `tfsdk:"user"`
	ClientID *string `tfsdk:"client_id"`
	Rules    *string `tfsdk:"rules"`
}

const (
	defaultUserClaim = "sub"
	defaultLeewayS   = 30
	leewayMaxS       = 600
)

var jwtIssuers = partResource(partKind[jwtIssuerModel]{
	name: "jwt_issuer",
	schema: schema.Schema{
		Description: "An issuer of tokens (JWT). A client shows one as its password. millrace_access says whether clients show tokens at all.",
		Attributes: map[string]schema.Attribute{
			"broker":  brokerKey(),
			"name":    nameKey(),
			"enabled": flag("False: the broker refuses its tokens.", true),
			"algorithms": schema.SetAttribute{
				Required:    true,
				ElementType: types.StringType,
				Description: "Algorithms that its tokens may be signed with: HS256 with a secret; RS256, ES256 with the other keys.",
				Validators: []validator.Set{
					setvalidator.SizeAtLeast(1),
					setvalidator.ValueStringsAre(oneOf(api.HS256, api.RS256, api.ES256)),
				},
			},
			"key": schema.SingleNestedAttribute{
				Required:    true,
				Description: "Key that verifies the tokens' signatures.",
				Validators:  []validator.Object{keyOfItsKind{}},
				Attributes: map[string]schema.Attribute{
					"kind": schema.StringAttribute{
						Required:    true,
						Description: "secret, pem or jwks.",
						Validators:  []validator.String{stringvalidator.OneOf(string(api.Secret), string(api.Pem), string(api.Jwks))},
					},
					"secret": schema.StringAttribute{
						Optional:    true,
						Sensitive:   true,
						Description: "For kind secret: at least 32 bytes. The API never shows it, so a change elsewhere is not noticed.",
						Validators:  []validator.String{stringvalidator.LengthAtLeast(32)},
					},
					"base64": flag("True: the secret is base64 of the bytes that sign.", false),
					"pem":    optionalText("For kind pem: a public key or a certificate."),
					"url":    optionalText("For kind jwks: URL of the key set.", httpURL()),
				},
			},
			"issuer":   optionalText("The value that the claim iss must have. If it is left out, every value passes.", stringvalidator.LengthAtLeast(1)),
			"audience": textList("The claim aud must have one of these. If the list is empty, every value passes."),
			"claims": schema.SingleNestedAttribute{
				Optional:    true,
				Description: "Names of the claims in its tokens.",
				Attributes: map[string]schema.Attribute{
					"user": schema.StringAttribute{
						Optional: true, Computed: true,
						Description: "The user name.",
						Default:     stringdefault.StaticString(defaultUserClaim),
					},
					"client_id": optionalText("The client id, which the client must have."),
					"rules":     optionalText("A list of rules that come first."),
				},
			},
			"leeway_s":             number("By how much the issuer's clock may be off, seconds.", defaultLeewayS, 0, leewayMaxS),
			"group":                group("Name of the group whose rules its users have, unless the credential of a user names another group."),
			"disconnect_at_expiry": flag("Clients are disconnected when their token expires.", true),
		},
	},
	get: api.OpGetJwtIssuer, put: api.OpPutJwtIssuer, delete: api.OpDeleteJwtIssuer,
	at: func(m *jwtIssuerModel) (types.String, types.String) { return m.Broker, m.Name },
	settings: func(plan, _ *jwtIssuerModel) (any, error) {
		key, err := plan.Key.sent()
		if err != nil {
			return nil, err
		}
		settings := api.JwtIssuerSettings{
			Enabled: plan.Enabled.ValueBoolPointer(), Algorithms: values[api.JwtAlgorithm](plan.Algorithms), Key: key,
			Issuer: plan.Issuer.ValueStringPointer(), Audience: &plan.Audience, LeewayS: plan.LeewayS.ValueInt32Pointer(),
			Group: plan.Group.ValueStringPointer(), DisconnectAtExpiry: plan.DisconnectAtExpiry.ValueBoolPointer(),
		}
		if it := plan.Claims; it != nil {
			settings.Claims = &api.ClaimMapping{User: &it.User, ClientId: it.ClientID, Rules: it.Rules}
		}
		return settings, nil
	},
	target: func(state *jwtIssuerModel) (any, func() error) {
		var found api.ShownJwtIssuer
		return &found, func() error {
			state.Enabled = types.BoolValue(or(found.Enabled, true))
			state.Algorithms = texts(found.Algorithms)
			state.Issuer = types.StringPointerValue(found.Issuer)
			state.Audience = or(found.Audience, []string{})
			state.Claims = shownClaims(found.Claims, state.Claims)
			state.LeewayS = types.Int32Value(or(found.LeewayS, defaultLeewayS))
			state.Group = types.StringPointerValue(found.Group)
			state.DisconnectAtExpiry = types.BoolValue(or(found.DisconnectAtExpiry, true))
			key, err := shownKey(found.Key, state.Key)
			state.Key = key
			return err
		}
	},
})

func (k *issuerKey) sent() (api.IssuerKey, error) {
	var sent api.IssuerKey
	var err error
	switch k.Kind {
	case string(api.Secret):
		err = sent.FromIssuerKey0(api.IssuerKey0{Kind: api.Secret, Secret: k.Secret.ValueStringPointer(), Base64: &k.Base64})
	case string(api.Pem):
		err = sent.FromIssuerKey1(api.IssuerKey1{Kind: api.Pem, Pem: k.Pem.ValueString()})
	default:
		err = sent.FromIssuerKey2(api.IssuerKey2{Kind: api.Jwks, Url: k.Url.ValueString()})
	}
	return sent, err
}

// shownKey keeps the secret of the state, because the API does not show it.
func shownKey(found api.IssuerKey, prior *issuerKey) (*issuerKey, error) {
	raw, err := found.MarshalJSON()
	if err != nil {
		return prior, err
	}
	var all struct {
		Kind   string  `json:"kind"`
		Base64 bool    `json:"base64"`
		Pem    *string `json:"pem"`
		Url    *string `json:"url"`
	}
	if err := json.Unmarshal(raw, &all); err != nil {
		return prior, fmt.Errorf("the key of the issuer: %w", err)
	}
	shown := issuerKey{
		Kind: all.Kind, Base64: all.Base64, Pem: types.StringPointerValue(all.Pem), Url: types.StringPointerValue(all.Url),
	}
	if prior != nil && prior.Kind == all.Kind {
		shown.Secret = prior.Secret
	}
	return &shown, nil
}

// shownClaims leaves the defaults out where the state has no object.
func shownClaims(found *api.ClaimMapping, prior *claims) *claims {
	if found == nil {
		return nil
	}
	shown := claims{User: or(found.User, defaultUserClaim), ClientID: found.ClientId, Rules: found.Rules}
	if prior == nil && shown == (claims{User: defaultUserClaim}) {
		return nil
	}
	return &shown
}

// keyOfItsKind checks that a key has what its kind needs and nothing else.
type keyOfItsKind struct{}

func (keyOfItsKind) Description(context.Context) string { return "must have what its kind needs" }

func (v keyOfItsKind) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

func (keyOfItsKind) ValidateObject(_ context.Context, request validator.ObjectRequest, response *validator.ObjectResponse) {
	attributes := request.ConfigValue.Attributes()
	kind, ok := attributes["kind"].(types.String)
	if !ok || kind.IsNull() || kind.IsUnknown() {
		return
	}
	needed := map[string]string{string(api.Secret): "secret", string(api.Pem): "pem", string(api.Jwks): "url"}[kind.ValueString()]
	for _, name := range []string{"secret", "pem", "url"} {
		value := attributes[name]
		switch {
		case name == needed && value.IsNull() && name != "secret":
			response.Diagnostics.AddAttributeError(request.Path.AtName(name), "The key is not whole",
				fmt.Sprintf("A key of kind %q needs %q.", kind.ValueString(), name))
		case name != needed && !value.IsNull():
			response.Diagnostics.AddAttributeError(request.Path.AtName(name), "The key is of another kind",
				fmt.Sprintf("A key of kind %q takes no %q.", kind.ValueString(), name))
		}
	}
}
