package jsonrpc_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/dialecttest"
	"github.com/holdfast-a2a/holdfast/internal/rpc/jsonrpc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// FuzzEnvelope sends any body: the answer is one document with either a result or an
// error, under the id of the request wherever that is a valid one.
func FuzzEnvelope(f *testing.F) {
	for _, example := range dialecttest.Examples(f, "v0.") {
		f.Add([]byte(request(`1`, example.Method, string(example.Params))))
	}
	for _, body := range []string{
		``, `{}`, `[]`, `null`, `{"jsonrpc":"2.0"`, `{"jsonrpc":"2.0","id":1.0,"method":"tasks/get"}`, "{\"id\":\"\xff\"}",
		`{"jsonrpc":"2.0","\u0069d":-0,"method":"tasks/get","params":{"id":"a","id":"b"}}`,
		`{"params":{"a":1,"a":{"b":` + nested(70) + `}},"id":"\ud83d\ude00","method":"tasks\/cancel","jsonrpc":"2.0"} `,
	} {
		f.Add([]byte(body))
	}
	b := jsonrpc.New(jsonrpc.Options{Engine: echoing{&fakeEngine{err: task.Errorf(task.NotFound, "no such task")}}, MaxBody: 1 << 20})
	f.Fuzz(func(t *testing.T, body []byte) {
		r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		b.Serve(w, r, jsonrpc.Endpoint{Agent: "demo"})
		answered := w.Body.Bytes()
		if w.Header().Get("Content-Type") == "text/event-stream" {
			document, whole := bytes.CutPrefix(answered, []byte("data: "))
			require.True(t, whole, "%q", answered)
			answered, whole = bytes.CutSuffix(document, []byte("\n\n"))
			require.True(t, whole, "%q", answered)
			require.NotContains(t, string(answered), "\n")
		}
		var a answer
		a.decode(t, answered)
		if a.Error != nil {
			require.NotEqual(t, -32603, a.Error.Code, "%q", body)
		}
		require.Equal(t, wantedID(body, a.Error), string(a.ID), "%q", answered)
	})
}

// wantedID is the id by another reader's word. Bodies that two readers take
// differently (repeated members, names in another case) have the id that they got.
func wantedID(body []byte, e *rpcError) string {
	if e != nil && e.Code == -32700 {
		return "null"
	}
	d := json.NewDecoder(bytes.NewReader(body))
	if token, err := d.Token(); err != nil || token != json.Delim('{') {
		return "null"
	}
	id := "null"
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return id
		}
		var v json.RawMessage
		if d.Decode(&v) != nil {
			return id
		}
		if name != "id" || len(v) > 4096 {
			continue
		}
		if s := string(v); v[0] == '"' || s == "null" || strings.Trim(strings.TrimPrefix(s, "-"), "0123456789") == "" {
			id = s
		}
	}
	return id
}

// echoing is an engine that knows no task, and takes every message.
type echoing struct{ *fakeEngine }

func (echoing) Send(_ context.Context, r *engine.SendRequest) (*task.Task, error) {
	t := sample(r.Dialect)
	t.History[0], t.Metadata = *r.Message, r.Metadata
	return t, nil
}
