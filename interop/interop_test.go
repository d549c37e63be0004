//go:build interop

package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// scenarios are the scenarios of each client, over each of its bindings. README.md says what must hold.
var scenarios = []string{
	"card", "send", "return-immediately", "stream", "get", "list", "cancel", "multi-turn", "resubscribe", "parts", "metadata",
	"error-not-found", "error-terminal", "push-config", "push", "extended-card", "concurrent",
	"auth", "auth-card",
}

// played are the scenarios of the ring that is selected. Those with credentials are for the first ring.
func played() []string {
	if *ring2 {
		return without(scenarios, "auth", "auth-card")
	}
	return scenarios
}

var bindings = []string{"jsonrpc", "rest", "grpc"}

// runLimit bounds one run of a client, which has its own deadlines for scenarios.
const runLimit = 3 * time.Minute

// job is the input of a client. README.md describes it.
type job struct {
	Binding     string `json:"binding"`
	A           string `json:"a"`
	B           string `json:"b"`
	Through     string `json:"through"`
	Cut         string `json:"cut"`
	GRPCA       string `json:"grpc_a"`
	GRPCB       string `json:"grpc_b"`
	GRPCThrough string `json:"grpc_through"`
	Receiver    string `json:"receiver"`
	*locked
}

// result is a line of a client's output.
type result struct {
	Scenario string `json:"scenario"`
	Outcome  string `json:"outcome"`
	Detail   string `json:"detail"`
}

// ring2 selects the clients of the second ring, instead of those of the first.
var ring2 = flag.Bool("ring2", false, "run the clients of the second ring only")

func TestClients(t *testing.T) {
	t.Parallel()
	clients := slices.DeleteFunc(folders(t, "clients"), func(folder string) bool { return !isProgram(folder) })
	requireNeeded(t, clients)
	clients = slices.DeleteFunc(clients, func(folder string) bool {
		return exists(t, filepath.Join("clients", folder, "ring2")) != *ring2
	})
	require.NotEmpty(t, clients)
	c := startCluster(t, demo, true)
	unannounced := c
	if slices.ContainsFunc(clients, refusesAddress) {
		unannounced = startCluster(t, demo, false)
	}
	var total tally
	t.Cleanup(func() { t.Logf("%d clients, %s", len(clients), &total) })
	for _, name := range clients {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			command := install(t, "clients", name)
			c := c
			if refusesAddress(name) {
				c = unannounced
			}
			for _, binding := range bindings {
				if _, ok := find(unsupported, name, binding, ""); ok {
					continue
				}
				t.Run(binding, func(t *testing.T) {
					t.Parallel()
					results, stderr := runClient(t, command, c.job(t, binding))
					total.add(judge(t, name, binding, results))
					if t.Failed() {
						t.Logf("stderr of %s over %s:\n%s", name, binding, stderr)
					}
				})
			}
		})
	}
}

// requireNeeded fails for exceptions that match nothing. judge checks that the others are needed.
func requireNeeded(t *testing.T, clients []string) {
	t.Helper()
	all := slices.Concat(unsupported, absences, defects, refusers)
	for i, e := range all {
		_, twice := find(all[:i], e.client, e.binding, e.scenario)
		require.False(t, twice, "%+v: an earlier entry covers it", e)
		require.NotEmpty(t, e.why, "%+v: why?", e)
		require.Contains(t, clients, e.client, "%+v: no such client", e)
		if e.binding != "" {
			require.Contains(t, bindings, e.binding, "%+v: no such binding", e)
		}
		if e.scenario != "" {
			require.Contains(t, scenarios, e.scenario, "%+v: no such scenario", e)
		}
	}
}

// refusesAddress reports whether a client refuses cards that announce gRPC.
func refusesAddress(client string) bool {
	_, ok := find(refusers, client, "", "")
	return ok
}

// find returns the exception for a case.
func find(list []exception, client, binding, scenario string) (exception, bool) {
	for _, e := range list {
		if e.client == client && (e.binding == "" || e.binding == binding) && (e.scenario == "" || e.scenario == scenario) {
			return e, true
		}
	}
	return exception{}, false
}

// runClient runs a client to its end, and returns its results.
func runClient(t *testing.T, command []string, j job) (results []result, stderr string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "job.json")
	content, err := json.Marshal(j)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, content, 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), runLimit)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, command[0], append(command[1:], file)...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = 5 * time.Second
	err = cmd.Run()
	require.NoError(t, err, "stdout:\n%s\nstderr:\n%s", &out, &errs)
	for line := range strings.Lines(out.String()) {
		var r result
		require.NoError(t, json.Unmarshal([]byte(line), &r), "not a result: %s\nstderr:\n%s", line, &errs)
		results = append(results, r)
	}
	return results, errs.String()
}

// judge compares what a client reported with what is expected of it, and counts outcomes.
func judge(t *testing.T, client, binding string, results []result) (counts map[string]int) {
	t.Helper()
	reported := map[string]result{}
	for _, r := range results {
		if _, twice := reported[r.Scenario]; twice {
			t.Errorf("%s: reported twice", r.Scenario)
		}
		if !slices.Contains(played(), r.Scenario) {
			t.Errorf("%s: no such scenario", r.Scenario)
		}
		reported[r.Scenario] = r
	}
	counts = map[string]int{}
	var notes []string
	for _, s := range played() {
		r, ok := reported[s]
		if !ok {
			t.Errorf("%s: not reported", s)
			continue
		}
		want, e := expected(client, binding, s)
		counts[r.Outcome]++
		switch {
		case r.Outcome != want && want == "passed":
			t.Errorf("%s: %s: %s", s, r.Outcome, r.Detail)
		case r.Outcome != want:
			t.Errorf("%s: %s, and defects.go says that it is %s (%s): %s", s, r.Outcome, want, e.why, r.Detail)
		case want != "passed":
			notes = append(notes, fmt.Sprintf("\n%s %s: %s", s, r.Outcome, r.Detail))
		}
	}
	t.Logf("%d passed, %d absent, %d failed%s",
		counts["passed"], counts["absent"], counts["failed"], strings.Join(notes, ""))
	return counts
}

// expected is the outcome that a scenario must have.
func expected(client, binding, scenario string) (outcome string, e exception) {
	if e, ok := find(absences, client, binding, scenario); ok {
		return "absent", e
	}
	if e, ok := find(defects, client, binding, scenario); ok {
		return "failed", e
	}
	return "passed", exception{}
}

// tally counts the outcomes of all clients.
type tally struct {
	mu     sync.Mutex
	runs   int
	counts [3]int
}

func (l *tally) add(counts map[string]int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs++
	for i, outcome := range []string{"passed", "absent", "failed"} {
		l.counts[i] += counts[outcome]
	}
}

func (l *tally) String() string {
	return fmt.Sprintf("%d runs over a binding, %d scenarios each: %d passed, %d absent, %d failed",
		l.runs, len(played()), l.counts[0], l.counts[1], l.counts[2])
}
