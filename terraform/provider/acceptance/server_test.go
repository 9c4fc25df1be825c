// Package acceptance runs the real terraform with the provider as it is installed, against a real server of its own.
//
//	TF_ACC=1 MILLRACE=target/release/millrace PROVIDER=target/provider/terraform-provider-millrace go test ./acceptance
package acceptance

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience bounds each wait for a condition. Nothing is expected to take this long.
const patience = 3 * time.Minute

// server is a Millrace with an organisation and a token that may do everything in it.
type server struct {
	base         string
	organisation string
	token        string
}

var (
	millrace  server
	terraform installation
)

func TestMain(m *testing.M) {
	if os.Getenv("TF_ACC") == "" {
		fmt.Println("SKIPPED: acceptance tests: TF_ACC is not set; make test-provider sets it")
		os.Exit(0)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	folder, err := os.MkdirTemp("", "millrace-acceptance-")
	if err != nil {
		return failed(err)
	}
	defer os.RemoveAll(folder)
	stop, err := millrace.start(folder)
	if err != nil {
		return failed(err)
	}
	defer stop()
	if err := terraform.install(folder); err != nil {
		return failed(err)
	}
	return m.Run()
}

func failed(err error) int {
	fmt.Fprintln(os.Stderr, "acceptance tests cannot begin:", err)
	return 1
}

// start runs the server on ports that the system chooses, and signs in by the link that the server prints.
func (s *server) start(folder string) (func(), error) {
	program, err := program("MILLRACE")
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(folder, "millrace.log"))
	if err != nil {
		return nil, err
	}
	command := exec.Command(program, "serve", "--data-dir", filepath.Join(folder, "data"), "--ws-listen", "off",
		"--mqtt-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--allow-anonymous=false")
	command.Stderr = log
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	stop := func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		killer := time.AfterFunc(patience, func() { _ = command.Process.Kill() })
		_ = command.Wait()
		killer.Stop()
		_ = log.Close()
	}
	killer := time.AfterFunc(patience, func() { _ = command.Process.Kill() })
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		link, ok := strings.CutPrefix(lines.Text(), "Console: ")
		if !ok {
			continue
		}
		killer.Stop()
		go func() { _, _ = io.Copy(io.Discard, output) }()
		base, secret, _ := strings.Cut(link, "/#local=")
		s.base = base
		if err := s.signIn(secret); err != nil {
			stop()
			return nil, err
		}
		return stop, nil
	}
	stop()
	said, _ := os.ReadFile(log.Name())
	return nil, fmt.Errorf("the server did not print its link:\n%s", said)
}

func (s *server) signIn(secret string) error {
	var session struct {
		Organisations []struct{ ID string }
		CSRFToken     string `json:"csrf_token"`
	}
	answer, err := s.send(http.MethodPost, "/sign-in/local", map[string]any{"token": secret}, nil, &session)
	if err != nil {
		return err
	}
	s.organisation = session.Organisations[0].ID
	var made struct{ Secret string }
	// A token gives a role only if it has all permissions of the role.
	scopes := []string{
		"organisation:read", "organisation:write", "brokers:read", "brokers:write", "access:read", "access:write",
		"clients:read", "clients:write", "messages:read", "messages:write", "audit:read",
	}
	cookie, _, _ := strings.Cut(answer.Get("Set-Cookie"), ";")
	headers := map[string]string{"Cookie": cookie, "X-CSRF-Token": session.CSRFToken}
	_, err = s.send(http.MethodPost, "/organisations/"+s.organisation+"/tokens", map[string]any{"name": "acceptance", "scopes": scopes}, headers, &made)
	s.token = made.Secret
	return err
}

// send sends a request of the API. A path that begins without a slash is below the organisation.
func (s *server) send(method, path string, body any, headers map[string]string, out any) (http.Header, error) {
	encoded, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(path, "/") {
		path = "/organisations/" + s.organisation + "/" + path
	}
	request, err := http.NewRequest(method, s.base+"/api/v1"+path, bytes.NewReader(encoded))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	if s.token != "" {
		request.Header.Set("Authorization", "Bearer "+s.token)
	}
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	answer, err := (&http.Client{Timeout: patience}).Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	read, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode >= http.StatusBadRequest {
		return nil, fmt.Errorf("%s %s: %d: %s", method, path, answer.StatusCode, read)
	}
	if out != nil {
		return answer.Header, json.Unmarshal(read, out)
	}
	return answer.Header, nil
}

// do is what somebody does behind Terraform's back.
func (s *server) do(t *testing.T, method, path string, body any) {
	t.Helper()
	headers := map[string]string{}
	if method != http.MethodPost {
		headers["If-Match"] = "*"
	}
	if _, err := s.send(method, path, body, headers, nil); err != nil {
		t.Fatal(err)
	}
}

func (s *server) get(path string) (map[string]any, error) {
	var found map[string]any
	_, err := s.send(http.MethodGet, path, nil, nil, &found)
	return found, err
}

// broker makes a broker that Terraform does not know, and returns its name.
func (s *server) broker(t *testing.T) string {
	t.Helper()
	var made struct{ Name string }
	if _, err := s.send(http.MethodPost, "brokers", map[string]any{"display_name": t.Name()}, nil, &made); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.do(t, http.MethodDelete, "brokers/"+made.Name, nil) })
	return made.Name
}

func program(variable string) (string, error) {
	path := os.Getenv(variable)
	if path == "" {
		return "", fmt.Errorf("%s is not set: make test-provider sets it", variable)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s: %w", variable, err)
	}
	return path, nil
}
