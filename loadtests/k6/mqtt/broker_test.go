package mqtt_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// broker has the addresses of a running server, on free ports of 127.0.0.1.
type broker struct{ mqtt, webSocket string }

// The broker that all tests of the process share, because a start takes a second; TestMain ends it.
var shared struct {
	sync.Once
	broker
	process *exec.Cmd
	folder  string
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.process != nil {
		_ = shared.process.Process.Kill()
		_ = shared.process.Wait()
		_ = os.RemoveAll(shared.folder)
	}
	os.Exit(code)
}

func realBroker(t *testing.T) broker {
	t.Helper()
	program := os.Getenv("MILLRACE")
	if program == "" {
		t.Skip("SKIPPED: k6: MILLRACE must name the broker to test against")
	}
	shared.Do(func() { startBroker(t, program) })
	require.NotEmpty(t, shared.mqtt, "the broker did not start")
	return shared.broker
}

// lines collects the broker's log.
type lines struct {
	sync.Mutex
	bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.Lock()
	defer l.Unlock()
	return l.Buffer.Write(p)
}

func (l *lines) find(pattern string) string {
	l.Lock()
	defer l.Unlock()
	if found := regexp.MustCompile(pattern).FindSubmatch(l.Bytes()); found != nil {
		return string(found[1])
	}
	return ""
}

func startBroker(t *testing.T, program string) {
	folder, err := os.MkdirTemp("", "k6-mqtt")
	require.NoError(t, err)
	users, rules := filepath.Join(folder, "users"), filepath.Join(folder, "rules")
	passwd := exec.Command(program, "passwd", users, "ann", "--stdin")
	passwd.Stdin = strings.NewReader("right")
	require.NoError(t, passwd.Run())
	require.NoError(t, os.WriteFile(rules, []byte("deny all * closed/#\nallow all ann #\nallow all $anonymous #\n"), 0o600))
	said := &lines{}
	shared.folder = folder
	shared.process = exec.Command(program, "serve", "--mqtt-listen=127.0.0.1:0", "--ws-listen=127.0.0.1:0",
		"--http-listen=127.0.0.1:0", "--data-dir="+filepath.Join(folder, "data"), "--password-file="+users,
		"--rules-file="+rules, "--allow-anonymous")
	shared.process.Stderr = said
	require.NoError(t, shared.process.Start())
	require.Eventually(t, func() bool { return said.find("(HTTP is open)") != "" }, 10*time.Second, 10*time.Millisecond)
	shared.mqtt = said.find(`mqtt://(127\.0\.0\.1:\d+)`)
	shared.webSocket = said.find(`ws://(127\.0\.0\.1:\d+)`)
}

// authority signs the certificates of a test.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	a.certificate, a.key, a.pem, _ = certificate(t, &x509.Certificate{IsCA: true, BasicConstraintsValid: true}, nil)
	return a
}

func certificate(t *testing.T, template *x509.Certificate, by *authority) (*x509.Certificate, *ecdsa.PrivateKey, string, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template.SerialNumber, template.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: "test"}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := template, key
	if by != nil {
		parent, signer = by.certificate, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	require.NoError(t, err)
	parsed, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	block := func(kind string, bytes []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}))
	}
	return parsed, key, block("CERTIFICATE", der), block("PRIVATE KEY", secret)
}

// terminateTLS starts a TLS gateway before an address; with wantsClients it requires client certificates
// of this authority.
func (a *authority) terminateTLS(t *testing.T, address string, wantsClients bool) string {
	t.Helper()
	_, _, certPEM, keyPEM := certificate(t, &x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, a)
	pair, err := tls.X509KeyPair([]byte(certPEM), []byte(keyPEM))
	require.NoError(t, err)
	config := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if wantsClients {
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		config.ClientCAs.AddCert(a.certificate)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go forward(client, address)
		}
	}()
	return listener.Addr().String()
}

func forward(client net.Conn, address string) {
	defer client.Close()
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	_, _ = io.Copy(client, server)
}
