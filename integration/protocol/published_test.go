package protocol

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// conversations are the examples of the published documents, grouped by task. Each group has an agent of its own,
// because the documents repeat their task ids.
var conversations = []struct {
	name  string
	dir   string
	files []string
}{
	{"joke", "v0.1-readme", []string{"01-send-task", "02-get-task"}},
	{"cancel", "v0.1-readme", []string{"03-cancel-task"}},
	{"push", "v0.1-readme", []string{"04-push-set", "05-push-get"}},
	{"report", "v0.1-readme", []string{"06-multi-turn-send", "07-multi-turn-get"}},
	{"picture", "v0.1-readme", []string{"08-stream", "09-resubscribe"}},
	{"overview", "v0.1-readme", []string{"10-non-textual-send", "11-non-textual-get"}},
	{"tickets", "v0.1-readme", []string{"12-structured-output"}},

	{"capital", "v0.1.0-first", []string{"01-basic"}},
	{"mars", "v0.1.0-first", []string{"02-stream"}},
	{"flight", "v0.1.0-first", []string{"03-input-required", "04-input-provided"}},
	{"sales", "v0.1.0-first", []string{"05-push", "06-get"}},

	{"capital2", "v0.1.0-second", []string{"01-basic"}},
	{"mars2", "v0.1.0-second", []string{"02-stream"}},
	{"flight2", "v0.1.0-second", []string{"03-input-required", "04-input-provided"}},
	{"sales2", "v0.1.0-second", []string{"05-push", "06-get"}},
	{"faces2", "v0.1.0-second", []string{"07-file"}},
	{"tickets2", "v0.1.0-second", []string{"08-structured"}},

	{"joke3", "v0.2.1", []string{"01-basic-task"}},
	{"message3", "v0.2.1", []string{"02-basic-message"}},
	{"picture3", "v0.2.1", []string{"03-stream"}},
	{"flight3", "v0.2.1", []string{"04-input-required", "05-input-provided"}},
	{"sales3", "v0.2.1", []string{"06-push"}},
	{"faces3", "v0.2.1", []string{"07-file"}},
	{"tickets3", "v0.2.1", []string{"08-structured"}},
}

// The server takes each request as the documents print it, and a task goes through their states. That all documents of the server
// satisfy the published schemas is shown in internal/rpc/dialect.
func TestPublishedExamples(t *testing.T) {
	t.Parallel()
	agents := newScripts(t)
	// No delivery may reach the hosts of these webhooks, and none is looked up.
	config := clustertest.Replace(clustertest.Steady, "agents:", "push: {allow_private: true}\nagents:")
	exercised := map[string]bool{}
	for _, c := range conversations {
		config += fmt.Sprintf("  - {name: %s, direct_replies: %t, executor: {kind: http, http: {url: %q}}}\n", c.name, c.name == "message3", agents.URL+"/"+c.name)
		for _, f := range c.files {
			exercised[filepath.Join("testdata/published", c.dir, f+".request.json")] = true
		}
	}
	all, err := filepath.Glob("testdata/published/*/*.request.json")
	require.NoError(t, err)
	require.Len(t, all, len(exercised))
	for _, f := range all {
		require.True(t, exercised[f], "%s is not exercised", f)
	}
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: clustertest.NewDB(t).URL, Config: config, Env: []string{"HOLDFAST_ROLES=api,worker"}})
	for _, c := range conversations {
		t.Run(c.dir+" "+c.name, func(t *testing.T) {
			t.Parallel()
			play(t, r.In(t).Under("/agents/"+c.name), agents, c.name, c.dir, c.files)
		})
	}
}

// play sends the requests about one task. The agent asks until the last message, unless the documents say what it does.
func play(t *testing.T, r *a2atest.Peer, agents *scripts, name, dir string, files []string) {
	t.Helper()
	var turns [][]string
	for _, f := range files {
		if method := requestOf(t, dir, f, nil).Method; strings.Contains(method, "send") || strings.Contains(method, "stream") {
			turns = append(turns, []string{`{"type":"ask","message":"And?"}`})
		}
	}
	if turns = append(turns, nil); len(turns) > 1 {
		turns = turns[:len(turns)-1]
	}
	turns[len(turns)-1] = []string{map[string]string{"message3": `{"type":"reply","message":"hi"}`, "cancel": gateway}[name], `{"type":"complete"}`}
	t.Cleanup(agents.learn(name, turns).open)
	ids := map[string]string{} // from those of the example to the server's
	for _, f := range files {
		request := requestOf(t, dir, f, ids)
		switch f {
		case "03-cancel-task":
			r.Stream(a2atest.V01, a2atest.Say("work").To(request.Params.ID)).UntilState("working")
		case "04-push-set": // for a task whose creation the document does not show
			r.Send(a2atest.V01, a2atest.Say("Tell a joke.").To(request.Params.ID))
		}
		resp, err := a2atest.Post(waittest.Context(t), r.URL, request.body)
		require.NoError(t, err)
		defer resp.Body.Close()
		require.Equal(t, http.StatusOK, resp.StatusCode)
		streams := slices.Contains([]string{"tasks/sendSubscribe", "message/stream", "tasks/resubscribe"}, request.Method)
		require.Equal(t, streams, resp.Header.Get("Content-Type") == "text/event-stream")
		var raw bytes.Buffer
		_, err = raw.ReadFrom(resp.Body)
		require.NoError(t, err)
		got, want := answers(t, raw.Bytes()), published(t, dir, f)
		for i := range got {
			require.Equal(t, string(request.ID), string(got[i].ID))
			require.Nil(t, got[i].Error, "%s", raw.Bytes())
		}
		if len(want) == 0 {
			continue
		}
		ours, err := got[len(got)-1].Result()
		require.NoError(t, err)
		theirs, err := want[len(want)-1].Result()
		require.NoError(t, err)
		ids[theirs.Task()], ids[theirs.ContextID], ids[theirs.SessionID] = ours.Task(), ours.ContextID, ours.SessionID
		delete(ids, "")
		require.Equal(t, theirs.Status == nil, ours.Status == nil, "%s", raw.Bytes())
		if slices.Contains([]string{"completed", "canceled", "input-required"}, theirs.State()) { // the others are of a run under way
			require.Equal(t, theirs.State(), ours.State(), "%s", raw.Bytes())
		}
	}
}

// exampleRequest is a request of the documents, with the server's ids instead of theirs.
type exampleRequest struct {
	body   []byte
	ID     json.RawMessage
	Method string
	Params struct{ ID string }
}

func requestOf(t *testing.T, dir, f string, ids map[string]string) *exampleRequest {
	t.Helper()
	body, err := os.ReadFile(filepath.Join("testdata/published", dir, f+".request.json"))
	require.NoError(t, err)
	for theirs, ours := range ids {
		body = bytes.ReplaceAll(body, []byte(strconv.Quote(theirs)), []byte(strconv.Quote(ours)))
	}
	r := &exampleRequest{body: body}
	require.NoError(t, json.Unmarshal(body, r))
	return r
}

// published are the published answers: one, those of a stream, or none.
func published(t *testing.T, dir, f string) []*a2atest.Answer {
	t.Helper()
	for _, kind := range []string{".json", ".sse"} {
		if body, err := os.ReadFile(filepath.Join("testdata/published", dir, f+".response"+kind)); err == nil {
			return answers(t, body)
		}
	}
	return nil
}

// answers reads one document, or those of a stream.
func answers(t *testing.T, body []byte) (all []*a2atest.Answer) {
	t.Helper()
	docs := [][]byte{body}
	if !json.Valid(body) {
		docs = nil
		for line := range bytes.Lines(body) {
			if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
				docs = append(docs, data)
			}
		}
	}
	for _, doc := range docs {
		a := &a2atest.Answer{}
		require.NoError(t, json.Unmarshal(doc, a), "%s", doc)
		all = append(all, a)
	}
	return all
}
