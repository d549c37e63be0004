package limits

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

const strict = `
listen: 127.0.0.1:0
grpc_listen: 127.0.0.1:0
admin_listen: 127.0.0.1:0
limits: {max_body: 64KiB, max_depth: 32, header_timeout: 1s, body_timeout: 1s}
store: {pool_size: 4}
agents:
  - name: demo
    executor: {kind: demo}
  - name: other-demo
    executor: {kind: demo}
`

func TestBadRequests(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: strict})
	for name, test := range map[string]func(*testing.T, *clustertest.Replica){
		"of the envelope": badEnvelopes, "of the parameters": badParams, "on the wire": badHTTP, "paths": paths,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, r)
		})
	}
	// The server still works after all requests.
	t.Cleanup(func() {
		require.Equal(t, "completed", r.Send(a2atest.V03, a2atest.Say("echo:well")).State())
	})
}

func badEnvelopes(t *testing.T, r *clustertest.Replica) {
	t.Helper()
	message := `"message":{"messageId":"m","role":"user","parts":[{"kind":"text","text":"echo:x"}]}`
	for _, c := range []struct {
		name, body string
		code       int
		id         string
		says       string // in the error message
	}{
		{"nothing", ``, -32700, `null`, ""},
		{"not JSON", `{"jsonrpc"`, -32700, `null`, ""},
		{"two documents", `{} {}`, -32700, `null`, ""},
		{"invalid UTF-8", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\xff\"}", -32700, `null`, ""},
		{"a batch", `[{"jsonrpc":"2.0","id":1,"method":"tasks/get"}]`, -32600, `null`, "batch"},
		{"an empty object", `{}`, -32600, `null`, "jsonrpc"},
		{"a string", `"tasks/get"`, -32600, `null`, "object"},
		{"another version of JSON-RPC", `{"jsonrpc":"1.0","id":7,"method":"tasks/get"}`, -32600, `7`, "jsonrpc"},
		{"no method", `{"jsonrpc":"2.0","id":7}`, -32600, `7`, "method"},
		{"a method that is a number", `{"jsonrpc":"2.0","id":7,"method":7}`, -32600, `7`, "method"},
		{"an id that is an object", `{"jsonrpc":"2.0","id":{},"method":"tasks/get"}`, -32600, `null`, "id"},
		{"a key twice", `{"jsonrpc":"2.0","id":7,"method":"tasks/get","method":"tasks/cancel"}`, -32600, `7`, "method"},
		{"a key twice in params", `{"jsonrpc":"2.0","id":7,"method":"tasks/get","params":{"id":"a","id":"b"}}`, -32602, `7`, "id"},
		{"an unknown method", `{"jsonrpc":"2.0","id":7,"method":"tasks/fetch"}`, -32601, `7`, "tasks/fetch"},
		{"deep nesting", `{"jsonrpc":"2.0","id":"d","method":"message/send","params":{"metadata":{"a":` +
			strings.Repeat("[", 40) + strings.Repeat("]", 40) + `},` + message + `}}`, -32602, `"d"`, "metadata"},
		{"very deep nesting", strings.Repeat("[", 30000) + strings.Repeat("]", 30000), -32600, `null`, ""},
		{"params that are an array", `{"jsonrpc":"2.0","id":7,"method":"tasks/get","params":[]}`, -32602, `7`, ""},
		{"no params", `{"jsonrpc":"2.0","id":7,"method":"message/send"}`, -32602, `7`, ""},
		{"NUL", `{"jsonrpc":"2.0","id":7,"method":"message/send","params":{"message":{"messageId":"m","role":"user",` +
			`"parts":[{"kind":"text","text":"ok"},{"kind":"text","text":"a\u0000b"}]}}}`, -32602, `7`, "message.parts[1].text"},
		{
			"NUL in a key of the metadata", `{"jsonrpc":"2.0","id":7,"method":"message/send","params":{"metadata":{"a\u0000":1},` + message + `}}`,
			-32602, `7`, "metadata",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := r.AskRaw([]byte(c.body))
			require.Equal(t, http.StatusOK, got.HTTP)
			require.Equal(t, c.id, string(got.ID))
			require.NotNil(t, got.Error)
			require.Equal(t, c.code, got.Error.Code, got.Error.Message)
			require.Contains(t, got.Error.Message, c.says)
			require.Empty(t, got.Raw)
		})
	}
	t.Run("ids come back unchanged", func(t *testing.T) {
		for _, id := range []string{`1`, `-5`, `0`, `12345678901234567890`, `"1"`, `"\u00fc\u0041"`, `"ü"`, `""`, `null`} {
			body := `{"jsonrpc":"2.0","id":` + id + `,"method":"tasks/get","params":{"id":"x"}}`
			got := r.AskRaw([]byte(body))
			require.Equal(t, id, string(got.ID))
			require.Equal(t, -32001, got.Error.Code)
		}
		got := r.AskRaw([]byte(`{"jsonrpc":"2.0","method":"tasks/get","params":{"id":"x"}}`))
		require.Equal(t, "null", string(got.ID), "a request without an id is answered, too")
	})
	t.Run("versions", func(t *testing.T) {
		get := a2atest.Request("tasks/get", object{"id": "x"})
		for _, v := range []string{"99.0", "0.5", "latest", "0.3.0.1"} {
			got := r.AskRaw(get, "A2A-Version", v)
			require.Equal(t, -32009, got.Error.Code, v)
			require.Contains(t, got.Error.Message, v)
		}
		for _, v := range []string{"", "0.1", "0.2", "0.2.5", "0.3", "0.3.0", "1.0"} {
			got := r.AskRaw(get, "A2A-Version", v)
			require.Equal(t, -32001, got.Error.Code, v)
		}
	})
}

func badParams(t *testing.T, r *clustertest.Replica) {
	t.Helper()
	waiting := r.Send(a2atest.V03, a2atest.Say("ask:well?"))
	r.Send(a2atest.V01, a2atest.Say("ask:well?").To("known"))
	v3 := func(message string) string { return `{"message":{"messageId":"m","role":"user",` + message + `}}` }
	v1 := func(message string) string { return `{"id":"t","message":{"role":"user",` + message + `}}` }
	const textPart = `"parts":[{"kind":"text","text":"echo:x"}]`
	for _, c := range []struct {
		method, params string
		code           int
		says           string
	}{
		// v0.2 and v0.3
		{"message/send", `{}`, -32602, "message"},
		{"message/send", `{"message":1}`, -32602, "message"},
		{"message/send", `{"message":{"role":"user",` + textPart + `,"messageId":1}}`, -32602, "message.messageId"},
		{"message/send", `{"message":{"messageId":"m",` + textPart + `}}`, -32602, "message.role"},
		{"message/send", `{"message":{"messageId":"m","role":"system",` + textPart + `}}`, -32602, "message.role"},
		{"message/send", v3(`"parts":[]`), -32602, "message.parts"},
		{"message/send", v3(`"parts":"echo"`), -32602, "message.parts"},
		{"message/send", v3(`"parts":[{"kind":"text"}]`), -32602, "message.parts[0].text"},
		{"message/send", v3(`"parts":[{"kind":"text","text":1}]`), -32602, "message.parts[0].text"},
		{"message/send", v3(`"parts":[{"kind":"smell","smell":"x"}]`), -32602, "message.parts[0]"},
		{"message/send", v3(`"parts":[{"kind":"file"}]`), -32602, "message.parts[0].file"},
		{"message/send", v3(`"parts":[{"kind":"file","file":{"bytes":"!!"}}]`), -32602, "message.parts[0].file.bytes"},
		{"message/send", v3(`"parts":[{"kind":"file","file":{"bytes":"eA==","uri":"http://x"}}]`), -32602, "message.parts[0].file"},
		{"message/send", v3(textPart + `,"metadata":[]`), -32602, "message.metadata"},
		{"message/send", v3(textPart + `,"kind":"task"`), -32602, "message.kind"},
		{"message/send", v3(textPart + `,"taskId":7`), -32602, "message.taskId"},
		{"message/send", v3(textPart + `,"taskId":"nobody"`), -32001, ""},
		{"message/send", v3(textPart + `,"taskId":"` + waiting.Task() + `","contextId":"another"`), -32602, "contextId"},
		{"message/stream", v3(textPart + `,"extensions":"x"`), -32602, "message.extensions"},
		{"message/send", `{"configuration":{"blocking":"yes"},"message":{"messageId":"m","role":"user",` + textPart + `}}`, -32602, "configuration.blocking"},
		{"message/send", `{"configuration":{"historyLength":-1},"message":{"messageId":"m","role":"user",` + textPart + `}}`, -32602, "configuration.historyLength"},
		{"message/send", `{"configuration":{"pushNotificationConfig":{"url":"http://127.0.0.1"}},"message":{"messageId":"m","role":"user",` + textPart + `}}`, -32602, "configuration.pushNotificationConfig.url: the host"},
		{"tasks/pushNotificationConfig/set", `{"taskId":"x","pushNotificationConfig":{"url":"http://x"}}`, -32001, ""},
		{"tasks/pushNotificationConfig/get", `{"id":"x"}`, -32001, ""},
		{"tasks/pushNotificationConfig/list", `{"id":"x"}`, -32001, ""},
		{"tasks/pushNotificationConfig/delete", `{"id":"x","pushNotificationConfigId":"y"}`, -32001, ""},
		// v0.1
		{"tasks/send", `{"message":{"role":"user","parts":[{"type":"text","text":"echo:x"}]}}`, -32602, "id"},
		{"tasks/send", `{"id":"t"}`, -32602, "message"},
		{"tasks/send", `{"id":7,"message":{"role":"user","parts":[{"type":"text","text":"echo:x"}]}}`, -32602, "id"},
		{"tasks/send", v1(`"parts":[{"type":"text","text":null}]`), -32602, "message.parts[0].text"},
		{"tasks/send", v1(`"parts":[{"type":"file","file":7}]`), -32602, "message.parts[0].file"},
		{"tasks/sendSubscribe", v1(`"parts":[{"type":"data"}]`), -32602, "message.parts[0].data"},
		{"tasks/send", `{"id":"known","sessionId":"another","message":{"role":"user","parts":[{"type":"text","text":"x"}]}}`, -32602, "sessionId"},
		{"tasks/send", `{"id":"t","historyLength":"all","message":{"role":"user","parts":[{"type":"text","text":"x"}]}}`, -32602, "historyLength"},
		{"tasks/send", `{"id":"t","pushNotification":{"url":"http://127.0.0.1"},"message":{"role":"user","parts":[{"type":"text","text":"x"}]}}`, -32602, "pushNotification.url: the host"},
		{"tasks/pushNotification/set", `{"id":"x","pushNotificationConfig":{"url":"http://x"}}`, -32001, ""},
		{"tasks/pushNotification/get", `{"id":"x"}`, -32001, ""},
		// All versions.
		{"tasks/get", `{}`, -32602, "id"},
		{"tasks/get", `{"id":""}`, -32602, "id"},
		{"tasks/get", `{"id":null}`, -32602, "id"},
		{"tasks/get", `{"id":"x","historyLength":1.5}`, -32602, "historyLength"},
		{"tasks/get", `{"id":"x"}`, -32001, ""},
		{"tasks/cancel", `{}`, -32602, "id"},
		{"tasks/cancel", `{"id":"x"}`, -32001, ""},
		{"tasks/resubscribe", `{}`, -32602, "id"},
	} {
		body := `{"jsonrpc":"2.0","id":"r-1","method":"` + c.method + `","params":` + c.params + `}`
		got := r.AskRaw([]byte(body))
		require.NotNil(t, got.Error, body)
		require.Equal(t, c.code, got.Error.Code, "%s\n%s", body, got.Error.Message)
		require.Contains(t, got.Error.Message, c.says, body)
		require.Equal(t, `"r-1"`, string(got.ID))
		require.Equal(t, http.StatusOK, got.HTTP)
	}

	t.Run("an unknown task is an error on the stream", func(t *testing.T) {
		for _, version := range []string{"0.1", "0.3"} {
			s := r.Subscribe(a2atest.Unversioned, a2atest.Say().To("nobody").With("A2A-Version", version))
			_, err := s.Next()
			require.ErrorContains(t, err, "-32001")
			_, err = s.Next()
			require.ErrorIs(t, err, io.EOF)
		}
	})
	t.Run("an invalid Last-Event-ID", func(t *testing.T) {
		for _, position := range []string{"abc", "-1", "1.5", "99999999999999999999"} {
			got := r.Ask("tasks/resubscribe", object{"id": waiting.Task()}, "Last-Event-ID", position)
			require.Equal(t, -32602, got.Error.Code)
			require.Contains(t, got.Error.Message, "Last-Event-ID")
		}
	})
	t.Run("an idempotency key", func(t *testing.T) {
		body := a2atest.Request("message/send", params(a2atest.V03, "", "echo:once"))
		first := r.AskRaw(body, "Idempotency-Key", "k-1")
		again := r.AskRaw(body, "Idempotency-Key", "k-1")
		one, err := first.Result()
		require.NoError(t, err)
		two, err := again.Result()
		require.NoError(t, err)
		require.Equal(t, one.ID, two.ID)
		other := r.Ask("message/send", params(a2atest.V03, "", "echo:twice"), "Idempotency-Key", "k-1")
		require.NotNil(t, other.Error)
		require.Equal(t, -32602, other.Error.Code, other.Error.Message)
	})
	t.Run("client data comes back unchanged", func(t *testing.T) {
		const opaque = `{"z":1.0,"big":12345678901234567890123,"e":1E+2,"a":{"ü":"é","n":null},"list":[1,[2,{"x":-0.0}]]}`
		body := `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"metadata":` + opaque +
			`,"message":{"messageId":"m","role":"user","metadata":` + opaque + `,"parts":[{"kind":"data","data":` + opaque + `,"metadata":` + opaque + `}]}}}`
		got := r.AskRaw([]byte(body))
		require.Nil(t, got.Error)
		// In the task, in the message of its history, in the part there, and in the part that the agent echoes.
		require.Equal(t, 6, bytes.Count(got.Body, []byte(opaque)), "%s", got.Body)
	})
}

func badHTTP(t *testing.T, r *clustertest.Replica) {
	t.Helper()
	large := a2atest.Request("message/send", params(a2atest.V03, "", "echo:"+strings.Repeat("x", 64<<10)))
	t.Run("a body that is too large", func(t *testing.T) {
		got := r.AskRaw(large)
		require.Equal(t, http.StatusRequestEntityTooLarge, got.HTTP)
		require.Equal(t, -32600, got.Error.Code)
		require.Contains(t, got.Error.Message, "65536")
	})
	t.Run("a large body without a length", func(t *testing.T) {
		req, err := http.NewRequest(http.MethodPost, r.URL, io.MultiReader(bytes.NewReader(large))) // chunked
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		require.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode)
	})
	t.Run("content types", func(t *testing.T) {
		body := a2atest.Request("tasks/get", object{"id": "x"})
		for _, wrong := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ";"} {
			got := r.AskRaw(body, "Content-Type", wrong)
			require.Equal(t, -32005, got.Error.Code, wrong)
			require.Equal(t, "null", string(got.ID))
		}
		for _, right := range []string{"application/json; charset=utf-8", "application/a2a+json", "APPLICATION/JSON"} {
			got := r.AskRaw(body, "Content-Type", right)
			require.Equal(t, -32001, got.Error.Code, right)
			require.Equal(t, "application/json", got.Header.Get("Content-Type"))
		}
	})
	t.Run("other verbs", func(t *testing.T) {
		for _, verb := range []string{http.MethodGet, http.MethodPut, http.MethodDelete, http.MethodPatch} {
			for _, path := range []string{"/", "/agents/demo", "/v0.3"} {
				req, err := http.NewRequest(verb, r.URL+path, nil)
				require.NoError(t, err)
				resp, err := http.DefaultClient.Do(req)
				require.NoError(t, err)
				_ = resp.Body.Close()
				require.Equal(t, http.StatusMethodNotAllowed, resp.StatusCode, "%s %s", verb, path)
				require.Contains(t, resp.Header.Get("Allow"), "POST")
			}
		}
	})
	dialTo := func(t *testing.T, r *clustertest.Replica, send string) (*bufio.Reader, net.Conn) {
		t.Helper()
		conn, err := net.Dial("tcp", a2atest.Host(r.URL))
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(waittest.Patience))
		_, err = io.WriteString(conn, send)
		require.NoError(t, err)
		return bufio.NewReader(conn), conn
	}
	dial := func(t *testing.T, send string) *bufio.Reader {
		t.Helper()
		in, _ := dialTo(t, r, send)
		return in
	}
	// The same requests go to another server with longer timeouts: it must still wait for those that this one cuts
	// off.
	patient := clustertest.Start(t, clustertest.Options{
		Name: "patient", DB: r.Options.DB, Config: strings.NewReplacer("header_timeout: 1s", "header_timeout: 1m", "body_timeout: 1s", "body_timeout: 1m").Replace(strict),
	})
	cutFirst := func(t *testing.T, send string) (in *bufio.Reader, checkPatient func()) {
		t.Helper()
		other, conn := dialTo(t, patient, send)
		return dial(t, send), func() {
			_ = conn.SetReadDeadline(time.Now())
			_, err := other.ReadByte()
			require.ErrorIs(t, err, os.ErrDeadlineExceeded, "the server with long timeouts still waits")
		}
	}
	t.Run("a body that does not arrive", func(t *testing.T) {
		in, checkPatient := cutFirst(t, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"jsonrpc\"")
		resp, err := http.ReadResponse(in, nil)
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusRequestTimeout, resp.StatusCode)
		require.Contains(t, string(body), "in time")
		checkPatient()
		_, err = in.ReadByte()
		require.ErrorIs(t, err, io.EOF, "the server closes the connection")
	})
	t.Run("headers that do not arrive", func(t *testing.T) {
		in, checkPatient := cutFirst(t, "POST / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
		_, err := io.ReadAll(in)
		require.NoError(t, err)
		checkPatient()
	})
	t.Run("headers that are too large", func(t *testing.T) {
		in := dial(t, "POST / HTTP/1.1\r\nHost: localhost\r\nX-Large: "+strings.Repeat("x", 80<<10)+"\r\n\r\n")
		resp, err := http.ReadResponse(in, nil)
		require.NoError(t, err)
		defer resp.Body.Close()
		require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, resp.StatusCode)
	})
	t.Run("no HTTP at all", func(t *testing.T) {
		in := dial(t, "\x16\x03\x01 hello\r\n\r\n")
		answer, _ := io.ReadAll(in)
		require.Contains(t, string(answer), "400")
	})
	t.Run("a client that leaves", func(t *testing.T) {
		// Its task continues.
		in := dial(t, "")
		_ = in
		s := r.Stream(a2atest.V03, a2atest.Say("chunks=20 size=16 delay=20ms"))
		taskID := s.Take(2)[0].Task()
		s.Close()
		require.Equal(t, "completed", r.Settled(taskID).State())
	})
}

func paths(t *testing.T, r *clustertest.Replica) {
	t.Helper()
	body := a2atest.Request("message/send", params(a2atest.V03, "", "echo:x"))
	for _, path := range []string{"", "/", "/v0.3", "/v0.3/", "/agents/demo", "/agents/demo/", "/agents/demo/v0.3/", "/agents/other-demo"} {
		got, err := a2atest.Ask(waittest.Context(t), r.URL+path, body)
		require.NoError(t, err, path)
		res, err := got.Result()
		require.NoError(t, err, path)
		require.Equal(t, "completed", res.State(), path)
	}
	// A pinned path serves the methods and formats of its version only.
	got := r.Under("/v0.1").AskRaw(body)
	require.Equal(t, -32601, got.Error.Code)
	old := r.Under("/v0.1/").Ask("tasks/send", params(a2atest.V01, "pinned", "echo:x"))
	require.Nil(t, old.Error)
	for path, kind := range map[string]string{"/": "", "/v0.1": "", "/v0.3": "task"} {
		got, err := a2atest.Ask(waittest.Context(t), r.URL+path, a2atest.Request("tasks/get", object{"id": "pinned"}))
		require.NoError(t, err)
		res, err := got.Result()
		require.NoError(t, err)
		require.Equal(t, kind, res.Kind, path)
	}
	// A task belongs to its agent.
	got = r.Under("/agents/other-demo").Ask("tasks/get", object{"id": "pinned"})
	require.Equal(t, -32001, got.Error.Code)

	for _, path := range []string{"/agents/nobody", "/v9.9", "/nothing"} {
		resp, err := a2atest.Post(waittest.Context(t), r.URL+path, body)
		require.NoError(t, err)
		_ = resp.Body.Close()
		require.Equal(t, http.StatusNotFound, resp.StatusCode, path)
	}
	for _, path := range []string{
		"/.well-known/agent-card.json", "/.well-known/agent.json",
		"/agents/demo/.well-known/agent-card.json", "/agents/other-demo/.well-known/agent.json",
	} {
		resp, err := http.Get(r.URL + path)
		require.NoError(t, err)
		var card struct {
			Name, URL    string
			Capabilities struct{ Streaming, PushNotifications bool }
		}
		require.NoError(t, json.NewDecoder(resp.Body).Decode(&card), path)
		_ = resp.Body.Close()
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.True(t, card.Capabilities.Streaming)
		require.True(t, card.Capabilities.PushNotifications)
		// The card's address works.
		got, err := a2atest.Ask(waittest.Context(t), card.URL, body)
		require.NoError(t, err, card.URL)
		require.Nil(t, got.Error)
		// An unchanged card is not sent again.
		req, err := http.NewRequest(http.MethodGet, r.URL+path, nil)
		require.NoError(t, err)
		req.Header.Set("If-None-Match", resp.Header.Get("ETag"))
		resp, err = http.DefaultClient.Do(req)
		require.NoError(t, err)
		_ = resp.Body.Close()
		require.Equal(t, http.StatusNotModified, resp.StatusCode)
	}
}

// A misconfigured server reports all mistakes and does not start.
func TestServerReportsAllConfigurationErrors(t *testing.T) {
	t.Parallel()
	res := clustertest.Command(t, t.TempDir(), []string{"HOLDFAST_LISTEN=127.0.0.1:0", "HOLDFAST_ADMIN_LISTEN=127.0.0.1:0"}, "serve", "--config", file(t, `
limits: {max_blok: 30s}
worker: {lease_ttl: 1ms}
agents:
  - name: a
    executor: {kind: http}
`))
	require.Equal(t, 2, res.Code, res.Err)
	for _, want := range []string{"3 mistakes", "limits.max_blok", "worker.lease_ttl", "agents[0].executor.http.url"} {
		require.Contains(t, res.Err, want)
	}
	// An address in use, and a database that is down.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	res = clustertest.Command(t, t.TempDir(), []string{
		"HOLDFAST_DATABASE_URL=" + clustertest.NewDB(t).URL, "HOLDFAST_LISTEN=" + l.Addr().String(), "HOLDFAST_ADMIN_LISTEN=127.0.0.1:0",
	}, "serve")
	require.Equal(t, 1, res.Code)
	require.Contains(t, res.Err, "address already in use")
	res = clustertest.Command(t, t.TempDir(), nil, "tasks", "list", "--database-url", "postgres://nobody@127.0.0.1:1/nothing?connect_timeout=2")
	require.Equal(t, 1, res.Code)
	require.Contains(t, res.Err, "nothing as nobody on 127.0.0.1:1 is not reachable: ")
	require.Equal(t, 1, strings.Count(res.Err, "refused"), "the cause once: %s", res.Err)
}

func file(t testing.TB, content string) string {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "*.yaml")
	require.NoError(t, err)
	_, err = fmt.Fprint(f, content)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	return f.Name()
}
