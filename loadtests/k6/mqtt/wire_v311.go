// MQTT 3.1.1 by paho.mqtt.golang.

package mqtt

import (
	"context"
	"errors"
	"net"
	"net/url"
	"time"

	paho "github.com/eclipse/paho.mqtt.golang"
)

type sessionStore = paho.MemoryStore

// How long a DISCONNECT may take to be written, in milliseconds.
const disconnectMS = 250

// wireV311 speaks MQTT 3.1.1 with paho.mqtt.golang.
type wireV311 struct {
	settings *settings
	client   paho.Client
}

func newWireV311(s *settings, c *conn, kept *memory, l listener) *wireV311 {
	if kept.v311 == nil {
		kept.v311 = paho.NewMemoryStore()
	}
	o := paho.NewClientOptions().AddBroker("tcp://given").SetClientID(s.ClientID).SetProtocolVersion(version311).
		SetCleanSession(s.cleanStart()).SetKeepAlive(time.Duration(s.keepAlive()) * time.Second).
		SetAutoReconnect(false).SetOrderMatters(true).SetStore(kept.v311).SetUsername(s.Username).
		SetPassword(string(s.Password)).SetConnectTimeout(s.timeout).SetWriteTimeout(s.timeout).
		SetCustomOpenConnectionFn(func(*url.URL, paho.ClientOptions) (net.Conn, error) { return c, nil }).
		SetConnectionLostHandler(func(_ paho.Client, err error) {
			l.lost(fail(reasonLost, "the connection was lost: %v", err))
		}).
		SetDefaultPublishHandler(func(_ paho.Client, m paho.Message) {
			l.received(&message{
				topic: m.Topic(), payload: m.Payload(), qos: m.Qos(), retain: m.Retained(), duplicate: m.Duplicate(),
			}, time.Now())
		})
	if s.Will != nil {
		o.SetBinaryWill(s.Will.Topic, s.Will.Payload, s.Will.QoS, s.Will.Retain)
	}
	return &wireV311{settings: s, client: paho.NewClient(o)}
}

func (w *wireV311) connect(ctx context.Context) (connack, error) {
	token, ok := w.client.Connect().(*paho.ConnectToken)
	if !ok {
		return connack{}, errors.New("the library answered CONNECT with an unknown token")
	}
	if err := finished(ctx, token, "CONNECT"); err != nil {
		// 1 to 5 are the broker's; the library has numbers above for its own errors.
		if code := token.ReturnCode(); code >= 1 && code <= 5 {
			return connack{}, refusal(code, "the broker refused the connection: %v", token.Error())
		}
		return connack{}, err
	}
	return connack{SessionPresent: token.SessionPresent(), ClientID: w.settings.ClientID}, nil
}

type ackV311 struct{ token paho.Token }

func (a ackV311) wait(ctx context.Context) error { return finished(ctx, a.token, "PUBLISH") }

func (w *wireV311) publish(ctx context.Context, m *message) (acknowledgement, error) {
	token := w.client.Publish(m.topic, m.qos, m.retain, m.payload)
	if m.qos == 0 {
		return nil, finished(ctx, token, "PUBLISH")
	}
	return ackV311{token}, nil
}

func (w *wireV311) subscribe(ctx context.Context, filters []filter) error {
	wanted := make(map[string]byte, len(filters))
	for _, f := range filters {
		if f.NoLocal || f.RetainAsPublished || f.RetainHandling != 0 {
			return invalid("noLocal, retainAsPublished and retainHandling need version 5")
		}
		wanted[f.Filter] = f.QoS
	}
	token, ok := w.client.SubscribeMultiple(wanted, nil).(*paho.SubscribeToken)
	if !ok {
		return errors.New("the library answered SUBSCRIBE with an unknown token")
	}
	err := finished(ctx, token, "SUBSCRIBE")
	for name, code := range token.Result() {
		if code >= 0x80 {
			return refusal(code, "the broker refused the subscription to %q", name)
		}
	}
	return err
}

func (w *wireV311) unsubscribe(ctx context.Context, filters []string) error {
	return finished(ctx, w.client.Unsubscribe(filters...), "UNSUBSCRIBE")
}

func (w *wireV311) disconnect() { w.client.Disconnect(disconnectMS) }

func finished(ctx context.Context, token paho.Token, what string) error {
	select {
	case <-token.Done():
	case <-ctx.Done():
		return asFailure(context.Cause(ctx), what)
	}
	err := token.Error()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, paho.ErrNotConnected):
		return fail(reasonLost, "%s: the connection was lost", what)
	}
	return asFailure(err, what)
}
