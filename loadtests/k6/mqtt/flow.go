// The object Flow of scripts, by which a test says which clients receive what, and waits until all of it has arrived.

package mqtt

import (
	"context"
	"math"
	"time"

	"github.com/grafana/sobek"
)

// How often a flow looks whether it is ready or complete.
const lookEvery = 20 * time.Millisecond

// Flow checks that what some clients publish is what others receive. All VUs of the process that name
// it share it.
type Flow struct {
	module *instance
	flow   *ledger
}

type receiveSettings struct {
	Audience string   `json:"audience"`
	From     []string `json:"from"`
}

type waitSettings struct {
	Receivers      int     `json:"receivers"`
	Publishers     int     `json:"publishers"`
	TimeoutSeconds float64 `json:"timeoutSeconds"`
	QuietSeconds   float64 `json:"quietSeconds"`
}

// Receive makes a client count the flow's messages, in place of its "message" callbacks. It comes
// before connect(), because a session may have messages at once.
func (f *Flow) Receive(client *Client, options sobek.Value) {
	s := receiveSettings{}
	if client == nil {
		f.module.throw(invalid("receive needs a client"))
	}
	if err := decode(options, "the options of receive", &s); err != nil {
		f.module.throw(err)
	}
	if s.Audience == "" {
		s.Audience = client.settings.ClientID
	}
	if s.Audience == "" {
		f.module.throw(invalid("receive needs an audience, or a client with a clientId"))
	}
	joined := f.flow.join(s.Audience, s.From)
	client.mu.Lock()
	client.reception = joined
	client.mu.Unlock()
}

// take is called by goroutines of a connection.
func (r *reception) take(l *link, m *message, at time.Time) bool {
	s, ok := readStamp(m.payload)
	if !ok || !r.deliver(s, at) {
		return false
	}
	l.recorder.took(l.recorder.deliveryDuration, l.tags.qos[m.qos%3].With("flow", r.ledger.name), at.Sub(s.sent))
	return true
}

// Arrive says that n receivers have subscribed; without a number, one.
func (f *Flow) Arrive(n int) { f.flow.arrive(max(n, 1)) }

// Ready resolves when the given number of receivers has arrived.
func (f *Flow) Ready(options sobek.Value) *sobek.Promise {
	s := waitSettings{Receivers: 1, TimeoutSeconds: 60}
	return f.wait(options, &s, func() error {
		if f.flow.arrived() >= s.Receivers {
			return nil
		}
		return fail(reasonTimeout, "ready: %d of %d receivers are there after %g s", f.flow.arrived(), s.Receivers,
			s.TimeoutSeconds)
	})
}

// Complete resolves when the given number of publishers has finished and everything has arrived, or
// nothing has arrived for quietSeconds.
func (f *Flow) Complete(options sobek.Value) *sobek.Promise {
	s := waitSettings{Publishers: 1, TimeoutSeconds: 3600, QuietSeconds: 5}
	return f.wait(options, &s, func() error {
		if f.flow.complete(s.Publishers, seconds(s.QuietSeconds)) {
			return nil
		}
		return fail(reasonTimeout, "complete: the publishers have not finished after %g s", s.TimeoutSeconds)
	})
}

func (f *Flow) wait(options sobek.Value, s *waitSettings, unmet func() error) *sobek.Promise {
	promise, resolve, reject := f.module.promise()
	if err := decode(options, "the options", s); err != nil {
		reject(err)
		return promise
	}
	ctx, cancel := context.WithTimeout(f.module.vu.Context(), seconds(s.TimeoutSeconds))
	go func() {
		defer cancel()
		settle(poll(ctx, unmet), resolve, reject)
	}()
	return promise
}

// poll asks until there is no error any more or the context is over.
func poll(ctx context.Context, unmet func() error) error {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		err := unmet()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-ticker.C:
		}
	}
}

// Verdict counts what was lost, repeated and out of order. teardown() calls it once: it also adds the
// counts to k6's metrics.
func (f *Flow) Verdict() verdict {
	if f.module.vu.State() == nil {
		f.module.throw(invalid("verdict() works in an iteration or in teardown()"))
	}
	v, r := f.flow.verdict(), f.module.current()
	tags := r.tags.With("flow", f.flow.name)
	r.count(r.expected, tags, float64(v.Expected))
	r.count(r.lost, tags, float64(v.Lost))
	r.count(r.repeated, tags, float64(v.Repeated))
	r.count(r.outOfOrder, tags, float64(v.OutOfOrder))
	r.count(r.stray, tags, float64(v.Stray))
	r.flush()
	return v
}

func seconds(s float64) time.Duration {
	return time.Duration(math.Min(s*float64(time.Second), math.MaxInt64/2))
}
