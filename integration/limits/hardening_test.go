package limits

import (
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
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/receivertest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// No log at any level contains secrets of clients, agents or operators, on success or failure.
func TestLogsContainNoSecrets(t *testing.T) {
	t.Parallel()
	const secret = "xyzzy" // part of every secret below
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("X-Token", r.Header.Get("Authorization"))
		http.Error(w, "out of paper", http.StatusBadGateway)
	}))
	defer broken.Close()
	db := clustertest.NewDB(t)
	url := strings.Replace(db.URL, "?", "?password="+secret+"-database&", 1)
	require.NotEqual(t, db.URL, url)
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: url, Config: clustertest.Settings + `
  - name: broken
    executor: {kind: http, http: {url: "` + broken.URL + `?key=` + secret + `-url", headers: {Authorization: "Bearer ` + secret + `-backend"}}}
    limits: {max_attempts: 2, backoff: 1ms, unreachable_for: 1s}
  - name: gone
    executor: {kind: http, http: {url: "http://user:` + secret + `-userinfo@127.0.0.1:1/run?key=` + secret + `-url"}}
    limits: {max_attempts: 2, backoff: 1ms, unreachable_for: 1s}
push: {allowed_networks: [127.0.0.0/8], retry_first: 10ms, retry_most: 20ms, connect_timeout: 1s}
`})
	headers := []string{
		"Authorization", "Bearer " + secret + "-token", "X-API-Key", "hf_" + secret + "-key", "Cookie", "session=" + secret + "-cookie",
		"Proxy-Authorization", "Basic " + secret + "-proxy", "X-Api-Token", secret + "-header",
	}
	say := func(text string) object {
		p := params(a2atest.V03, "", text)
		p["metadata"] = object{"token": secret + "-metadata"}
		return p
	}
	var task string
	{ // success
		a, err := a2atest.Ask(waittest.Context(t), r.URL+"/?access_token="+secret+"-query", a2atest.Request("message/send", say("echo:"+secret+"-content")), headers...)
		require.NoError(t, err)
		res, err := a.Result()
		require.NoError(t, err)
		require.Equal(t, "completed", res.State())
		require.Contains(t, string(a.Body), secret+"-content", "the client gets its data back")
		task = res.Task()
		s := r.Stream(a2atest.V03, (&a2atest.Args{Params: say("ask:" + secret + "-question")}).With(headers...))
		require.Equal(t, "input-required", a2atest.Last(s.Rest()).State())
		r.Send(a2atest.GRPC10, a2atest.Say("echo:"+secret+"-grpc-content").With("authorization", "Bearer "+secret+"-grpc"))
	}
	{ // failure
		for _, body := range []string{
			`{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"text":"` + secret + `-malformed`,
			`{"jsonrpc":"2.0","id":1,"method":"` + secret + `-method"}`,
			`{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"messageId":"` + secret + `-id","role":"` + secret + `-role","parts":[]}}}`,
			`{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"messageId":"m","role":"user","parts":[{"kind":"text","text":"` + secret + `\u0000"}]}}}`,
			string(a2atest.Request("tasks/get", object{"id": secret + "-unknown"})),
		} {
			r.AskRaw([]byte(body), headers...)
		}
		for _, key := range []string{secret + "-idempotency", strings.Repeat(secret, 100)} {
			for _, text := range []string{"echo:1", "echo:2"} {
				r.Ask("message/send", say(text), append(headers, "Idempotency-Key", key)...)
			}
		}
		for _, path := range []string{"/agents/" + secret + "-path", "/tasks/" + secret + "-rest?token=" + secret, "/%00" + secret} {
			resp, err := a2atest.Post(waittest.Context(t), r.URL+path, []byte(secret), headers...)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
		}
	}
	{ // webhooks
		hook := receivertest.Start(t, 1)
		hook.Behave("", receivertest.Act{Status: http.StatusBadGateway, Text: "out of ink"})
		for _, to := range []string{
			"http://127.0.0.1:1/hook/" + secret + "?key=" + secret, hook.URL + "/hook/" + secret + "?key=" + secret,
			"http://10.0.0.1/" + secret, "http://" + secret + ":" + secret + "@127.0.0.1:1/", "ftp://" + secret,
		} {
			p := say("echo:" + secret + "-hooked")
			p["configuration"] = object{"pushNotificationConfig": object{
				"url": to, "token": secret + "-token", "authentication": object{"schemes": []string{"Bearer"}, "credentials": secret + "-credentials"},
			}}
			r.Ask("message/send", p, headers...)
		}
		waittest.Eventually(t, "several deliveries failed", func() error {
			n := r.Metric("holdfast_push_attempts_total")
			return waittest.Unless(n >= 6, "%v attempts", n)
		})
	}
	{ // agents that fail
		for path, text := range map[string]string{
			"/": "fail:" + secret + "-reason", "/v0.3": "reject:" + secret + "-reason",
			"/agents/broken": secret + "-to-the-backend", "/agents/gone": secret + "-to-nobody",
		} {
			a, err := a2atest.Ask(waittest.Context(t), r.URL+path, a2atest.Request("message/send", say(text)), headers...)
			require.NoError(t, err)
			res, err := a.Result()
			require.NoError(t, err)
			require.Contains(t, []string{"failed", "rejected"}, res.State(), path)
		}
		require.Equal(t, "failed", r.Call("message/send", say("crash")).State())
	}
	{ // a database that is down
		db.Exec("ALTER TABLE holdfast.task_events RENAME TO elsewhere")
		db.Exec("ALTER VIEW holdfast.callers_log RENAME TO elsewhere_log")
		a := r.Ask("message/send", say("echo:"+secret+"-unstored"), headers...)
		require.NotNil(t, a.Error)
		b := r.Ask("tasks/get", object{"id": task}, headers...)
		require.NotNil(t, b.Error)
		db.Exec("ALTER TABLE holdfast.elsewhere RENAME TO task_events")
		db.Exec("ALTER VIEW holdfast.elsewhere_log RENAME TO callers_log")
		for _, answer := range []*a2atest.Answer{a, b} {
			for _, internal := range []string{"task_events", "callers_log", "holdfast.", "SQLSTATE", "42P01", "pgx", "postgres", ".go:", "goroutine"} {
				require.NotContains(t, string(answer.Body), internal, "clients see no internal errors")
			}
		}
		waittest.Eventually(t, "operators do", func() error { return waittest.Unless(strings.Contains(r.Log(), "42P01"), "not yet") })
	}
	r.Stop()
	for line := range strings.Lines(r.Log()) {
		require.NotContains(t, line, secret)
	}
	for _, excuse := range []string{"out of paper", "out of ink"} {
		require.Contains(t, r.Log(), excuse, "operators see the errors of agents and receivers")
	}
}

// The server cuts off clients that send a byte now and then, like those that send nothing. They delay no other
// client.
func TestSlowLoris(t *testing.T) {
	t.Parallel()
	const clients = 100
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: clustertest.NewDB(t).URL, Config: strict})
	var cut atomic.Int64
	done := make(chan error, clients)
	for i := range clients {
		begin, more := "POST / HTTP/1.1\r\nHost: localhost\r\n", "X-Slow: y\r\n"
		if i%2 == 1 {
			begin, more = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 60000\r\n\r\n", " "
		}
		go func() {
			done <- drip(a2atest.Host(r.URL), begin, more)
			cut.Add(1)
		}()
	}
	for cut.Load() < clients {
		require.Equal(t, "completed", r.Send(a2atest.V03, a2atest.Say("echo:meanwhile")).State())
	}
	for range clients {
		require.NoError(t, <-done)
	}
}

// drip sends a little, again and again, until the server closes the connection.
func drip(addr, begin, more string) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), waittest.Patience)
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

// At its limit of open streams, over all bindings, a server refuses more of them in each version's terms, with a time
// to retry. Other requests still work, and a closed stream frees its place.
func TestStreamLimitOfServer(t *testing.T) {
	t.Parallel()
	const most = 30
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: clustertest.NewDB(t).URL, Config: clustertest.Settings + fmt.Sprintf("limits: {max_streams: %d}\n", most)})
	taskID := r.Stream(a2atest.V03, a2atest.Say("hold")).Take(1)[0].Task()
	var subscriptions []a2atest.Operation
	for _, w := range a2atest.Wires {
		subscriptions = append(subscriptions, a2atest.Operation{Wire: w, Op: a2atest.Subscribe})
	}
	it := a2atest.Say("echo:x").To(taskID)
	var open []*a2atest.Reply
	for n := range most - 1 {
		w := subscriptions[n%len(subscriptions)]
		a := r.Begin(w.Wire, w.Op, it)
		a.More(w.Worded("working"))
		open = append(open, a)
	}
	attempts := slices.Clone(subscriptions)
	for _, w := range a2atest.Sends {
		if w.Op.Streams() {
			attempts = append(attempts, w)
		} else {
			require.Equal(t, w.Worded("completed"), r.Do(w, a2atest.Say("echo:still here")).State(), "%s: other requests still work", w)
		}
	}
	for _, w := range attempts {
		before := limited(r, "demo", "server_streams")
		args := it
		if w.Op == a2atest.Stream {
			args = a2atest.Say("echo:x")
		}
		got := r.Do(w, args)
		require.Equal(t, tooOften(w.Wire, "the server has reached its limit of open streams", "5"), got.Rejection, "%s: %s", w, got.Body)
		require.Equal(t, before+1, limited(r, "demo", "server_streams"))
	}

	for n, w := range subscriptions {
		open[n].Close()
		waittest.Eventually(t, "the place is free again", func() error {
			a := r.Begin(w.Wire, w.Op, it)
			defer a.Close()
			_, err := a.Next()
			return waittest.Unless(err == nil && a.Task == taskID, "%s: %+v", w, a.Rejection)
		})
	}
}

// A replica limits its connections, in all and per address, over all ports. Further clients wait, or get an error.
func TestConnectionLimits(t *testing.T) {
	t.Parallel()
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: clustertest.NewDB(t).URL, Config: clustertest.Settings + "limits: {max_connections: 4, connections_per_address: 3}\n"})
	connect := func(from byte, to string) net.Conn {
		c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, from)}}).DialContext(waittest.Context(t), "tcp", to)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		require.NoError(t, c.SetDeadline(time.Now().Add(waittest.Patience)))
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
		return waittest.Unless(string(answer) == "HTTP/1.1 200", "%s", answer)
	}
	var held []net.Conn
	for range 2 {
		held = append(held, connect(2, a2atest.Host(r.URL)))
		require.NoError(t, asks(held[len(held)-1]))
	}
	grpcs := connect(2, r.GRPC) // they count, too
	_, err := io.ReadFull(grpcs, make([]byte, 9))
	require.NoError(t, err, "its settings")
	require.Error(t, asks(connect(2, a2atest.Host(r.URL))), "a fourth connection of one address")
	require.NoError(t, asks(connect(3, a2atest.Host(r.URL))))
	waits := connect(4, a2atest.Host(r.URL))
	served := make(chan error, 1)
	go func() { served <- asks(waits) }()
	waittest.Eventually(t, "the fifth connection is accepted", func() error {
		return waittest.Unless(r.Metric("holdfast_connections_open") == 5, "it is not accepted yet")
	})
	require.Equal(t, 1, int(r.Metric("holdfast_connections_refused_total")))
	require.Empty(t, served, "it waits")
	require.NoError(t, held[0].Close())
	require.NoError(t, waittest.Within(t, "it is served", served))
}
