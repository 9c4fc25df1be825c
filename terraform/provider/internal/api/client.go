// Package api is the client of Millrace's control plane: requests with their preconditions, retries and problems. The types of
// bodies and the list of operations are generated. It knows nothing of Terraform.
package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
)

//go:generate ../../generate.sh

const (
	root = "/api/v1"
	// The server answers or gives up within 30 s.
	requestTimeout = 60 * time.Second
	attemptsMax    = 6
	retryAfterMax  = 30 * time.Second
	// The longest answer is a client CA with 1 MiB of revocation lists.
	answerBytesMax = 8 << 20
)

// Operation is one entry of openapi.json.
type Operation struct {
	Name, Method, Path string
	// IsIdempotent says that the server takes an Idempotency-Key, so a lost answer can be asked for again.
	IsIdempotent bool
}

// Request is a call of an operation.
type Request struct {
	Operation Operation
	// Path has the values of the parameters in the path, without the organisation, in their order.
	Path []string
	// Query has the query, for lists.
	Query url.Values
	// Body becomes JSON. Nil sends none.
	Body any
	// IfMatch is the version that is replaced or deleted, as an ETag or "*". Empty sends no precondition.
	IfMatch string
	// IsNew makes the server refuse the request when there is something of the name already.
	IsNew bool
}

// Error is an answer that the server gave instead of a result.
type Error struct {
	Operation string
	Problem   Problem
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s: %s (%d, %s)", e.Operation, e.Problem.Detail, e.Problem.Status, e.Problem.Type)
}

// IsNotFound says whether the server knows no such thing.
func IsNotFound(err error) bool {
	var problem *Error
	return errors.As(err, &problem) && problem.Problem.Status == http.StatusNotFound
}

// ErrNoAnswer says that no answer came from the endpoint.
var ErrNoAnswer = errors.New("does not answer")

// ErrOrganisation says that the endpoint is not Millrace's, or that it does not know the organisation.
var ErrOrganisation = errors.New("the organisation is not found there")

// Client calls the control plane for one organisation.
type Client struct {
	endpoint     string
	token        string
	userAgent    string
	organisation string
	http         *http.Client
	// wait pauses between two attempts; tests replace it.
	wait func(context.Context, time.Duration) error

	knowing sync.Mutex
	isKnown bool
}

// New makes a client. organisation is the id of the organisation that the token belongs to.
func New(endpoint, token, organisation, version string) *Client {
	return &Client{
		endpoint:     strings.TrimRight(endpoint, "/"),
		token:        token,
		userAgent:    "terraform-provider-millrace/" + version,
		organisation: organisation,
		http:         &http.Client{Timeout: requestTimeout},
		wait:         wait,
	}
}

// Do calls an operation, decodes its answer into out unless that is nil, and returns the ETag.
func (c *Client) Do(ctx context.Context, request Request, out any) (string, error) {
	var body []byte
	if request.Body != nil {
		encoded, err := json.Marshal(request.Body)
		if err != nil {
			return "", fmt.Errorf("%s: %w", request.Operation.Name, err)
		}
		body = encoded
	}
	target, err := c.target(request)
	if err != nil {
		return "", err
	}
	key := uuid.NewString()
	for attempt := 1; ; attempt++ {
		etag, pause, err := c.attempt(ctx, request, target, key, body, out)
		if err == nil || pause == 0 || attempt == attemptsMax {
			return etag, err
		}
		if stopped := c.wait(ctx, pause); stopped != nil {
			return "", errors.Join(err, stopped)
		}
	}
}

// attempt sends a request once. A pause says that the request may be sent again after it.
func (c *Client) attempt(ctx context.Context, request Request, target, key string, body []byte, out any) (string, time.Duration, error) {
	operation := request.Operation
	sent, err := http.NewRequestWithContext(ctx, operation.Method, target, bytes.NewReader(body))
	if err != nil {
		return "", 0, fmt.Errorf("%s: %w", operation.Name, err)
	}
	sent.Header.Set("Authorization", "Bearer "+c.token)
	sent.Header.Set("User-Agent", c.userAgent)
	if body != nil {
		sent.Header.Set("Content-Type", "application/json")
	}
	if operation.IsIdempotent {
		sent.Header.Set("Idempotency-Key", key)
	}
	if request.IfMatch != "" {
		sent.Header.Set("If-Match", request.IfMatch)
	}
	if request.IsNew {
		sent.Header.Set("If-None-Match", "*")
	}
	answer, err := c.http.Do(sent)
	if err != nil {
		var cause *url.Error
		if errors.As(err, &cause) {
			err = cause.Err
		}
		return "", pauseAfterLoss(ctx, request), fmt.Errorf("%s: %s %w: %w", operation.Name, c.endpoint, ErrNoAnswer, err)
	}
	defer answer.Body.Close()
	read, err := io.ReadAll(io.LimitReader(answer.Body, answerBytesMax))
	if err != nil {
		return "", pauseAfterLoss(ctx, request), fmt.Errorf("%s: %w", operation.Name, err)
	}
	if answer.StatusCode >= http.StatusBadRequest {
		return "", retryAfter(request, answer), problemOf(operation, answer, read)
	}
	if out != nil {
		if err := json.Unmarshal(read, out); err != nil {
			return "", 0, fmt.Errorf("%s: the answer is not what openapi.json says: %w", operation.Name, err)
		}
	}
	return answer.Header.Get("ETag"), 0, nil
}

// CheckOrganisation says whether the server knows the organisation. Without it a 404 does not mean that a thing is gone: another web
// server, and Millrace with the id of another organisation, answer everything with 404.
func (c *Client) CheckOrganisation(ctx context.Context) error {
	c.knowing.Lock()
	defer c.knowing.Unlock()
	if c.isKnown {
		return nil
	}
	var page struct {
		Items *[]json.RawMessage `json:"items"`
	}
	_, err := c.Do(ctx, Request{Operation: OpListTokens, Query: url.Values{"limit": {"1"}}}, &page)
	var problem *Error
	if errors.As(err, &problem) {
		isForbidden := problem.Problem.Status == http.StatusForbidden && strings.HasPrefix(problem.Problem.Type, "urn:millrace:")
		if problem.Problem.Status == http.StatusNotFound {
			err = fmt.Errorf("%w: %w", ErrOrganisation, err)
		} else if isForbidden {
			err = nil
		}
	} else if err == nil && page.Items == nil {
		err = fmt.Errorf("%w: the answer is not of Millrace's API", ErrOrganisation)
	}
	c.isKnown = err == nil
	return err
}

// isRepeatable says whether the server comes to the same end when it gets the request twice. With the version of an ETag it does not:
// the first request has replaced that version, so the second is refused.
func (r Request) isRepeatable() bool {
	return r.Operation.IsIdempotent || r.Operation.Method == http.MethodGet || r.IfMatch == "*"
}

func pauseAfterLoss(ctx context.Context, request Request) time.Duration {
	if ctx.Err() == nil && request.isRepeatable() {
		return time.Second
	}
	return 0
}

// retryAfter is how long the server asks to wait. It has done nothing when it answers 429. That is not known after 503, nor when a
// balancer answers 502 or 504, such as while a server behind it is replaced.
func retryAfter(request Request, answer *http.Response) time.Duration {
	isUnknown := answer.StatusCode == http.StatusServiceUnavailable || isOfBalancer(answer.StatusCode)
	if answer.StatusCode != http.StatusTooManyRequests && !(isUnknown && request.isRepeatable()) {
		return 0
	}
	seconds, err := strconv.Atoi(answer.Header.Get("Retry-After"))
	if err != nil || seconds < 1 {
		seconds = 1
	}
	return min(time.Duration(seconds)*time.Second, retryAfterMax)
}

// isOfBalancer says whether an answer is that of a balancer which got none from the server.
func isOfBalancer(status int) bool {
	return status == http.StatusBadGateway || status == http.StatusGatewayTimeout
}

func problemOf(operation Operation, answer *http.Response, body []byte) error {
	var problem Problem
	if json.Unmarshal(body, &problem) != nil || problem.Detail == "" {
		detail := "the answer is not of Millrace's API: check the endpoint"
		if isOfBalancer(answer.StatusCode) {
			detail = "a balancer in front of the server got no answer from it, so the request may be done: plan again"
		}
		problem = Problem{Title: http.StatusText(answer.StatusCode), Detail: detail}
	}
	problem.Status = int32(answer.StatusCode)
	return &Error{Operation: operation.Name, Problem: problem}
}

var parameter = regexp.MustCompile(`\{[a-z_]+\}`)

func (c *Client) target(request Request) (string, error) {
	values := request.Path
	missing := false
	path := parameter.ReplaceAllStringFunc(request.Operation.Path, func(name string) string {
		if name == "{organisation}" {
			return url.PathEscape(c.organisation)
		}
		if len(values) == 0 || values[0] == "" {
			missing = true
			return ""
		}
		value := values[0]
		values = values[1:]
		return url.PathEscape(value)
	})
	if missing || len(values) > 0 {
		return "", fmt.Errorf("%s: %d values are no fit for %s", request.Operation.Name, len(request.Path), request.Operation.Path)
	}
	target := c.endpoint + root + path
	if len(request.Query) > 0 {
		target += "?" + request.Query.Encode()
	}
	return target, nil
}

func wait(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// Find returns the first item of a list for which is returns true. When there is none the error is as IsNotFound wants it.
func Find[T any](ctx context.Context, c *Client, operation Operation, is func(*T) bool) (*T, error) {
	query := url.Values{"limit": {"200"}}
	for {
		var page struct {
			Items      []T     `json:"items"`
			NextCursor *string `json:"next_cursor"`
		}
		if _, err := c.Do(ctx, Request{Operation: operation, Query: query}, &page); err != nil {
			return nil, err
		}
		for i := range page.Items {
			if is(&page.Items[i]) {
				return &page.Items[i], nil
			}
		}
		if page.NextCursor == nil {
			problem := Problem{Status: http.StatusNotFound, Title: "Not found", Detail: "the list has no such item"}
			return nil, &Error{Operation: operation.Name, Problem: problem}
		}
		query.Set("cursor", *page.NextCursor)
	}
}
