package protocol

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
)

// Any version reads any task: one speaker creates a task, a second continues it, and all read and stream it, for every pair.
// A speaker is a version over a binding. The tests derive the expected documents member by member from the rules of
// docs/protocol.md, without the server's codecs.

// place is an agent on a replica. 0.3 over gRPC names no agent, and reaches the default one.
type place struct {
	*clustertest.Replica
	agent string
}

// version is how a version shows the content of the matrix, over some wires.
type version struct {
	name  string
	wires []*a2atest.Wire
	send  func(m *said, taskID, contextID string, metadata json.RawMessage) object
	get   func(taskID string) object
	// task and event are the documents of a version: a task after a send or with all its history, and an event.
	task  func(k *told, sent bool) object
	event func(k *told, e *happened) object
	// unsaid drops what a version cannot express: a client of that version cannot send it either.
	unsaid func(m *said)
}

// speaker is a version over one wire.
type speaker struct {
	*version
	wire *a2atest.Wire
}

// ask makes a request.
func (s speaker) ask(at place, op a2atest.Op, taskID string, params object) *a2atest.Reply {
	a := &a2atest.Args{Agent: at.agent, Task: taskID, Params: params}
	if op == a2atest.Subscribe {
		a.After = "0"
	}
	if s.wire.Binding == a2atest.REST && (op == a2atest.Get || op == a2atest.Subscribe) {
		a.Params = nil // the path has all parameters
	}
	return at.Begin(s.wire, op, a)
}

// call makes a request with one result.
func (s speaker) call(t *testing.T, at place, op a2atest.Op, taskID string, params object) any {
	t.Helper()
	e, err := s.ask(at, op, taskID, params).Next()
	require.NoError(t, err)
	return s.document(t, e)
}

// follow reads the stream of a task to its end.
func (s speaker) follow(t *testing.T, at place, taskID string) (ids []int64, results []any) {
	t.Helper()
	events, err := s.ask(at, a2atest.Subscribe, taskID, s.get(taskID)).UntilEnd()
	require.ErrorIs(t, err, io.EOF)
	for _, e := range events {
		require.NotZero(t, e.Seq, "every event has an id")
		ids, results = append(ids, e.Seq), append(results, s.document(t, e))
	}
	return ids, results
}

// document is a result, member by member. In gRPC, times with a zero fraction have none.
func (s speaker) document(t *testing.T, e *a2atest.Event) any {
	t.Helper()
	v := exactly(t, e.Raw)
	if s.wire.Binding == a2atest.GRPC {
		v = withMillis(v)
	}
	return v
}

// said is a message, and the meaning of its parts.
type said struct {
	id, role   string
	parts      []piece
	metadata   string
	extensions []string
	references []string
}

// piece is a part: exactly one of the first four members is set.
type piece struct {
	text, raw, url, data  string
	filename, media, meta string
}

type made struct {
	id, name, description, meta string
	index                       int
	parts                       []piece
	extensions                  []string
}

// happened is an event of a stream.
type happened struct {
	state       string
	message     *said
	artifact    *made
	more, last  bool
	finalBefore bool // the state would end a stream, but the task has continued
}

// told is the expected task.
type told struct {
	id, context string
	state       string
	status      *said
	history     []*said
	artifacts   []*made
	metadata    string
	events      []*happened
}

const opaque = `{"z":12345678901234567890123,"a":1.0,"m":[1e400,null,{"k":"<&>"}]}`

// everyPiece has content of every kind.
func everyPiece() []piece {
	return []piece{
		{text: "plain & <simple>", meta: `{"p":1}`},
		{raw: "aGVsbG8=", filename: "r.txt", media: "text/plain"},
		{url: "https://example.com/a?b=c", media: "image/png"},
		{data: opaque, meta: opaque},
		{data: `[1.50,"two"]`},
		{data: `"a scalar"`, meta: `{"mine":true}`},
	}
}

// Plays are what the agent does in its two turns, and the expected state.
var plays = []struct{ name, end, state string }{
	{"completes", "complete", "completed"},
	{"rejects", "reject", "rejected"},
	{"fails", "fail", "failed"},
}

func TestEveryVersionReadsEveryTask(t *testing.T) {
	t.Parallel()
	var speakers []speaker
	for _, v := range versions {
		for _, w := range v.wires {
			speakers = append(speakers, speaker{v, w})
		}
	}

	db := clustertest.NewDB(t)
	agents := newScripts(t)
	config := clustertest.Steady
	for _, p := range plays {
		config += fmt.Sprintf("  - {name: %s, card: {default_input_modes: ['*/*']}, executor: {kind: http, http: {url: %q}}}\n",
			p.name, agents.URL+"/"+p.name)
		t.Cleanup(agents.learn(p.name, rehearse(t, p.end)).open)
	}
	places := map[string]place{}
	for _, p := range plays {
		r := clustertest.Start(t, clustertest.Options{Name: p.name, DB: db.URL, Config: strings.Replace(config, "name: "+p.name+",", "default: true, name: "+p.name+",", 1)})
		places[p.name] = place{r, p.name}
	}
	for i, a := range speakers {
		for j, b := range speakers {
			p := plays[(i+j)%len(plays)]
			t.Run(fmt.Sprintf("%s, %s, %s", a.wire, b.wire, p.name), func(t *testing.T) {
				t.Parallel()
				at := places[p.name]
				k, first := opening(a.version)
				sent := a.call(t, at, a2atest.Send, "", a.send(first, k.id, k.context, json.RawMessage(k.metadata)))
				k.id = taskID(sent)
				require.NotEmpty(t, k.id)
				same(t, a.task(k, true), sent)
				for _, c := range speakers {
					same(t, c.task(k, false), c.call(t, at, a2atest.Get, k.id, c.get(k.id)))
				}
				answer := closing(k, b.version, p.state)
				sent = b.call(t, at, a2atest.Send, k.id, b.send(answer, k.id, k.context, nil))
				same(t, b.task(k, true), sent)
				for _, c := range speakers {
					c.reads(t, at, k)
				}
			})
		}
	}
}

// reads reads a task that has ended: itself, in a list, and as a stream.
func (s speaker) reads(t *testing.T, at place, k *told) {
	t.Helper()
	same(t, s.task(k, false), s.call(t, at, a2atest.Get, k.id, s.get(k.id)))
	if s.wire == a2atest.V10 || s.wire == a2atest.REST10 {
		page, isPage := s.call(t, at, a2atest.List, "", object{"contextId": k.context, "includeArtifacts": true}).(object)
		require.True(t, isPage)
		same(t, object{
			"tasks": []any{s.task(k, false)}, "nextPageToken": "", "pageSize": json.Number("50"), "totalSize": json.Number("1"),
		}, page)
	}
	ids, events := s.follow(t, at, k.id)
	events = withoutStarts(events, &ids)
	require.Len(t, events, len(k.events), "%v", events)
	for i, e := range k.events {
		same(t, s.event(k, e), events[i])
		require.True(t, i == 0 || ids[i] > ids[i-1])
	}
}

// withoutStarts leaves out the events for the start of a run, which are not in the plays.
func withoutStarts(events []any, ids *[]int64) []any {
	var out []any
	var kept []int64
	for i, e := range events {
		text := string(a2atest.JSON(e))
		if strings.Contains(strings.ToLower(text), `working"`) && !strings.Contains(text, `"role"`) {
			continue
		}
		out, kept = append(out, e), append(kept, (*ids)[i])
	}
	*ids = kept
	return out
}

// opening is the task after its first turn, and its first message.
func opening(a *version) (*told, *said) {
	first := &said{
		id: "m-" + rand.Text(), role: "user", parts: everyPiece(), metadata: opaque,
		extensions: []string{"https://example.com/ext"}, references: []string{"t-0"},
	}
	a.unsaid(first)
	k := &told{context: "c-" + rand.Text(), metadata: `{"n":1.0}`, state: "input-required"}
	if a.name == "0.1" {
		k.id = "t-" + rand.Text()
	}
	if slices.Contains(a.wires, a2atest.GRPC03) || slices.Contains(a.wires, a2atest.GRPC10) {
		k.metadata = doubles(k.metadata)
	}
	reading := &said{id: "s-1", role: "agent", parts: []piece{{text: "Reading"}}}
	k.status = &said{id: "s-2", role: "agent", parts: []piece{{text: "Which one?"}, {data: `[1]`}}, metadata: `{"q":1.0}`}
	k.history = []*said{first, reading}
	k.artifacts = []*made{report()}
	k.events = []*happened{
		{state: "working", message: reading},
		{artifact: report()},
		{state: "input-required", message: k.status, finalBefore: true},
	}
	return k, first
}

func report() *made {
	return &made{
		id: "a-1", name: "report", description: "what was found", meta: `{"pages":2}`, extensions: []string{"https://example.com/ext"},
		parts: append(everyPiece(), piece{text: "# heading", media: "text/markdown", filename: "a.md"}),
	}
}

// closing is the task after its second turn, and that turn's message.
func closing(k *told, b *version, state string) *said {
	answer := &said{id: "m-" + rand.Text(), role: "user", parts: []piece{{text: "That one"}}}
	b.unsaid(answer)
	k.history = append(k.history, k.status, answer)
	k.state = state
	k.status = &said{id: "s-3", role: "agent", parts: []piece{{text: "The end"}}, metadata: `{"why":"because"}`}
	whole := report()
	whole.parts = append(whole.parts, piece{text: "more"})
	second := &made{id: "a-2", index: 1, parts: []piece{{text: "second"}}}
	k.artifacts = []*made{whole, second}
	more := &made{id: "a-1", parts: []piece{{text: "more"}}}
	k.events = append(k.events,
		&happened{state: "submitted"},
		&happened{artifact: more, more: true, last: true},
		&happened{artifact: second},
		&happened{state: state, message: k.status},
	)
	return answer
}

// rehearse is the agent's script for two turns, in the format of executors.
func rehearse(t *testing.T, end string) [][]string {
	t.Helper()
	k, _ := opening(versions[2])
	message := func(m *said) object { return messageV10(m, "", "") }
	line := func(kind string, members object) string {
		members["type"] = kind
		return string(a2atest.JSON(members))
	}
	agentMessage := func(m *said) object {
		o := message(m)
		delete(o, "role")
		return o
	}
	first := []string{
		line("status", object{"message": agentMessage(k.history[1])}),
		line("artifact", object{"artifact": artifactV10(k.artifacts[0])}),
		line("ask", object{"message": agentMessage(k.status)}),
	}
	closing(k, versions[2], "")
	second := []string{
		line("artifact", object{"artifact": artifactV10(&made{id: "a-1", parts: []piece{{text: "more"}}}), "append": true, "last": true}),
		line("artifact", object{"artifact": artifactV10(k.artifacts[1])}),
		line(end, object{"message": agentMessage(k.status)}),
	}
	return [][]string{first, second}
}

// Placeholders for values that cannot be predicted.
const (
	anyID   = "\x00an id"
	anyTime = "\x00a time"
)

var millis = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`)

// same compares expected and actual documents as JSON.
func same(t *testing.T, want, got any) {
	t.Helper()
	if complaint := differ("", normal(t, want), got); complaint != "" {
		require.FailNow(t, complaint, "want %s\ngot  %s", a2atest.JSON(want), a2atest.JSON(got))
	}
}

func differ(path string, want, got any) string {
	switch w := want.(type) {
	case object:
		g, ok := got.(object)
		if !ok {
			return fmt.Sprintf("%s: is %v and no object", path, got)
		}
		for name := range g {
			if _, wanted := w[name]; !wanted {
				return fmt.Sprintf("%s.%s: should not be there", path, name)
			}
		}
		for name, v := range w {
			if _, there := g[name]; !there {
				return fmt.Sprintf("%s.%s: is missing", path, name)
			}
			if complaint := differ(path+"."+name, v, g[name]); complaint != "" {
				return complaint
			}
		}
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return fmt.Sprintf("%s: is %v", path, got)
		}
		for i := range w {
			if complaint := differ(fmt.Sprintf("%s[%d]", path, i), w[i], g[i]); complaint != "" {
				return complaint
			}
		}
	case string:
		s, ok := got.(string)
		switch {
		case !ok, w == anyID && s == "", w == anyTime && !millis.MatchString(s), w[:min(1, len(w))] != "\x00" && w != s:
			return fmt.Sprintf("%s: is %v, want %q", path, got, w)
		}
	default:
		if want != got {
			return fmt.Sprintf("%s: is %v, want %v", path, got, want)
		}
	}
	return ""
}

// normal is a value after a round trip through JSON, with numbers as written.
func normal(t *testing.T, v any) any {
	t.Helper()
	return exactly(t, a2atest.JSON(v))
}

func exactly(t *testing.T, doc []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	var v any
	require.NoError(t, d.Decode(&v), "%s", doc)
	return v
}

// taskID finds the id in the answer to a send, wrapped or not.
func taskID(sent any) string {
	o, _ := sent.(object)
	if wrapped, ok := o["task"].(object); ok {
		o = wrapped
	}
	id, _ := o["id"].(string)
	return id
}
