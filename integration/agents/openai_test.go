package agents

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/mcptest"
	"github.com/holdfast-a2a/holdfast/internal/modeltest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// documented returns the example of docs/agents/openai.md, with the address and the name of the test's model.
func documented(t *testing.T, model interface{ Base() string }) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/agents/openai.md")
	require.NoError(t, err)
	_, example, found := strings.Cut(string(page), "```yaml holdfast.yaml\nagents:\n")
	require.True(t, found)
	example, _, _ = strings.Cut(example, "```")
	for key, value := range map[string]string{"base_url": model.Base(), "model": modeltest.Model} {
		line := regexp.MustCompile(`(?m)^(\s+` + key + `: ).*$`)
		require.Len(t, line.FindAllString(example, -1), 1, key)
		example = line.ReplaceAllString(example, "${1}"+value)
	}
	return clustertest.Patient + example
}

func withKey(o clustertest.Options) clustertest.Options {
	o.Env = append(o.Env, "OPENAI_API_KEY="+modeltest.Key)
	return o
}

// The example of the page answers, in every version of A2A, and counts its tokens.
func TestModelAsDocumented(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	model := modeltest.New(t, modeltest.Streams(modeltest.Role, modeltest.Text("It is "), modeltest.Text("42."), modeltest.Stop, modeltest.Spent, modeltest.Done))
	r := clustertest.Start(t, withKey(clustertest.Options{Name: "a", DB: db.URL, Config: documented(t, model)}))
	for _, d := range a2atest.Old {
		res := r.Send(d, a2atest.Say("What is the answer?").At("helper"))
		require.Equal(t, "completed", res.State(), res.Said())
		require.Equal(t, "It is 42.", a2atest.Text(res.Artifacts[0].Parts))
	}
	call := model.Calls()[0]
	require.Equal(t, "system", call.Messages[0]["role"])
	require.Equal(t, map[string]any{"role": "user", "content": "What is the answer?"}, call.Messages[len(call.Messages)-1])
	require.NotNil(t, call.Temperature)

	require.Equal(t, int64(17*len(a2atest.Old)), clustertest.One[int64](db, "SELECT sum(total_tokens)::bigint FROM holdfast.v_usage"))
}

// A replica dies in the middle of a call of a tool, at each kind of tool. The other replica goes on behind the last finished
// call, and repeats the interrupted one only if that does no harm.
func TestCallsOfToolsSurviveKill(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		made   int
		result string
	}{
		"look": {2, "done: second"},
		"pay":  {1, "The call was interrupted. It is not known whether it took effect."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := clustertest.NewDB(t)
			tools := mcptest.New(t)
			var last atomic.Pointer[modeltest.Request]
			calls := func(text, tool, of string) modeltest.Handler {
				return modeltest.Streams(modeltest.Role, modeltest.Text(text),
					modeltest.Chunk(fmt.Sprintf(`{"tool_calls":[{"index":0,"id":"c","function":{"name":"shop__%s","arguments":"{\"of\":\"%s\"}"}}]}`, tool, of), "null"),
					modeltest.Chunk(`{}`, `"tool_calls"`), modeltest.Spent, modeltest.Done)
			}
			block := calls("Second.", name, "second")
			model := modeltest.New(t, calls("First.", "pay", "first"),
				func(w http.ResponseWriter, r *http.Request, call modeltest.Request) {
					tools.Block()
					block(w, r, call)
				},
				func(w http.ResponseWriter, _ *http.Request, call modeltest.Request) {
					last.Store(&call)
					modeltest.Write(w, modeltest.Role, modeltest.Text("Done."), modeltest.Stop, modeltest.Spent, modeltest.Done)
				})
			config := documented(t, model) + fmt.Sprintf(`
        tools:
          - name: shop
            argv: [%q]
            env: {%s: %q}
`, tools.Argv()[0], mcptest.Variable, tools.Dir)
			a := clustertest.Start(t, withKey(clustertest.Options{Name: "a", DB: db.URL, Config: config}))
			sent := a.Stream(a2atest.V03, a2atest.Say("Buy").At("helper")).Until("the task", func(e *a2atest.Event) bool { return e.Task() != "" })
			waittest.Eventually(t, "the second call", func() error {
				return waittest.Unless(len(tools.Calls()) == 2, "%v", tools.Calls())
			})
			a.Kill()
			tools.Release()
			b := clustertest.Start(t, withKey(clustertest.Options{Name: "b", DB: db.URL, Config: config}))
			s := b.Subscribe(a2atest.Unversioned, a2atest.Say().To(sent.Task()).At("helper"))
			require.Equal(t, "completed", a2atest.Last(s.Rest()).State())
			res := b.GetOver(a2atest.Unversioned, a2atest.Say().To(sent.Task()).At("helper"))
			require.Equal(t, "First.\n\nSecond.\n\nDone.", a2atest.Text(res.Artifacts[0].Parts))
			require.Len(t, tools.Calls(), 1+c.made, "%v", tools.Calls())
			require.Len(t, model.Calls(), 3, "the model was not asked again")
			var results []any
			for _, m := range last.Load().Messages {
				if m["role"] == "tool" {
					results = append(results, m["content"])
				}
			}
			require.Equal(t, []any{"done: first", c.result}, results)
		})
	}
}

// responses are the events of an answer, of which the fake sends one each time that the test lets it.
func responses(text ...string) []string {
	var events []string
	for _, piece := range text {
		events = append(events, modeltest.Said(0, piece))
	}
	return append(events, modeltest.Ended("completed", "", modeltest.Message(strings.Join(text, ""))))
}

// Replicas die at random moments of many answers. No answer whose id was stored is asked for again, and each one is whole.
func TestResponsesArePaidOnce(t *testing.T) {
	t.Parallel()
	const tasks, kills = 20, 3
	db := clustertest.NewDB(t)
	next := make(chan struct{})
	pieces := strings.SplitAfter(strings.Repeat("All work and \x00no play. ", 10), " ")
	model := modeltest.NewResponses(t, modeltest.Script{Events: responses(pieces...), Next: next})
	config := documented(t, model) + "        api: responses\n"
	start := func(name string) *clustertest.Replica {
		return clustertest.Start(t, withKey(clustertest.Options{Name: name, DB: db.URL, Config: config}))
	}
	replica := start("r0")
	var sent []string
	for range tasks {
		first := replica.Stream(a2atest.V03, a2atest.Say("Speak").At("helper")).Until("the task", func(e *a2atest.Event) bool { return e.Task() != "" })
		sent = append(sent, first.Task())
	}
	bookmarks := 0
	for i := range kills {
		for range 100 + rand.IntN(250) { // all kills together: fewer than the 1200 events that there are
			next <- struct{}{}
		}
		waittest.Eventually(t, "an answer is in the log up to a new bookmark", func() error {
			n := clustertest.One[int](db, "SELECT count(*) FROM holdfast.v_events WHERE (payload->'checkpoint'->'asked'->>'next')::int > 0")
			if n == bookmarks {
				return errors.New("not yet")
			}
			bookmarks = n
			return nil
		})
		replica.Kill()
		replica = start(fmt.Sprintf("r%d", i+1))
	}
	ended := make(chan struct{})
	go func() {
		for {
			select {
			case next <- struct{}{}:
			case <-ended:
				return
			}
		}
	}()
	defer close(ended)
	want := strings.ReplaceAll(strings.Join(pieces, ""), "\x00", "\uFFFD")
	for _, id := range sent {
		s := replica.Subscribe(a2atest.Unversioned, a2atest.Say().To(id).At("helper"))
		require.Equal(t, "completed", a2atest.Last(s.Rest()).State())
		res := replica.GetOver(a2atest.Unversioned, a2atest.Say().To(id).At("helper"))
		require.Len(t, res.Artifacts, 1)
		require.Equal(t, want, a2atest.Text(res.Artifacts[0].Parts))
	}
	const twice = `SELECT count(*) FROM (SELECT FROM holdfast.v_events WHERE payload->'checkpoint'->'asked' IS NOT NULL
		GROUP BY task_id HAVING count(DISTINCT payload->'checkpoint'->'asked'->>'id') > 1) paid`
	require.Zero(t, clustertest.One[int64](db, twice))
	require.NotEmpty(t, model.Reads(), "runs went on")
	t.Logf("%d tasks, %d kills: %d requests for answers, %d reads", tasks, kills, len(model.Calls()), len(model.Reads()))
	require.Equal(t, int64(17*tasks), clustertest.One[int64](db, "SELECT sum(total_tokens)::bigint FROM holdfast.v_usage"))
}

// A model calls two agents, and replicas die while they work. The model has both results, and is asked twice, or once more if b dies while it asks.
func TestModelCallsAgents(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	const calls = `{"tool_calls":[` +
		`{"index":0,"id":"x","type":"function","function":{"name":"agent__one","arguments":"{\"message\":\"chunks=4 size=5 delay=300ms\"}"}},` +
		`{"index":1,"id":"y","type":"function","function":{"name":"agent__two","arguments":"{\"message\":\"fail:second\"}"}}]}`
	dead := make(chan struct{})
	model := modeltest.New(t,
		modeltest.Streams(modeltest.Role, modeltest.Text("I'll ask."), modeltest.Chunk(calls, `"tool_calls"`), modeltest.Spent, modeltest.Done),
		func(w http.ResponseWriter, r *http.Request, _ modeltest.Request) {
			select {
			case <-dead:
				modeltest.Write(w, modeltest.Role, modeltest.Text("Here it is."), modeltest.Stop, modeltest.Spent, modeltest.Done)
			case <-r.Context().Done():
			}
		})
	config := clustertest.Replace(documented(t, model), "parameters:", "agents: [{name: one}, {name: two}]\n        parameters:") + `
  - {name: one, card: {description: The first.}, executor: {kind: demo}, limits: {backoff: 100ms, max_attempts: 20}}
  - {name: two, executor: {kind: demo}, limits: {backoff: 100ms}}
`
	a, b := clustertest.Pair(t, withKey(clustertest.Options{DB: db.URL, Config: config}))
	id := a.Stream(a2atest.V03, a2atest.Say("Go").At("helper")).UntilState("working").Task()
	waittest.Eventually(t, "the agents work", func() error {
		n := clustertest.One[int](db, "SELECT count(*)::int FROM holdfast.v_lineage WHERE parent = $1 AND state <> 'submitted'", db.ID(id))
		return waittest.Unless(n == 2, "%d of 2", n)
	})
	a.Kill()
	a.Run()
	a.WaitServing()
	b.Kill()
	close(dead)
	var res *a2atest.Result
	waittest.Eventually(t, "the task completes", func() error {
		res = a.GetOver(a2atest.Unversioned, a2atest.Say().To(id).At("helper"))
		return waittest.Unless(res.State() == "completed", "%s %s", res.State(), res.Said())
	})
	require.Len(t, res.Artifacts, 2)
	require.Equal(t, "I'll ask.\n\n", a2atest.Text(res.Artifacts[0].Parts))
	require.Equal(t, "Here it is.", a2atest.Text(res.Artifacts[1].Parts))
	require.Equal(t, int64(34), clustertest.One[int64](db, "SELECT sum(total_tokens)::bigint FROM holdfast.v_usage"))
	asked := model.Calls()
	require.Contains(t, []int{2, 3}, len(asked), "b may have asked before it died")
	require.Equal(t, "The first.", asked[0].Tools[0]["function"].(map[string]any)["description"])
	said := asked[1].Messages
	require.Len(t, said, 5)
	require.Equal(t, []any{"Go", "I'll ask.\n\n", "State of the task: failed\n\nsecond"}, []any{said[1]["content"], said[2]["content"], said[4]["content"]})
	require.Regexp(t, `^00000000 \d+ 00000001 \d+ 00000002 \d+ 00000003 \d+ $`, said[3]["content"])
	db.Sound()
}
