package integration

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
	db := newDB(t)
	r := start(t, replicaOptions{Name: "a", DB: db.url, Config: strict})
	for name, test := range map[string]func(*testing.T, *replica){
		"of the envelope": badEnvelopes, "of the parameters": badParams, "on the wire": badHTTP, "paths": paths,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, r)
		})
	}
	// After all that the server is well.
	t.Cleanup(func() {
		require.Equal(t, "completed", r.call(v03.send, v03.params("", "echo:well")).state())
		db.sound()
	})
}

func badEnvelopes(t *testing.T, r *replica) {
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
		{"an id that is a fraction", `{"jsonrpc":"2.0","id":1.5,"method":"tasks/get"}`, -32600, `null`, "id"},
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
			got, err := ask(short(t, patience), r.url, []byte(c.body))
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, got.HTTP)
			require.Equal(t, c.id, string(got.ID))
			require.NotNil(t, got.Err)
			require.Equal(t, c.code, got.Err.Code, got.Err.Message)
			require.Contains(t, got.Err.Message, c.says)
			require.Empty(t, got.Result)
		})
	}
	t.Run("ids come back as they were written", func(t *testing.T) {
		for _, id := range []string{`1`, `-5`, `0`, `12345678901234567890`, `"1"`, `"\u00fc\u0041"`, `"ü"`, `""`, `null`} {
			body := `{"jsonrpc":"2.0","id":` + id + `,"method":"tasks/get","params":{"id":"x"}}`
			got, err := ask(short(t, patience), r.url, []byte(body))
			require.NoError(t, err)
			require.Equal(t, id, string(got.ID))
			require.Equal(t, -32001, got.Err.Code)
		}
		got, err := ask(short(t, patience), r.url, []byte(`{"jsonrpc":"2.0","method":"tasks/get","params":{"id":"x"}}`))
		require.NoError(t, err)
		require.Equal(t, "null", string(got.ID), "a request without an id is answered all the same")
	})
	t.Run("versions", func(t *testing.T) {
		get := request("tasks/get", object{"id": "x"})
		for _, v := range []string{"99.0", "0.5", "latest", "0.3.0.1"} {
			got, err := ask(short(t, patience), r.url, get, "A2A-Version", v)
			require.NoError(t, err)
			require.Equal(t, -32009, got.Err.Code, v)
			require.Contains(t, got.Err.Message, v)
		}
		for _, v := range []string{"", "0.1", "0.2", "0.2.5", "0.3", "0.3.0", "1.0"} {
			got, err := ask(short(t, patience), r.url, get, "A2A-Version", v)
			require.NoError(t, err)
			require.Equal(t, -32001, got.Err.Code, v)
		}
	})
}

func badParams(t *testing.T, r *replica) {
	t.Helper()
	waiting := r.call(v03.send, v03.params("", "ask:well?"))
	r.call(v01.send, v01.params("known", "ask:well?"))
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
		{"message/send", v3(textPart + `,"taskId":"` + waiting.task() + `","contextId":"another"`), -32602, "contextId"},
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
		// of all
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
		got, err := ask(short(t, patience), r.url, []byte(body))
		require.NoError(t, err, body)
		require.NotNil(t, got.Err, body)
		require.Equal(t, c.code, got.Err.Code, "%s\n%s", body, got.Err.Message)
		require.Contains(t, got.Err.Message, c.says, body)
		require.Equal(t, `"r-1"`, string(got.ID))
		require.Equal(t, http.StatusOK, got.HTTP)
	}

	t.Run("a task that is not there is told on the stream", func(t *testing.T) {
		for _, version := range []string{"0.1", "0.3"} {
			s := r.open("tasks/resubscribe", object{"id": "nobody"}, "A2A-Version", version)
			_, err := s.next()
			require.ErrorContains(t, err, "-32001")
			_, err = s.next()
			require.ErrorIs(t, err, io.EOF)
		}
	})
	t.Run("a position that no stream gave", func(t *testing.T) {
		for _, position := range []string{"abc", "-1", "1.5", "99999999999999999999"} {
			got, err := ask(short(t, patience), r.url, request("tasks/resubscribe", object{"id": waiting.task()}), "Last-Event-ID", position)
			require.NoError(t, err)
			require.Equal(t, -32602, got.Err.Code)
			require.Contains(t, got.Err.Message, "Last-Event-ID")
		}
	})
	t.Run("an idempotency key", func(t *testing.T) {
		body := request(v03.send, v03.params("", "echo:once"))
		first, err := ask(short(t, patience), r.url, body, "Idempotency-Key", "k-1")
		require.NoError(t, err)
		again, err := ask(short(t, patience), r.url, body, "Idempotency-Key", "k-1")
		require.NoError(t, err)
		one, err := first.result()
		require.NoError(t, err)
		two, err := again.result()
		require.NoError(t, err)
		require.Equal(t, one.ID, two.ID)
		other, err := ask(short(t, patience), r.url, request(v03.send, v03.params("", "echo:twice")), "Idempotency-Key", "k-1")
		require.NoError(t, err)
		require.NotNil(t, other.Err)
		require.Equal(t, -32602, other.Err.Code, other.Err.Message)
	})
	t.Run("what a client stored comes back as it was", func(t *testing.T) {
		const opaque = `{"z":1.0,"big":12345678901234567890123,"e":1E+2,"a":{"ü":"é","n":null},"list":[1,[2,{"x":-0.0}]]}`
		body := `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"metadata":` + opaque +
			`,"message":{"messageId":"m","role":"user","metadata":` + opaque + `,"parts":[{"kind":"data","data":` + opaque + `,"metadata":` + opaque + `}]}}}`
		got, err := ask(short(t, patience), r.url, []byte(body))
		require.NoError(t, err)
		require.Nil(t, got.Err)
		// In the task, in the message of its history, in the part there, and in the part that the agent echoes.
		require.Equal(t, 6, bytes.Count(got.Body, []byte(opaque)), "%s", got.Body)
	})
}

func badHTTP(t *testing.T, r *replica) {
	t.Helper()
	large := request(v03.send, v03.params("", "echo:"+strings.Repeat("x", 64<<10)))
	t.Run("a body that is too large", func(t *testing.T) {
		got, err := ask(short(t, patience), r.url, large)
		require.NoError(t, err)
		require.Equal(t, http.StatusRequestEntityTooLarge, got.HTTP)
		require.Equal(t, -32600, got.Err.Code)
		require.Contains(t, got.Err.Message, "65536")
	})
	t.Run("one that does not say so", func(t *testing.T) {
		req, err := http.NewRequest(http.MethodPost, r.url, io.MultiReader(bytes.NewReader(large))) // chunked
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		require.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode)
	})
	t.Run("content types", func(t *testing.T) {
		body := request("tasks/get", object{"id": "x"})
		for _, wrong := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ";"} {
			got, err := ask(short(t, patience), r.url, body, "Content-Type", wrong)
			require.NoError(t, err)
			require.Equal(t, -32005, got.Err.Code, wrong)
			require.Equal(t, "null", string(got.ID))
		}
		for _, right := range []string{"application/json; charset=utf-8", "application/a2a+json", "APPLICATION/JSON"} {
			got, err := ask(short(t, patience), r.url, body, "Content-Type", right)
			require.NoError(t, err)
			require.Equal(t, -32001, got.Err.Code, right)
			require.Equal(t, "application/json", got.Header.Get("Content-Type"))
		}
	})
	t.Run("other verbs", func(t *testing.T) {
		for _, verb := range []string{http.MethodGet, http.MethodPut, http.MethodDelete, http.MethodPatch} {
			for _, path := range []string{"/", "/agents/demo", "/v0.3"} {
				req, err := http.NewRequest(verb, r.url+path, nil)
				require.NoError(t, err)
				resp, err := http.DefaultClient.Do(req)
				require.NoError(t, err)
				_ = resp.Body.Close()
				require.Equal(t, http.StatusMethodNotAllowed, resp.StatusCode, "%s %s", verb, path)
				require.Contains(t, resp.Header.Get("Allow"), "POST")
			}
		}
	})
	dial := func(t *testing.T, send string) (*bufio.Reader, time.Time) {
		t.Helper()
		conn, err := net.Dial("tcp", hostOf(r.url))
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(patience))
		_, err = io.WriteString(conn, send)
		require.NoError(t, err)
		return bufio.NewReader(conn), time.Now()
	}
	t.Run("a body that does not come", func(t *testing.T) {
		in, sent := dial(t, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"jsonrpc\"")
		resp, err := http.ReadResponse(in, nil)
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusRequestTimeout, resp.StatusCode)
		require.Contains(t, string(body), "in time")
		require.Less(t, time.Since(sent), 10*time.Second)
		_, err = in.ReadByte()
		require.ErrorIs(t, err, io.EOF, "and the connection is closed")
	})
	t.Run("headers that do not come", func(t *testing.T) {
		in, sent := dial(t, "POST / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
		_, err := io.ReadAll(in)
		require.NoError(t, err)
		require.Less(t, time.Since(sent), 10*time.Second)
	})
	t.Run("headers that are too large", func(t *testing.T) {
		in, _ := dial(t, "POST / HTTP/1.1\r\nHost: localhost\r\nX-Large: "+strings.Repeat("x", 80<<10)+"\r\n\r\n")
		resp, err := http.ReadResponse(in, nil)
		require.NoError(t, err)
		defer resp.Body.Close()
		require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, resp.StatusCode)
	})
	t.Run("no HTTP at all", func(t *testing.T) {
		in, _ := dial(t, "\x16\x03\x01 hello\r\n\r\n")
		answer, _ := io.ReadAll(in)
		require.Contains(t, string(answer), "400")
	})
	t.Run("a client that leaves", func(t *testing.T) {
		// Its task goes on.
		in, _ := dial(t, "")
		_ = in
		s := r.open(v03.stream, v03.params("", "chunks=20 size=16 delay=20ms"))
		taskID := s.take(2)[0].task()
		s.close()
		require.Equal(t, "completed", r.untilSettled(taskID).state())
	})
}

func paths(t *testing.T, r *replica) {
	t.Helper()
	body := request(v03.send, v03.params("", "echo:x"))
	for _, path := range []string{"", "/", "/v0.3", "/v0.3/", "/agents/demo", "/agents/demo/", "/agents/demo/v0.3/", "/agents/other-demo"} {
		got, err := ask(short(t, patience), r.url+path, body)
		require.NoError(t, err, path)
		res, err := got.result()
		require.NoError(t, err, path)
		require.Equal(t, "completed", res.state(), path)
	}
	// A pinned path knows the methods of its version only, and its shapes.
	got, err := ask(short(t, patience), r.url+"/v0.1", body)
	require.NoError(t, err)
	require.Equal(t, -32601, got.Err.Code)
	old, err := ask(short(t, patience), r.url+"/v0.1/", request(v01.send, v01.params("pinned", "echo:x")))
	require.NoError(t, err)
	require.Nil(t, old.Err)
	for path, kind := range map[string]string{"/": "", "/v0.1": "", "/v0.3": "task"} {
		got, err := ask(short(t, patience), r.url+path, request("tasks/get", object{"id": "pinned"}))
		require.NoError(t, err)
		res, err := got.result()
		require.NoError(t, err)
		require.Equal(t, kind, res.Kind, path)
	}
	// Tasks belong to their agent.
	got, err = ask(short(t, patience), r.url+"/agents/other-demo", request("tasks/get", object{"id": "pinned"}))
	require.NoError(t, err)
	require.Equal(t, -32001, got.Err.Code)

	for _, path := range []string{"/agents/nobody", "/v9.9", "/nothing"} {
		resp, err := post(short(t, patience), r.url+path, body)
		require.NoError(t, err)
		_ = resp.Body.Close()
		require.Equal(t, http.StatusNotFound, resp.StatusCode, path)
	}
	for _, path := range []string{
		"/.well-known/agent-card.json", "/.well-known/agent.json",
		"/agents/demo/.well-known/agent-card.json", "/agents/other-demo/.well-known/agent.json",
	} {
		resp, err := http.Get(r.url + path)
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
		// The address in the card is one that works.
		got, err := ask(short(t, patience), card.URL, body)
		require.NoError(t, err, card.URL)
		require.Nil(t, got.Err)
		// And what has not changed is not sent again.
		req, err := http.NewRequest(http.MethodGet, r.url+path, nil)
		require.NoError(t, err)
		req.Header.Set("If-None-Match", resp.Header.Get("ETag"))
		resp, err = http.DefaultClient.Do(req)
		require.NoError(t, err)
		_ = resp.Body.Close()
		require.Equal(t, http.StatusNotModified, resp.StatusCode)
	}
}

// A server that is misconfigured says all of it and does not start.
func TestMistakesInTheConfiguration(t *testing.T) {
	t.Parallel()
	res := command(t, t.TempDir(), []string{"HOLDFAST_LISTEN=127.0.0.1:0", "HOLDFAST_ADMIN_LISTEN=127.0.0.1:0"}, "serve", "--config", file(t, `
limits: {max_blok: 30s}
worker: {lease_ttl: 1ms}
agents:
  - name: a
    executor: {kind: http}
`))
	require.Equal(t, 2, res.code, res.err)
	for _, want := range []string{"3 mistakes", "limits.max_blok", "worker.lease_ttl", "agents[0].executor.http.url"} {
		require.Contains(t, res.err, want)
	}
	// An address that is taken, and a database that is not there.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	res = command(t, t.TempDir(), []string{
		"HOLDFAST_DATABASE_URL=" + newDB(t).url, "HOLDFAST_LISTEN=" + l.Addr().String(), "HOLDFAST_ADMIN_LISTEN=127.0.0.1:0",
	}, "serve")
	require.Equal(t, 1, res.code)
	require.Contains(t, res.err, "address already in use")
	res = command(t, t.TempDir(), nil, "tasks", "list", "--database-url", "postgres://nobody@127.0.0.1:1/nothing?connect_timeout=2")
	require.Equal(t, 1, res.code)
	require.NotEmpty(t, strings.TrimSpace(res.err))
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
