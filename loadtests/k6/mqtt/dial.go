// Opens the byte stream of a connection: TCP, TLS or WebSocket, by the scheme of the URL.

package mqtt

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
	"go.k6.io/k6/lib"
)

// scheme is what the first part of a URL means.
type scheme struct {
	tls, webSocket  bool
	port, transport string
}

var schemes = map[string]scheme{
	"mqtt":  {port: "1883", transport: "tcp"},
	"tcp":   {port: "1883", transport: "tcp"},
	"mqtts": {port: "8883", transport: "tls", tls: true},
	"ssl":   {port: "8883", transport: "tls", tls: true},
	"tls":   {port: "8883", transport: "tls", tls: true},
	"ws":    {port: "80", transport: "ws", webSocket: true},
	"wss":   {port: "443", transport: "wss", webSocket: true, tls: true},
}

// conn is the byte stream that both libraries read and write. It reads through a buffer, because
// both libraries read byte by byte. Between Lock and Unlock it collects writes into one, because the
// library for 5.0 writes a packet in several pieces.
type conn struct {
	net.Conn
	timeout       time.Duration
	in            *bufio.Reader
	read, written atomic.Int64
	mu            sync.Mutex
	out           bytes.Buffer
	locked        bool
}

func newConn(c net.Conn, timeout time.Duration) *conn {
	wrapped := &conn{Conn: c, timeout: timeout}
	wrapped.in = bufio.NewReaderSize(readFunc(func(p []byte) (int, error) {
		n, err := c.Read(p)
		wrapped.read.Add(int64(n))
		return n, err
	}), 4096)
	return wrapped
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

func (c *conn) Read(p []byte) (int, error) { return c.in.Read(p) }

func (c *conn) Write(p []byte) (int, error) {
	if c.locked {
		return c.out.Write(p)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.send(p)
}

func (c *conn) send(p []byte) (int, error) {
	// A broker that reads nothing any more must not hold the client for ever.
	if err := c.Conn.SetWriteDeadline(time.Now().Add(c.timeout)); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(p)
	c.written.Add(int64(n))
	return n, err
}

// Lock begins a packet. Only the library for 5.0 calls it, and then every one of its writes is locked.
func (c *conn) Lock() {
	c.mu.Lock()
	c.locked = true
}

// Unlock sends the packet. The caller cannot receive an error, so the connection is closed, which
// the reader notices.
func (c *conn) Unlock() {
	if _, err := c.send(c.out.Bytes()); err != nil {
		_ = c.Conn.Close()
	}
	c.out.Reset()
	c.locked = false
	c.mu.Unlock()
}

// dial opens the transport through k6's dialer, which knows its --local-ips, hosts and block lists.
func dial(ctx context.Context, state *lib.State, s *settings) (*conn, error) {
	config, err := s.tlsConfig(state.TLSConfig)
	if err != nil {
		return nil, err
	}
	if s.scheme.webSocket {
		return dialWebSocket(ctx, state, s, config)
	}
	tcp, err := state.Dialer.DialContext(ctx, "tcp", s.address.Host)
	if err != nil {
		return nil, asFailure(err, "connect to "+s.address.Host)
	}
	if !s.scheme.tls {
		return newConn(tcp, s.timeout), nil
	}
	secure := tls.Client(tcp, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = tcp.Close()
		return nil, asFailure(err, "TLS with "+s.address.Host)
	}
	return newConn(secure, s.timeout), nil
}

func (s *settings) tlsConfig(base *tls.Config) (*tls.Config, error) {
	if !s.scheme.tls {
		return nil, nil
	}
	config := &tls.Config{} //nolint:gosec // the lowest version is the library's default
	if base != nil {
		config = base.Clone()
	}
	config.NextProtos = nil
	config.ServerName = s.address.Hostname()
	t := s.TLS
	if t == nil {
		return config, nil
	}
	if t.ServerName != "" {
		config.ServerName = t.ServerName
	}
	config.NextProtos = t.ALPN
	config.InsecureSkipVerify = config.InsecureSkipVerify || t.InsecureSkipVerify
	if t.CA != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM([]byte(t.CA)) {
			return nil, invalid("tls.ca holds no certificate in PEM")
		}
	}
	if t.Cert != "" || t.Key != "" {
		pair, err := tls.X509KeyPair([]byte(t.Cert), []byte(t.Key))
		if err != nil {
			return nil, invalid("tls.cert and tls.key: %v", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

func dialWebSocket(ctx context.Context, state *lib.State, s *settings, config *tls.Config) (*conn, error) {
	dialer := websocket.Dialer{
		NetDialContext: state.Dialer.DialContext, TLSClientConfig: config, Subprotocols: []string{"mqtt"},
	}
	headers := http.Header{}
	for name, value := range s.Headers {
		headers.Set(name, value)
	}
	ws, response, err := dialer.DialContext(ctx, s.address.String(), headers)
	if err != nil {
		if errors.Is(err, websocket.ErrBadHandshake) && response != nil {
			return nil, fail(reasonRefused, "%s is no WebSocket of a broker: HTTP status %s", s.address, response.Status)
		}
		return nil, asFailure(err, "connect to "+s.address.String())
	}
	return newConn(&webSocket{Conn: ws}, s.timeout), nil
}

// webSocket is the byte stream within the binary frames of a WebSocket.
type webSocket struct {
	*websocket.Conn
	frame io.Reader
}

func (w *webSocket) Read(p []byte) (int, error) {
	for {
		if w.frame == nil {
			_, frame, err := w.NextReader()
			if err != nil {
				return 0, err
			}
			w.frame = frame
		}
		n, err := w.frame.Read(p)
		if errors.Is(err, io.EOF) {
			w.frame, err = nil, nil
			if n == 0 {
				continue
			}
		}
		return n, err
	}
}

func (w *webSocket) Write(p []byte) (int, error) {
	if err := w.WriteMessage(websocket.BinaryMessage, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (w *webSocket) SetDeadline(t time.Time) error {
	return errors.Join(w.SetReadDeadline(t), w.SetWriteDeadline(t))
}
