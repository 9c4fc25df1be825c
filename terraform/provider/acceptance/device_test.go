package acceptance

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/url"
	"testing"
	"time"
)

// The secret in the state opens the broker at the endpoint in the state, for the client id of the credential alone.
// After a rotation the new secret does.
func TestADeviceConnectsWithWhatTheStateSays(t *testing.T) {
	const configuration = `
resource "millrace_broker" "plant" {
  display_name = "Plant 7"
}
resource "millrace_credential" "pump" {
  broker         = millrace_broker.plant.name
  user           = "pump-7"
  client_id      = "pump-7"
  secret_version = %d
}
data "millrace_broker" "plant" {
  name = millrace_broker.plant.name
}
data "millrace_regions" "all" {}
`
	w := newWorkspace(t)
	w.configure(fmt.Sprintf(configuration, 1))
	w.apply()
	w.isEmpty("after create")
	defer w.must("destroy", "-auto-approve")
	plant := w.attributes("data.millrace_broker.plant")["endpoints"].(map[string]any)
	first := w.attributes("millrace_credential.pump")["secret"].(string)
	host, user := listener(t, plant)
	if code := connect(t, host, "pump-7", user, first); code != 0 {
		t.Fatalf("CONNACK %d with the secret of the state", code)
	}
	if code := connect(t, host, "pump-7", user, "another"); code == 0 {
		t.Fatal("any secret opens the broker")
	}
	if code := connect(t, host, "pump-8", user, first); code == 0 {
		t.Fatal("any client id may connect by the credential")
	}

	w.configure(fmt.Sprintf(configuration, 2))
	expect(t, w.apply(), "0 added, 1 changed, 0 destroyed")
	w.isEmpty("after the rotation")
	second := w.attributes("millrace_credential.pump")["secret"].(string)
	if first == second {
		t.Fatal("the secret was not replaced")
	}
	opens(t, host, user, second)
}

// A new secret that was lost is replaced by another one, and the secret that devices have stays good.
func TestALostSecretIsReplacedWhileDevicesKeepTheirs(t *testing.T) {
	configuration := func(more string) string {
		return `
resource "millrace_broker" "plant" {
  display_name = "Plant 7"
}
resource "millrace_credential" "pump" {
  broker    = millrace_broker.plant.name
  user      = "pump-7"
  overlap_s = 600
  ` + more + `
}
`
	}
	w := newWorkspace(t)
	secret := func(more string) string {
		w.configure(configuration(more))
		w.apply()
		w.isEmpty(more)
		return w.attributes("millrace_credential.pump")["secret"].(string)
	}
	first := secret("secret_version = 1")
	defer w.must("destroy", "-auto-approve")
	host, user := listener(t, w.attributes("millrace_broker.plant")["endpoints"].(map[string]any))
	lost := secret("secret_version = 2")
	third := secret("secret_version = 3\n  keep = \"previous\"")
	opens(t, host, user, third)
	opens(t, host, user, first)
	deadline := time.Now().Add(patience)
	for connect(t, host, "pump-7", user, lost) == 0 {
		if time.Now().After(deadline) {
			t.Fatal("the lost secret still opens the broker")
		}
		time.Sleep(100 * time.Millisecond)
	}
	// Once all devices have the third one, it is kept instead of the first.
	opens(t, host, user, secret("secret_version = 4\n  keep = \"current\""))
	opens(t, host, user, third)
}

// A credential whose secret the server made gets a password of its devices, and later a secret again.
func TestADeviceConnectsWithAPasswordThatCameLater(t *testing.T) {
	configuration := func(more string) string {
		return `
resource "millrace_broker" "plant" {
  display_name = "Plant 7"
}
resource "millrace_credential" "pump" {
  broker = millrace_broker.plant.name
  user   = "pump-7"
  ` + more + `
}
`
	}
	w := newWorkspace(t)
	w.configure(configuration("secret_version = 1"))
	w.apply()
	defer w.must("destroy", "-auto-approve")
	host, user := listener(t, w.attributes("millrace_broker.plant")["endpoints"].(map[string]any))
	first := w.attributes("millrace_credential.pump")["secret"].(string)
	opens(t, host, user, first)

	w.configure(configuration(`password = "of the devices"`))
	expect(t, w.apply(), "1 added, 0 changed, 1 destroyed")
	w.isEmpty("after the password")
	opens(t, host, user, "of the devices")
	if code := connect(t, host, "pump-7", user, first); code == 0 {
		t.Fatal("the former secret still opens the broker")
	}

	w.configure(configuration(""))
	expect(t, w.apply(), "1 added, 0 changed, 1 destroyed")
	w.isEmpty("after the password was taken away")
	opens(t, host, user, w.attributes("millrace_credential.pump")["secret"].(string))
}

// listener is the host and port of a broker's endpoints, and the user name pump-7 there.
func listener(t *testing.T, endpoints map[string]any) (string, string) {
	t.Helper()
	mqtt, err := url.Parse(endpoints["mqtt"].(map[string]any)["url"].(string))
	if err != nil {
		t.Fatal(err)
	}
	prefix, _ := endpoints["user_prefix"].(string)
	return mqtt.Host, prefix + "pump-7"
}

// opens waits until the server that a device reaches admits the password.
func opens(t *testing.T, host, user, password string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for connect(t, host, "pump-7", user, password) != 0 {
		if time.Now().After(deadline) {
			t.Fatalf("%q does not open the broker", password)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// connect sends CONNECT of MQTT 3.1.1 and returns the code of CONNACK.
func connect(t *testing.T, host, clientID, user, password string) byte {
	t.Helper()
	connection, err := net.DialTimeout("tcp", host, patience)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	var body bytes.Buffer
	text := func(text string) {
		body.Write([]byte{byte(len(text) >> 8), byte(len(text))})
		body.WriteString(text)
	}
	text("MQTT")
	// Protocol level 4; user name, password and Clean Session; keep alive of 60 s.
	body.Write([]byte{4, 0xC2, 0, 60})
	text(clientID)
	text(user)
	text(password)
	if body.Len() > 127 {
		t.Fatalf("a CONNECT of %d bytes needs a longer length", body.Len())
	}
	if _, err := connection.Write(append([]byte{0x10, byte(body.Len())}, body.Bytes()...)); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 4)
	if _, err := io.ReadFull(connection, answer); err != nil {
		t.Fatal(err)
	}
	if answer[0] != 0x20 {
		t.Fatalf("no CONNACK: %x", answer)
	}
	return answer[3]
}
