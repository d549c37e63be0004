package agents

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/modeltest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// door is a gateway before a service. It answers calls with status until that is 0.
type door struct {
	URL    string
	status atomic.Int32
}

// openDoor opens a door. It passes a GET on, such as that for a card, whatever its status.
func openDoor(t *testing.T, to string, status int32) *door {
	t.Helper()
	target, err := url.Parse(to)
	require.NoError(t, err)
	d := &door{}
	d.status.Store(status)
	pass := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host // the card has the addresses that its reader used
	}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status := d.status.Load(); status > 0 && r.Method != http.MethodGet {
			http.Error(w, "busy", int(status))
			return
		}
		// A ReverseProxy cuts an answer that comes before it has seen the end of the body: https://go.dev/issue/40747.
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		pass.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	d.URL = server.URL
	return d
}

// carry listens on an address, and carries connections from there to another.
func carry(t *testing.T, from, to string) {
	t.Helper()
	l, err := net.Listen("tcp", from)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = in.Close() }()
				out, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				defer func() { _ = out.Close() }()
				go func() {
					_, _ = io.Copy(out, in)
					_ = out.Close()
				}()
				_, _ = io.Copy(in, out)
			}()
		}
	}()
}

// absence is a way in which an agent of a kind is away.
type absence struct {
	executor string
	error    string // what operators read, as a pattern of LIKE
	leaves   func() // after the start of the replicas, which checks commands
	back     func()
	// refuses: the agent is there and refuses. A probe then skips the messages that were refused, so the order is not kept.
	refuses bool
}

// Agents of every kind are away in every way that the kind has. Their tasks wait, operators see that in the views, in doctor
// and in the metrics, and no wait is an attempt. When the agents return, all tasks run, in their order.
func TestAgentsOfEveryKindThatAreAway(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), mode))
		return path
	}
	const script = "#!/bin/sh\necho '{\"type\":\"complete\",\"message\":\"done\"}'\n"
	rebuilding, missing, forbidden := file("rebuilding", "", 0o600), file("missing", script, 0o700), file("forbidden", script, 0o700)

	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		_, _ = io.WriteString(w, `{"type":"complete","message":"done"}`+"\n")
	}))
	t.Cleanup(plain.Close)
	grpcOfUpstream := clustertest.Reserve(t)
	upstream := clustertest.Start(t, clustertest.Options{
		Name: "upstream", DB: clustertest.NewDB(t).URL, Config: clustertest.Steady + "public_grpc_address: " + grpcOfUpstream + "\n",
	})
	model := modeltest.New(t, modeltest.Streams(modeltest.Role, modeltest.Text("done"), modeltest.Stop, modeltest.Done))
	answering := func(to string, status int32, settings string) absence {
		d := openDoor(t, to, status)
		return absence{
			executor: fmt.Sprintf(settings, d.URL), error: fmt.Sprintf("%%%d%%", status),
			back: func() { d.status.Store(0) }, refuses: true,
		}
	}
	down := func(to, settings string) absence {
		address := clustertest.Reserve(t)
		return absence{
			executor: fmt.Sprintf(settings, "http://"+address), error: "%refused%",
			back: func() { carry(t, address, a2atest.Host(to)) },
		}
	}
	const (
		overHTTP = `{kind: http, http: {url: "%s/"}}`
		front    = `{kind: a2a, a2a: {url: "%s", poll_interval: 300ms}}`
		chat     = `{kind: openai, openai: {base_url: "%s/v1", model: ` + modeltest.Model + `, api_key: "` + modeltest.Key + `"}}`
	)
	absences := map[string]absence{
		"http-down": down(plain.URL, overHTTP),
		"http-429":  answering(plain.URL, 429, overHTTP),
		"http-503":  answering(plain.URL, 503, overHTTP),
		"command-missing": {
			executor: fmt.Sprintf("{kind: command, command: {argv: [%q]}}", missing), error: "%no such file%",
			leaves: func() { require.NoError(t, os.Remove(missing)) },
			back:   func() { file("missing", script, 0o700) },
		},
		"command-forbidden": {
			executor: fmt.Sprintf("{kind: command, command: {argv: [%q]}}", forbidden), error: "%permission denied%",
			leaves: func() { require.NoError(t, os.Chmod(forbidden, 0o600)) },
			back:   func() { require.NoError(t, os.Chmod(forbidden, 0o700)) },
		},
		"a2a-down": down(upstream.URL, front),
		"a2a-429":  answering(upstream.URL, 429, front),
		"a2a-503":  answering(upstream.URL, 503, front),
		"a2a-grpc-down": {
			executor: fmt.Sprintf(`{kind: a2a, a2a: {card_url: %q, binding: grpc, poll_interval: 300ms}}`, upstream.URL+"/.well-known/agent-card.json"), error: "%refused%",
			back: func() { carry(t, grpcOfUpstream, upstream.GRPC) },
		},
		"openai-down": down(model.URL, chat),
		"openai-429":  answering(model.URL, 429, chat),
		"openai-503":  answering(model.URL, 503, chat),
		"go": {
			executor: "{kind: go}", error: "%the index is being rebuilt%", refuses: true,
			back: func() { require.NoError(t, os.Remove(rebuilding)) },
		},
	}
	names := slices.Sorted(maps.Keys(absences))

	// One run at a time, and fewer attempts than the wait takes.
	var config strings.Builder
	config.WriteString(clustertest.Steady)
	for _, name := range names {
		fmt.Fprintf(&config, "\n  - {name: %s, executor: %s, limits: {max_attempts: 2, concurrency: 1}}\n", name, absences[name].executor)
	}
	db := clustertest.NewDB(t)
	path := file("holdfast.yaml", config.String(), 0o600)
	program := clustertest.Program(t, "./integration/agents/rebuilding")
	env := []string{"AWAY=" + rebuilding}
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL, Config: config.String(), Binary: program, Env: env})
	doctor := func() string {
		return clustertest.CommandOf(t, program, dir, append(db.Env(), env...), "doctor", "--config", path).Out
	}

	for _, name := range names {
		if leaves := absences[name].leaves; leaves != nil {
			leaves()
		}
	}
	const each = 4
	for _, name := range names {
		for i := range each {
			r := []*clustertest.Replica{a, b}[i%2]
			require.Equal(t, "submitted", r.Send(a2atest.V03, a2atest.Say("echo:done").At(name).Detached()).State(), name)
		}
	}
	for _, name := range names {
		waittest.Eventually(t, name+" is away, and its tasks wait", func() error {
			var tried float64
			for _, r := range []*clustertest.Replica{a, b} {
				samples, err := r.Samples()
				if err != nil {
					return err
				}
				tried += samples[fmt.Sprintf(`holdfast_runs_total{agent=%q,outcome="away"}`, name)]
			}
			samples, err := clustertest.Figures(a, b)
			if err != nil {
				return err
			}
			if waiting, away := samples[fmt.Sprintf(`holdfast_queue_waiting{agent=%q}`, name)], samples[fmt.Sprintf(`holdfast_agent_away_seconds{agent=%q}`, name)]; waiting < each-2 || away == 0 {
				return fmt.Errorf("metrics: %v wait, away for %v s", waiting, away)
			}
			if tried < 4 { // more than one task may try
				return fmt.Errorf("%v runs found it away", tried)
			}
			n := clustertest.One[int](db, "SELECT count(*) FROM holdfast.v_outages WHERE agent = $1 AND waiting >= $2 AND error LIKE $3", name, each-2, absences[name].error)
			return waittest.Unless(n == 1, "v_outages has %q", clustertest.Column[string](db, "SELECT error FROM holdfast.v_outages WHERE agent = $1", name))
		})
		require.Empty(t, clustertest.Column[string](db,
			"SELECT phase FROM holdfast.v_queue WHERE agent = $1 AND NOT (phase IN ('waiting', 'running'))", name), name)
		require.Equal(t, each, clustertest.One[int](db, "SELECT count(*) FROM holdfast.v_queue WHERE agent = $1", name), name)
	}
	seen := doctor()
	for _, name := range names {
		require.Regexp(t, name+`: away for \S+, \d tasks wait: `+strings.ReplaceAll(absences[name].error, "%", ".*"), seen)
	}

	var all sync.WaitGroup
	for _, name := range names {
		all.Go(absences[name].back)
	}
	all.Wait()
	for _, name := range names {
		waittest.Eventually(t, name+" has done its tasks", func() error {
			states := clustertest.Column[string](db, "SELECT state FROM holdfast.v_tasks WHERE agent = $1", name)
			return waittest.Unless(slices.Equal(states, slices.Repeat([]string{"completed"}, each)), "%v", states)
		})
		require.Empty(t, clustertest.Column[string](db, "SELECT outcome || ': ' || coalesce(error, '') FROM holdfast.v_runs WHERE agent = $1 AND outcome NOT IN ('away', 'completed')", name), name)
		if !absences[name].refuses {
			// A replica may hold a task in a refused run while the other one finds the agent back, so one task may begin late.
			require.Empty(t, clustertest.Column[string](db, `
				WITH ran AS (
					SELECT r.task, row_number() OVER (ORDER BY t.created_at, r.task) AS place, row_number() OVER (ORDER BY r.started_at, r.task) AS began
					FROM holdfast.v_runs r JOIN holdfast.v_tasks t USING (task) WHERE r.agent = $1 AND r.outcome = 'completed'
				)
				SELECT task || ' began as number ' || began || ' instead of ' || place FROM ran WHERE place - began > 1`, name), name)
		}
	}
	waittest.Eventually(t, "no agent is away", func() error {
		away := clustertest.Column[string](db, "SELECT agent FROM holdfast.v_outages")
		return waittest.Unless(len(away) == 0, "%v", away)
	})
	waittest.Eventually(t, "the metrics say so", func() error {
		samples, err := clustertest.Figures(a, b)
		if err != nil {
			return err
		}
		for _, name := range names {
			if away := samples[fmt.Sprintf(`holdfast_agent_away_seconds{agent=%q}`, name)]; away != 0 {
				return fmt.Errorf("%s is away for %v s", name, away)
			}
		}
		return nil
	})
	db.Sound()
}
