package jsonrpc_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/rawjson"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/dialecttest"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/registry"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/rpc/jsonrpc"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/rpctest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
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

// large is a send of about a mebibyte in every version.
var large = map[string]string{
	"0.1": strings.Replace(call("tasks/send"), "hi", strings.Repeat("x", 1<<20), 1),
	"0.3": strings.Replace(call("message/send"), "hi", strings.Repeat("x", 1<<20), 1),
	"1.0": strings.Replace(call("SendMessage"), "hi", strings.Repeat("x", 1<<20), 1),
}

func TestFullBudgetRefusesLargeBodies(t *testing.T) {
	t.Parallel()
	budgets := limit.NewBudgets(64 << 20)
	budgets.Requests.Large.Patience = time.Millisecond
	limited := make(chan string, 10)
	o := options{fake: wants("0.3"), Memory: budgets}
	o.Observer.Limited = func(_, by string) { limited <- by }
	s := serve(t, o)
	require.True(t, budgets.Requests.Large.TryTake(limit.Holder{Agent: "another"}, budgets.Requests.Large.Stat().Size))
	for version, body := range large {
		for kind, content := range map[string]io.Reader{
			"announced": strings.NewReader(body),
			"chunked":   io.MultiReader(strings.NewReader(body)),
		} {
			a := whole(t, s.begin(t, "/", content, "A2A-Version", version)) //nolint:bodyclose // in whole
			require.Equal(t, http.StatusServiceUnavailable, a.StatusCode, kind)
			require.Equal(t, "2", a.Header.Get("Retry-After"))
			require.Contains(t, a.Error.Message, "memory")
			require.Equal(t, "memory", <-limited)
		}
		// Small requests do not compete with large ones.
		require.Equal(t, http.StatusOK, s.post(t, call("tasks/get")).StatusCode)
	}
	budgets.Requests.Large.Give(limit.Holder{Agent: "another"}, budgets.Requests.Large.Stat().Size)
	for version, body := range large {
		require.Equal(t, http.StatusOK, s.post(t, body, "A2A-Version", version).StatusCode)
	}
	waittest.Eventually(t, "the bytes", func() error {
		used := int64(0)
		budgets.Each(func(_ string, s limit.BudgetStat) { used += s.Used })
		return waittest.Unless(used == 0, "%d are in use", used)
	})
}

// announced begins a POST whose body has a length.
func announced(t *testing.T, s *server, length int) net.Conn {
	t.Helper()
	head := "POST /agents/demo HTTP/1.1\r\nHost: example.com\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
	return rpctest.Dial(t, s.Server, fmt.Sprintf(head, length))
}

// TestAnnouncedBodyHoldsNothing shows that a client must send before the server takes bytes for it.
func TestAnnouncedBodyHoldsNothing(t *testing.T) {
	t.Parallel()
	budgets := limit.NewBudgets(64 << 20)
	s := serve(t, options{fake: wants("0.3"), Memory: budgets})
	c := announced(t, s, 15<<20)
	_, err := io.WriteString(c, strings.Repeat(" ", 1000))
	require.NoError(t, err)
	waittest.Eventually(t, "the request", func() error { return waittest.Unless(budgets.Requests.Small.Stat().Used > 0, "no bytes in use") })
	require.Zero(t, budgets.Requests.Large.Stat().Used)
	_, err = io.WriteString(c, strings.Repeat(" ", limit.SmallBytes))
	require.NoError(t, err)
	waittest.Eventually(t, "the rest", func() error { return waittest.Unless(budgets.Requests.Large.Stat().Used > 15<<20, "bytes are in use") })
	require.NoError(t, c.Close())
	waittest.Eventually(t, "the end", func() error {
		return waittest.Unless(budgets.Requests.Large.Stat().Used == 0 && budgets.Requests.Small.Stat().Used == 0, "bytes are in use")
	})
}

// TestRateIsChargedBeforeTheBody sends no body where the path names the agent.
func TestRateIsChargedBeforeTheBody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rates := limit.NewRates[task.Owner](1, 1)
		s := serve(t, options{fake: wants("0.3"), BodyTimeout: time.Hour, Rates: rates, piped: true})
		announced(t, s, 1<<20)
		synctest.Wait()
		require.Equal(t, http.StatusTooManyRequests, readAnswer(t, announced(t, s, 1<<20)).StatusCode)
	})
}

// TestPartsAreCountedWhileTheyAreRead shows that codecs do not build all parts of a body of small ones.
func TestPartsAreCountedWhileTheyAreRead(t *testing.T) {
	t.Parallel()
	for version, part := range map[string]string{
		"0.1": `{"type":"text","text":""}`,
		"0.3": `{"kind":"text","text":""}`,
		"1.0": `{"text":""}`,
	} {
		parts := strings.Repeat(part+",", rawjson.MaxParts+10) + part
		role := map[string]string{"1.0": "ROLE_USER"}[version]
		if role == "" {
			role = "user"
		}
		params := `{"id":"t-1","message":{"messageId":"m","role":"` + role + `","parts":[` + parts + `]}}`
		got, err := registry.ByVersion(version).Decode(engine.OpSend, []byte(params))
		require.NoError(t, err)
		require.Len(t, got.Send.Message.Parts, rawjson.MaxParts+1)
	}
}

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
	body, _ = rawjson.Repair(body)
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
