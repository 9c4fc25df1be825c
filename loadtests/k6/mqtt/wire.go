// The interface that link.go has to a protocol library, and the types that cross it. wire_v5.go and wire_v311.go implement it.

package mqtt

import (
	"context"
	"time"
)

// message is a PUBLISH, in either direction.
type message struct {
	topic     string
	payload   []byte
	qos       byte
	retain    bool
	duplicate bool
	// nil unless the packet is of version 5.
	properties *properties
}

type properties struct {
	expirySeconds   *uint32
	contentType     string
	responseTopic   string
	correlationData []byte
	user            [][2]string
}

// filter is one subscription of a SUBSCRIBE.
type filter struct {
	Filter            string `json:"filter"`
	QoS               byte   `json:"qos"`
	NoLocal           bool   `json:"noLocal"`
	RetainAsPublished bool   `json:"retainAsPublished"`
	RetainHandling    byte   `json:"retainHandling"`
}

// connack is what the broker said to a CONNECT that it accepted.
type connack struct {
	SessionPresent bool   `js:"sessionPresent"`
	ClientID       string `js:"clientId"`
}

// acknowledgement is the answer to a PUBLISH of QoS 1 or 2 that is still to come.
type acknowledgement interface {
	// wait returns when the broker has taken the message, has refused it, or the context is over.
	wait(ctx context.Context) error
}

// listener receives a connection's packets, on goroutines of the library. It must not block.
type listener interface {
	received(m *message, at time.Time)
	// lost is called at most once for a connection, and not when the client itself ended it.
	lost(why *failure)
}

// wire is one connection of one protocol version. Its methods may be called from several goroutines,
// apart from connect, which comes first.
type wire interface {
	connect(ctx context.Context) (connack, error)
	// publish sends in the order of the calls. For QoS 0 the acknowledgement is nil.
	publish(ctx context.Context, m *message) (acknowledgement, error)
	subscribe(ctx context.Context, filters []filter) error
	unsubscribe(ctx context.Context, filters []string) error
	// disconnect says DISCONNECT and closes the connection.
	disconnect()
}

// memory is what a client keeps for its session from one connection to the next: messages that the
// broker has not acknowledged. Each library has a kind of its own.
type memory struct {
	v5   *sessionState
	v311 *sessionStore
}
