package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	pb03 "github.com/a2aproject/a2a-go/a2apb"
	pb10 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"
)

// What clients, agents and operators keep to themselves is in no log, at any level, whether things go well or not.
func TestLogsTellNoSecrets(t *testing.T) {
	t.Parallel()
	const secret = "xyzzy" // in everything below that nobody may read
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("X-Token", r.Header.Get("Authorization"))
		http.Error(w, "out of paper", http.StatusBadGateway)
	}))
	defer broken.Close()
	db := newDB(t)
	url := strings.Replace(db.url, "?", "?password="+secret+"-database&", 1)
	require.NotEqual(t, db.url, url)
	r := start(t, replicaOptions{Name: "a", DB: url, Config: settings + `
  - name: broken
    executor: {kind: http, http: {url: "` + broken.URL + `?key=` + secret + `-url", headers: {Authorization: "Bearer ` + secret + `-backend"}}}
    limits: {max_attempts: 2, backoff: 1ms}
  - name: gone
    executor: {kind: http, http: {url: "http://user:` + secret + `-userinfo@127.0.0.1:1/run?key=` + secret + `-url"}}
    limits: {max_attempts: 2, backoff: 1ms}
push: {allowed_networks: [127.0.0.0/8], retry_first: 10ms, retry_most: 20ms, connect_timeout: 1s}
`})
	headers := []string{
		"Authorization", "Bearer " + secret + "-token", "X-API-Key", "hf_" + secret + "-key", "Cookie", "session=" + secret + "-cookie",
		"Proxy-Authorization", "Basic " + secret + "-proxy", "X-Api-Token", secret + "-header",
	}
	say := func(text string) object {
		p := v03.params("", text)
		p["metadata"] = object{"token": secret + "-metadata"}
		return p
	}
	var task string
	{ // what goes well
		a, err := ask(short(t, patience), r.url+"/?access_token="+secret+"-query", request(v03.send, say("echo:"+secret+"-content")), headers...)
		require.NoError(t, err)
		res, err := a.result()
		require.NoError(t, err)
		require.Equal(t, "completed", res.state())
		require.Contains(t, string(a.Body), secret+"-content", "the client has it back")
		task = res.task()
		s := r.open(v03.stream, say("ask:"+secret+"-question"), headers...)
		require.Equal(t, "input-required", last(s.rest()).state())
		ctx := metadata.AppendToOutgoingContext(short(t, patience), "authorization", "Bearer "+secret+"-grpc", "a2a-version", "1.0")
		_, err = pb10.NewA2AServiceClient(r.connect(t)).SendMessage(ctx, said10("echo:"+secret+"-grpc-content"))
		require.NoError(t, err)
	}
	{ // what does not
		for _, body := range []string{
			`{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"text":"` + secret + `-malformed`,
			`{"jsonrpc":"2.0","id":1,"method":"` + secret + `-method"}`,
			`{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"messageId":"` + secret + `-id","role":"` + secret + `-role","parts":[]}}}`,
			`{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"messageId":"m","role":"user","parts":[{"kind":"text","text":"` + secret + `\u0000"}]}}}`,
			string(request("tasks/get", object{"id": secret + "-unknown"})),
		} {
			_, err := ask(short(t, patience), r.url, []byte(body), headers...)
			require.NoError(t, err)
		}
		for _, key := range []string{secret + "-idempotency", strings.Repeat(secret, 100)} {
			for _, text := range []string{"echo:1", "echo:2"} {
				_, err := ask(short(t, patience), r.url, request(v03.send, say(text)), append(headers, "Idempotency-Key", key)...)
				require.NoError(t, err)
			}
		}
		for _, path := range []string{"/agents/" + secret + "-path", "/tasks/" + secret + "-rest?token=" + secret, "/%00" + secret} {
			resp, err := post(short(t, patience), r.url+path, []byte(secret), headers...)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
		}
	}
	{ // webhooks
		hook := receive(t, 1)
		hook.behave("", act{Status: http.StatusBadGateway, Text: "out of ink"})
		for _, to := range []string{
			"http://127.0.0.1:1/hook/" + secret + "?key=" + secret, hook.url + "/hook/" + secret + "?key=" + secret,
			"http://10.0.0.1/" + secret, "http://" + secret + ":" + secret + "@127.0.0.1:1/", "ftp://" + secret,
		} {
			p := say("echo:" + secret + "-hooked")
			p["configuration"] = object{"pushNotificationConfig": object{
				"url": to, "token": secret + "-token", "authentication": object{"schemes": []string{"Bearer"}, "credentials": secret + "-credentials"},
			}}
			_, err := ask(short(t, patience), r.url, request(v03.send, p), headers...)
			require.NoError(t, err)
		}
		eventually(t, "deliveries have failed again and again", func() error {
			n := r.metric("holdfast_push_attempts_total")
			return unless(n >= 6, "%v attempts", n)
		})
	}
	{ // agents that fail
		for path, text := range map[string]string{
			"/": "fail:" + secret + "-reason", "/v0.3": "reject:" + secret + "-reason",
			"/agents/broken": secret + "-to-the-backend", "/agents/gone": secret + "-to-nobody",
		} {
			a, err := ask(short(t, patience), r.url+path, request(v03.send, say(text)), headers...)
			require.NoError(t, err)
			res, err := a.result()
			require.NoError(t, err)
			require.Contains(t, []string{"failed", "rejected"}, res.state(), path)
		}
		require.Equal(t, "failed", r.call(v03.send, say("crash")).state())
	}
	{ // a database that will not
		db.exec("ALTER TABLE holdfast.task_events RENAME TO elsewhere")
		db.exec("ALTER VIEW holdfast.callers_log RENAME TO elsewhere_log")
		a, err := ask(short(t, patience), r.url, request(v03.send, say("echo:"+secret+"-unstored")), headers...)
		require.NoError(t, err)
		require.NotNil(t, a.Err)
		b, err := ask(short(t, patience), r.url, request("tasks/get", object{"id": task}), headers...)
		require.NoError(t, err)
		require.NotNil(t, b.Err)
		db.exec("ALTER TABLE holdfast.elsewhere RENAME TO task_events")
		db.exec("ALTER VIEW holdfast.elsewhere_log RENAME TO callers_log")
		for _, answer := range []*answer{a, b} {
			for _, internal := range []string{"task_events", "callers_log", "holdfast.", "SQLSTATE", "42P01", "pgx", "postgres", ".go:", "goroutine"} {
				require.NotContains(t, string(answer.Body), internal, "clients see no internals")
			}
		}
		require.Contains(t, string(r.logs.all()), "42P01", "operators do")
	}
	r.signal(syscall.SIGTERM)
	require.Zero(t, r.wait())
	for line := range bytes.Lines(r.logs.all()) {
		require.NotContains(t, string(line), secret)
	}
	for _, excuse := range []string{"out of paper", "out of ink"} {
		require.Contains(t, string(r.logs.all()), excuse, "what agents and receivers say of their failure is for operators")
	}
}

// Clients that send a byte now and then are cut off like those that send nothing, and meanwhile cost nobody anything.
func TestSlowLoris(t *testing.T) {
	t.Parallel()
	const clients = 100
	r := start(t, replicaOptions{Name: "a", DB: newDB(t).url, Config: strict})
	var cut atomic.Int64
	done := make(chan error, clients)
	for i := range clients {
		begin, more := "POST / HTTP/1.1\r\nHost: localhost\r\n", "X-Slow: y\r\n"
		if i%2 == 1 {
			begin, more = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 60000\r\n\r\n", " "
		}
		go func() {
			done <- drip(hostOf(r.url), begin, more)
			cut.Add(1)
		}()
	}
	for cut.Load() < clients {
		require.Equal(t, "completed", r.call(v03.send, v03.params("", "echo:meanwhile")).state())
	}
	for range clients {
		require.NoError(t, <-done)
	}
}

// drip sends a little, again and again, until the server has enough of it.
func drip(addr, begin, more string) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_, _ = io.Copy(io.Discard, conn)
	}()
	between := time.NewTicker(20 * time.Millisecond)
	defer between.Stop()
	_, err = io.WriteString(conn, begin)
	for err == nil {
		select {
		case <-closed:
			return nil
		case <-ctx.Done():
			return errors.New("never cut off")
		case <-between.C:
			_, err = io.WriteString(conn, more)
		}
	}
	return nil
}

// A client that opens streams until it is refused is refused in its own words, is told when to come back, and may; also
// when it has opened them over another binding.
func TestStreamsUntilRefused(t *testing.T) {
	t.Parallel()
	const most = 30
	r := start(t, replicaOptions{Name: "a", DB: newDB(t).url, Config: settings + fmt.Sprintf("limits: {max_streams: %d}\n", most)})
	taskID := r.open(v03.stream, v03.params("", "hold")).take(1)[0].task()
	of := func(members object) func(*utterance) object { return func(*utterance) object { return members } }
	subscriptions := []*way{
		{version: "0.1", binding: onJSONRPC, method: "tasks/resubscribe", body: of(object{"id": taskID})},
		{version: "0.2", binding: onJSONRPC, method: "tasks/resubscribe", body: of(object{"id": taskID})},
		{version: "0.3", binding: onJSONRPC, method: "tasks/resubscribe", body: of(object{"id": taskID})},
		{version: "1.0", binding: onJSONRPC, method: "SubscribeToTask", body: of(object{"id": taskID})},
		{version: "0.3", binding: onREST, path: "/v1/tasks/" + taskID + ":subscribe", body: of(object{})},
		{version: "1.0", binding: onREST, path: "/tasks/" + taskID + ":subscribe", body: of(object{})},
		inMessages[pb03.TaskSubscriptionRequest, pb03.StreamResponse](&way{version: "0.3", method: "/a2a.v1.A2AService/TaskSubscription", body: of(object{"name": "tasks/" + taskID})}),
		inMessages[pb10.SubscribeToTaskRequest, pb10.StreamResponse](&way{version: "1.0", method: "/lf.a2a.v1.A2AService/SubscribeToTask", body: of(object{"id": taskID})}),
	}
	var open []*reply
	for n := range most - 1 {
		w := subscriptions[n%len(subscriptions)]
		a := w.begin(t, r, say(""))
		a.more(w.worded("working"))
		open = append(open, a)
	}
	attempts := slices.Clone(subscriptions)
	for _, w := range ways {
		if w.streams {
			attempts = append(attempts, w)
		} else {
			require.Equal(t, w.worded("completed"), w.send(t, r, say("echo:still here")).state(), "%s: what is no stream goes on", w.name)
		}
	}
	for _, w := range attempts {
		before := r.limited("demo", "server_streams")
		got := w.send(t, r, say("echo:x"))
		require.Equal(t, w.tooOften("too many open streams", "5"), got.rejection(), "%s on %s: %s", w.version, w.binding, got.body)
		require.Equal(t, before+1, r.limited("demo", "server_streams"))
	}

	for n, w := range subscriptions {
		open[n].close()
		eventually(t, "its place is free", func() error {
			a := w.begin(t, r, say(""))
			defer a.close()
			return unless(a.next() && a.task == taskID, "%s on %s: %+v", w.version, w.binding, a.rejection())
		})
	}
}

// A replica serves so many connections at a time, of all ports and of each address; who comes then waits, or is told to go.
func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	r := start(t, replicaOptions{Name: "a", DB: newDB(t).url, Config: settings + "limits: {max_connections: 4, connections_per_address: 3}\n"})
	connect := func(from byte, to string) net.Conn {
		c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, from)}}).DialContext(short(t, patience), "tcp", to)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
		return c
	}
	asks := func(c net.Conn) error {
		_, err := io.WriteString(c, "GET /.well-known/agent-card.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if err != nil {
			return err
		}
		answer := make([]byte, len("HTTP/1.1 200"))
		if _, err = io.ReadFull(c, answer); err != nil {
			return err
		}
		return unless(string(answer) == "HTTP/1.1 200", "%s", answer)
	}
	var held []net.Conn
	for range 2 {
		held = append(held, connect(2, hostOf(r.url)))
		require.NoError(t, asks(held[len(held)-1]))
	}
	grpcs := connect(2, r.grpc) // it counts, too
	_, err := io.ReadFull(grpcs, make([]byte, 9))
	require.NoError(t, err, "its settings")
	require.Error(t, asks(connect(2, hostOf(r.url))), "a fourth of one address")
	require.NoError(t, asks(connect(3, hostOf(r.url))))
	waits := connect(4, hostOf(r.url))
	served := make(chan error, 1)
	go func() { served <- asks(waits) }()
	metric := func(name string) string {
		_, body, _ := r.page("/metrics")
		for line := range strings.Lines(body) {
			if value, ok := strings.CutPrefix(line, name+" "); ok {
				return strings.TrimSpace(value)
			}
		}
		return ""
	}
	eventually(t, "the fifth has come", func() error {
		return unless(metric("holdfast_connections_open") == "5", "%s", metric("holdfast_connections_open"))
	})
	require.Equal(t, "1", metric("holdfast_connections_refused_total"))
	require.Empty(t, served, "it waits")
	require.NoError(t, held[0].Close())
	require.NoError(t, within(t, "it is served", served))
}
