// Errors as scripts and metrics see them: each has one of a few reasons.

package mqtt

import (
	"context"
	"errors"
	"fmt"

	"github.com/grafana/sobek"
)

// Reasons of errors: the tag "reason" of mqtt_errors, and error.reason in scripts.
const (
	reasonInvalid      = "invalid_argument"
	reasonNotConnected = "not_connected"
	reasonEnded        = "ended"
	reasonNetwork      = "network"
	reasonTimeout      = "timeout"
	reasonRefused      = "refused"
	reasonLost         = "connection_lost"
	reasonDisconnected = "server_disconnect"
)

// failure is an error with a reason that metrics can be grouped by.
type failure struct {
	reason string
	// Reason code of the broker's packet, 0 when the broker said none.
	code byte
	text string
}

func (f *failure) Error() string { return f.text }

func fail(reason, format string, args ...any) *failure {
	return &failure{reason: reason, text: fmt.Sprintf(format, args...)}
}

func invalid(format string, args ...any) *failure { return fail(reasonInvalid, format, args...) }

// refusal is an error whose reason code came from the broker.
func refusal(code byte, format string, args ...any) *failure {
	return &failure{reason: reasonRefused, code: code,
		text: fmt.Sprintf(format, args...) + fmt.Sprintf(" (reason code 0x%02x)", code)}
}

// asFailure gives any error a reason; what has none yet is the network's.
func asFailure(err error, what string) *failure {
	var known *failure
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(err, context.DeadlineExceeded):
		return fail(reasonTimeout, "%s: no answer in time", what)
	case errors.Is(err, context.Canceled):
		return fail(reasonEnded, "%s: the iteration ended first", what)
	}
	return fail(reasonNetwork, "%s: %v", what, err)
}

// object is the Error that scripts see.
func (f *failure) object(rt *sobek.Runtime) sobek.Value {
	value, err := rt.New(rt.Get("Error"), rt.ToValue(f.text))
	if err != nil {
		return rt.NewGoError(f)
	}
	for name, v := range map[string]any{"name": "MQTTError", "reason": f.reason, "reasonCode": int(f.code)} {
		if err := value.Set(name, v); err != nil {
			return rt.NewGoError(f)
		}
	}
	return value
}

// throw raises a JavaScript exception.
func (i *instance) throw(err error) {
	panic(asFailure(err, "mqtt").object(i.vu.Runtime()))
}
