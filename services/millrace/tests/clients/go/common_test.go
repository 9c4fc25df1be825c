// Package clients tests the broker with the MQTT clients of Eclipse Paho for Go: paho.mqtt.golang (MQTT 3.1 and 3.1.1) and
// paho.golang (MQTT 5.0), over TCP and WebSocket. Started by ../run.sh.
package clients

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	mqtt3 "github.com/eclipse/paho.mqtt.golang"
)

const (
	waitMax  = 20 * time.Second
	messages = 1000
)

var transports = []string{"tcp", "ws"}

// Payloads that must come out as they went in.
var payloads = func() [][]byte {
	large := make([]byte, 200*1024)
	_, _ = rand.Read(large)
	return [][]byte{{}, []byte("hello"), {0, 1, 254, 255}, large}
}()

// A message as a test sees it, whatever the client.
type message struct {
	topic   string
	payload []byte
	qos     byte
	retain  bool
}

// inbox holds what a client got.
type inbox chan message

func newInbox() inbox { return make(inbox, 10*messages) }

func (in inbox) one(t *testing.T) message {
	t.Helper()
	select {
	case m := <-in:
		return m
	case <-time.After(waitMax):
		t.Fatal("no message came")
		return message{}
	}
}

func (in inbox) take(t *testing.T, count int) []message {
	t.Helper()
	got := make([]message, count)
	for n := range got {
		got[n] = in.one(t)
	}
	return got
}

// until gives all messages before the one that says that there are no more.
func (in inbox) until(t *testing.T, topic string) []message {
	t.Helper()
	var got []message
	for {
		m := in.one(t)
		if m.topic == topic {
			return got
		}
		got = append(got, m)
	}
}

// numbers reads payloads as numbers.
func numbers(t *testing.T, got []message) []int {
	t.Helper()
	numbers := make([]int, len(got))
	for at, m := range got {
		n, err := strconv.Atoi(string(m.payload))
		if err != nil {
			t.Fatal(err)
		}
		numbers[at] = n
	}
	return numbers
}

func with(got []message, is func(message) bool) []message {
	return slices.DeleteFunc(slices.Clone(got), func(m message) bool { return !is(m) })
}

// span counts from start, below end.
func span(start, end, step int) []int {
	var numbers []int
	for n := start; n < end; n += step {
		numbers = append(numbers, n)
	}
	return numbers
}

func sorted(numbers []int) []int {
	slices.Sort(numbers)
	return numbers
}

func equal(t *testing.T, what string, got, wanted any) {
	t.Helper()
	if !reflect.DeepEqual(got, wanted) {
		t.Fatalf("%s: got %.300s, wanted %.300s", what, fmt.Sprint(got), fmt.Sprint(wanted))
	}
}

func samePayloads(t *testing.T, got []message, topic string, qos byte) {
	t.Helper()
	for n, m := range got {
		equal(t, "topic, QoS", fmt.Sprint(m.topic, m.qos, m.retain), fmt.Sprint(topic, qos, false))
		if !bytes.Equal(m.payload, payloads[n]) {
			t.Fatalf("payload %d of %d bytes came as %d bytes", n, len(payloads[n]), len(m.payload))
		}
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func within[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(waitMax):
		t.Fatalf("not in %v: %s", waitMax, what)
		panic("unreachable")
	}
}

// check runs one and prints its line.
func check(t *testing.T, name string, run func(t *testing.T, topic string)) {
	if t.Run(name, func(t *testing.T) { run(t, name) }) {
		fmt.Println("ok go:", name)
	} else {
		fmt.Println("FAILED: go:", name)
	}
}

// cut ends a connection without DISCONNECT: the client sees that it cannot read any more, and closes it.
func cut(conn net.Conn) error { return conn.SetReadDeadline(time.Unix(1, 0)) }

// dial opens a connection that a test can cut.
func dial(transport string, guarded bool) (net.Conn, error) {
	kind := "OPEN"
	if guarded {
		kind = "GUARDED"
	}
	if transport == "tcp" {
		return net.Dial("tcp", "127.0.0.1:"+os.Getenv(kind+"_PORT"))
	}
	return mqtt3.NewWebsocket("ws://127.0.0.1:"+os.Getenv(kind+"_WS")+"/mqtt", nil, waitMax, nil, nil)
}
