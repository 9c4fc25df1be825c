// The driver of the generated Go client: a broker's life, and an error with its type.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/google/uuid"

	"millrace/generated/millrace"
)

func main() {
	if err := drive(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func done(step string) { fmt.Println("done:", step) }

func drive(ctx context.Context) error {
	organisation, err := uuid.Parse(os.Getenv("MILLRACE_ORGANISATION"))
	if err != nil {
		return err
	}
	sign := func(_ context.Context, request *http.Request) error {
		request.Header.Set("Authorization", "Bearer "+os.Getenv("MILLRACE_TOKEN"))
		return nil
	}
	api, err := millrace.NewClientWithResponses(os.Getenv("MILLRACE_API"), millrace.WithRequestEditorFn(sign))
	if err != nil {
		return err
	}

	created, err := api.CreateBrokerWithResponse(ctx, organisation, nil, millrace.NewBroker{DisplayName: "From Go"})
	if err != nil || created.JSON201 == nil {
		return failed("create_broker", err, created)
	}
	broker := created.JSON201.Name
	done("broker")

	rules := []millrace.Rule{{Effect: millrace.Allow, Action: millrace.ActionPublish, Filter: "plant/%c/#"}}
	credential, err := api.CreateCredentialWithResponse(ctx, organisation, broker, nil, millrace.NewCredential{User: "pump", Rules: &rules})
	if err != nil || credential.JSON201 == nil || credential.JSON201.Secret == nil || *credential.JSON201.Secret == "" {
		return failed("create_credential", err, credential)
	}
	done("credential")

	deny := []millrace.Rule{{Effect: millrace.Deny, Action: millrace.ActionAll, Filter: "secret/#"}}
	set, err := api.SetAccessWithResponse(ctx, organisation, broker, &millrace.SetAccessParams{IfMatch: "*"}, millrace.AccessSettings{Rules: &deny})
	if err != nil || set.JSON200 == nil || set.JSON200.Rules == nil || (*set.JSON200.Rules)[0].Filter != deny[0].Filter {
		return failed("set_access", err, set)
	}
	user := "pump"
	question := millrace.AccessQuestion{ClientId: "pump", User: &user, Action: millrace.TestedActionPublish, Topic: "secret/key"}
	tested, err := api.TestAccessWithResponse(ctx, organisation, broker, question)
	if err != nil || tested.JSON200 == nil || tested.JSON200.Allowed || tested.JSON200.Rule == nil || tested.JSON200.Rule.Filter != "secret/#" {
		return failed("test_access", err, tested)
	}
	done("rule")

	payload, qos := "12.5", int32(1)
	published, err := api.PublishWithResponse(ctx, organisation, broker, millrace.NewMessage{Topic: "plant/pump/level", Payload: &payload, Qos: &qos})
	if err != nil || published.JSON200 == nil || !published.JSON200.Stored {
		return failed("publish", err, published)
	}
	done("publish")

	step := millrace.GetUsageParamsStepTotal
	for end := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		usage, err := api.GetUsageWithResponse(ctx, organisation, broker, &millrace.GetUsageParams{Step: &step})
		if err != nil || usage.JSON200 == nil {
			return failed("get_usage", err, usage)
		}
		if usage.JSON200.Total.Used.MessagesIn > 0 {
			break
		}
		if time.Now().After(end) {
			return failed("get_usage: the message is not counted", nil, usage)
		}
	}
	done("usage")

	removed, err := api.DeleteBrokerWithResponse(ctx, organisation, broker, &millrace.DeleteBrokerParams{IfMatch: "*"})
	if err != nil || removed.StatusCode() != http.StatusNoContent {
		return failed("delete_broker", err, removed)
	}
	done("delete")

	missing, err := api.GetBrokerWithResponse(ctx, organisation, broker)
	if err != nil || missing.JSON200 != nil || missing.ApplicationproblemJSON404 == nil {
		return failed("get_broker after the deletion", err, missing)
	}
	if problem := *missing.ApplicationproblemJSON404; problem.Status != 404 || problem.Type != "urn:millrace:problem:not-found" {
		return fmt.Errorf("the problem is %+v", problem)
	}
	done("problem")
	return nil
}

func failed[Answer interface{ GetBody() []byte }](what string, err error, answer Answer) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return fmt.Errorf("%s: %s", what, answer.GetBody())
}
