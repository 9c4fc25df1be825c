// Options of a client, checked before it connects.

package mqtt

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/grafana/sobek"
)

// Versions by the numbers that the protocol has for them.
const (
	version311 = 4
	version5   = 5
)

// settings is what a script says of a client.
type settings struct {
	URL                  string            `json:"url"`
	ClientID             string            `json:"clientId"`
	Version              json.RawMessage   `json:"version"`
	Username             string            `json:"username"`
	Password             bytesOrText       `json:"password"`
	CleanStart           *bool             `json:"cleanStart"`
	SessionExpirySeconds *uint32           `json:"sessionExpirySeconds"`
	KeepAliveSeconds     *uint16           `json:"keepAliveSeconds"`
	ReceiveMaximum       *uint16           `json:"receiveMaximum"`
	TimeoutSeconds       float64           `json:"timeoutSeconds"`
	Will                 *will             `json:"will"`
	TLS                  *tlsSettings      `json:"tls"`
	Headers              map[string]string `json:"headers"`
	Tags                 map[string]string `json:"tags"`

	version byte
	address *url.URL
	scheme  scheme
	timeout time.Duration
}

type will struct {
	Topic        string      `json:"topic"`
	Payload      bytesOrText `json:"payload"`
	QoS          byte        `json:"qos"`
	Retain       bool        `json:"retain"`
	DelaySeconds uint32      `json:"delaySeconds"`
}

type tlsSettings struct {
	CA                 string   `json:"ca"`
	Cert               string   `json:"cert"`
	Key                string   `json:"key"`
	ServerName         string   `json:"serverName"`
	ALPN               []string `json:"alpn"`
	InsecureSkipVerify bool     `json:"insecureSkipVerify"`
}

// publishSettings says how one message is published.
type publishSettings struct {
	QoS             byte              `json:"qos"`
	Retain          bool              `json:"retain"`
	ExpirySeconds   *uint32           `json:"expirySeconds"`
	ContentType     string            `json:"contentType"`
	ResponseTopic   string            `json:"responseTopic"`
	CorrelationData bytesOrText       `json:"correlationData"`
	UserProperties  map[string]string `json:"userProperties"`
}

// bytesOrText is text or an ArrayBuffer of a script.
type bytesOrText []byte

// UnmarshalJSON reads what plain writes.
func (b *bytesOrText) UnmarshalJSON(data []byte) error {
	if bytes.HasPrefix(data, []byte("[")) {
		var numbers []uint16
		if err := json.Unmarshal(data, &numbers); err != nil {
			return err
		}
		for _, n := range numbers {
			*b = append(*b, byte(n))
		}
		return nil
	}
	var s string
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("text or an ArrayBuffer is expected here")
	}
	*b = bytesOrText(s)
	return nil
}

// plain turns ArrayBuffers into lists of numbers, because JSON has no bytes.
func plain(value any) any {
	switch v := value.(type) {
	case sobek.ArrayBuffer:
		numbers := make([]uint16, len(v.Bytes()))
		for i, b := range v.Bytes() {
			numbers[i] = uint16(b)
		}
		return numbers
	case map[string]any:
		for key, inner := range v {
			v[key] = plain(inner)
		}
		return v
	}
	return value
}

// decode fills a struct from a script's object, and refuses names that the struct does not have.
func decode(value sobek.Value, what string, into any) error {
	if value == nil || sobek.IsUndefined(value) || sobek.IsNull(value) {
		return nil
	}
	object, ok := value.Export().(map[string]any)
	if !ok {
		return invalid("%s must be an object, such as { qos: 1 }", what)
	}
	data, err := json.Marshal(plain(object))
	if err != nil {
		return invalid("%s: %v", what, err)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			return invalid("%s: %s must not be a %s", what, wrong.Field, wrong.Value)
		}
		return invalid("%s: %s", what, strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

func parseSettings(_ *sobek.Runtime, value sobek.Value) (*settings, error) {
	s := &settings{TimeoutSeconds: 10}
	if url, ok := exported(value).(string); ok {
		s.URL = url
	} else if err := decode(value, "the settings of a client", s); err != nil {
		return nil, err
	}
	for _, step := range []func() error{s.parseURL, s.parseVersion, s.checkSession, s.checkWill} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	if s.TimeoutSeconds <= 0 {
		return nil, invalid("timeoutSeconds must be more than 0")
	}
	s.timeout = time.Duration(s.TimeoutSeconds * float64(time.Second))
	return s, nil
}

func (s *settings) parseURL() error {
	if s.URL == "" {
		return invalid("a client needs a url, such as mqtt://127.0.0.1:1883")
	}
	address, err := url.Parse(s.URL)
	if err != nil || address.Host == "" {
		return invalid("%q is no URL of a broker; one looks like mqtt://127.0.0.1:1883", s.URL)
	}
	kind, ok := schemes[address.Scheme]
	if !ok {
		return invalid("%q: the scheme must be mqtt, mqtts, ws or wss", s.URL)
	}
	if address.User != nil {
		return invalid("the url must not hold a password; use username and password")
	}
	if s.TLS != nil && !kind.tls {
		return invalid("%q is not encrypted, so tls has no meaning; use mqtts or wss", s.URL)
	}
	if len(s.Headers) > 0 && !kind.webSocket {
		return invalid("headers are of WebSocket; use ws or wss")
	}
	if address.Port() == "" {
		address.Host += ":" + kind.port
	}
	if kind.webSocket && address.Path == "" {
		address.Path = "/mqtt"
	}
	s.address, s.scheme = address, kind
	return nil
}

func (s *settings) parseVersion() error {
	switch strings.Trim(string(s.Version), `"`) {
	case "", "5", "5.0":
		s.version = version5
	case "4", "3.1.1":
		s.version = version311
	default:
		return invalid("version %s is not spoken; say 5 or \"3.1.1\"", s.Version)
	}
	return nil
}

func (s *settings) checkSession() error {
	if !s.cleanStart() && s.ClientID == "" {
		return invalid("cleanStart: false needs a clientId, by which the broker knows the session")
	}
	if s.version == version5 {
		return nil
	}
	if s.SessionExpirySeconds != nil {
		return invalid("sessionExpirySeconds needs version 5; with 3.1.1 cleanStart: false keeps a session")
	}
	if s.ReceiveMaximum != nil {
		return invalid("receiveMaximum needs version 5")
	}
	if s.Will != nil && s.Will.DelaySeconds > 0 {
		return invalid("will.delaySeconds needs version 5")
	}
	return nil
}

func (s *settings) checkWill() error {
	if s.Will == nil {
		return nil
	}
	if s.Will.QoS > 2 {
		return invalid("will.qos must be 0, 1 or 2")
	}
	return checkTopic(s.Will.Topic)
}

func (s *settings) cleanStart() bool { return s.CleanStart == nil || *s.CleanStart }

func (s *settings) keepAlive() uint16 {
	if s.KeepAliveSeconds == nil {
		return 60
	}
	return *s.KeepAliveSeconds
}

func (p *publishSettings) check(version byte) error {
	if p.QoS > 2 {
		return invalid("qos must be 0, 1 or 2, not %d", p.QoS)
	}
	has5 := p.ExpirySeconds != nil || p.ContentType != "" || p.ResponseTopic != "" || p.CorrelationData != nil ||
		p.UserProperties != nil
	if has5 && version != version5 {
		return invalid("message properties need version 5")
	}
	return nil
}

func checkTopic(topic string) error {
	if topic == "" || strings.ContainsAny(topic, "+#\x00") {
		return invalid("%q is no topic to publish to: it must not be empty nor hold + or #", topic)
	}
	return nil
}

func text(value sobek.Value, what string) (string, error) {
	s, ok := exported(value).(string)
	if !ok || s == "" {
		return "", invalid("%s must be a text that is not empty", what)
	}
	return s, nil
}
