package protocol

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
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

// beyond are members that the server sends and an example may lack. The documents define them all.
var beyond = map[string][]string{
	"v0.1-readme":   {"sessionId", "timestamp", "index", "name"},
	"v0.1.0-first":  {"sessionId", "timestamp", "index"},
	"v0.1.0-second": {"sessionId", "timestamp", "index"},
	"v0.2.1":        {"timestamp", "kind", "role", "messageId", "taskId", "contextId", "history"},
}

func TestPublishedExamples(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	scripts := newScripts(t)
	// No delivery may reach the hosts of these webhooks, and none is looked up.
	config := clustertest.Replace(clustertest.Steady, "agents:", "push: {allow_private: true}\nagents:")
	exercised := map[string]bool{}
	for _, c := range conversations {
		config += fmt.Sprintf("  - {name: %s, direct_replies: %v, executor: {kind: http, http: {url: %q}}}\n",
			c.name, c.name == "message3", scripts.URL+"/"+c.name)
		for _, f := range c.files {
			exercised[filepath.Join(c.dir, f)] = true
		}
	}
	all, err := filepath.Glob("testdata/published/*/*.request.json")
	require.NoError(t, err)
	require.Len(t, all, len(exercised))
	for _, f := range all {
		name := filepath.Join(filepath.Base(filepath.Dir(f)), strings.TrimSuffix(filepath.Base(f), ".request.json"))
		require.True(t, exercised[name], "%s is not exercised", name)
	}
	roles := []string{"HOLDFAST_ROLES=api,worker"}
	both := clustertest.Together(t, clustertest.Options{Name: "waits", DB: db.URL, Config: config, Env: roles},
		clustertest.Options{Name: "answers", DB: db.URL, Config: clustertest.Replace(config, "max_block: 1h", "max_block: 1s"), Env: roles})
	for _, c := range conversations {
		t.Run(c.dir+" "+c.name, func(t *testing.T) {
			t.Parallel()
			r := both[0]
			for _, f := range c.files {
				if docs := published(t, c.dir, f); len(docs) > 0 && !ends(docs) {
					r = both[1] // an example of an answer before the end
				}
			}
			(&conversation{
				t: t, dir: c.dir, Peer: r.In(t).Under("/agents/" + c.name), name: c.name, scripts: scripts, ids: map[string]string{},
			}).run(c.files)
		})
	}
}

// conversation plays the examples about one task.
type conversation struct {
	t   *testing.T
	dir string
	*a2atest.Peer
	name    string
	scripts *scripts
	ids     map[string]string // from ids of the example to the server's
	streams []*a2atest.Event  // of the last stream
}

func (c *conversation) run(files []string) {
	t := c.t
	// First the agent learns its script from the examples.
	var runs [][]string
	responses := make([][]json.RawMessage, len(files))
	for i, f := range files {
		responses[i] = published(t, c.dir, f)
	}
	for i, f := range files {
		request := c.request(f)
		if len(responses[i]) == 0 || !strings.Contains(request.Method, "send") && !strings.Contains(request.Method, "stream") {
			continue
		}
		script := playing(t, responses[i])
		if !ends(responses[i]) {
			script = append(script, gateway)
			if i+1 < len(files) {
				script = append(script, playing(t, responses[i+1])...)
			}
		}
		runs = append(runs, script)
	}
	if c.name == "cancel" {
		runs = [][]string{{gateway}}
	}
	gate := c.scripts.learn(c.name, runs)
	t.Cleanup(gate.open)

	for i, f := range files {
		request := c.request(f)
		switch f {
		case "03-cancel-task":
			c.Stream(a2atest.V01, a2atest.Say("work").To(request.Params.ID)).UntilState("working")
		case "07-multi-turn-get", "11-non-textual-get", "06-get":
			gate.open()
			waittest.Eventually(t, "the task ends", func() error {
				got, err := a2atest.Ask(waittest.Context(t), c.URL, request.body)
				if err != nil {
					return err
				}
				res, err := got.Result()
				if err != nil {
					return err
				}
				return waittest.Unless(res.State() == "completed", "%s", res.State())
			})
		case "04-push-set": // for a task whose creation the document does not show
			c.Send(a2atest.V01, a2atest.Say("Tell a joke.").To(request.Params.ID))
		}
		header := []string{}
		if f == "09-resubscribe" { // it begins with the second chunk
			for _, e := range c.streams {
				if e.Artifact != nil {
					header = []string{"Last-Event-ID", strconv.FormatInt(e.Seq, 10)}
					break
				}
			}
		}
		if request.streams() {
			c.stream(f, request, responses[i], header)
			continue
		}
		got := c.AskRaw(request.body, header...)
		require.Equal(t, http.StatusOK, got.HTTP)
		require.Equal(t, string(request.ID), string(got.ID))
		require.Nil(t, got.Error)
		if len(responses[i]) != 1 {
			continue
		}
		if ends(responses[i]) {
			c.same(request, responses[i][0], got.Body)
			continue
		}
		res, err := got.Result()
		require.NoError(t, err)
		waittest.Eventually(t, "the task is as far as the example", func() error {
			problems := c.compare(".result", result(t, responses[i][0]), decoded(t, got.Raw), request)
			got = c.Ask("tasks/get", object{"id": res.ID})
			return waittest.Unless(len(problems) == 0, "%v", problems)
		})
	}
}

func (c *conversation) stream(f string, request *exampleRequest, want []json.RawMessage, header []string) {
	t := c.t
	resp, err := a2atest.Post(waittest.Context(t), c.URL, request.body, header...)
	require.NoError(t, err)
	defer resp.Body.Close()
	var raw bytes.Buffer
	_, err = raw.ReadFrom(resp.Body)
	require.NoError(t, err)
	s := a2atest.NewStream(t, bytes.NewReader(raw.Bytes()))
	c.streams = s.Rest()
	docs := documents(raw.Bytes())
	for len(docs) > 0 {
		if len(want) > 0 {
			problems := c.compare("", decoded(t, want[0]), decoded(t, docs[0]), request)
			if len(problems) == 0 {
				want, docs = want[1:], docs[1:]
				continue
			}
			// Where the example has no event, the server says that the task was stored and that it runs.
			if !progress(t, docs[0]) {
				require.FailNow(t, "the stream differs", "%s\nwant %s\ngot  %s", strings.Join(problems, "\n"), want[0], docs[0])
			}
		} else if !progress(t, docs[0]) {
			require.FailNow(t, "the stream continues", "%s", docs[0])
		}
		docs = docs[1:]
	}
	require.Empty(t, want, "events are missing")
}

// progress reports whether an event only says submitted or working.
func progress(t *testing.T, doc []byte) bool {
	t.Helper()
	var a a2atest.Answer
	require.NoError(t, json.Unmarshal(doc, &a))
	res, err := a.Result()
	require.NoError(t, err)
	return !res.Final && res.Said() == "" && (res.State() == "working" || res.State() == "submitted")
}

func (c *conversation) same(request *exampleRequest, want, got []byte) {
	c.t.Helper()
	if problems := c.compare("", decoded(c.t, want), decoded(c.t, got), request); len(problems) > 0 {
		require.FailNow(c.t, "the answer differs", "%s\nwant %s\ngot  %s", strings.Join(problems, "\n"), compact(want), got)
	}
}

// compare lists the members in which the server's answer differs from the published one. Ids and times are
// illustrations; null, false or empty members may be absent.
func (c *conversation) compare(path string, want, got any, request *exampleRequest) (problems []string) {
	complain := func(format string, args ...any) []string {
		return append(problems, path+": "+fmt.Sprintf(format, args...))
	}
	switch want := want.(type) {
	case map[string]any:
		got, ok := got.(map[string]any)
		if !ok {
			return complain("is no object")
		}
		if file, ok := want["data"].(string); ok && strings.HasSuffix(path, ".file") {
			want["bytes"] = file
			delete(want, "data")
		}
		for name, w := range want {
			g, there := got[name]
			switch {
			case !there && !empty(w):
				problems = append(problems, path+"."+name+": is missing")
			case there && w != nil:
				problems = append(problems, c.compare(path+"."+name, w, g, request)...)
			}
		}
		for name, g := range got {
			if _, there := want[name]; !there && !empty(g) && !slices.Contains(beyond[c.dir], name) {
				problems = append(problems, path+"."+name+": is not in the example")
			}
		}
		return problems
	case []any:
		got, ok := got.([]any)
		if !ok || len(got) != len(want) {
			return complain("want %d elements, got %v", len(want), got)
		}
		for i := range want {
			problems = append(problems, c.compare(fmt.Sprintf("%s[%d]", path, i), want[i], got[i], request)...)
		}
		return problems
	case string:
		got, ok := got.(string)
		switch name := path[strings.LastIndex(path, ".")+1:]; {
		case !ok:
			return complain("is no string")
		case name == "timestamp":
			return nil
		case path == ".result.status.state" && want == "submitted" && got == "working":
			// The servers in the documents answer at once, this one after it has waited for the task.
			return nil
		case !strings.Contains(string(request.body), want) && slices.Contains([]string{"id", "sessionId", "contextId", "taskId", "messageId"}, name):
			// An id of the example always means the same id of the server.
			if ours, known := c.ids[want]; known && ours != got {
				return complain("%s was %s, and is %s here", want, ours, got)
			}
			c.ids[want] = got
			return nil
		}
		if want != got {
			return complain("want %q, got %q", want, got)
		}
		return nil
	}
	if want != got {
		return complain("want %v, got %v", want, got)
	}
	return nil
}

func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case bool:
		return !v
	case map[string]any:
		return len(v) == 0
	}
	return false
}

// exampleRequest is a request of the documents, with the server's ids instead of theirs.
type exampleRequest struct {
	body   []byte
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		ID string `json:"id"`
	} `json:"params"`
}

func (r *exampleRequest) streams() bool {
	return slices.Contains([]string{"tasks/sendSubscribe", "message/stream", "tasks/resubscribe"}, r.Method)
}

func (c *conversation) request(f string) *exampleRequest {
	c.t.Helper()
	body, err := os.ReadFile(filepath.Join("testdata/published", c.dir, f+".request.json"))
	require.NoError(c.t, err)
	for theirs, ours := range c.ids {
		body = bytes.ReplaceAll(body, []byte(strconv.Quote(theirs)), []byte(strconv.Quote(ours)))
	}
	r := &exampleRequest{body: body}
	require.NoError(c.t, json.Unmarshal(body, r))
	return r
}

// published are the published documents of a response: one, those of a stream, or none.
func published(t *testing.T, dir, f string) []json.RawMessage {
	t.Helper()
	path := filepath.Join("testdata/published", dir, f+".response")
	if body, err := os.ReadFile(path + ".json"); err == nil {
		return []json.RawMessage{body}
	}
	body, err := os.ReadFile(path + ".sse")
	if err != nil {
		return nil
	}
	return documents(body)
}

func documents(sse []byte) []json.RawMessage {
	var out []json.RawMessage
	for line := range bytes.Lines(sse) {
		if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
			out = append(out, bytes.TrimSpace(data))
		}
	}
	return out
}

// gateway is the step at which an agent waits for the test.
const gateway = "gate"

// gate lets agents pass gateways.
type gate struct {
	pass chan struct{}
	once sync.Once
}

// step lets one agent pass one gateway; open lets all pass all.
func (g *gate) step() { g.pass <- struct{}{} }
func (g *gate) open() { g.once.Do(func() { close(g.pass) }) }

// ends reports whether the task of a response needs no more runs.
func ends(docs []json.RawMessage) bool {
	var a a2atest.Answer
	if json.Unmarshal(docs[len(docs)-1], &a) != nil {
		return false
	}
	res, err := a.Result()
	return err == nil && res.State() != "working" && res.State() != "submitted"
}

// playing makes the events of an agent whose task then looks like a published response.
func playing(t *testing.T, docs []json.RawMessage) []string {
	t.Helper()
	var out []string
	emit := func(kind string, members object) {
		members["type"] = kind
		out = append(out, string(a2atest.JSON(members)))
	}
	for _, doc := range docs {
		var a struct{ Result exampleResult }
		require.NoError(t, json.Unmarshal(doc, &a))
		r := a.Result
		if len(r.Parts) > 0 { // a message without a task
			emit("reply", object{"message": exampleMessage{MessageID: r.MessageID, Parts: r.Parts}.vocabulary()})
			continue
		}
		if r.Artifact != nil {
			r.Artifacts = []exampleArtifact{*r.Artifact}
		}
		for i, a := range r.Artifacts {
			artifact := object{"artifactId": fmt.Sprintf("a%d", i), "name": a.Name, "parts": vocabulary(a.Parts)}
			if a.ArtifactID != "" {
				artifact["artifactId"] = a.ArtifactID
			}
			emit("artifact", object{"artifact": artifact, "append": a.Append || r.Append, "last": a.LastChunk || r.LastChunk})
		}
		if r.Status == nil {
			continue
		}
		members := object{}
		if r.Status.Message != nil {
			members["message"] = r.Status.Message.vocabulary()
		}
		switch r.Status.State {
		case "working":
			emit("status", members)
		case "input-required":
			emit("ask", members)
		case "completed":
			emit("complete", members)
		}
	}
	return out
}

// exampleResult has the members of a result, in either version, that depend on the agent.
type exampleResult struct {
	MessageID string
	Parts     []map[string]any
	Status    *struct {
		State   string
		Message *exampleMessage
	}
	Artifact  *exampleArtifact
	Artifacts []exampleArtifact
	Append    bool
	LastChunk bool
}

type exampleMessage struct {
	MessageID string
	Parts     []map[string]any
	Metadata  any
}

type exampleArtifact struct {
	ArtifactID, Name  string
	Parts             []map[string]any
	Append, LastChunk bool
}

func (m exampleMessage) vocabulary() object {
	out := object{"parts": vocabulary(m.Parts)}
	if m.MessageID != "" {
		out["messageId"] = m.MessageID
	}
	if m.Metadata != nil {
		out["metadata"] = m.Metadata
	}
	return out
}

func vocabulary(parts []map[string]any) []object {
	var out []object
	for _, p := range parts {
		part := object{}
		for name, v := range p {
			switch file, isFile := v.(map[string]any); {
			case name == "file" && isFile:
				for theirs, ours := range map[string]string{"name": "filename", "mimeType": "mediaType", "uri": "url", "bytes": "raw"} {
					if v, there := file[theirs]; there {
						part[ours] = v
					}
				}
			case name == "text" || name == "data" || name == "metadata" && v != nil:
				part[name] = v
			}
		}
		out = append(out, part)
	}
	return out
}

// scripts is an HTTP server with an agent per path, each with a script.
type scripts struct {
	URL   string
	mu    sync.Mutex // guards the fields below
	runs  map[string][][]string
	gates map[string]*gate
}

func newScripts(t *testing.T) *scripts {
	t.Helper()
	s := &scripts{runs: map[string][][]string{}, gates: map[string]*gate{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.URL = server.URL
	return s
}

// learn adds a script, and returns the agent's gate.
func (s *scripts) learn(name string, runs [][]string) *gate {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs[name], s.gates[name] = runs, &gate{pass: make(chan struct{})}
	return s.gates[name]
}

func (s *scripts) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var run struct{ Turn int }
	if err := json.NewDecoder(r.Body).Decode(&run); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	name := strings.Trim(r.URL.Path, "/")
	s.mu.Lock()
	runs, gate := s.runs[name], s.gates[name]
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/x-ndjson")
	_ = http.NewResponseController(w).Flush()
	if run.Turn > len(runs) {
		return
	}
	for _, event := range runs[run.Turn-1] {
		if event == gateway {
			select {
			case <-gate.pass:
			case <-r.Context().Done():
				return
			}
			continue
		}
		_, _ = fmt.Fprintln(w, event)
		_ = http.NewResponseController(w).Flush()
	}
}

// result is the result in a document.
func result(t *testing.T, doc []byte) any {
	t.Helper()
	return decoded(t, doc).(object)["result"]
}

func decoded(t *testing.T, doc []byte) any {
	t.Helper()
	var v any
	require.NoError(t, json.Unmarshal(doc, &v))
	return v
}

func compact(doc []byte) []byte {
	var b bytes.Buffer
	_ = json.Compact(&b, doc)
	return b.Bytes()
}
