// One open connection of a client: queues and windows between the script and the protocol library.

package mqtt

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/mstoykov/k6-taskqueue-lib/taskqueue"
	"go.k6.io/k6/metrics"
)

const (
	// Messages that wait to be written. A script that publishes faster than the broker reads waits here.
	sendQueue = 64
	// Messages of one QoS that wait to be acknowledged.
	inFlightMax = 1024
)

// tagSets are the tags of one connection's samples.
type tagSets struct {
	all *metrics.TagSet
	qos [3]*metrics.TagSet
}

func newTagSets(base *metrics.TagSet, s *settings) tagSets {
	protocol := "5.0"
	if s.version == version311 {
		protocol = "3.1.1"
	}
	t := tagSets{all: base.WithTagsFromMap(s.Tags).With("protocol", protocol).With("transport", s.scheme.transport)}
	for qos := range t.qos {
		t.qos[qos] = t.all.With("qos", strconv.Itoa(qos))
	}
	return t
}

// outgoing is a message on its way to the broker.
type outgoing struct {
	*message
	// before is called right before the message is written, to stamp it. May be nil.
	before func(now time.Time)
	// done is called once, with the outcome.
	done func(error)
}

type unacknowledged struct {
	*outgoing
	sent time.Time
	ack  acknowledgement
	// Ends when the broker has not acknowledged within the client's timeout.
	ctx    context.Context
	cancel context.CancelFunc
}

// link is one connection of a client: it sends in order, waits for acknowledgements, and measures.
type link struct {
	wire     wire
	conn     *conn
	settings *settings
	recorder *recorder
	tags     tagSets
	// The client gets what the connection receives, and learns when it is lost.
	client *Client
	tasks  *taskqueue.TaskQueue

	// Ends with the connection; its cause is a *failure.
	ctx    context.Context
	cancel context.CancelCauseFunc
	once   sync.Once
	queue  chan *outgoing
	acks   [3]chan unacknowledged
}

func (l *link) received(m *message, at time.Time) {
	l.recorder.count(l.recorder.received, l.tags.qos[m.qos%3], 1)
	l.client.received(l, m, at)
}

func (l *link) lost(why *failure) {
	if l.close(why) {
		l.countError("connection", why)
		l.client.lost(l, why)
	}
}

// close ends the connection and says whether it was still open.
func (l *link) close(why *failure) bool {
	if l.ctx.Err() != nil {
		return false
	}
	l.cancel(why)
	_ = l.conn.Close()
	l.recorder.closed(l)
	var cause *failure
	return errors.As(context.Cause(l.ctx), &cause) && cause == why
}

func (l *link) countError(operation string, why *failure) {
	l.recorder.count(l.recorder.errors, l.tags.all.With("reason", why.reason).With("operation", operation), 1)
}

// send queues a message. It waits while the queue is full.
func (l *link) send(o *outgoing) {
	l.once.Do(l.startSending)
	select {
	case l.queue <- o:
		// The sender may have looked for the last time already.
		if l.ctx.Err() != nil {
			l.refuseQueued()
		}
	case <-l.ctx.Done():
		o.done(context.Cause(l.ctx))
	}
}

func (l *link) startSending() {
	l.queue = make(chan *outgoing, sendQueue)
	for qos := 1; qos <= 2; qos++ {
		l.acks[qos] = make(chan unacknowledged, inFlightMax)
		go l.awaitAcks(l.acks[qos])
	}
	go l.sendAll()
}

func (l *link) sendAll() {
	defer func() {
		close(l.acks[1])
		close(l.acks[2])
	}()
	for {
		select {
		case <-l.ctx.Done():
			l.refuseQueued()
			return
		case o := <-l.queue:
			l.sendOne(o)
		}
	}
}

func (l *link) refuseQueued() {
	for {
		select {
		case o := <-l.queue:
			o.done(context.Cause(l.ctx))
		default:
			return
		}
	}
}

func (l *link) sendOne(o *outgoing) {
	now := time.Now()
	if o.before != nil {
		o.before(now)
	}
	// drain queued it, to learn when all before it are written.
	if o.message == nil {
		o.done(nil)
		return
	}
	// The library waits here once the broker's Receive Maximum is reached, so the timeout counts from before the write.
	ctx, cancel := l.ctx, context.CancelFunc(func() {})
	if o.qos > 0 {
		ctx, cancel = context.WithTimeout(l.ctx, l.settings.timeout)
	}
	ack, err := l.wire.publish(ctx, o.message)
	if err != nil {
		cancel()
		l.fail(o, err)
		return
	}
	l.recorder.count(l.recorder.sent, l.tags.qos[o.qos], 1)
	if ack == nil {
		cancel()
		o.done(nil)
		return
	}
	select {
	case l.acks[o.qos] <- unacknowledged{o, now, ack, ctx, cancel}:
	case <-ctx.Done():
		cancel()
		l.fail(o, context.Cause(ctx))
	}
}

func (l *link) fail(o *outgoing, err error) {
	if l.ctx.Err() != nil {
		err = context.Cause(l.ctx)
	}
	why := asFailure(err, "PUBLISH")
	l.countError("publish", why)
	o.done(why)
}

// awaitAcks relies on the broker to acknowledge in order, as [MQTT-4.6.0-2] and [MQTT-4.6.0-3] say.
func (l *link) awaitAcks(waiting <-chan unacknowledged) {
	for u := range waiting {
		l.awaitAck(u)
	}
}

func (l *link) awaitAck(u unacknowledged) {
	defer u.cancel()
	if err := u.ack.wait(u.ctx); err != nil {
		l.fail(u.outgoing, err)
		return
	}
	l.recorder.took(l.recorder.publishDuration, l.tags.qos[u.qos], time.Since(u.sent))
	u.done(nil)
}

// drain returns when what was queued before has been written.
func (l *link) drain() {
	written := make(chan struct{})
	l.send(&outgoing{done: func(error) { close(written) }})
	select {
	case <-written:
	case <-time.After(l.settings.timeout):
	}
}

// end says DISCONNECT. Its own closing must not be taken for a lost connection, so the link ends first.
func (l *link) end() {
	l.recorder.closed(l)
	l.cancel(fail(reasonEnded, "the client has ended the connection"))
	l.wire.disconnect()
	_ = l.conn.Close()
	l.recorder.flush()
}
