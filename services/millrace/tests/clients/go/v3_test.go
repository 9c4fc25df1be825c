package clients

import (
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"

	mqtt3 "github.com/eclipse/paho.mqtt.golang"
)

var versions3 = map[string]uint{"3.1": 3, "3.1.1": 4}

// client3 is a client of paho.mqtt.golang.
type client3 struct {
	t    *testing.T
	mqtt mqtt3.Client
	inbox
	conn    net.Conn
	lost    chan error
	resumed bool
}

// way3 says how to connect; the zero values are an anonymous clean session.
type way3 struct {
	version, transport string
	durable, guarded   bool
	will, user, pass   string
}

func (w way3) open(t *testing.T, id string) *client3 {
	t.Helper()
	c := w.create(t, id)
	token := c.mqtt.Connect()
	c.wait(token)
	c.resumed = token.(*mqtt3.ConnectToken).SessionPresent()
	return c
}

func (w way3) create(t *testing.T, id string) *client3 {
	c := &client3{t: t, inbox: newInbox(), lost: make(chan error, 1)}
	options := mqtt3.NewClientOptions().
		AddBroker("tcp://127.0.0.1:1").
		SetProtocolVersion(versions3[w.version]).
		SetClientID(id).
		SetCleanSession(!w.durable).
		SetAutoReconnect(false).
		SetUsername(w.user).SetPassword(w.pass).
		SetCustomOpenConnectionFn(func(*url.URL, mqtt3.ClientOptions) (conn net.Conn, err error) {
			conn, err = dial(w.transport, w.guarded)
			c.conn = conn
			return conn, err
		}).
		SetConnectionLostHandler(func(_ mqtt3.Client, err error) { c.lost <- err }).
		SetDefaultPublishHandler(func(_ mqtt3.Client, m mqtt3.Message) {
			c.inbox <- message{m.Topic(), m.Payload(), m.Qos(), m.Retained()}
		})
	if w.will != "" {
		options.SetWill(w.will, "gone", 1, false)
	}
	c.mqtt = mqtt3.NewClient(options)
	t.Cleanup(c.close)
	return c
}

func (c *client3) wait(token mqtt3.Token) {
	c.t.Helper()
	if !token.WaitTimeout(waitMax) {
		c.t.Fatal("no answer")
	}
	ok(c.t, token.Error())
}

func (c *client3) subscribe(topic string, qos byte) {
	c.t.Helper()
	c.wait(c.mqtt.Subscribe(topic, qos, nil))
}

func (c *client3) publish(topic string, payload any, qos byte, retain bool) {
	c.t.Helper()
	c.wait(c.mqtt.Publish(topic, qos, retain, payload))
}

// close sends DISCONNECT; the time is what that may take.
func (c *client3) close() { c.mqtt.Disconnect(1000) }

// cut ends the TCP connection without DISCONNECT.
func (c *client3) cut() {
	c.t.Helper()
	ok(c.t, cut(c.conn))
	within(c.t, "the cut", c.lost)
}

func TestPahoV3(t *testing.T) {
	for version := range versions3 {
		for _, transport := range transports {
			way := way3{version: version, transport: transport}
			run := func(name string, run func(*testing.T, string)) {
				check(t, fmt.Sprintf("paho.mqtt.golang %s over %s, %s", version, transport, name), run)
			}
			run("payloads arrive as they were sent", way.payloads)
			run("retained messages are set, replaced and cleared", way.retained)
			run("a will after a cut connection, none after DISCONNECT", way.wills)
			run("members of a group take turns, also after one left", way.shared)
			run("a session waits for its client", way.resumes)
			run("1000 messages in order at each QoS", way.ordered)
			run("1000 subscriptions of one client", way.subscriptions)
			run("password and rules", way.passwords)
		}
	}
}

func (w way3) payloads(t *testing.T, p string) {
	sub, pub := w.open(t, "sub"), w.open(t, "pub")
	sub.subscribe(p, 2)
	for qos := byte(0); qos < 3; qos++ {
		for _, payload := range payloads {
			pub.publish(p, payload, qos, false)
		}
		samePayloads(t, sub.take(t, len(payloads)), p, qos)
	}
	sub.wait(sub.mqtt.Unsubscribe(p))
	sub.subscribe(p+"/end", 1)
	pub.publish(p, "no", 1, false)
	pub.publish(p+"/end", "", 1, false)
	equal(t, "after UNSUBSCRIBE", len(sub.until(t, p+"/end")), 0)
}

func (w way3) retained(t *testing.T, p string) {
	pub := w.open(t, "pub")
	news := func() string {
		sub := w.open(t, "new")
		defer sub.close()
		sub.subscribe(p+"/#", 1)
		pub.publish(p+"/end", "", 1, false)
		said := ""
		for _, m := range sub.until(t, p+"/end") {
			said += fmt.Sprint(string(m.payload), " ", m.retain)
		}
		return said
	}
	pub.publish(p+"/kept", "first", 1, true)
	equal(t, "set", news(), "first true")
	pub.publish(p+"/kept", "second", 2, true)
	equal(t, "replaced", news(), "second true")
	pub.publish(p+"/kept", "", 1, true)
	equal(t, "cleared", news(), "")
}

func (w way3) wills(t *testing.T, p string) {
	sub := w.open(t, "sub")
	sub.subscribe(p+"/#", 1)
	mortal := w
	mortal.will = p + "/will"
	mortal.open(t, "mortal").cut()
	equal(t, "will", sub.one(t), message{p + "/will", []byte("gone"), 1, false})
	mortal.open(t, "mortal").close()
	// The same client id: that the broker answers says that it is done with the connection before.
	w.open(t, "mortal").publish(p+"/end", "", 1, false)
	equal(t, "wills after DISCONNECT", len(sub.until(t, p+"/end")), 0)
}

func (w way3) shared(t *testing.T, p string) {
	members := []*client3{w.open(t, "a"), w.open(t, "b"), w.open(t, "c")}
	pub := w.open(t, "pub")
	for _, member := range members {
		member.subscribe("$share/group/"+p, 1)
	}
	round := func(count int, each int, members []*client3) {
		t.Helper()
		for n := range count {
			pub.publish(p, fmt.Sprint(n), 1, false)
		}
		var got []int
		for _, member := range members {
			got = append(got, numbers(t, member.take(t, each))...)
		}
		equal(t, "each message once", sorted(got), span(0, count, 1))
	}
	round(30, 10, members)
	members[0].wait(members[0].mqtt.Unsubscribe("$share/group/" + p))
	round(20, 10, members[1:])
}

func (w way3) resumes(t *testing.T, p string) {
	durable := w
	durable.durable = true
	sub, pub := durable.open(t, "sub"), w.open(t, "pub")
	equal(t, "session present", sub.resumed, false)
	sub.subscribe(p+"/#", 2)
	sub.cut()
	for n := range 100 {
		pub.publish(p, fmt.Sprint(n), byte(1+n%2), false)
	}
	again := durable.open(t, "sub")
	if w.version != "3.1" {
		equal(t, "session present", again.resumed, true)
	}
	pub.publish(p+"/end", "", 2, false)
	got := again.until(t, p+"/end")
	for qos := 1; qos < 3; qos++ {
		part := with(got, func(m message) bool { return int(m.qos) == qos })
		equal(t, fmt.Sprint("QoS ", qos), numbers(t, part), span(qos-1, 100, 2))
	}
	again.close()
	equal(t, "session present after a clean start", w.open(t, "sub").resumed, false)
}

func (w way3) ordered(t *testing.T, p string) {
	sub, pubs := w.open(t, "sub"), []*client3{w.open(t, "pub0"), w.open(t, "pub1")}
	sub.subscribe(p+"/#", 2)
	for qos := byte(0); qos < 3; qos++ {
		var last mqtt3.Token
		for n := range messages {
			for at, pub := range pubs {
				last = pub.mqtt.Publish(fmt.Sprint(p, "/", at), qos, false, fmt.Sprint(n))
			}
		}
		got := sub.take(t, 2*messages)
		sub.wait(last)
		for at := range pubs {
			part := with(got, func(m message) bool { return strings.HasSuffix(m.topic, fmt.Sprint("/", at)) })
			equal(t, fmt.Sprint("QoS ", qos), numbers(t, part), span(0, messages, 1))
		}
	}
}

func (w way3) subscriptions(t *testing.T, p string) {
	many, pub := w.open(t, "many"), w.open(t, "pub")
	filters := map[string]byte{}
	for n := range messages {
		filters[fmt.Sprintf("%s/%d/x", p, n)] = 1
	}
	many.wait(many.mqtt.SubscribeMultiple(filters, nil))
	for topic := range filters {
		pub.mqtt.Publish(topic, 1, false, "")
	}
	for _, m := range many.take(t, messages) {
		delete(filters, m.topic)
	}
	equal(t, "topics without message", len(filters), 0)
}

func (w way3) passwords(t *testing.T, _ string) {
	w.guarded = true
	for _, user := range [][2]string{{"ann", "wrong"}, {"bob", "right"}, {"", ""}} {
		wrong := w
		wrong.user, wrong.pass = user[0], user[1]
		token := wrong.create(t, "who").mqtt.Connect()
		if !token.WaitTimeout(waitMax) || token.Error() == nil {
			t.Fatalf("%v was let in", user)
		}
		code := token.(*mqtt3.ConnectToken).ReturnCode()
		equal(t, fmt.Sprint("CONNACK for ", user), code == 4 || code == 5, true)
	}
	w.user, w.pass = "ann", "right"
	ann := w.open(t, "ann")
	ann.subscribe("free/#", 1)
	ann.subscribe("readonly/#", 1)
	ann.publish("readonly/a", "no", 1, false)
	ann.publish("readonly/a", "no", 2, false)
	ann.publish("free/end", "", 1, false)
	equal(t, "what was denied", len(ann.until(t, "free/end")), 0)
}
