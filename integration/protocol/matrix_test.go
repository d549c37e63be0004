package protocol

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
)

// The agent says this in its two turns: parts of every kind, and JSON that no codec may change.
const (
	opaque  = `{"z":12345678901234567890123,"a":1.0,"m":[1e400,null,{"k":"<&>"}]}`
	pieces  = `{"text":"plain & <simple>","metadata":{"p":1}},{"raw":"aGVsbG8=","filename":"r.txt","mediaType":"text/plain"},{"data":` + opaque + `}`
	asking  = `{"messageId":"s-2","parts":[{"text":"Which one?"},{"data":[1]}],"metadata":{"q":1.0}}`
	reading = `{"type":"status","message":{"messageId":"s-1","parts":[{"text":"Reading"}]}}`
	report  = `{"type":"artifact","artifact":{"artifactId":"a-1","name":"report","description":"found","metadata":{"pages":2},"parts":[` + pieces + `]}}`
	more    = `{"type":"artifact","artifact":{"artifactId":"a-1","parts":[{"text":"more"}]},"append":true,"last":true}`
	second  = `{"type":"artifact","artifact":{"artifactId":"a-2","parts":[{"url":"https://example.com/a?b=c","mediaType":"image/png"},{"data":"x"}]}}`
	end     = `{"type":"complete","message":{"messageId":"s-3","parts":[{"text":"The end"}],"metadata":{"why":"because"}}}`
)

// One wire creates a task, a second one continues it, and every wire shows it as it shows those of all other pairs: whole, in a list
// and as a stream. How each version shows a task is in the golden files of internal/rpc/dialect.
func TestEveryVersionReadsEveryTask(t *testing.T) {
	t.Parallel()
	agents := newScripts(t)
	t.Cleanup(agents.learn("plays", [][]string{{reading, report, `{"type":"ask","message":` + asking + `}`}, {more, second, end}}).open)
	config := clustertest.Steady + fmt.Sprintf("  - {name: plays, default: true, executor: {kind: http, http: {url: %q}}}\n", agents.URL+"/plays")
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: clustertest.NewDB(t).URL, Config: config})
	play := func(at *a2atest.Peer, first, then *a2atest.Wire) (taskID string) {
		opening := a2atest.Say("A question", "of two parts").As(uuid.NewString())
		if first == a2atest.V01 {
			opening = opening.To(uuid.NewString()) // its clients name their tasks
		}
		asked := at.Send(first, opening)
		require.Equal(at.T, first.Worded("input-required"), asked.State())
		answered := at.Send(then, a2atest.Say("That one").As(uuid.NewString()).To(asked.Task()))
		require.Equal(at.T, then.Worded("completed"), answered.State())
		return asked.Task()
	}
	want := map[*a2atest.Wire]string{}
	sample := play(r.In(t), a2atest.V10, a2atest.V10)
	for _, w := range a2atest.Wires {
		want[w] = shows(r.In(t), w, sample)
		for _, piece := range []string{"A question", "That one", "Reading", "Which one?", "The end", "found", "aGVsbG8=", "example.com", "because"} {
			require.GreaterOrEqual(t, strings.Count(want[w], piece), 1, "%s over %s: %s", piece, w, want[w])
		}
		require.Equal(t, w.Binding != a2atest.GRPC, strings.Contains(want[w], `"z":12345678901234567890123`), "numbers of gRPC are doubles")
	}
	for _, first := range a2atest.Wires {
		t.Run(first.String(), func(t *testing.T) {
			t.Parallel()
			at := r.In(t)
			for _, then := range a2atest.Wires {
				id := play(at, first, then)
				for _, w := range a2atest.Wires {
					require.Equal(t, want[w], shows(at, w, id), "continued over %s, read over %s", then, w)
				}
			}
		})
	}
}

// shows is how a wire shows a task that has ended: whole with its history, in a list, and as a stream. Ids and times are left out.
func shows(r *a2atest.Peer, w *a2atest.Wire, taskID string) string {
	r.T.Helper()
	whole := a2atest.Say().To(taskID)
	if w == a2atest.V01 {
		whole.Params = object{"id": taskID, "historyLength": 100}
	}
	got, err := r.Begin(w, a2atest.Get, whole).Next()
	require.NoError(r.T, err)
	docs := []json.RawMessage{got.Raw}
	if w.Version == "1.0" {
		page, err := r.Begin(w, a2atest.List, &a2atest.Args{Params: object{"contextId": got.ContextID, "includeArtifacts": true}}).Next()
		require.NoError(r.T, err)
		docs = append(docs, page.Raw)
	}
	events, err := r.Begin(w, a2atest.Subscribe, &a2atest.Args{Task: taskID, After: "0"}).UntilEnd()
	require.ErrorIs(r.T, err, io.EOF)
	require.True(r.T, slices.IsSorted(a2atest.Seqs(events)))
	for _, e := range events {
		docs = append(docs, e.Raw)
	}
	var out strings.Builder
	for _, doc := range docs {
		d := json.NewDecoder(bytes.NewReader(doc))
		d.UseNumber() // as they are written
		var v any
		require.NoError(r.T, d.Decode(&v))
		out.Write(append(a2atest.JSON(v), '\n'))
	}
	return passing.ReplaceAllString(out.String(), `""`)
}

// passing is what differs from task to task.
var passing = regexp.MustCompile(`"([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z)"`)
