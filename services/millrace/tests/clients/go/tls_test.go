package clients

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"os"
	"strings"
	"testing"
	"time"

	mqtt3 "github.com/eclipse/paho.mqtt.golang"
)

// TestTLS is run by the suite "tls": over mqtts and wss of the process alone.
func TestTLS(t *testing.T) {
	folder := os.Getenv("OPEN_CERTS")
	if folder == "" {
		t.Skip("no broker with TLS")
	}
	pem, err := os.ReadFile(folder + "/ca.crt")
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	for _, url := range []string{
		"ssl://localhost:" + os.Getenv("OPEN_MQTTS"),
		"wss://localhost:" + os.Getenv("OPEN_WSS") + "/mqtt",
	} {
		way := strings.Split(url, ":")[0]
		t.Run(way, func(t *testing.T) { overTLS(t, url, roots) })
	}
}

func overTLS(t *testing.T, url string, roots *x509.CertPool) {
	options := mqtt3.NewClientOptions().AddBroker(url).SetClientID("go-tls").SetAutoReconnect(false)
	client := mqtt3.NewClient(options.SetTLSConfig(&tls.Config{RootCAs: roots}))
	done := func(token mqtt3.Token, what string) {
		t.Helper()
		if !token.WaitTimeout(waitMax) || token.Error() != nil {
			t.Fatalf("%s: %v", what, token.Error())
		}
	}
	done(client.Connect(), "connect")
	defer client.Disconnect(100)
	got := make(chan []byte, 10)
	done(client.Subscribe("go/tls", 2, func(_ mqtt3.Client, m mqtt3.Message) { got <- m.Payload() }), "subscribe")
	for qos := byte(0); qos < 3; qos++ {
		for _, payload := range payloads {
			done(client.Publish("go/tls", qos, false, payload), "publish")
			select {
			case received := <-got:
				if !bytes.Equal(received, payload) {
					t.Fatalf("%d bytes instead of %d", len(received), len(payload))
				}
			case <-time.After(waitMax):
				t.Fatal("no message came")
			}
		}
	}
}
