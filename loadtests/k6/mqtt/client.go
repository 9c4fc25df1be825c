// The object Client of scripts: connect, publish, subscribe, disconnect. A script has one per device.

package mqtt

import (
	"context"
	"sync"
	"time"

	"github.com/grafana/sobek"
	"github.com/mstoykov/k6-taskqueue-lib/taskqueue"
	"go.k6.io/k6/js/common"
)

// Client is a device, as scripts see it. An open connection keeps the iteration going, as an open
// WebSocket does, and is cut when the iteration is interrupted. A connection does so by its task queue, so each way in which it
// can end must close the queue; a second Close does nothing.
type Client struct {
	module   *instance
	settings *settings
	listeners

	// Goroutines of the connection use the fields below too: lost (events.go) clears link.
	mu         sync.Mutex
	connecting bool
	link       *link
	// Unacknowledged messages of the session, for the next connection.
	memory memory
	// Not nil if a flow counts the messages that arrive, instead of the script's callbacks.
	reception *reception
}

// Connect resolves with { sessionPresent, clientId } when the broker has accepted the client. A goroutine may call resolve or
// reject, because both pass their value to k6's event loop; it must call exactly one of them.
func (c *Client) Connect() *sobek.Promise {
	promise, resolve, reject := c.module.promise()
	if c.module.vu.State() == nil {
		reject(invalid("connect() works in an iteration, not in the init context"))
		return promise
	}
	if err := c.begin(); err != nil {
		reject(err)
		return promise
	}
	recorder, ctx, tasks := c.module.current(), c.module.vu.Context(), taskqueue.New(c.module.vu.RegisterCallback)
	go func() {
		said, err := c.open(ctx, recorder, tasks)
		if err != nil {
			tasks.Close()
			reject(err)
			return
		}
		resolve(said)
	}()
	return promise
}

func (c *Client) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.connecting || c.link != nil {
		return invalid("this client is connected already; end() comes first")
	}
	c.connecting = true
	return nil
}

// open dials, says CONNECT, and measures both together.
func (c *Client) open(ctx context.Context, r *recorder, tasks *taskqueue.TaskQueue) (connack, error) {
	l := &link{
		client: c, tasks: tasks, settings: c.settings, recorder: r, tags: newTagSets(r.tags, c.settings),
	}
	// Not made from ctx, because the cause of its end must be a *failure: AfterFunc below closes the link with one.
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	began := time.Now()
	said, err := c.handshake(ctx, l)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.connecting = false
	if err != nil {
		why := asFailure(err, "CONNECT")
		l.countError("connect", why)
		r.flush()
		return said, why
	}
	r.count(r.connects, l.tags.all, 1)
	r.took(r.connectDuration, l.tags.all, time.Since(began))
	// The connection may be lost already, and then lost has been called before link is set.
	if l.ctx.Err() == nil {
		c.link = l
	}
	context.AfterFunc(ctx, func() {
		l.close(fail(reasonEnded, "the iteration ended"))
		tasks.Close()
	})
	return said, nil
}

func (c *Client) handshake(ctx context.Context, l *link) (connack, error) {
	ctx, cancel := context.WithTimeout(ctx, c.settings.timeout)
	defer cancel()
	conn, err := dial(ctx, c.module.vu.State(), c.settings)
	if err != nil {
		return connack{}, err
	}
	l.conn = conn
	if c.settings.version == version5 {
		l.wire = newWireV5(c.settings, conn, &c.memory, l)
	} else {
		l.wire = newWireV311(c.settings, conn, &c.memory, l)
	}
	l.recorder.opened(l)
	said, err := l.wire.connect(ctx)
	if err != nil {
		l.close(asFailure(err, "CONNECT"))
	}
	return said, err
}

// connected returns the connection, or what is wrong with having none.
func (c *Client) connected(what string) (*link, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link == nil {
		return nil, fail(reasonNotConnected, "%s: the client is not connected; await connect() first", what)
	}
	return c.link, nil
}

// Connected says whether the client has a connection now.
func (c *Client) Connected() bool {
	_, err := c.connected("")
	return err == nil
}

// Publish resolves when the broker has acknowledged the message; with QoS 0, when it is written.
func (c *Client) Publish(topic string, payload, options sobek.Value) *sobek.Promise {
	promise, resolve, reject := c.module.promise()
	m, err := c.outgoing(topic, payload, options)
	if err != nil {
		reject(err)
		return promise
	}
	l, err := c.connected("publish")
	if err != nil {
		reject(err)
		return promise
	}
	l.send(&outgoing{message: m, done: func(err error) { settle(err, resolve, reject) }})
	return promise
}

func (c *Client) outgoing(topic string, payload, options sobek.Value) (*message, error) {
	s := &publishSettings{}
	if err := decode(options, "the options of publish", s); err != nil {
		return nil, err
	}
	if err := s.check(c.settings.version); err != nil {
		return nil, err
	}
	if err := checkTopic(topic); err != nil {
		return nil, err
	}
	m := &message{topic: topic, qos: s.QoS, retain: s.Retain}
	if !common.IsNullish(payload) {
		bytes, err := common.ToBytes(payload.Export())
		if err != nil {
			return nil, invalid("the payload must be a text or an ArrayBuffer")
		}
		// The script may write to its buffer again before the message is sent.
		m.payload = append([]byte(nil), bytes...)
	}
	if c.settings.version == version5 {
		m.properties = s.properties()
	}
	return m, nil
}

func (p *publishSettings) properties() *properties {
	if p.ExpirySeconds == nil && p.ContentType == "" && p.ResponseTopic == "" && p.CorrelationData == nil &&
		p.UserProperties == nil {
		return nil
	}
	made := &properties{
		expirySeconds: p.ExpirySeconds, contentType: p.ContentType, responseTopic: p.ResponseTopic,
		correlationData: p.CorrelationData,
	}
	for name, value := range p.UserProperties {
		made.user = append(made.user, [2]string{name, value})
	}
	return made
}

// Subscribe takes a filter, or a list of { filter, qos, ... }, and resolves with the SUBACK.
func (c *Client) Subscribe(what sobek.Value, options sobek.Value) *sobek.Promise {
	filters, err := parseFilters(what, options)
	return c.request("subscribe", err, func(ctx context.Context, l *link) error {
		began := time.Now()
		if err := l.wire.subscribe(ctx, filters); err != nil {
			return err
		}
		l.recorder.took(l.recorder.subscribeDuration, l.tags.all, time.Since(began))
		return nil
	})
}

// Unsubscribe takes a filter or a list of them.
func (c *Client) Unsubscribe(filters ...string) *sobek.Promise {
	var err error
	if len(filters) == 0 {
		err = invalid("unsubscribe needs a filter")
	}
	return c.request("unsubscribe", err, func(ctx context.Context, l *link) error {
		return l.wire.unsubscribe(ctx, filters)
	})
}

// request runs what waits for an answer of the broker.
func (c *Client) request(what string, invalid error, run func(context.Context, *link) error) *sobek.Promise {
	promise, resolve, reject := c.module.promise()
	l, err := c.connected(what)
	if invalid != nil {
		err = invalid
	}
	if err != nil {
		reject(err)
		return promise
	}
	go func() {
		ctx, cancel := context.WithTimeout(l.ctx, c.settings.timeout)
		defer cancel()
		err := run(ctx, l)
		if err != nil {
			l.countError(what, asFailure(err, what))
		}
		settle(err, resolve, reject)
	}()
	return promise
}

// End says DISCONNECT once everything published is written, and resolves when the connection is closed.
func (c *Client) End() *sobek.Promise {
	promise, resolve, _ := c.module.promise()
	l := c.detach()
	go func() {
		if l != nil {
			l.drain()
			l.end()
			l.tasks.Close()
		}
		resolve(sobek.Undefined())
	}()
	return promise
}

// Drop cuts the connection without a DISCONNECT, as a device does that loses power.
func (c *Client) Drop() {
	if l := c.detach(); l != nil {
		l.close(fail(reasonEnded, "the client dropped the connection"))
		l.recorder.flush()
		l.tasks.Close()
	}
}

func (c *Client) detach() *link {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.link
	c.link = nil
	return l
}
