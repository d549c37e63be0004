package jsonrpc_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/rpctest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

func TestEnvelope(t *testing.T) {
	t.Parallel()
	s := serve(t, options{fake: wants("0.3"), MaxDepth: 32})
	const get = `"method":"tasks/get","params":{"id":"t-1"}`
	huge := strings.Repeat("9", 400)
	tests := []struct {
		name, body string
		code       int // 0 for a result
		id, says   string
	}{
		// The id comes back unchanged, as the same literal.
		{"a number", `{"jsonrpc":"2.0","id":1,` + get + `}`, 0, `1`, ""},
		{"a string that looks like a number", `{"jsonrpc":"2.0","id":"1",` + get + `}`, 0, `"1"`, ""},
		{"an empty string", `{"jsonrpc":"2.0","id":"",` + get + `}`, 0, `""`, ""},
		{"a string with escapes", `{"jsonrpc":"2.0","id":"\u00e9\/\n\"",` + get + `}`, 0, `"\u00e9\/\n\""`, ""},
		{"null", `{"jsonrpc":"2.0","id":null,` + get + `}`, 0, `null`, ""},
		{"a notification is answered", `{"jsonrpc":"2.0",` + get + `}`, 0, `null`, ""},
		{"a negative number", `{"jsonrpc":"2.0","id":-5,` + get + `}`, 0, `-5`, ""},
		{"a number that no machine type holds", `{"jsonrpc":"2.0","id":` + huge + `,` + get + `}`, 0, huge, ""},
		{"an id behind the params", `{"jsonrpc":"2.0",` + get + `,"id":7}`, 0, `7`, ""},
		{"white space everywhere", " \n{ \"jsonrpc\" :\r\n\t\"2.0\" , \"id\" : 8 ,\n " + get + " }\n ", 0, `8`, ""},
		{"escaped names of members", `{"jsonrpc":"2.0","\u0069d":9,` + get + `}`, 0, `9`, ""},
		{"an escaped version", `{"jsonrpc":"2\u002e0","id":9,` + get + `}`, 0, `9`, ""},
		{"half of a surrogate pair", `{"jsonrpc":"2.0","id":"\ud83d","a\udfff":"\ud83d\ude00",` + get + `}`, 0, `"\ufffd"`, ""},
		{"an unknown member", `{"jsonrpc":"2.0","id":9,"extra":{"id":1},` + get + `}`, 0, `9`, ""},

		{"a fraction", `{"jsonrpc":"2.0","id":1.5,` + get + `}`, 0, `1.5`, ""},
		{"an integer with a point", `{"jsonrpc":"2.0","id":1.0,` + get + `}`, 0, `1.0`, ""},
		{"an integer with an exponent", `{"jsonrpc":"2.0","id":1e3,` + get + `}`, 0, `1e3`, ""},
		{"an object as id", `{"jsonrpc":"2.0","id":{"a":1},` + get + `}`, -32600, `null`, "id: must be"},
		{"an array as id", `{"jsonrpc":"2.0","id":[1],` + get + `}`, -32600, `null`, "id: must be"},
		{"a truth value as id", `{"jsonrpc":"2.0","id":true,` + get + `}`, -32600, `null`, "id: must be"},
		{"an id that every event would repeat", `{"jsonrpc":"2.0","id":"` + strings.Repeat("x", 5000) + `",` + get + `}`, -32600, `null`, "id: must not be longer"},

		// 1. JSON.
		{"an empty body", ``, -32700, `null`, "Invalid JSON payload: empty body"},
		{"white space", " \n", -32700, `null`, "Invalid JSON payload"},
		{"a broken off body", `{"jsonrpc":"2.0","id":1,"method":"tas`, -32700, `null`, "ends too early"},
		{"a word", `hello`, -32700, `null`, "Invalid JSON payload"},
		{"two documents", `{"jsonrpc":"2.0","id":1,` + get + `}{}`, -32700, `null`, "more than one JSON value"},
		{"a byte order mark", "\ufeff" + `{"jsonrpc":"2.0","id":1,` + get + `}`, -32700, `null`, "Invalid JSON payload"},
		{"bytes that are not UTF-8", `{"jsonrpc":"2.0","id":1,"method":"` + "\xff" + `"}`, -32700, `null`, "Invalid JSON payload"},
		{"a comma too many", `{"jsonrpc":"2.0","id":1,}`, -32700, `null`, "Invalid JSON payload"},
		{"single quotes", `{'jsonrpc':'2.0'}`, -32700, `null`, "Invalid JSON payload"},
		{"a repeated member before a broken end", `{"jsonrpc":"2.0","id":1,"params":{"a":1,"a":2},"method":`, -32700, `null`, "Invalid JSON payload"},
		{"a repeated member before a second document", `{"jsonrpc":"2.0","id":1,"params":{"a":1,"a":2},"method":"tasks/get"} 1`, -32700, `null`, "more than one JSON value"},

		// 2. An object with the right members.
		{"a batch", `[{"jsonrpc":"2.0","id":1,` + get + `}]`, -32600, `null`, "batches are not part of A2A"},
		{"an empty batch", `[]`, -32600, `null`, "batches"},
		{"a string", `"tasks/get"`, -32600, `null`, "must be an object"},
		{"null alone", `null`, -32600, `null`, "must be an object"},
		{"an empty object", `{}`, -32600, `null`, `jsonrpc: must be "2.0"`},
		{"no version", `{"id":1,` + get + `}`, -32600, `1`, `jsonrpc: must be "2.0"`},
		{"an old version", `{"jsonrpc":"1.0","id":"a",` + get + `}`, -32600, `"a"`, `jsonrpc: must be "2.0"`},
		{"a version that is a number", `{"jsonrpc":2.0,"id":1,` + get + `}`, -32600, `1`, `jsonrpc: must be "2.0"`},
		{"no method", `{"jsonrpc":"2.0","id":1}`, -32600, `1`, "method: is required"},
		{"an empty method", `{"jsonrpc":"2.0","id":1,"method":""}`, -32600, `1`, "method: must be a non-empty string"},
		{"a method that is a number", `{"jsonrpc":"2.0","method":1,"id":"z"}`, -32600, `"z"`, "method: must be a non-empty string"},
		{"a method that is null", `{"jsonrpc":"2.0","method":null,"id":"z"}`, -32600, `"z"`, "method: must be a non-empty string"},
		{"a version behind a bad id", `{"id":[],"jsonrpc":"1.0",` + get + `}`, -32600, `null`, `jsonrpc: must be "2.0"`},
		{"a member twice", `{"jsonrpc":"2.0","jsonrpc":"2.0","id":4,` + get + `}`, -32600, `4`, "jsonrpc: the member appears twice"},
		{"a NUL character in a method", `{"jsonrpc":"2.0","method":"tasks\u0000","id":4}`, -32600, `4`, "method: NUL characters"},
		{"a deep unknown member", `{"jsonrpc":"2.0","id":4,"x":` + nested(40) + `,` + get + `}`, -32600, `4`, "nested more than 32 deep"},
		{"the envelope comes before bad params", `{"jsonrpc":"1.0","id":4,"method":"x","params":{"a":1,"a":2}}`, -32600, `4`, `jsonrpc: must be "2.0"`},

		// 3. A method.
		{"an unknown method", `{"jsonrpc":"2.0","id":1,"method":"tasks/list"}`, -32601, `1`, `Method not found: "tasks/list"`},
		{"an unknown method is quoted in part", `{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("é", 99) + `"}`, -32601, `1`, "Method not found"},
		{"the method comes before bad params", `{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":1,"a":2}}`, -32601, `1`, "Method not found"},
		{"and before params of the wrong type", `{"jsonrpc":"2.0","id":1,"method":"x","params":[]}`, -32601, `1`, "Method not found"},

		// 5. Params.
		{"params that are an array", `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":["t-1"]}`, -32602, `1`, "params: must be an object"},
		{"no params", `{"jsonrpc":"2.0","id":1,"method":"tasks/get"}`, -32602, `1`, "id: is required"},
		{"params that are null", `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":null}`, -32602, `1`, "id: is required"},
		{"a member that is missing", `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{}}`, -32602, `1`, "message: is required"},
		{"a member of the wrong type", `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":5}}`, -32602, `1`, "id: must be a string"},
		{"a member of params twice", `{"jsonrpc":"2.0","method":"tasks/get","params":{"id":"a","id":"b"},"id":6}`, -32602, `6`, "params.id: the member appears twice"},
		{"a NUL character in params", `{"jsonrpc":"2.0","method":"tasks/get","params":{"id":"a\u0000"},"id":6}`, -32602, `6`, "params.id: NUL characters"},
		{"params that are too deep", `{"jsonrpc":"2.0","method":"tasks/get","params":{"metadata":` + nested(40) + `},"id":6}`, -32602, `6`, "nested more than 32 deep"},
		{"params that are very deep", `{"jsonrpc":"2.0","id":6,"method":"tasks/get","params":{"metadata":` + nested(20000) + `}}`, -32602, `6`, "nested more than 32 deep"},

		// 6. Things that the server does not have.
		{"the extended card with params that are null", `{"jsonrpc":"2.0","id":1,"method":"agent/getAuthenticatedExtendedCard","params":null}`, -32007, `1`, "Extended Card is not configured"},
		{"the extended card without params", `{"jsonrpc":"2.0","id":1,"method":"agent/getAuthenticatedExtendedCard"}`, -32007, `1`, "Extended Card is not configured"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a := s.post(t, tt.body)
			require.Equal(t, http.StatusOK, a.StatusCode)
			require.Equal(t, "application/json", a.Header.Get("Content-Type"))
			require.Equal(t, tt.id, string(a.ID))
			if tt.code == 0 {
				require.Nil(t, a.Error, "%s", a.body)
				return
			}
			require.NotNil(t, a.Error, "%s", a.body)
			require.Equal(t, tt.code, a.Error.Code, a.Error.Message)
			require.Contains(t, a.Error.Message, tt.says)
			require.Nil(t, a.Error.Data)
		})
	}
}

func nested(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }

// The server has not read the body yet, so the answer has no id, whether the body is valid or not.
func TestOtherContentTypesAreRefused(t *testing.T) {
	t.Parallel()
	s := serve(t, options{fake: wants("0.3")})
	for _, body := range []string{call("tasks/get"), "{"} {
		a := s.post(t, body, "Content-Type", "text/plain")
		require.Equal(t, http.StatusOK, a.StatusCode)
		require.Equal(t, -32005, a.Error.Code)
		require.Equal(t, "null", string(a.ID))
	}
	require.Nil(t, s.post(t, call("tasks/get"), "Content-Type", "application/a2a+json").Error)
}

func TestBodyLimit(t *testing.T) {
	t.Parallel()
	const limit = 2000
	s := serve(t, options{fake: wants("0.3"), MaxBody: limit})
	sized := func(n int) io.Reader {
		body := request("1", "tasks/get", `{"id":"t-1","metadata":{"x":"%s"}}`)
		return strings.NewReader(fmt.Sprintf(body, strings.Repeat("x", n-len(body)+2)))
	}
	for _, wrap := range []func(io.Reader) io.Reader{
		func(r io.Reader) io.Reader { return r },                      // announced
		func(r io.Reader) io.Reader { return struct{ io.Reader }{r} }, // chunked
	} {
		a := whole(t, s.begin(t, "/", wrap(sized(limit)))) //nolint:bodyclose // in whole
		require.Equal(t, http.StatusOK, a.StatusCode)
		require.Nil(t, a.Error)

		a = whole(t, s.begin(t, "/", wrap(sized(limit+1)))) //nolint:bodyclose // in whole
		require.Equal(t, http.StatusRequestEntityTooLarge, a.StatusCode)
		require.Equal(t, -32600, a.Error.Code)
		require.Contains(t, a.Error.Message, "the limit is 2000 bytes")
		require.Equal(t, "null", string(a.ID))
		require.True(t, a.Close, "the rest of the body is not read")
	}
}

func readAnswer(t *testing.T, c net.Conn) *answer {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	return whole(t, resp)
}

const head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"

// The time for a body ends a request whose body does not arrive, and no other.
func TestBodyTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const timeout = time.Minute
		e := wants("0.3")
		s := serve(t, options{fake: e, BodyTimeout: timeout, piped: true})
		for _, framing := range []string{"Content-Length: 100\r\n\r\n{", "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"} {
			began := time.Now()
			a := readAnswer(t, rpctest.Dial(t, s.Server, head+framing))
			require.Equal(t, timeout, waittest.Elapsed(began))
			require.Equal(t, http.StatusRequestTimeout, a.StatusCode)
			require.Equal(t, -32600, a.Error.Code)
			require.Contains(t, a.Error.Message, "did not arrive in time")
			require.True(t, a.Close)
		}
		var ended error
		e.Call = func(ctx context.Context) {
			waittest.Advance(2 * timeout)
			ended = ctx.Err()
		}
		require.Nil(t, s.post(t, call("tasks/get")).Error)
		require.NoError(t, ended)
	})
}

func TestBrokenBody(t *testing.T) {
	t.Parallel()
	s := serve(t, options{fake: wants("0.3")})
	body := call("tasks/get")
	for name, framing := range map[string]string{
		"shorter than announced": fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body)+1, body),
		"longer than announced":  fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body)-1, body),
		"much is announced":      "Content-Length: 16777216\r\n\r\n{",
		"no last chunk":          fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", len(body), body),
		"not a chunk":            "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
	} {
		c := rpctest.Dial(t, s.Server, head+framing)
		if name != "longer than announced" {
			require.NoError(t, c.(*net.TCPConn).CloseWrite())
		}
		a := readAnswer(t, c)
		require.Equal(t, http.StatusOK, a.StatusCode, name)
		require.Equal(t, -32700, a.Error.Code, name)
		require.Equal(t, name != "longer than announced", strings.Contains(a.Error.Message, "the body is incomplete"), name)
	}
}
