package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb03 "github.com/a2aproject/a2a-go/a2apb"
	pb10 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/holdfast-a2a/holdfast/internal/auth"
	"github.com/holdfast-a2a/holdfast/internal/store"
)

// toldOff is how a limit is told in one way to call.
type toldOff struct {
	status     int
	code       int // of JSON-RPC, 0 where there is none
	retryAfter string
	body       string
}

// eachWay sends a text to an agent in every version and over every binding.
func eachWay(t *testing.T, r *replica, agent, text string) map[string]toldOff {
	t.Helper()
	out := map[string]toldOff{}
	web := func(name, path string, body []byte, header ...string) {
		resp, err := post(short(t, patience), r.url+"/agents/"+agent+path, body, header...)
		require.NoError(t, err)
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		var rpc struct{ Error rpcError }
		_ = json.Unmarshal(b, &rpc)
		out[name] = toldOff{resp.StatusCode, rpc.Error.Code, resp.Header.Get("Retry-After"), string(b)}
	}
	quoted := strconv.Quote(text)
	web("0.1", "", request(v01.send, v01.params("task-"+agent, text)))
	web("0.3", "", request(v03.send, v03.params("", text)))
	web("0.3 stream", "", request(v03.stream, v03.params("", text)))
	web("1.0", "", []byte(`{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":`+quoted+`}]}}}`))
	web("0.3 rest", "/v1/message:send", []byte(`{"message":{"messageId":"m","role":"ROLE_USER","content":[{"text":`+quoted+`}]}}`))
	web("1.0 rest", "/message:send", []byte(`{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":`+quoted+`}]}}`), "A2A-Version", "1.0")
	rpc := func(name string, err error) {
		s := grpcstatus.Convert(err)
		f := toldOff{status: int(s.Code()), body: s.Message()}
		for _, d := range s.Details() {
			switch d := d.(type) {
			case *errdetails.RetryInfo:
				f.retryAfter = strconv.FormatInt(d.GetRetryDelay().GetSeconds(), 10)
			case *errdetails.ErrorInfo:
				f.body += " " + d.GetReason()
			}
		}
		out[name] = f
	}
	ctx := short(t, patience)
	conn := r.connect(t)
	m := said10(text)
	m.Tenant = agent
	_, err := pb10.NewA2AServiceClient(conn).SendMessage(ctx, m)
	rpc("1.0 grpc", err)
	if agent == "demo" { // 0.3 cannot name another
		_, err = pb03.NewA2AServiceClient(conn).SendMessage(ctx, said03(text))
		rpc("0.3 grpc", err)
	}
	return out
}

// limited is how often a limit was met.
func (r *replica) limited(agent, limit string) int {
	r.t.Helper()
	resp, err := http.Get(r.admin + "/metrics")
	require.NoError(r.t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(r.t, err)
	sample := regexp.MustCompile(fmt.Sprintf(`(?m)^holdfast_limited_total\{agent="%s",limit="%s"\} (\d+)$`, agent, limit)).FindSubmatch(b)
	require.NotNil(r.t, sample, "%s %s", agent, limit)
	n, err := strconv.Atoi(string(sample[1]))
	require.NoError(r.t, err)
	return n
}

func TestLimitsAreToldInEveryVersion(t *testing.T) {
	t.Parallel()
	r := start(t, replicaOptions{Name: "a", DB: newDB(t).url, Config: settings + `
  - name: narrow
    executor: {kind: demo}
    limits: {concurrency: 1, queue: 1, live_tasks: 10}
  - name: brief
    executor: {kind: demo}
    limits: {max_artifacts: 1KiB, live_tasks: 10}
limits: {max_part: 2KiB, max_parts: 3, per_principal: {live_tasks: 2, streams: 3}}
`})
	{ // live tasks
		var held string
		for range 2 {
			held = r.open(v03.stream, v03.params("", "hold")).take(1)[0].task()
		}
		for way, f := range eachWay(t, r, "demo", "echo:x") {
			if strings.HasSuffix(way, "grpc") {
				require.Equal(t, int(codes.ResourceExhausted), f.status, way)
				require.Contains(t, f.body, "RATE_LIMITED", way)
			} else {
				require.Equal(t, http.StatusTooManyRequests, f.status, way)
			}
			require.Contains(t, f.body, "2 of your tasks with this agent have not ended", way)
			require.Equal(t, "5", f.retryAfter, way)
			switch way {
			case "0.1":
				require.Equal(t, -32010, f.code)
			case "0.3", "0.3 stream", "1.0":
				require.Equal(t, -32603, f.code, way)
			}
		}
		require.Equal(t, 8, r.limited("demo", "live_tasks"))
		third := r.resume(held, 1)
		_, err := openURL(t, r.url, v03.stream, v03.params("", "echo:x"))
		require.ErrorContains(t, err, "you have as many open streams as you may", "which is asked first")
		require.Equal(t, 1, r.limited("demo", "streams"))
		third.close()
		eventually(t, "its place is free", func() error {
			s, err := openURL(t, r.url, "tasks/resubscribe", object{"id": held})
			if err == nil {
				s.close()
			}
			return err
		})
		eventually(t, "and this one's", func() error {
			n := r.metric("holdfast_streams_open")
			return unless(n == 2, "%v streams are open", n)
		})
	}
	{ // the queue
		quick := func(text string) object {
			p := v03.params("", text)
			p["configuration"] = object{"blocking": false}
			return p
		}
		for _, want := range []string{"working", "submitted"} {
			a, err := ask(short(t, patience), r.url+"/agents/narrow", request(v03.send, quick("hold")))
			require.NoError(t, err)
			res, err := a.result()
			require.NoError(t, err)
			if want == "working" {
				eventually(t, "the first runs", func() error {
					b, err := ask(short(t, patience), r.url+"/agents/narrow", request("tasks/get", object{"id": res.task()}))
					if err != nil {
						return err
					}
					now, err := b.result()
					if err != nil {
						return err
					}
					return unless(now.state() == "working", "it is %s", now.state())
				})
			}
		}
		for way, f := range eachWay(t, r, "narrow", "echo:x") {
			require.Contains(t, f.body, "1 tasks wait for this agent", way)
			require.Equal(t, "2", f.retryAfter, way)
		}
		require.Equal(t, 7, r.limited("narrow", "queue"))
	}
	{ // parts
		for way, f := range eachWay(t, r, "brief", "echo:"+strings.Repeat("x", 3000)) {
			require.Contains(t, f.body, "message.parts[0]: must not be longer than 2048 bytes", way)
			require.Empty(t, f.retryAfter, way)
			if !strings.HasSuffix(way, "grpc") {
				require.Equal(t, http.StatusRequestEntityTooLarge, f.status, way)
			}
		}
		p := v03.params("", "echo:x")
		part := p["message"].(object)["parts"].([]any)[0]
		p["message"].(object)["parts"] = []any{part, part, part, part}
		got, err := ask(short(t, patience), r.url, request(v03.send, p))
		require.NoError(t, err)
		require.Contains(t, got.Err.Message, "message.parts: must not be more than 3")
	}
	{ // artifacts
		got, err := ask(short(t, patience), r.url+"/agents/brief", request(v03.send, v03.params("", "chunks=20 size=100 delay=0ms")))
		require.NoError(t, err)
		res, err := got.result()
		require.NoError(t, err)
		require.Equal(t, "failed", res.state())
		require.Equal(t, "The agent's artifacts would take more than 1024 bytes, which is as much as those of one task may.", res.said())
		require.Equal(t, 1, r.limited("brief", "artifacts"))
	}
}

// account is a principal of the load and what came of its requests.
type account struct {
	key                  string
	done, taken, refused atomic.Int64
}

// send sends once, and reports whether it was taken.
func (a *account) send(ctx context.Context, url string, params object) (taken bool, err error) {
	got, err := ask(ctx, url, request(v03.send, params), "X-API-Key", a.key)
	switch {
	case err != nil:
		return false, err
	case got.HTTP == http.StatusTooManyRequests:
		a.refused.Add(1)
		_, err := strconv.Atoi(got.Header.Get("Retry-After"))
		return false, err
	}
	a.taken.Add(1)
	res, err := got.result()
	if err != nil {
		return true, err
	}
	if res.state() == "completed" {
		a.done.Add(1)
	}
	return true, nil
}

// Two hundred callers share two replicas. Some take all they can get, more often and more at a time than they may; the
// others go about their work within their limits. Nobody gets more than the limits, on both replicas together where they
// hold for both, and everybody gets their work done.
func TestLimitsUnderLoad(t *testing.T) {
	t.Parallel()
	const (
		modest, greedy   = 180, 20
		tasks            = 10 // of each of the modest: on each replica fewer than may be sent at once
		loops            = 3  // of each of the greedy, on each replica
		live, rate, both = 3, 8, 2
	)
	db := newDB(t)
	config := replace(settings, "store: {pool_size: 4}", fmt.Sprintf(`store: {pool_size: 8}
auth: {schemes: [{name: keys, kind: api_key}]}
limits: {per_principal: {rate: %d, live_tasks: %d}}`, rate, live))
	replicas := make([]*replica, both)
	for i, name := range []string{"a", "b"} {
		replicas[i] = start(t, replicaOptions{Name: name, DB: db.url, Config: config, Async: true})
	}
	for _, r := range replicas {
		r.waitServing()
		r.waitReady()
	}
	accounts := newAccounts(t, db.url, modest+greedy)

	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	var work, rush, watch errgroup.Group
	full, quiet := make(chan struct{}), make(chan struct{})
	var highest atomic.Int64
	conn, err := pgx.Connect(ctx, db.url)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	watch.Go(func() error {
		for {
			var n int64
			if err := conn.QueryRow(ctx, `SELECT coalesce(max(n), 0) FROM (
				SELECT count(*) AS n FROM holdfast.tasks WHERE state < 5 GROUP BY tenant, owner, agent) x`).Scan(&n); err != nil {
				return err
			}
			highest.Store(max(highest.Load(), n))
			select {
			case <-quiet:
				return nil
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
	begun := time.Now()
	for _, a := range accounts[modest:] {
		for i := range both * loops {
			rush.Go(func() error {
				p := v03.params("", "sleep=300ms")
				p["configuration"] = object{"blocking": false}
				for ctx.Err() == nil {
					select {
					case <-full:
						return nil
					default:
					}
					if _, err := a.send(ctx, replicas[i%both].url, p); err != nil {
						return err
					}
				}
				return ctx.Err()
			})
		}
	}
	for i, a := range accounts[:modest] {
		work.Go(func() error {
			for n := 0; a.done.Load() < tasks; n++ {
				taken, err := a.send(ctx, replicas[(i+n)%both].url, v03.params("", "sleep=10ms"))
				if err != nil {
					return err
				}
				if !taken {
					return errors.New("one that keeps to its limits was refused")
				}
			}
			return nil
		})
	}
	require.NoError(t, work.Wait(), "everybody's work is done")
	close(full)
	require.NoError(t, rush.Wait())
	close(quiet)
	require.NoError(t, watch.Wait())
	took := time.Since(begun)

	require.Equal(t, int64(live), highest.Load(), "what some tried to exceed was reached, and by nobody exceeded")
	var taken, refused int64
	for _, a := range accounts[modest:] {
		// A bucket on each replica, full at first.
		require.LessOrEqual(t, a.taken.Load(), int64(both*rate*(1+took.Seconds()))+both)
		require.Positive(t, a.taken.Load())
		require.Positive(t, a.refused.Load())
		taken, refused = taken+a.taken.Load(), refused+a.refused.Load()
	}
	t.Logf("%d callers did %d tasks each in %s; %d greedy ones had %d requests taken and %d refused",
		modest, tasks, took.Round(time.Millisecond), greedy, taken, refused)
	for _, limit := range []string{"rate", "live_tasks"} {
		require.Positive(t, replicas[0].limited("demo", limit), limit)
		require.Positive(t, replicas[1].limited("demo", limit), limit)
	}
	db.sound()
}

// newAccounts are principals, each with an API key.
func newAccounts(t *testing.T, url string, n int) []*account {
	t.Helper()
	s, err := store.Open(t.Context(), store.Options{URL: url})
	require.NoError(t, err)
	defer s.Close(context.WithoutCancel(t.Context()))
	out := make([]*account, n)
	for i := range out {
		key, id, hash := auth.NewAPIKey()
		_, err := s.AddAPIKey(t.Context(), &store.APIKey{ID: id, Hash: hash, Tenant: "t", Subject: fmt.Sprintf("s%d", i)}, 0)
		require.NoError(t, err)
		out[i] = &account{key: key}
	}
	return out
}
