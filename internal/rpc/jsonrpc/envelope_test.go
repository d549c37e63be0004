package jsonrpc_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/dialecttest"
	"github.com/holdfast-a2a/holdfast/internal/rpctest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// A case is a name, a body, and the code of the answer ("ok" for a result) with its id and some of its text.
func TestEnvelope(t *testing.T) {
	t.Parallel()
	s := serve(t, options{fake: wants("0.3"), MaxDepth: 32})
	for _, c := range dialecttest.Cases(t, "envelope", 3) {
		body, name := c[1], c[0]
		if quoted, ok := strings.CutPrefix(body, "quoted "); ok {
			var err error
			body, err = strconv.Unquote(quoted)
			require.NoError(t, err, name)
		}
		body = strings.ReplaceAll(body, "@get", `"method":"tasks/get","params":{"id":"t-1"}`)
		want := append(strings.SplitN(c[2], " ", 3), "")
		a := s.post(t, body)
		require.Equal(t, http.StatusOK, a.StatusCode, name)
		require.Equal(t, "application/json", a.Header.Get("Content-Type"), name)
		require.Equal(t, want[1], string(a.ID), name)
		if want[0] == "ok" {
			require.Nil(t, a.Error, "%s: %s", name, a.body)
			continue
		}
		require.NotNil(t, a.Error, "%s: %s", name, a.body)
		require.Equal(t, want[0], strconv.Itoa(a.Error.Code), "%s: %s", name, a.Error.Message)
		require.Contains(t, a.Error.Message, want[2], name)
		require.Nil(t, a.Error.Data, name)
	}
}

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
	resp, err := http.ReadResponse(bufio.NewReader(c), nil) //nolint:bodyclose // in whole
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
