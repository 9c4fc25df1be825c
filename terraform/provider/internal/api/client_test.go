package api

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"
)

type seen struct{ method, path, key, match, none string }

// serve answers each request with the next of the answers, and notes what it saw.
func serve(t *testing.T, answers ...func(http.ResponseWriter)) (*Client, *[]seen, *[]time.Duration) {
	t.Helper()
	var requests []seen
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := r.Header
		requests = append(requests, seen{r.Method, r.URL.EscapedPath(), h.Get("Idempotency-Key"), h.Get("If-Match"), h.Get("If-None-Match")})
		answers[len(requests)-1](w)
	}))
	t.Cleanup(server.Close)
	client := New(server.URL+"/", "secret", "o", "test")
	var pauses []time.Duration
	client.wait = func(_ context.Context, pause time.Duration) error {
		pauses = append(pauses, pause)
		return nil
	}
	return client, &requests, &pauses
}

func status(code int, headers ...string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(code)
	}
}

func TestNamesAreEscapedAndPreconditionsAreSent(t *testing.T) {
	client, requests, _ := serve(t, status(204, "ETag", `"2"`))
	etag, err := client.Do(t.Context(), Request{Operation: OpPutGroup, Path: []string{"b", "a/b c"}, Body: GroupSettings{}, IsNew: true}, nil)
	if err != nil || etag != `"2"` {
		t.Fatal(etag, err)
	}
	want := seen{"PUT", "/api/v1/organisations/o/brokers/b/groups/a%2Fb%20c", "", "", "*"}
	if (*requests)[0] != want {
		t.Fatalf("%+v", (*requests)[0])
	}
}

func TestAMissingNameIsNoOtherPath(t *testing.T) {
	client, requests, _ := serve(t)
	for _, path := range [][]string{nil, {"b"}, {"b", ""}, {"b", "c", "d"}} {
		if _, err := client.Do(t.Context(), Request{Operation: OpDeleteGroup, Path: path, IfMatch: "*"}, nil); err == nil {
			t.Fatalf("%v was sent", path)
		}
	}
	if len(*requests) != 0 {
		t.Fatal("something was sent")
	}
}

func TestItWaitsAsLongAsTheServerSaysAndKeepsItsKey(t *testing.T) {
	client, requests, pauses := serve(t, status(429, "Retry-After", "3"), status(503, "Retry-After", "900"), status(201))
	if _, err := client.Do(t.Context(), Request{Operation: OpCreateToken, Body: NewToken{}}, nil); err != nil {
		t.Fatal(err)
	}
	if len(*pauses) != 2 || (*pauses)[0] != 3*time.Second || (*pauses)[1] != retryAfterMax {
		t.Fatal(*pauses)
	}
	if key := (*requests)[0].key; key == "" || key != (*requests)[2].key {
		t.Fatal(*requests)
	}
}

func TestAChangeOfAVersionIsNotSentAgainWhenItMayBeDone(t *testing.T) {
	for _, code := range []int{502, 503, 504} {
		client, requests, _ := serve(t, status(code))
		if _, err := client.Do(t.Context(), Request{Operation: OpPutGroup, Path: []string{"b", "g"}, Body: GroupSettings{}, IfMatch: `"1"`}, nil); err == nil {
			t.Fatalf("%d is no error", code)
		}
		if len(*requests) != 1 {
			t.Fatal(*requests)
		}
	}
}

// A balancer lost the first answer: the server made the broker, and answers the same key with the same broker.
func TestAnAnswerThatABalancerLostMakesNoSecondBroker(t *testing.T) {
	for _, code := range []int{502, 504} {
		made := map[string]string{}
		asked := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked++
			key := r.Header.Get("Idempotency-Key")
			if made[key] == "" {
				made[key] = "b" + strconv.Itoa(len(made)+1)
			}
			if asked == 1 {
				w.WriteHeader(code)
				return
			}
			_, _ = w.Write([]byte(`{"name": "` + made[key] + `"}`))
		}))
		t.Cleanup(server.Close)
		client := New(server.URL, "secret", "o", "test")
		client.wait = func(context.Context, time.Duration) error { return nil }
		var broker struct{ Name string }
		if _, err := client.Do(t.Context(), Request{Operation: OpCreateBroker, Body: NewBroker{}}, &broker); err != nil || broker.Name != "b1" || len(made) != 1 {
			t.Fatal(code, broker.Name, len(made), err)
		}
	}
}

func problem(code int, kind string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.WriteHeader(code)
		_, _ = w.Write([]byte(`{"type": "` + kind + `", "title": "t", "detail": "d", "status": ` + strconv.Itoa(code) + `}`))
	}
}

func items(w http.ResponseWriter) { _, _ = w.Write([]byte(`{"items": []}`)) }

// Other web servers answer 404 and 403, too.
func TestAnOrganisationIsThereIfTheServerSaysSo(t *testing.T) {
	for name, it := range map[string]struct {
		answer  func(http.ResponseWriter)
		isThere bool
	}{
		"a list":                 {items, true},
		"no permission":          {problem(403, "urn:millrace:problem:forbidden"), true},
		"no organisation":        {problem(404, "urn:millrace:problem:not-found"), false},
		"another server":         {status(404), false},
		"another server, no way": {status(403), false},
		"another server's JSON":  {func(w http.ResponseWriter) { _, _ = w.Write([]byte(`{}`)) }, false},
	} {
		client, _, _ := serve(t, it.answer)
		if err := client.CheckOrganisation(t.Context()); (err == nil) != it.isThere {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAnOrganisationIsLookedForOnce(t *testing.T) {
	client, requests, _ := serve(t, items)
	for range 2 {
		if err := client.CheckOrganisation(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(*requests) != 1 {
		t.Fatal(*requests)
	}
}
