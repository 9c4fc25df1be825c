// MQTT 5.0 by paho.golang.

package mqtt

import (
	"context"
	"errors"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"
	"github.com/eclipse/paho.golang/paho/session/state"
)

// How many QoS 1 and 2 messages a client accepts at once unless CONNECT says otherwise. The library keeps a
// queue of that many places, so 65,535 would take half a megabyte a connection.
const receiveMaximumDefault = 1000

type sessionState = state.State

// wireV5 speaks MQTT 5.0 with paho.golang.
type wireV5 struct {
	settings *settings
	session  *state.State
	client   *paho.Client
	conn     *conn
}

// newWireV5 makes a client that continues with the session in kept, and reports packets to l.
func newWireV5(s *settings, c *conn, kept *memory, l listener) *wireV5 {
	if kept.v5 == nil {
		kept.v5 = state.NewInMemory()
	}
	w := &wireV5{settings: s, session: kept.v5, conn: c}
	w.client = paho.NewClient(paho.ClientConfig{
		ClientID: s.ClientID, Conn: c, Session: kept.v5, PacketTimeout: s.timeout,
		OnPublishReceived: []func(paho.PublishReceived) (bool, error){
			func(p paho.PublishReceived) (bool, error) {
				l.received(fromPaho(p.Packet), time.Now())
				return true, nil
			},
		},
		OnServerDisconnect: func(d *paho.Disconnect) {
			l.lost(&failure{reason: reasonDisconnected, code: d.ReasonCode, text: disconnectText(d)})
		},
		OnClientError: func(err error) { l.lost(fail(reasonLost, "the connection was lost: %v", err)) },
	})
	return w
}

func disconnectText(d *paho.Disconnect) string {
	text := refusal(d.ReasonCode, "the broker ended the connection").text
	if d.Properties != nil && d.Properties.ReasonString != "" {
		text += ": " + d.Properties.ReasonString
	}
	return text
}

func (w *wireV5) connect(ctx context.Context) (connack, error) {
	answer, err := w.client.Connect(ctx, w.packet())
	if err != nil {
		if answer != nil && answer.ReasonCode >= 0x80 {
			text := "the broker refused the connection"
			if answer.Properties != nil && answer.Properties.ReasonString != "" {
				text += ": " + answer.Properties.ReasonString
			}
			return connack{}, refusal(answer.ReasonCode, "%s", text)
		}
		return connack{}, asFailure(err, "CONNECT")
	}
	said := connack{SessionPresent: answer.SessionPresent, ClientID: w.settings.ClientID}
	if answer.Properties != nil && answer.Properties.AssignedClientID != "" {
		said.ClientID = answer.Properties.AssignedClientID
	}
	return said, nil
}

func (w *wireV5) packet() *paho.Connect {
	s := w.settings
	receiveMaximum := uint16(receiveMaximumDefault)
	if s.ReceiveMaximum != nil {
		receiveMaximum = *s.ReceiveMaximum
	}
	c := &paho.Connect{
		ClientID: s.ClientID, KeepAlive: s.keepAlive(), CleanStart: s.cleanStart(),
		Username: s.Username, UsernameFlag: s.Username != "",
		Password: s.Password, PasswordFlag: s.Password != nil,
		Properties: &paho.ConnectProperties{
			SessionExpiryInterval: s.SessionExpirySeconds, ReceiveMaximum: &receiveMaximum, RequestProblemInfo: true,
		},
	}
	if s.Will != nil {
		c.WillMessage = &paho.WillMessage{
			Topic: s.Will.Topic, Payload: s.Will.Payload, QoS: s.Will.QoS, Retain: s.Will.Retain,
		}
		c.WillProperties = &paho.WillProperties{WillDelayInterval: &s.Will.DelaySeconds}
	}
	return c
}

// ackV5 waits until one message is acknowledged: by PUBACK, or by PUBREC and PUBCOMP.
type ackV5 struct{ answer chan packets.ControlPacket }

func (w *wireV5) publish(ctx context.Context, m *message) (acknowledgement, error) {
	packet := toPaho(m).Packet()
	if m.qos == 0 {
		_, err := packet.WriteTo(w.conn)
		return nil, err
	}
	// The library's own Publish waits for the answer before it returns, so the next message could
	// overtake this one. Its session keeps the order, because one goroutine of the link calls publish.
	answer := make(chan packets.ControlPacket, 1)
	if err := w.session.AddToSession(ctx, packet, answer); err != nil {
		return nil, err
	}
	if _, err := packet.WriteTo(w.conn); err != nil {
		return nil, err
	}
	return &ackV5{answer}, nil
}

func (a *ackV5) wait(ctx context.Context) error {
	select {
	case packet := <-a.answer:
		return publishResult(packet)
	case <-ctx.Done():
		select {
		case packet := <-a.answer:
			return publishResult(packet)
		default:
			return context.Cause(ctx)
		}
	}
}

func publishResult(packet packets.ControlPacket) error {
	var code byte
	switch answer := packet.Content.(type) {
	case *packets.Puback:
		code = answer.ReasonCode
	case *packets.Pubrec:
		code = answer.ReasonCode
	case *packets.Pubcomp:
		code = answer.ReasonCode
	default:
		return fail(reasonLost, "the connection was lost before the message was acknowledged")
	}
	if code >= 0x80 {
		return refusal(code, "the broker refused the message")
	}
	return nil
}

func (w *wireV5) subscribe(ctx context.Context, filters []filter) error {
	request := &paho.Subscribe{}
	for _, f := range filters {
		request.Subscriptions = append(request.Subscriptions, paho.SubscribeOptions{
			Topic: f.Filter, QoS: f.QoS, NoLocal: f.NoLocal, RetainAsPublished: f.RetainAsPublished,
			RetainHandling: f.RetainHandling,
		})
	}
	answer, err := w.client.Subscribe(ctx, request)
	if answer != nil {
		for i, code := range answer.Reasons {
			if code >= 0x80 && i < len(filters) {
				return refusal(code, "the broker refused the subscription to %q", filters[i].Filter)
			}
		}
	}
	return w.requestError(err, "SUBSCRIBE")
}

func (w *wireV5) unsubscribe(ctx context.Context, filters []string) error {
	_, err := w.client.Unsubscribe(ctx, &paho.Unsubscribe{Topics: filters})
	return w.requestError(err, "UNSUBSCRIBE")
}

func (w *wireV5) requestError(err error, what string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, paho.ErrInvalidArguments):
		return invalid("%s: %v", what, err)
	case errors.Is(err, paho.ErrConnectionLost):
		return fail(reasonLost, "%s: the connection was lost", what)
	}
	return asFailure(err, what)
}

func (w *wireV5) disconnect() { _ = w.client.Disconnect(&paho.Disconnect{}) }

func toPaho(m *message) *paho.Publish {
	p := &paho.Publish{Topic: m.topic, QoS: m.qos, Retain: m.retain, Payload: m.payload}
	if m.properties == nil {
		return p
	}
	p.Properties = &paho.PublishProperties{
		MessageExpiry: m.properties.expirySeconds, ContentType: m.properties.contentType,
		ResponseTopic: m.properties.responseTopic, CorrelationData: m.properties.correlationData,
	}
	for _, pair := range m.properties.user {
		p.Properties.User.Add(pair[0], pair[1])
	}
	return p
}

func fromPaho(p *paho.Publish) *message {
	m := &message{topic: p.Topic, payload: p.Payload, qos: p.QoS, retain: p.Retain, duplicate: p.Duplicate()}
	if q := p.Properties; q != nil {
		m.properties = &properties{
			expirySeconds: q.MessageExpiry, contentType: q.ContentType, responseTopic: q.ResponseTopic,
			correlationData: q.CorrelationData,
		}
		for _, pair := range q.User {
			m.properties.user = append(m.properties.user, [2]string{pair.Key, pair.Value})
		}
	}
	return m
}
