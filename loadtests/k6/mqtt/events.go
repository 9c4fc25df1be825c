// Events of a client as a k6 script sees them: callbacks for messages and lost connections, and the
// conversion of arguments and promises between Go and the script.

package mqtt

import (
	"encoding/json"
	"time"

	"github.com/grafana/sobek"
)

// listeners are a script's callbacks. The event loop adds to them and calls them; goroutines of a
// connection only look whether there are any.
type listeners struct {
	onMessage []sobek.Callable
	onClose   []sobek.Callable
}

// Message is what scripts get.
type Message struct {
	Topic          string            `js:"topic"`
	QoS            int               `js:"qos"`
	Retain         bool              `js:"retain"`
	Duplicate      bool              `js:"duplicate"`
	Payload        sobek.ArrayBuffer `js:"payload"`
	ContentType    string            `js:"contentType"`
	ResponseTopic  string            `js:"responseTopic"`
	Correlation    sobek.ArrayBuffer `js:"correlationData"`
	UserProperties map[string]string `js:"userProperties"`

	bytes []byte
}

// Text returns the payload as text.
func (m *Message) Text() string { return string(m.bytes) }

// Json parses the payload as JSON.
func (m *Message) Json() (any, error) { //nolint:revive // scripts see json()
	var value any
	if err := json.Unmarshal(m.bytes, &value); err != nil {
		return nil, invalid("the payload of %q is no JSON: %v", m.Topic, err)
	}
	return value, nil
}

// On adds a callback: "message" gets a Message, "close" gets the error by which a connection was lost.
func (c *Client) On(event string, callback sobek.Value) {
	call, ok := sobek.AssertFunction(callback)
	if !ok {
		c.module.throw(invalid("on(%q) needs a function", event))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch event {
	case "message":
		c.onMessage = append(c.onMessage, call)
	case "close":
		c.onClose = append(c.onClose, call)
	default:
		c.module.throw(invalid("there is no event %q; there are message and close", event))
	}
}

// received gives a message to the flow that counts it, or else to the script's callbacks. Goroutines of
// the connection call it.
func (c *Client) received(l *link, m *message, at time.Time) {
	c.mu.Lock()
	reception, callbacks := c.reception, c.onMessage
	c.mu.Unlock()
	if reception != nil && reception.take(l, m, at) {
		return
	}
	if len(callbacks) == 0 {
		return
	}
	l.tasks.Queue(func() error { return callAll(callbacks, c.module.vu.Runtime().ToValue(c.module.message(m))) })
}

// lost forgets a connection and gives the reason to the script's callbacks. Goroutines of the
// connection call it.
func (c *Client) lost(l *link, why *failure) {
	c.mu.Lock()
	if c.link == l {
		c.link = nil
	}
	callbacks := c.onClose
	c.mu.Unlock()
	l.tasks.Queue(func() error { return callAll(callbacks, why.object(c.module.vu.Runtime())) })
	l.tasks.Close()
}

func callAll(callbacks []sobek.Callable, argument sobek.Value) error {
	for _, call := range callbacks {
		if _, err := call(sobek.Undefined(), argument); err != nil {
			return err
		}
	}
	return nil
}

func (i *instance) message(m *message) *Message {
	rt := i.vu.Runtime()
	made := &Message{
		Topic: m.topic, QoS: int(m.qos), Retain: m.retain, Duplicate: m.duplicate,
		Payload: rt.NewArrayBuffer(m.payload), bytes: m.payload,
	}
	if p := m.properties; p != nil {
		made.ContentType, made.ResponseTopic = p.contentType, p.responseTopic
		made.Correlation = rt.NewArrayBuffer(p.correlationData)
		made.UserProperties = make(map[string]string, len(p.user))
		for _, pair := range p.user {
			made.UserProperties[pair[0]] = pair[1]
		}
	}
	return made
}

// promise makes a promise of k6's event loop, with the functions that resolve and reject it. Any
// goroutine may call one of them, once.
func (i *instance) promise() (*sobek.Promise, func(any), func(error)) {
	rt := i.vu.Runtime()
	promise, resolve, reject := rt.NewPromise()
	callback := i.vu.RegisterCallback()
	return promise,
		func(value any) { callback(func() error { return resolve(value) }) },
		func(err error) {
			callback(func() error { return reject(asFailure(err, "mqtt").object(rt)) })
		}
}

func settle(err error, resolve func(any), reject func(error)) {
	if err != nil {
		reject(err)
		return
	}
	resolve(sobek.Undefined())
}

// exported is nil for an argument that a script has left out.
func exported(value sobek.Value) any {
	if value == nil {
		return nil
	}
	return value.Export()
}

// parseFilters reads the arguments of subscribe.
func parseFilters(what, options sobek.Value) ([]filter, error) {
	var filters []filter
	switch given := exported(what).(type) {
	case string:
		f := filter{Filter: given}
		if err := decode(options, "the options of subscribe", &f); err != nil {
			return nil, err
		}
		f.Filter = given
		filters = []filter{f}
	case []any:
		data, err := json.Marshal(given)
		if err == nil {
			err = json.Unmarshal(data, &filters)
		}
		if err != nil {
			return nil, invalid("a subscription looks like { filter: \"a/#\", qos: 1 }: %v", err)
		}
	}
	if len(filters) == 0 {
		return nil, invalid("subscribe needs a filter, or a list of { filter, qos }")
	}
	for _, f := range filters {
		if f.Filter == "" || f.QoS > 2 {
			return nil, invalid("a subscription needs a filter and a qos of 0, 1 or 2")
		}
	}
	return filters, nil
}
