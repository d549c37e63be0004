package bench

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/issuertest"
	"github.com/holdfast-a2a/holdfast/internal/load"
)

// principals is the number of callers that the clients use, on a server with authentication.
const principals = 16

// identity compares a replica without authentication, which only uses its predicates, with one that has
// authentication and row-level security. The two take turns. Under none/ both have no authentication: the difference
// there is the error of the method.
func identity(b *testing.B) {
	b.Helper()
	const (
		open     = "auth: {row_level_security: 'off'}\n"
		isolated = "auth:\n  row_level_security: require\n  schemes:\n    - "
		keys     = "{name: keys, kind: api_key}\n"
		limits   = "limits:\n  per_principal: {rate: 1000000, streams: 10000, live_tasks: 1000}\n"
	)
	idp := issuertest.Start(b)
	bare := newIdentitySide(b, open, nil, anonymous)
	for _, v := range []struct {
		name, config string
		credentials  func(b *testing.B, c *cluster) []http.Header
	}{
		{"none", open, anonymous},
		{"api-key", isolated + keys, apiKeys},
		{"api-key-limits", isolated + keys + limits, apiKeys},
		{"jwt", isolated + idp.Scheme("sso", "") + "\n", tokens(idp)},
	} {
		b.Run(v.name, func(b *testing.B) {
			known := newIdentitySide(b, v.config, idp.Trust(), v.credentials)
			settle(b)
			for _, o := range identityOperations {
				b.Run(o.name, func(b *testing.B) { o.compare(b, known, bare) })
			}
		})
	}
}

// identitySide is one of the two replicas, with its callers.
type identitySide struct {
	c       *cluster
	callers []*identityCaller
	cost    cost
}

// identityCaller is a caller with tasks of its own.
type identityCaller struct {
	target     *load.Target
	get, large []byte // requests
	list, logs []byte
}

func newIdentitySide(b *testing.B, more string, env []string, credentials func(*testing.B, *cluster) []http.Header) *identitySide {
	b.Helper()
	s := &identitySide{c: startCluster(b, strings.Replace(config, anyConnections, "", 1)+more, env, whole)}
	for _, h := range credentials(b, s.c) {
		target := func(version string) *load.Target {
			h := h.Clone()
			h.Set("A2a-Version", version)
			t, err := load.NewTarget(s.c.replicas[0].URL, h)
			if err != nil {
				b.Fatal(err)
			}
			return t
		}
		a := &identityCaller{target: target("0.3")}
		warmUp(b, a.target)
		// Both sides read the same data, whatever the number of callers: one conversation.
		conversation, id := "c-"+rand.Text(), ""
		conn := dial(b, a.target)
		for range 60 {
			body, err := conn.Call(a.target.Request("message/send", inContext(conversation), ""))
			if err != nil {
				b.Fatal(err)
			}
			o, err := load.ReadOutcome(body)
			if err != nil || o.State != "completed" {
				b.Fatalf("task in state %s: %v", o.State, err)
			}
			id = o.TaskID
		}
		newest := target("1.0")
		a.get = a.target.Request("tasks/get", load.TaskQuery(id), "")
		a.large = a.target.Request("tasks/get", load.TaskQuery(newTask(b, a.target, chunks(1000))), "")
		a.list = newest.Request("ListTasks", fmt.Appendf(nil, `{"contextId":%q,"pageSize":50,"historyLength":0}`, conversation), "")
		a.logs = newest.Request("ListTasks", fmt.Appendf(nil, `{"contextId":%q,"pageSize":50,"includeArtifacts":true}`, conversation), "")
		s.callers = append(s.callers, a)
	}
	exec1(b, s.c.db, "VACUUM (ANALYZE) holdfast.tasks, holdfast.task_events, holdfast.task_queue")
	return s
}

func inContext(id string) []byte {
	return fmt.Appendf(nil, `{"message":{"kind":"message","messageId":%q,"contextId":%q,"role":"user",`+
		`"parts":[{"kind":"text","text":"echo:hello"}]},"configuration":{"blocking":true}}`, rand.Text(), id)
}

// identityOperation works for a turn and returns how often it ran, and the time that this took.
type identityOperation struct {
	name string
	do   func(b *testing.B, s *identitySide) (n int, took time.Duration)
}

var identityOperations = []identityOperation{
	{"get/inflight=16", calling(func(a *identityCaller) []byte { return a.get }, 1, `"completed"`)},
	{"get-1000-chunks/inflight=16", calling(func(a *identityCaller) []byte { return a.large }, 1, `"completed"`)},
	{"list/inflight=16", calling(func(a *identityCaller) []byte { return a.list }, 50, `"TASK_STATE_COMPLETED"`)},
	{"list-with-logs/inflight=16", calling(func(a *identityCaller) []byte { return a.logs }, 50, `"TASK_STATE_COMPLETED"`)},
	{"blocking/inflight=64", loading(load.Options{Mode: load.Blocking, Text: "echo:hello", InFlight: 64})},
	{"poll/inflight=64", loading(load.Options{Mode: load.Poll, Text: "echo:hello", InFlight: 64, PollEvery: 10 * time.Millisecond})},
	{"stream-100-chunks/streams=16", loading(load.Options{Mode: load.Stream, Text: chunks(100), InFlight: 16})},
}

// calling repeats one request of each caller, whose answer contains a text n times.
func calling(request func(*identityCaller) []byte, times int, text string) func(*testing.B, *identitySide) (int, time.Duration) {
	type client struct {
		conn *load.Conn
		req  []byte
	}
	return func(b *testing.B, s *identitySide) (int, time.Duration) {
		b.Helper()
		var clients []client
		for _, a := range s.callers {
			clients = append(clients, client{dial(b, a.target), request(a)})
		}
		var n atomic.Int64
		took := callForTurn(b, clients, func(_ int, c client) error {
			body, err := c.conn.Call(c.req)
			if err == nil && bytes.Count(body, []byte(text)) != times {
				err = fmt.Errorf("not %d times %s: %.200s", times, text, body)
			}
			n.Add(1)
			return err
		})
		return int(n.Load()), took
	}
}

func loading(o load.Options) func(*testing.B, *identitySide) (int, time.Duration) {
	return func(b *testing.B, s *identitySide) (int, time.Duration) {
		b.Helper()
		o := o
		for _, a := range s.callers {
			o.Targets = append(o.Targets, a.target)
		}
		r := measure(b, forTurn(o))
		return r.Tasks, r.Elapsed
	}
}

func (o *identityOperation) compare(b *testing.B, known, bare *identitySide) {
	b.Helper()
	known.cost, bare.cost = cost{}, cost{}
	rates, without, ratios := inTurns(func() float64 { return o.rate(b, known) }, func() float64 { return o.rate(b, bare) })
	metric(b, median(without), "without/s")
	metric(b, median(rates), "with/s")
	metric(b, 100*(median(ratios)-1), "%slower")
	compareCosts(b, &known.cost, &bare.cost)
}

func (o *identityOperation) rate(b *testing.B, s *identitySide) float64 {
	b.Helper()
	return s.cost.of(b, s.c, func() (n int, rate float64) {
		n, took := o.do(b, s)
		return n, float64(n) / took.Seconds()
	})
}

// anonymous sends no credentials.
func anonymous(*testing.B, *cluster) []http.Header {
	out := make([]http.Header, principals)
	for i := range out {
		out[i] = http.Header{}
	}
	return out
}

func apiKeys(b *testing.B, c *cluster) []http.Header {
	b.Helper()
	out := anonymous(b, c)
	for i, h := range out {
		made := clustertest.Command(b, b.TempDir(), []string{"HOLDFAST_DATABASE_URL=" + c.dbURL}, "api-keys", "create", "--subject", fmt.Sprint("caller-", i))
		if made.Code != 0 {
			b.Fatal(made.Err)
		}
		h.Set("X-Api-Key", strings.TrimSpace(made.Out))
	}
	return out
}

// tokens are the callers' tokens, from an issuer.
func tokens(idp *issuertest.Issuer) func(b *testing.B, c *cluster) []http.Header {
	return func(b *testing.B, c *cluster) []http.Header {
		b.Helper()
		out := anonymous(b, c)
		for n, h := range out {
			h.Set("Authorization", "Bearer "+idp.Sign(idp.Claims(fmt.Sprint("caller-", n), "exp", time.Now().Add(12*time.Hour).Unix())))
		}
		return out
	}
}
