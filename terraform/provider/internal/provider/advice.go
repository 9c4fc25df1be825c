// Errors of the API that no attribute causes, such as a server that cannot be reached: what a person can do.

package provider

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"millrace/terraform/provider/internal/api"
)

// advice says what a person can do about an error that no attribute of a resource causes.
func advice(err error) string {
	var problem *api.Error
	switch {
	case errors.Is(err, api.ErrNoAnswer):
		return "\n\nCheck that the server runs, and that the provider's endpoint (or MILLRACE_ENDPOINT) is its address."
	case errors.Is(err, api.ErrOrganisation):
		return "\n\nCheck the provider's endpoint (or MILLRACE_ENDPOINT) and organisation (or MILLRACE_ORGANISATION). The state is as it was."
	case errors.As(err, &problem) && problem.Problem.Status == http.StatusUnauthorized:
		return "\n\nMake another API token, and set it as the provider's token or as MILLRACE_TOKEN."
	}
	return ""
}

// isThere looks for the organisation when something was not found, and returns its error if the organisation is not found either.
func (r *kindResource[M]) isThere(ctx context.Context, err error) error {
	if !api.IsNotFound(err) {
		return err
	}
	if wrong := r.client.CheckOrganisation(ctx); wrong != nil {
		return wrong
	}
	return err
}

// isGone says whether a thing is not found in an organisation that is.
func isGone(err error) bool {
	return api.IsNotFound(err) && !errors.Is(err, api.ErrOrganisation)
}

// isConflict says whether the server has something of the name already.
func isConflict(err error) bool {
	var problem *api.Error
	return errors.As(err, &problem) &&
		(problem.Problem.Status == http.StatusConflict || problem.Problem.Status == http.StatusPreconditionFailed)
}

// orImport adds to an error the command that imports what the server has already.
func (r *kindResource[M]) orImport(ctx context.Context, plan tfsdk.Plan, err error) error {
	parts := make([]string, len(r.importID))
	for i, name := range r.importID {
		var part types.String
		if plan.GetAttribute(ctx, path.Root(name), &part).HasError() || part.ValueString() == "" {
			return err
		}
		parts[i] = part.ValueString()
	}
	return fmt.Errorf("%w\n\nIf it is the one of this configuration, import it: terraform import millrace_%s.NAME %s", err, r.name, strings.Join(parts, "/"))
}
