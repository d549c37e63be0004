package jsonrpc_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/dialecttest"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/rpc/jsonrpc"
	"github.com/holdfast-a2a/holdfast/internal/rpctest"
	"github.com/holdfast-a2a/holdfast/internal/surrogate"
)

// FuzzEnvelope sends arbitrary bodies. The answer is one document with either a result or an error,
// under the request's id if that is valid.
func FuzzEnvelope(f *testing.F) {
	for _, version := range []string{"v0.", "v1."} {
		for _, example := range dialecttest.Examples(f, version) {
			f.Add([]byte(request(`1`, example.Method, cmp.Or(string(example.Params), "null"))))
		}
	}
	for _, body := range []string{
		``, `{}`, `[]`, `null`, `{"jsonrpc":"2.0"`, `{"jsonrpc":"2.0","id":1.0,"method":"tasks/get"}`, "{\"id\":\"\xff\"}",
		`{"jsonrpc":"2.0","\u0069d":-0,"method":"tasks/get","params":{"id":"a","id":"b"}}`,
		`{"params":{"a":1,"a":{"b":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `}},"id":"\ud83d\ude00","method":"tasks\/cancel","jsonrpc":"2.0"} `,
	} {
		f.Add([]byte(body))
	}
	b := options{Engine: rpctest.ForAll(new(rpctest.Echo)), MaxBody: 1 << 20}.binding()
	f.Fuzz(func(t *testing.T, body []byte) {
		r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		b.Serve(w, r, jsonrpc.Endpoint{Endpoint: dispatch.Endpoint{Agent: "demo", Admission: rpctest.Open{}}})
		answered := w.Body.Bytes()
		if w.Header().Get("Content-Type") == "text/event-stream" {
			document, whole := bytes.CutPrefix(answered, []byte("data: "))
			require.True(t, whole, "%q", answered)
			answered, whole = bytes.CutSuffix(document, []byte("\n\n"))
			require.True(t, whole, "%q", answered)
			require.NotContains(t, string(answered), "\n")
		}
		a := decode(t, answered)
		if a.Error != nil {
			require.NotEqual(t, -32603, a.Error.Code, "%q", body)
		}
		require.Equal(t, wantedID(body, a.Error), string(a.ID), "%q", answered)
	})
}

// wantedID returns the id that another parser finds. Where two parsers disagree (repeated members, names in another
// case), it returns the id of the answer.
func wantedID(body []byte, e *rpcError) string {
	if e != nil && e.Code == -32700 {
		return "null"
	}
	body, _ = surrogate.Repair(body)
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
		if s := string(v); s == "null" || strings.ContainsAny(s[:1], `"-0123456789`) {
			id = s
		}
	}
	return id
}
