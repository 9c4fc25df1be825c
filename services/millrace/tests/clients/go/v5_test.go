package clients

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/autopaho"
	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"
	"github.com/eclipse/paho.golang/paho/extensions/topicaliases"
	"github.com/eclipse/paho.golang/paho/session/state"
)

func ptr[T any](value T) *T { return &value }

// client5 is a client of paho.golang.
type client5 struct {
	t    *testing.T
	mqtt *paho.Client
	inbox
	raw      chan *paho.Publish
	conn     net.Conn
	connack  *paho.Connack
	lost     chan error
	goodbyes chan *paho.Disconnect
}

// way5 is how a client connects. The guarded broker of run.sh has users and rules, the other one admits everybody.
type way5 struct {
	transport        string
	durable, guarded bool
	manual           bool
	user, pass       string
	properties       paho.ConnectProperties
	will             *paho.WillMessage
	willDelay        *uint32
	hook             func(*paho.Publish)
}

func (w way5) connect(t *testing.T, id string) (*client5, error) {
	t.Helper()
	conn, err := dial(w.transport, w.guarded)
	ok(t, err)
	c := &client5{
		t: t, inbox: newInbox(), conn: conn, raw: make(chan *paho.Publish, 10*messages),
		lost: make(chan error, 10), goodbyes: make(chan *paho.Disconnect, 1),
	}
	c.mqtt = paho.NewClient(paho.ClientConfig{
		Conn:                       packets.NewThreadSafeConn(conn),
		Session:                    state.NewInMemory(),
		PublishHook:                w.hook,
		EnableManualAcknowledgment: w.manual,
		SendAcksInterval:           time.Millisecond,
		OnClientError:              func(err error) { c.lost <- err },
		OnServerDisconnect:         func(d *paho.Disconnect) { c.goodbyes <- d },
		OnPublishReceived: []func(paho.PublishReceived) (bool, error){func(p paho.PublishReceived) (bool, error) {
			c.raw <- p.Packet
			c.inbox <- message{p.Packet.Topic, p.Packet.Payload, p.Packet.QoS, p.Packet.Retain}
			return true, nil
		}},
	})
	properties := w.properties
	if w.durable && properties.SessionExpiryInterval == nil {
		properties.SessionExpiryInterval = ptr(uint32(600))
	}
	packet := &paho.Connect{
		ClientID: id, KeepAlive: 30, CleanStart: !w.durable, Properties: &properties, WillMessage: w.will,
		Username: w.user, UsernameFlag: w.user != "", Password: []byte(w.pass), PasswordFlag: w.pass != "",
	}
	if w.willDelay != nil {
		packet.WillProperties = &paho.WillProperties{WillDelayInterval: w.willDelay}
	}
	ctx, cancel := context.WithTimeout(context.Background(), waitMax)
	t.Cleanup(cancel)
	c.connack, err = c.mqtt.Connect(ctx, packet)
	t.Cleanup(func() { _ = conn.Close() })
	return c, err
}

func (w way5) open(t *testing.T, id string) *client5 {
	t.Helper()
	c, err := w.connect(t, id)
	ok(t, err)
	return c
}

func (c *client5) soon() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), waitMax)
	c.t.Cleanup(cancel)
	return ctx
}

func (c *client5) close() { _ = c.mqtt.Disconnect(&paho.Disconnect{}) }

// cut ends the TCP connection without DISCONNECT.
func (c *client5) cut() {
	c.t.Helper()
	ok(c.t, cut(c.conn))
	within(c.t, "the cut", c.mqtt.Done())
}

func (c *client5) subscribe(topic string, qos byte) []byte {
	c.t.Helper()
	return c.subscribeWith(nil, paho.SubscribeOptions{Topic: topic, QoS: qos})
}

func (c *client5) subscribeWith(identifier *int, options ...paho.SubscribeOptions) []byte {
	c.t.Helper()
	packet := &paho.Subscribe{Subscriptions: options}
	if identifier != nil {
		packet.Properties = &paho.SubscribeProperties{SubscriptionIdentifier: identifier}
	}
	suback, err := c.mqtt.Subscribe(c.soon(), packet)
	ok(c.t, err)
	return suback.Reasons
}

// send gives the reason code of the acknowledgement, also of one that refuses.
func (c *client5) send(p *paho.Publish) byte {
	c.t.Helper()
	answer, err := c.mqtt.Publish(c.soon(), p)
	if answer == nil {
		ok(c.t, err)
	}
	return answer.ReasonCode
}

func (c *client5) publish(topic, payload string, qos byte) {
	c.t.Helper()
	code := c.send(&paho.Publish{Topic: topic, Payload: []byte(payload), QoS: qos})
	equal(c.t, "refused", code >= 0x80, false)
}

func (c *client5) retain(topic, payload string) {
	c.t.Helper()
	c.send(&paho.Publish{Topic: topic, Payload: []byte(payload), QoS: 1, Retain: true})
}

func TestPahoV5(t *testing.T) {
	for _, transport := range transports {
		way := way5{transport: transport}
		run := func(name string, run func(*testing.T, string)) {
			check(t, fmt.Sprintf("paho.golang 5.0 over %s, %s", transport, name), run)
		}
		run("payloads arrive as they were sent", way.payloads)
		run("retained messages are set, replaced and cleared", way.retained)
		run("a will after a cut connection, none after DISCONNECT", way.wills)
		run("members of a group take turns, also after one left", way.shared)
		run("a member that leaves hands over what it did not acknowledge", way.handsOver)
		run("a session waits for its client", way.resumes)
		run("1000 messages in order at each QoS", way.ordered)
		run("1000 subscriptions of one client", way.subscriptions)
		run("password and rules", way.passwords)
		run("properties arrive as they were sent", way.carriesProperties)
		run("a request gets its answer", way.answers)
		run("topic aliases both ways", way.aliases)
		run("receive maximum 1", way.receiveMaximum)
		run("messages and sessions expire", way.expires)
		run("reason codes", way.reasons)
		run("an assigned client id", way.assigns)
		run("a second connection takes over", way.takesOver)
		run("maximum packet size", way.maximumPacketSize)
		run("autopaho finds its session again", way.reconnects)
	}
}

func (w way5) payloads(t *testing.T, p string) {
	sub, pub := w.open(t, "sub"), w.open(t, "pub")
	equal(t, "SUBACK", sub.subscribe(p, 2), []byte{2})
	for qos := byte(0); qos < 3; qos++ {
		for _, payload := range payloads {
			pub.send(&paho.Publish{Topic: p, Payload: payload, QoS: qos})
		}
		samePayloads(t, sub.take(t, len(payloads)), p, qos)
	}
}

func (w way5) retained(t *testing.T, p string) {
	pub := w.open(t, "pub")
	news := func() string {
		sub := w.open(t, "new")
		defer sub.close()
		sub.subscribe(p+"/#", 1)
		pub.publish(p+"/end", "", 1)
		said := ""
		for _, m := range sub.until(t, p+"/end") {
			said += fmt.Sprint(string(m.payload), " ", m.retain)
		}
		return said
	}
	pub.retain(p+"/kept", "first")
	equal(t, "set", news(), "first true")
	pub.retain(p+"/kept", "second")
	equal(t, "replaced", news(), "second true")
	pub.retain(p+"/kept", "")
	equal(t, "cleared", news(), "")
}

func (w way5) wills(t *testing.T, p string) {
	sub := w.open(t, "sub")
	sub.subscribe(p+"/#", 1)
	mortal := w
	mortal.will = &paho.WillMessage{Topic: p + "/will", Payload: []byte("gone"), QoS: 1}
	mortal.open(t, "mortal").cut()
	equal(t, "will", sub.one(t), message{p + "/will", []byte("gone"), 1, false})
	mortal.open(t, "mortal").close()
	// The same client id: that the broker answers says that it is done with the connection before.
	again := mortal.open(t, "mortal")
	again.publish(p+"/end", "", 1)
	equal(t, "wills after DISCONNECT", len(sub.until(t, p+"/end")), 0)
	// DISCONNECT can ask for the will.
	ok(t, again.mqtt.Disconnect(&paho.Disconnect{ReasonCode: 4}))
	equal(t, "will", sub.one(t).topic, p+"/will")
}

func (w way5) shared(t *testing.T, p string) {
	members := []*client5{w.open(t, "a"), w.open(t, "b"), w.open(t, "c")}
	pub := w.open(t, "pub")
	for _, member := range members {
		member.subscribe("$share/group/"+p, 1)
	}
	round := func(count int, each int, members []*client5) {
		t.Helper()
		for n := range count {
			pub.publish(p, fmt.Sprint(n), 1)
		}
		var got []int
		for _, member := range members {
			got = append(got, numbers(t, member.take(t, each))...)
		}
		equal(t, "each message once", sorted(got), span(0, count, 1))
	}
	round(30, 10, members)
	_, err := members[0].mqtt.Unsubscribe(members[0].soon(), &paho.Unsubscribe{Topics: []string{"$share/group/" + p}})
	ok(t, err)
	round(20, 10, members[1:])
}

func (w way5) handsOver(t *testing.T, p string) {
	lazyWay := w
	lazyWay.manual = true
	lazy, busy, pub := lazyWay.open(t, "lazy"), w.open(t, "busy"), w.open(t, "pub")
	lazy.subscribe("$share/group/"+p, 1)
	for n := range 5 {
		pub.publish(p, fmt.Sprint(n), 1)
	}
	lazy.take(t, 5)
	busy.subscribe("$share/group/"+p, 1)
	lazy.cut()
	equal(t, "handed over", numbers(t, busy.take(t, 5)), span(0, 5, 1))
}

func (w way5) resumes(t *testing.T, p string) {
	durable := w
	durable.durable = true
	sub, pub := durable.open(t, "sub"), w.open(t, "pub")
	equal(t, "session present", sub.connack.SessionPresent, false)
	sub.subscribe(p+"/#", 2)
	sub.cut()
	for n := range 100 {
		pub.publish(p, fmt.Sprint(n), byte(1+n%2))
	}
	again := durable.open(t, "sub")
	pub.publish(p+"/end", "", 2)
	got := again.until(t, p+"/end")
	for qos := 1; qos < 3; qos++ {
		part := with(got, func(m message) bool { return int(m.qos) == qos })
		equal(t, fmt.Sprint("QoS ", qos), numbers(t, part), span(qos-1, 100, 2))
	}
	again.close()
	equal(t, "session present after a clean start", w.open(t, "sub").connack.SessionPresent, false)
}

func (w way5) ordered(t *testing.T, p string) {
	sub, pubs := w.open(t, "sub"), []*client5{w.open(t, "pub0"), w.open(t, "pub1")}
	sub.subscribe(p+"/#", 2)
	for qos := byte(0); qos < 3; qos++ {
		for n := range messages {
			for at, pub := range pubs {
				packet := &paho.Publish{Topic: fmt.Sprint(p, "/", at), Payload: []byte(fmt.Sprint(n)), QoS: qos}
				_, err := pub.mqtt.PublishWithOptions(pub.soon(), packet, paho.PublishOptions{Method: paho.PublishMethod_AsyncSend})
				ok(t, err)
			}
		}
		got := sub.take(t, 2*messages)
		for at := range pubs {
			part := with(got, func(m message) bool { return strings.HasSuffix(m.topic, fmt.Sprint("/", at)) })
			equal(t, fmt.Sprint("QoS ", qos), numbers(t, part), span(0, messages, 1))
		}
	}
}

func (w way5) subscriptions(t *testing.T, p string) {
	many, pub := w.open(t, "many"), w.open(t, "pub")
	var options []paho.SubscribeOptions
	left := map[string]bool{}
	for n := range messages {
		topic := fmt.Sprintf("%s/%d/x", p, n)
		left[topic] = true
		options = append(options, paho.SubscribeOptions{Topic: topic, QoS: 1})
	}
	equal(t, "SUBACK", many.subscribeWith(nil, options...), bytes.Repeat([]byte{1}, messages))
	for topic := range left {
		pub.publish(topic, "", 1)
	}
	for _, m := range many.take(t, messages) {
		delete(left, m.topic)
	}
	equal(t, "topics without message", len(left), 0)
}

func (w way5) passwords(t *testing.T, _ string) {
	w.guarded = true
	for _, user := range [][2]string{{"ann", "wrong"}, {"bob", "right"}, {"", ""}} {
		wrong := w
		wrong.user, wrong.pass = user[0], user[1]
		c, err := wrong.connect(t, "who")
		if err == nil {
			t.Fatalf("%v was let in", user)
		}
		code := c.connack.ReasonCode
		equal(t, fmt.Sprintf("CONNACK %#x for %v", code, user), code == 0x86 || code == 0x87, true)
	}
	w.user, w.pass = "ann", "right"
	ann := w.open(t, "ann")
	suback, _ := ann.mqtt.Subscribe(ann.soon(), &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{
		{Topic: "free/#", QoS: 1}, {Topic: "writeonly/#", QoS: 1}, {Topic: "readonly/#", QoS: 1},
	}})
	equal(t, "SUBACK", suback.Reasons, []byte{1, 0x87, 1})
	for qos := byte(1); qos < 3; qos++ {
		equal(t, "publish", ann.send(&paho.Publish{Topic: "readonly/a", QoS: qos}), byte(0x87))
	}
	ann.publish("free/end", "", 1)
	equal(t, "what was denied", len(ann.until(t, "free/end")), 0)
}

func (w way5) carriesProperties(t *testing.T, p string) {
	sub, pub := w.open(t, "sub"), w.open(t, "pub")
	sub.subscribeWith(ptr(268435455), paho.SubscribeOptions{Topic: p, QoS: 1})
	sent := &paho.PublishProperties{
		CorrelationData: []byte{0, 255}, ContentType: "text/plain", ResponseTopic: p + "/answer",
		PayloadFormat: ptr(byte(1)), MessageExpiry: ptr(uint32(60)),
		User: paho.UserProperties{{Key: "a", Value: "1"}, {Key: "b", Value: "2"}, {Key: "a", Value: "3"}},
	}
	pub.send(&paho.Publish{Topic: p, Payload: []byte("x"), QoS: 1, Properties: sent})
	got := within(t, "the message", sub.raw).Properties
	equal(t, "user properties", got.User, sent.User)
	equal(t, "content type", got.ContentType, sent.ContentType)
	equal(t, "response topic", got.ResponseTopic, sent.ResponseTopic)
	equal(t, "correlation data", got.CorrelationData, sent.CorrelationData)
	equal(t, "payload format", *got.PayloadFormat, byte(1))
	equal(t, "subscription identifier", *got.SubscriptionIdentifier, 268435455)
	equal(t, "message expiry", *got.MessageExpiry > 50 && *got.MessageExpiry <= 60, true)
}

func (w way5) answers(t *testing.T, p string) {
	server, asker := w.open(t, "server"), w.open(t, "asker")
	server.subscribe(p+"/ask", 1)
	asker.subscribe(p+"/answer", 1)
	asker.send(&paho.Publish{Topic: p + "/ask", QoS: 1, Properties: &paho.PublishProperties{
		ResponseTopic: p + "/answer", CorrelationData: []byte("7"),
	}})
	ask := within(t, "the request", server.raw).Properties
	server.send(&paho.Publish{Topic: ask.ResponseTopic, QoS: 1, Payload: []byte("42"), Properties: &paho.PublishProperties{
		CorrelationData: ask.CorrelationData,
	}})
	answer := within(t, "the answer", asker.raw)
	equal(t, "answer", string(answer.Payload)+string(answer.Properties.CorrelationData), "427")
}

func (w way5) aliases(t *testing.T, p string) {
	aliased, plain := w, w
	sent := 0
	handler := topicaliases.NewTAHandler(5)
	aliased.properties.TopicAliasMaximum = ptr(uint16(5))
	aliased.hook = func(packet *paho.Publish) {
		handler.PublishHook(packet)
		if packet.Topic == "" {
			sent++
		}
	}
	sub, pub, other := aliased.open(t, "sub"), aliased.open(t, "pub"), plain.open(t, "other")
	sub.subscribe(p+"/#", 2)
	other.subscribe(p+"/#", 2)
	names, short := map[uint16]string{}, 0
	for n := range 30 {
		topic := fmt.Sprint(p, "/", n%3)
		pub.publish(topic, "x", byte(n/10))
		equal(t, "topic without aliases", other.one(t).topic, topic)
		got := within(t, "the message", sub.raw)
		if alias := got.Properties.TopicAlias; alias != nil && got.Topic != "" {
			names[*alias] = got.Topic
		} else if alias != nil {
			got.Topic = names[*alias]
			short++
		}
		equal(t, "topic", got.Topic, topic)
	}
	equal(t, "packets without topic to and from the broker", fmt.Sprint(sent, short), fmt.Sprint(27, 27))
}

func (w way5) receiveMaximum(t *testing.T, p string) {
	one := w
	one.properties.ReceiveMaximum = ptr(uint16(1))
	one.manual = true
	sub, pub := one.open(t, "sub"), w.open(t, "pub")
	sub.subscribe(p+"/work", 1)
	sub.subscribe(p+"/live", 0)
	for n := range 5 {
		pub.publish(p+"/work", fmt.Sprint(n), 1)
	}
	for n := range 5 {
		// QoS 0 is not counted: when it is here, a second message of QoS 1 would be too.
		pub.publish(p+"/live", "", 0)
		var work *paho.Publish
		for range 2 {
			if got := within(t, "a message", sub.raw); got.QoS == 1 {
				work = got
			}
		}
		if work == nil {
			t.Fatal("no message of QoS 1")
		}
		equal(t, "next", string(work.Payload), fmt.Sprint(n))
		ok(t, sub.mqtt.Ack(work))
	}
}

func (w way5) expires(t *testing.T, p string) {
	durable, short := w, w
	durable.durable, short.durable = true, true
	sub, pub, watch := durable.open(t, "sub"), w.open(t, "pub"), w.open(t, "watch")
	sub.subscribe(p+"/#", 1)
	sub.cut()
	watch.subscribe(p+"/session", 1)
	for expiry, payload := range map[uint32]string{1: "expires", 60: "stays"} {
		pub.send(&paho.Publish{Topic: p, Payload: []byte(payload), QoS: 1, Properties: &paho.PublishProperties{MessageExpiry: &expiry}})
	}
	// Its will comes when its session ends, two seconds after it went. By then the message has expired too: a message is
	// never dropped early, but up to a second late.
	short.properties.SessionExpiryInterval = ptr(uint32(2))
	short.will = &paho.WillMessage{Topic: p + "/session", Payload: []byte("over"), QoS: 1}
	short.willDelay = ptr(uint32(600))
	short.open(t, "short").cut()
	equal(t, "will", string(watch.one(t).payload), "over")
	equal(t, "session present", durable.open(t, "short").connack.SessionPresent, false)
	got := durable.open(t, "sub").until(t, p+"/session")
	equal(t, "messages", len(got), 1)
	equal(t, "message", string(got[0].payload), "stays")
}

func (w way5) reasons(t *testing.T, p string) {
	sub, pub := w.open(t, "sub"), w.open(t, "pub")
	// For QoS 2 paho.golang gives the reason of PUBCOMP alone.
	equal(t, "nobody", pub.send(&paho.Publish{Topic: p, QoS: 1}), byte(0x10))
	sub.subscribe(p, 2)
	for qos := byte(1); qos < 3; qos++ {
		equal(t, "somebody", pub.send(&paho.Publish{Topic: p, QoS: qos}), byte(0))
	}
	answer, _ := sub.mqtt.Unsubscribe(sub.soon(), &paho.Unsubscribe{Topics: []string{p, p + "/never"}})
	equal(t, "UNSUBACK", answer.Reasons, []byte{0, 0x11})
}

func (w way5) assigns(t *testing.T, _ string) {
	one, other := w.open(t, "").connack.Properties, w.open(t, "").connack.Properties
	equal(t, "ids", one.AssignedClientID != "" && one.AssignedClientID != other.AssignedClientID, true)
}

func (w way5) takesOver(t *testing.T, p string) {
	w.durable = true
	first := w.open(t, "same")
	first.subscribe(p, 1)
	second := w.open(t, "same")
	equal(t, "DISCONNECT", within(t, "DISCONNECT", first.goodbyes).ReasonCode, byte(0x8E))
	second.publish(p, "mine", 1)
	equal(t, "message", string(second.one(t).payload), "mine")
	second.close()
}

func (w way5) maximumPacketSize(t *testing.T, p string) {
	small := w
	small.properties.MaximumPacketSize = ptr(uint32(1000))
	sub, pub := small.open(t, "sub"), w.open(t, "pub")
	sub.subscribe(p+"/#", 2)
	for qos := byte(0); qos < 3; qos++ {
		pub.publish(p+"/large", strings.Repeat("x", 1000), qos)
	}
	pub.publish(p+"/end", "", 1)
	equal(t, "too large for this client", len(sub.until(t, p+"/end")), 0)
	largest := *pub.connack.Properties.MaximumPacketSize
	_, _ = pub.mqtt.Publish(pub.soon(), &paho.Publish{Topic: p, Payload: make([]byte, largest)})
	equal(t, "DISCONNECT", within(t, "DISCONNECT", pub.goodbyes).ReasonCode, byte(0x95))
}

// The client most programs use: it connects again by itself.
func (w way5) reconnects(t *testing.T, p string) {
	address := "mqtt://127.0.0.1:" + os.Getenv("OPEN_PORT")
	if w.transport == "ws" {
		address = "ws://127.0.0.1:" + os.Getenv("OPEN_WS") + "/mqtt"
	}
	server, err := url.Parse(address)
	ok(t, err)
	in, ups, conns := newInbox(), make(chan *paho.Connack, 10), make(chan net.Conn, 10)
	seen := map[string]bool{}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	manager, err := autopaho.NewConnection(ctx, autopaho.ClientConfig{
		ServerUrls:                    []*url.URL{server},
		KeepAlive:                     30,
		CleanStartOnInitialConnection: true,
		SessionExpiryInterval:         600,
		ReconnectBackoff:              func(int) time.Duration { return time.Millisecond },
		AttemptConnection: func(context.Context, autopaho.ClientConfig, *url.URL) (net.Conn, error) {
			conn, err := dial(w.transport, false)
			if err == nil {
				conns <- conn
				conn = packets.NewThreadSafeConn(conn)
			}
			return conn, err
		},
		OnConnectionUp: func(_ *autopaho.ConnectionManager, connack *paho.Connack) { ups <- connack },
		ClientConfig: paho.ClientConfig{
			ClientID: "auto",
			OnPublishReceived: []func(paho.PublishReceived) (bool, error){func(p paho.PublishReceived) (bool, error) {
				// The connection may be cut between a message of QoS 1 and its PUBACK [MQTT-4.4.0-1].
				again := p.Packet.QoS == 1 && p.Packet.Duplicate() && seen[string(p.Packet.Payload)]
				seen[string(p.Packet.Payload)] = true
				if again {
					return true, nil
				}
				in <- message{p.Packet.Topic, p.Packet.Payload, p.Packet.QoS, p.Packet.Retain}
				return true, nil
			}},
		},
	})
	ok(t, err)
	pub := w.open(t, "pub")
	equal(t, "session present", within(t, "the connection", ups).SessionPresent, false)
	_, err = manager.Subscribe(pub.soon(), &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: p, QoS: 2}}})
	ok(t, err)
	for round := range 5 {
		ok(t, cut(within(t, "a connection", conns)))
		for n := range 20 {
			pub.publish(p, fmt.Sprint(round*20+n), byte(1+n%2))
		}
		equal(t, "session present", within(t, "the connection", ups).SessionPresent, true)
		equal(t, "messages", sorted(numbers(t, in.take(t, 20))), span(round*20, round*20+20, 1))
	}
	stop, done := context.WithTimeout(context.Background(), waitMax)
	defer done()
	ok(t, manager.Disconnect(stop))
}
