// Package admin tests the admin API against running replicas: what it shows, its actions, jobs and live lists, and who may use it.
// Every answer is compared with docs/admin-api.yaml.
package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/adminapi"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/issuertest"
	"github.com/holdfast-a2a/holdfast/internal/openapitest"
	"github.com/holdfast-a2a/holdfast/internal/receivertest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

func TestMain(m *testing.M) {
	receivertest.Main()
	issuertest.Main()
	clustertest.Main(m)
}

var document = openapitest.Document{File: "admin-api.yaml", Exact: true}

// operator is a client of the admin API of one replica.
type operator struct {
	t   testing.TB
	url string
	key string // API key; empty: none
}

func as(t testing.TB, r *clustertest.Replica, key string) *operator {
	t.Helper()
	return &operator{t, r.Admin + adminapi.Path, key}
}

// answer is an answer of the API.
type answer struct {
	t      testing.TB
	Status int
	Header http.Header
	Body   []byte
}

// begin sends a request. The caller closes the body.
func (o *operator) begin(ctx context.Context, method, path, body string, headers ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, o.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if method != http.MethodGet {
		req.Header.Set("Content-Type", "application/json")
	}
	if o.key != "" {
		req.Header.Set("Authorization", "Bearer "+o.key)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
	}
	return http.DefaultClient.Do(req)
}

func (o *operator) do(method, path, body string, headers ...string) *answer {
	o.t.Helper()
	res, err := o.begin(waittest.Context(o.t), method, path, body, headers...)
	require.NoError(o.t, err)
	defer res.Body.Close()
	a := &answer{t: o.t, Status: res.StatusCode, Header: res.Header}
	a.Body, err = io.ReadAll(res.Body)
	require.NoError(o.t, err)
	require.NoError(o.t, document.Check(method, path, a.Status, a.Header, a.Body), "%s %s: %d %s", method, path, a.Status, a.Body)
	return a
}

// get reads a document that is there.
func (o *operator) get(path string) *answer {
	o.t.Helper()
	a := o.do(http.MethodGet, path, "")
	require.Equal(o.t, http.StatusOK, a.Status, "%s: %s", path, a.Body)
	return a
}

// act posts an action that must succeed.
func (o *operator) act(path, body string, headers ...string) *answer {
	o.t.Helper()
	a := o.do(http.MethodPost, path, body, headers...)
	require.Less(o.t, a.Status, 300, "%s: %s", path, a.Body)
	return a
}

// object is a decoded answer. Numbers keep their digits.
type object = map[string]any

func (a *answer) read() object {
	a.t.Helper()
	d := json.NewDecoder(bytes.NewReader(a.Body))
	d.UseNumber()
	var v object
	require.NoError(a.t, d.Decode(&v), "%s", a.Body)
	return v
}

// list returns a member that is a list of objects.
func (a *answer) list(name string) (out []object) {
	a.t.Helper()
	items, ok := a.read()[name].([]any)
	require.True(a.t, ok, "%s has no list %s", a.Body, name)
	for _, v := range items {
		out = append(out, v.(object))
	}
	return out
}

// text returns a member that is a string; "" if it is missing.
func (a *answer) text(name string) string {
	a.t.Helper()
	s, _ := a.read()[name].(string)
	return s
}

func column(rows []object, name string) (out []string) {
	for _, r := range rows {
		s, _ := r[name].(string)
		out = append(out, s)
	}
	return out
}

// send sends a message to the demo agent, waits until the task settles, and returns the id of the task. more is added to the params.
func send(t testing.TB, r *clustertest.Replica, key, script, more string) string {
	t.Helper()
	id, err := trySend(waittest.Context(t), r, key, script, more)
	require.NoError(t, err)
	return id
}

func trySend(ctx context.Context, r *clustertest.Replica, key, script, more string) (string, error) {
	part, _ := json.Marshal(script)
	if more == "" {
		more = `"configuration":{"blocking":true}`
	}
	body := `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"kind":"message","messageId":"` + uuid.NewString() +
		`","role":"user","parts":[{"kind":"text","text":` + string(part) + `}]},` + more + `}}`
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("X-API-Key", key)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		return "", err
	}
	var reply struct {
		Result struct{ ID string }
		Error  json.RawMessage
	}
	if err := json.Unmarshal(raw, &reply); err != nil || reply.Result.ID == "" {
		return "", &badReply{string(raw)}
	}
	return reply.Result.ID, nil
}

type badReply struct{ text string }

func (b *badReply) Error() string { return "bad reply: " + b.text }
