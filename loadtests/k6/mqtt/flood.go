// Flow.publish: a flood of messages from one client at a rate, with a window of unacknowledged messages, and
// never further ahead of the slowest receiver than allowed. The ledger records what must arrive.

package mqtt

import (
	"context"
	"sync"
	"time"

	"github.com/grafana/sobek"
)

// A receiver that lags by Ahead messages pauses the publisher. After a pause of stallSeconds the flood ends and reports
// Stalled: the ledger cannot distinguish a slow receiver from one that has lost messages and will never catch up.
const stallSeconds = 5

// floodSettings are the options of Flow.publish.
type floodSettings struct {
	Topic string `json:"topic"`
	QoS   byte   `json:"qos"`
	// Bytes of each payload, with the stamp at its begin.
	Size int `json:"size"`
	// Ends the flood, whichever comes first.
	Count   uint64  `json:"count"`
	Seconds float64 `json:"seconds"`
	// Messages per second; 0 is as fast as the rest allows.
	Rate float64 `json:"rate"`
	// Most messages that wait for their acknowledgement (QoS 0: to be written).
	Window int `json:"window"`
	// Most messages that the slowest receiver may lack; 0 is any number.
	Ahead uint64 `json:"ahead"`
	// Name of the source in the ledger.
	Publisher string `json:"publisher"`
}

// flood is one run of Flow.publish.
type flood struct {
	floodSettings
	ledger    *ledger
	publisher *publisher
	link      *link
	// Holds an element for each message in the window.
	slots    chan struct{}
	inFlight sync.WaitGroup

	// mu guards the counts and Error, which acknowledgements change; run alone sets Stalled.
	mu      sync.Mutex
	outcome floodOutcome
}

type floodOutcome struct {
	Sent         int    `js:"sent"`
	Acknowledged int    `js:"acknowledged"`
	Failed       int    `js:"failed"`
	Stalled      bool   `js:"stalled"`
	Error        string `js:"error"`
}

// Publish starts a flood and returns a promise of its outcome. The flood runs on a goroutine, because a turn
// of the script's event loop for each message would limit the rate.
func (f *Flow) Publish(client *Client, options sobek.Value) *sobek.Promise {
	promise, resolve, reject := f.module.promise()
	if client == nil {
		reject(invalid("publish needs a client"))
		return promise
	}
	s := floodSettings{Size: 100, Window: 1, Publisher: client.settings.ClientID}
	l, err := client.connected("publish")
	if err == nil {
		err = decode(options, "the options of publish", &s)
	}
	if err == nil {
		err = s.check()
	}
	if err != nil {
		reject(err)
		return promise
	}
	run := &flood{
		floodSettings: s, ledger: f.flow, publisher: f.flow.publisher(s.Publisher), link: l,
		slots: make(chan struct{}, s.Window),
	}
	ctx := f.module.vu.Context()
	go func() {
		run.run(ctx)
		resolve(run.outcome)
	}()
	return promise
}

func (s *floodSettings) check() error {
	switch {
	case s.QoS > 2:
		return invalid("qos must be 0, 1 or 2")
	case s.Size < stampBytes:
		return invalid("size must be at least %d bytes: a message of a flow begins with a stamp", stampBytes)
	case s.Count == 0 && s.Seconds == 0:
		return invalid("publish needs a count or seconds")
	case s.Count > sequenceMax:
		return invalid("count must be at most %d", sequenceMax)
	case s.Window < 1 || s.Window > inFlightMax:
		return invalid("window must be 1 to %d", inFlightMax)
	case s.Publisher == "":
		return invalid("publish needs a publisher, or a client with a clientId")
	}
	return checkTopic(s.Topic)
}

func (f *flood) run(ctx context.Context) {
	defer f.ledger.finish(f.publisher)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(f.link.ctx, func() { cancel(context.Cause(f.link.ctx)) })
	defer stop()
	began := time.Now()
	for n := uint64(0); f.goesOn(n, time.Since(began)); n++ {
		if !f.mayPublish(ctx, n, began) {
			break
		}
		f.publishOne()
	}
	f.inFlight.Wait()
}

func (f *flood) goesOn(n uint64, passed time.Duration) bool {
	if f.Count > 0 && n >= f.Count || n >= sequenceMax {
		return false
	}
	return f.Seconds == 0 || passed < seconds(f.Seconds)
}

// mayPublish waits for the rate, for the receivers and for room in the window.
func (f *flood) mayPublish(ctx context.Context, n uint64, began time.Time) bool {
	if f.Rate > 0 && !sleep(ctx, time.Until(began.Add(seconds(float64(n)/f.Rate)))) {
		return false
	}
	if f.Ahead > 0 && !f.follow(ctx) {
		return false
	}
	select {
	case f.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// follow waits until the receivers lag by fewer than Ahead messages; false ends the flood.
func (f *flood) follow(ctx context.Context) bool {
	caughtUp := f.ledger.follow(f.publisher, f.Ahead)
	if caughtUp == nil {
		return true
	}
	stall := time.NewTimer(stallSeconds * time.Second)
	defer stall.Stop()
	select {
	case <-caughtUp:
		return true
	case <-stall.C:
		f.outcome.Stalled = true
		return false
	case <-ctx.Done():
		return false
	}
}

func (f *flood) publishOne() {
	payload := make([]byte, f.Size)
	sequence := f.ledger.begin(f.publisher)
	s := stamp{run: f.ledger.run, flow: f.ledger.id, publisher: f.publisher.id, sequence: sequence}
	f.inFlight.Add(1)
	f.link.send(&outgoing{
		message: &message{topic: f.Topic, qos: f.QoS, payload: payload},
		before: func(now time.Time) {
			s.sent = now
			s.write(payload)
		},
		done: func(err error) {
			f.note(sequence, err)
			<-f.slots
			f.inFlight.Done()
		},
	})
}

func (f *flood) note(sequence uint64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.outcome.Sent++
	if err != nil {
		f.outcome.Failed++
		f.outcome.Error = err.Error()
		return
	}
	f.outcome.Acknowledged++
	f.ledger.require(f.publisher, sequence)
}

// sleep returns false when the context ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
