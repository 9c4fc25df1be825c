// The resource millrace_member: a person of the organisation, invited first if necessary.

package provider

import (
	"context"
	"errors"
	"regexp"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"
	openapi_types "github.com/oapi-codegen/runtime/types"

	"millrace/terraform/provider/internal/api"
)

type memberModel struct {
	Email           types.String `tfsdk:"email"`
	Role            types.String `tfsdk:"role"`
	User            types.String `tfsdk:"user"`
	Invitation      types.String `tfsdk:"invitation"`
	InvitationToken types.String `tfsdk:"invitation_token"`
}

// member is a person by e-mail address: first an open invitation, then a member. One resource for both keeps the plan empty when
// the person accepts.
var member = kind[memberModel]{
	name:     "member",
	importID: []string{"email"},
	schema: schema.Schema{
		Description: "A person of the organisation. A person who is no member yet is invited; an invitation is open for 7 days, then a plan makes another one.",
		Attributes: map[string]schema.Attribute{
			"email": key("E-mail address, in lower case, by which the person signs in.",
				stringvalidator.UTF8LengthAtMost(254),
				stringvalidator.RegexMatches(regexp.MustCompile(`^[^\s@A-Z]+@[^\s@A-Z.][^\s@A-Z]*$`), "must be an e-mail address in lower case")),
			"role":             choice("owner, operator or viewer.", "", api.Owner, api.Operator, api.Viewer),
			"user":             invited("Id of the person; null until the invitation is accepted.", false),
			"invitation":       invited("Id of the open invitation; null for a member.", false),
			"invitation_token": invited("Secret that opens the invitation; the server shows it once. Null for a member, and after an import.", true),
		},
	},
	create: func(ctx context.Context, client *api.Client, plan *memberModel) (string, error) {
		if _, err := findMember(ctx, client, plan); err == nil {
			return "", errors.New("this person is a member already: import the resource")
		} else if !api.IsNotFound(err) {
			return "", err
		}
		if _, err := findInvitation(ctx, client, plan); err == nil {
			return "", errors.New("this person is invited already: import the resource")
		} else if !api.IsNotFound(err) {
			return "", err
		}
		return "", invite(ctx, client, plan)
	},
	read: func(ctx context.Context, client *api.Client, state *memberModel) (string, error) {
		found, err := findMember(ctx, client, state)
		if err == nil {
			state.Role = types.StringValue(string(found.Role))
			state.User = types.StringValue(found.Id.String())
			state.Invitation = types.StringNull()
			state.InvitationToken = types.StringNull()
			return "", nil
		}
		if !api.IsNotFound(err) {
			return "", err
		}
		open, err := findInvitation(ctx, client, state)
		if err != nil {
			return "", err
		}
		if state.Invitation.ValueString() != open.Id.String() {
			state.InvitationToken = types.StringNull()
		}
		state.Role = types.StringValue(string(open.Role))
		state.User = types.StringNull()
		state.Invitation = types.StringValue(open.Id.String())
		return "", nil
	},
	// An invitation cannot be changed: another one replaces it, unless it was accepted since the plan.
	update: func(ctx context.Context, client *api.Client, plan, state *memberModel, _ string) (string, error) {
		found, err := findMember(ctx, client, plan)
		if err == nil {
			plan.User = types.StringValue(found.Id.String())
			plan.Invitation, plan.InvitationToken = types.StringNull(), types.StringNull()
			body := api.MemberChange{Role: api.Role(plan.Role.ValueString())}
			_, err = client.Do(ctx, api.Request{Operation: api.OpChangeMember, Path: []string{found.Id.String()}, Body: body}, nil)
			return "", err
		}
		if !api.IsNotFound(err) {
			return "", err
		}
		if err := uninvite(ctx, client, state.Invitation.ValueString()); err != nil && !api.IsNotFound(err) {
			return "", err
		}
		return "", invite(ctx, client, plan)
	},
	remove: func(ctx context.Context, client *api.Client, state *memberModel, _ string) error {
		if found, err := findMember(ctx, client, state); err == nil {
			_, err = client.Do(ctx, api.Request{Operation: api.OpRemoveMember, Path: []string{found.Id.String()}}, nil)
			return err
		} else if !api.IsNotFound(err) {
			return err
		}
		open, err := findInvitation(ctx, client, state)
		if err != nil {
			return err
		}
		return uninvite(ctx, client, open.Id.String())
	},
}

func uninvite(ctx context.Context, client *api.Client, id string) error {
	_, err := client.Do(ctx, api.Request{Operation: api.OpDeleteInvitation, Path: []string{id}}, nil)
	return err
}

func invite(ctx context.Context, client *api.Client, plan *memberModel) error {
	body := api.NewInvitation{Email: openapi_types.Email(plan.Email.ValueString()), Role: api.Role(plan.Role.ValueString())}
	var made api.MadeInvitation
	if _, err := client.Do(ctx, api.Request{Operation: api.OpInvite, Body: body}, &made); err != nil {
		return err
	}
	plan.User = types.StringNull()
	plan.Invitation = types.StringValue(made.Id.String())
	plan.InvitationToken = types.StringValue(made.Token)
	return nil
}

func findMember(ctx context.Context, client *api.Client, of *memberModel) (*api.Member, error) {
	return api.Find(ctx, client, api.OpListMembers, func(it *api.Member) bool {
		return it.Email != nil && strings.EqualFold(*it.Email, of.Email.ValueString())
	})
}

func findInvitation(ctx context.Context, client *api.Client, of *memberModel) (*api.Invitation, error) {
	return api.Find(ctx, client, api.OpListInvitations, func(it *api.Invitation) bool { return it.Email == of.Email.ValueString() })
}

func invited(description string, isSecret bool) schema.StringAttribute {
	return schema.StringAttribute{
		Computed: true, Sensitive: isSecret, Description: description,
		PlanModifiers: []planmodifier.String{untilInvitedAgain{}},
	}
}

// untilInvitedAgain keeps a computed attribute in the plan, unless the role of an open invitation changes: then a new one replaces it.
type untilInvitedAgain struct{}

func (untilInvitedAgain) Description(context.Context) string {
	return "Stays until the person is invited again."
}

func (m untilInvitedAgain) MarkdownDescription(ctx context.Context) string { return m.Description(ctx) }

func (untilInvitedAgain) PlanModifyString(ctx context.Context, request planmodifier.StringRequest, response *planmodifier.StringResponse) {
	if request.State.Raw.IsNull() || request.Plan.Raw.IsNull() {
		return
	}
	var planned, role, user types.String
	response.Diagnostics.Append(request.Plan.GetAttribute(ctx, path.Root("role"), &planned)...)
	response.Diagnostics.Append(request.State.GetAttribute(ctx, path.Root("role"), &role)...)
	response.Diagnostics.Append(request.State.GetAttribute(ctx, path.Root("user"), &user)...)
	if !response.Diagnostics.HasError() && (planned.Equal(role) || !user.IsNull()) {
		response.PlanValue = request.StateValue
	}
}
