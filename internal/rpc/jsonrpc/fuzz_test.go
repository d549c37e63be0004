package jsonrpc_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/engine"
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

// FuzzHeaders sends arbitrary values in the headers that the binding reads. A value reaches the
// engine unchanged, or the server refuses it by the header's name.
func FuzzHeaders(f *testing.F) {
	for _, last := range []string{
		"", "0", "7", "007", "-1", "+1", "1.0", "0x1", " 1", "1_0", "9223372036854775807", "9223372036854775808",
		"18446744073709551616", "\u0661", "*",
	} {
		f.Add(last, "key-"+last, "0.3")
	}
	for _, version := range []string{"", "0.1", "0.2.6", "0.3.0", "1.0", "99.0", "0.", "..", "0.3, 0.1", "v0.3", "0.3-rc"} {
		f.Add("1", "k", version)
	}
	for _, key := range []string{strings.Repeat("k", 255), strings.Repeat("k", 256), strings.Repeat("é", 128), "\xff", "a b", "☃"} {
		f.Add("", key, "")
	}
	f.Fuzz(func(t *testing.T, last, key, version string) {
		e := fails(unknown)
		b := options{fake: e}.binding()
		serve := func(method, params string) *rpcError {
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(request("1", method, params)))
			r.Header.Set("Last-Event-ID", last)
			r.Header.Set("Idempotency-Key", key)
			r.Header.Set("A2A-Version", version)
			w := httptest.NewRecorder()
			b.Serve(w, r, jsonrpc.Endpoint{Endpoint: dispatch.Endpoint{Agent: "demo", Admission: rpctest.Open{}}})
			a := decode(t, bytes.TrimSuffix(bytes.TrimPrefix(w.Body.Bytes(), []byte("data: ")), []byte("\n\n")))
			require.NotNil(t, a.Error, "%s", w.Body)
			return a.Error
		}
		said := serve("message/send", calls["0.3"]["message/send"])
		if said.Code == -32009 {
			// The method belongs to 0.3, whatever published version the header names.
			require.NotRegexp(t, `^(0\.[123]|1\.0)?$`, version)
			require.Nil(t, e.Last())
			return
		}
		if fits := len(key) <= 255 && utf8.ValidString(key); fits {
			require.Equal(t, -32001, said.Code, said.Message)
			require.Equal(t, key, e.Last().(*engine.SendRequest).IdempotencyKey)
		} else {
			require.Equal(t, -32602, said.Code)
			require.Contains(t, said.Message, "Idempotency-Key")
			require.Nil(t, e.Last())
		}
		said = serve("tasks/resubscribe", `{"id":"t-1"}`)
		number, mark, marked := strings.Cut(last, "-")
		position, isNumber := new(big.Int).SetString(number, 10)
		isNumber = isNumber && strings.Trim(number, "0123456789") == "" && position.IsInt64()
		bits, isMark := new(big.Int).SetString(mark, 16)
		isMark = isMark && strings.Trim(mark, "0123456789abcdefABCDEF") == "" && bits.BitLen() <= 32
		if last != "" && (!isNumber || marked && !isMark) {
			require.Equal(t, -32602, said.Code)
			require.Contains(t, said.Message, "Last-Event-ID")
			require.Nil(t, e.Last())
			return
		}
		require.Equal(t, -32001, said.Code, said.Message)
		asked := e.Last().(*engine.SubscribeRequest)
		require.Equal(t, last != "", asked.Resume)
		if asked.Resume {
			require.Equal(t, position.Int64(), int64(asked.After.Seq))
			if marked {
				require.Equal(t, bits.Uint64(), uint64(asked.After.Mark))
			}
		}
	})
}
