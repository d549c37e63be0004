// Package operators shows what operators do: by the verbs of the command line, on the database and through a server, and over the admin API
// with its live lists, jobs and logins; with an embedded database, backups, metrics and doctor. Every answer of the admin API is compared
// with docs/admin-api.yaml.
package operators

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/admin"
	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/issuertest"
	"github.com/holdfast-a2a/holdfast/internal/test/openapitest"
	"github.com/holdfast-a2a/holdfast/internal/test/receivertest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
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
	return &operator{t, r.Admin + admin.Path, key}
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

// pages reads a list to its end, and returns a member of each row. by names the parameter that leads to the next page.
func (o *operator) pages(path, list, member, by string) (all []string) {
	o.t.Helper()
	for at := ""; ; {
		page := o.get(path + at)
		for _, row := range page.list(list) {
			all = append(all, fmt.Sprint(row[member]))
		}
		next := page.read()["next"]
		if next == nil {
			return all
		}
		at = "&" + by + "=" + fmt.Sprint(next)
	}
}

// says is a message of a caller with an API key; empty: without one.
func says(key, script string) *a2atest.Args {
	if key == "" {
		return a2atest.Say(script)
	}
	return a2atest.Say(script).With("X-API-Key", key)
}

// send sends a message to the demo agent, waits until the task settles, and returns the id of the task.
func send(r *clustertest.Replica, key, script string) string {
	r.T.Helper()
	return r.Send(a2atest.V03, says(key, script)).Task()
}

// sendRaw is send for parts, and members beside the message, as they are written.
func sendRaw(r *clustertest.Replica, parts, more string) string {
	r.T.Helper()
	res, err := r.AskRaw([]byte(`{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"kind":"message","messageId":"` + uuid.NewString() +
		`","role":"user","parts":[` + parts + `]},"configuration":{"blocking":true}` + more + `}}`)).Result()
	require.NoError(r.T, err)
	return res.Task()
}
