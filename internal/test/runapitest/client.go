// Package runapitest is a client of the run API for tests. It compares each answer with docs/run-api.yaml.
package runapitest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/openapitest"
)

// document is docs/run-api.yaml.
var document = openapitest.Document{File: "run-api.yaml"}

// Client acts for a run. It is what the run document says.
type Client struct {
	URL   string `json:"url"`
	Token string `json:"token"`
}

// Answer is an answer of the run API.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte

	// Members of the documents that tests look at.
	Next   json.RawMessage
	Ended  bool
	Stop   string
	Reason string
	Detail string
	Field  string
	Line   int
	Data   json.RawMessage
	Entry  []Entry `json:"history"`
	Tasks  []Task  `json:"tasks"`
	Listed []struct {
		ArtifactID string
		Name       string
		Chunks     int
		Bytes      int
		Last       bool
	} `json:"artifacts"`
	Version int
	Parts   []Part
	Attempt int
	State   json.RawMessage
}

// Entry is an entry of a history.
type Entry struct {
	Role, ArtifactID, TaskID string
	Omitted                  int
	Parts                    []Part
}

// Part is a part with a text.
type Part struct{ Text string }

// Task is another task.
type Task struct{ ID, State string }

// Place is the next of a list.
func (a *Answer) Place() (place string) {
	_ = json.Unmarshal(a.Next, &place) // "" without one
	return place
}

// Ordinal is the next of an answer about events; -1 without one.
func (a *Answer) Ordinal() int {
	n := -1
	_ = json.Unmarshal(a.Next, &n)
	return n
}

// Do sends a request below the URL and checks the answer against the document. headers are names and values; the body's
// type is application/json unless they say something else.
func (c *Client) Do(t testing.TB, method, path, body string, headers ...string) *Answer {
	t.Helper()
	a, err := c.Try(t.Context(), method, path, strings.NewReader(body), headers...)
	require.NoError(t, err, "%s %s", method, path)
	return a
}

// Post posts events, an event per line.
func (c *Client) Post(t testing.TB, from int, events ...string) *Answer {
	t.Helper()
	return c.Do(t, http.MethodPost, fmt.Sprintf("/events?from=%d", from), strings.Join(events, "\n")+"\n", "Content-Type", "application/x-ndjson")
}

// Try is Do. It returns an error if there is no answer, or another one than the document has.
func (c *Client) Try(ctx context.Context, method, path string, body io.Reader, headers ...string) (*Answer, error) {
	q, err := http.NewRequestWithContext(ctx, method, c.URL+path, body)
	if err != nil {
		return nil, err
	}
	q.Header.Set("Authorization", "Bearer "+c.Token)
	q.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		q.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(q)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	a := &Answer{Status: res.StatusCode, Header: res.Header}
	if a.Body, err = io.ReadAll(res.Body); err != nil {
		return nil, err
	}
	if err := document.Check(method, path, a.Status, a.Header, a.Body); err != nil {
		return nil, fmt.Errorf("%s %s: %d %s: %w", method, path, a.Status, a.Body, err)
	}
	if len(a.Body) > 0 {
		err = json.Unmarshal(a.Body, a)
	}
	return a, err
}

// Operation is an operation of the document, with names in the place of the path's parameters.
type Operation = openapitest.Operation

// Operations lists the operations of the document.
func Operations() ([]Operation, error) {
	all, err := document.Operations()
	for i := range all {
		all[i].Path = strings.NewReplacer("{scope}", "task", "{", "", "}", "").Replace(all[i].Path)
	}
	return all, err
}
