// The resource millrace_access: authentication and rules of a broker.

package provider

import (
	"context"
	"net/http"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"millrace/terraform/provider/internal/api"
)

type accessModel struct {
	Broker       types.String   `tfsdk:"broker"`
	Anonymous    types.Bool     `tfsdk:"anonymous"`
	Passwords    types.Bool     `tfsdk:"passwords"`
	Scram        types.Bool     `tfsdk:"scram"`
	Tokens       types.Bool     `tfsdk:"tokens"`
	Certificates types.String   `tfsdk:"certificates"`
	Webhook      *accessWebhook `tfsdk:"webhook"`
	Rules        []rule         `tfsdk:"rules"`
}

type accessWebhook struct {
	Url        string       `tfsdk:"url"`
	SigningKey types.String `tfsdk:"signing_key"`
	TimeoutMs  int32        `tfsdk:"timeout_ms"`
	CacheS     int32        `tfsdk:"cache_s"`
	Group      *string      `tfsdk:"group"`
}

const (
	defaultTimeoutMs = 2000
	timeoutMaxMs     = 8000
	defaultCacheS    = 60
	cacheMaxS        = 3600
)

// access exists as long as its broker does, so deleting it sets the defaults.
var access = kind[accessModel]{
	name:     "access",
	importID: []string{"broker"},
	schema: schema.Schema{
		Description: "How clients of a broker authenticate, and the rules for all of them. Each broker has one; deleting it sets the defaults.",
		Attributes: map[string]schema.Attribute{
			"broker":    brokerKey(),
			"anonymous": flag("Clients without user name and certificate may connect.", false),
			"passwords": flag("Clients may show the password of a credential.", true),
			"scram":     flag("5.0 clients may prove by SCRAM-SHA-256 that they know it.", true),
			"tokens":    flag("Clients may show a token of one of the JWT issuers.", false),
			"certificates": choice("Whether clients show a certificate of one of the client CAs.", api.Off,
				api.Off, api.Accepted, api.Required, api.Additional),
			"webhook": schema.SingleNestedAttribute{
				Optional:    true,
				Description: "A service of yours, which is asked about clients that no other method has authenticated.",
				Attributes: map[string]schema.Attribute{
					"url":         urlAttribute("Where the service is asked, by POST."),
					"signing_key": secretText("Signs the body (HMAC-SHA-256). The API never shows it, so a change elsewhere is not noticed."),
					"timeout_ms":  number("After that the client is refused, milliseconds.", defaultTimeoutMs, 1, timeoutMaxMs),
					"cache_s":     number("How long an answer is cached, seconds.", defaultCacheS, 0, cacheMaxS),
					"group":       group("Name of the group whose rules its users have."),
				},
			},
			"rules": rulesAttribute("Rules of all clients; they come last. A client that has no rule at all may do everything."),
		},
	},
	create: func(ctx context.Context, client *api.Client, plan *accessModel) (string, error) {
		return "", setAccess(ctx, client, plan, nil)
	},
	read: func(ctx context.Context, client *api.Client, state *accessModel) (string, error) {
		var found api.AccessSettings
		request := api.Request{Operation: api.OpGetAccess, Path: []string{state.Broker.ValueString()}}
		if _, err := client.Do(ctx, request, &found); err != nil {
			return "", err
		}
		if or(found.BySettings, false) {
			// Nobody has set the access of this broker, so a plan has to create it.
			problem := api.Problem{Status: http.StatusNotFound, Title: "Not found", Detail: "the settings of the server decide about this broker"}
			return "", &api.Error{Operation: request.Operation.Name, Problem: problem}
		}
		state.Anonymous = types.BoolValue(or(found.Anonymous, false))
		state.Passwords = types.BoolValue(or(found.Passwords, true))
		state.Scram = types.BoolValue(or(found.Scram, true))
		state.Tokens = types.BoolValue(or(found.Tokens, false))
		state.Certificates = types.StringValue(string(or(found.Certificates, api.Off)))
		state.Rules = shownRules(or(found.Rules, nil))
		state.Webhook = shownAccessWebhook(found.Webhook, state.Webhook)
		return "", nil
	},
	update: func(ctx context.Context, client *api.Client, plan, state *accessModel, _ string) (string, error) {
		return "", setAccess(ctx, client, plan, state.Webhook)
	},
	remove: func(ctx context.Context, client *api.Client, state *accessModel, _ string) error {
		request := api.Request{
			Operation: api.OpSetAccess, Path: []string{state.Broker.ValueString()}, Body: api.AccessSettings{}, IfMatch: "*",
		}
		_, err := client.Do(ctx, request, nil)
		return err
	},
}

// setAccess sends no If-Match: a change of the broker's limits also changes the version of its access.
func setAccess(ctx context.Context, client *api.Client, plan *accessModel, before *accessWebhook) error {
	rules := sentRules(plan.Rules)
	certificates := api.CertificateUse(plan.Certificates.ValueString())
	body := api.AccessSettings{
		Anonymous: plan.Anonymous.ValueBoolPointer(), Passwords: plan.Passwords.ValueBoolPointer(), Scram: plan.Scram.ValueBoolPointer(),
		Tokens: plan.Tokens.ValueBoolPointer(), Certificates: &certificates, Rules: &rules,
	}
	if it := plan.Webhook; it != nil {
		former := types.StringNull()
		if before != nil {
			former = before.SigningKey
		}
		body.Webhook = &api.AccessWebhook{
			Url: it.Url, SigningKey: writeOnly(it.SigningKey, former), TimeoutMs: &it.TimeoutMs, CacheS: &it.CacheS, Group: it.Group,
		}
	}
	request := api.Request{Operation: api.OpSetAccess, Path: []string{plan.Broker.ValueString()}, Body: body, IfMatch: "*"}
	_, err := client.Do(ctx, request, nil)
	return err
}

func shownAccessWebhook(found *api.AccessWebhook, prior *accessWebhook) *accessWebhook {
	if found == nil {
		return nil
	}
	shown := accessWebhook{
		Url: found.Url, TimeoutMs: or(found.TimeoutMs, defaultTimeoutMs), CacheS: or(found.CacheS, defaultCacheS), Group: found.Group,
	}
	if prior != nil {
		shown.SigningKey = prior.SigningKey
	}
	return &shown
}
