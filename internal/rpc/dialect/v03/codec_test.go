package v03_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/dialecttest"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v01"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v03"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

var suite = dialecttest.Suite{
	Codec:      v03.Codec{},
	Examples:   "v0.2",
	Schemas:    []string{"0.2.1", "0.2.5", "0.3.0"},
	Send:       func(message []byte) []byte { return []byte(`{"message":` + string(message) + `}`) },
	History:    map[string]int{`null`: 3, `0`: 0, `2`: 2, `10`: 3},
	ShowsEmpty: true,
}

func TestCodec(t *testing.T)      { t.Parallel(); suite.Exercise(t) }
func FuzzDecode(f *testing.F)     { suite.FuzzDecode(f) }
func BenchmarkCodec(b *testing.B) { suite.Benchmark(b) }

const textMessage = `{"messageId":"m","role":"user","parts":[{"kind":"text","text":"x"}]}`

// The methods of llms.txt are those of the specification, some of its members are not.
func TestMembersOfTheShortText(t *testing.T) {
	t.Parallel()
	for op, params := range map[engine.Op]string{
		engine.OpGet: `{"taskId":"t"}`, engine.OpCancel: `{"taskId":"t"}`, engine.OpSubscribe: `{"taskId":"t"}`, engine.OpPushGet: `{"taskId":"t"}`,
		engine.OpPushSet: `{"taskId":"t","config":{"url":"https://hook.example"}}`,
	} {
		call, err := v03.Codec{}.Decode(op, []byte(params))
		require.NoError(t, err, op)
		require.Equal(t, "t", call.TaskID(), op)
	}
}

func TestDecodeWaitsUnlessTold(t *testing.T) {
	t.Parallel()
	for configuration, want := range map[string]bool{`null`: true, `{}`: true, `{"blocking":null}`: true, `{"blocking":true}`: true, `{"blocking":false}`: false} {
		call, err := v03.Codec{}.Decode(engine.OpSend, []byte(`{"message":`+textMessage+`,"configuration":`+configuration+`}`))
		require.NoError(t, err)
		require.Equal(t, want, call.Send.Wait, configuration)
		require.False(t, call.Send.MayCreate)
	}
}

// A client of either version finds its own complete document in the union, and ignores the other members.
func TestUnionContainsBothVersions(t *testing.T) {
	t.Parallel()
	schemas := []*dialecttest.Schemas{dialecttest.NewSchemas(t, "0.3.0"), dialecttest.NewSchemas(t, "0.1.0")}
	all := dialect.View{History: engine.AllHistory}
	for name, sample := range dialecttest.Tasks() {
		document, err := v03.Codec{Union: true}.Result(engine.OpGet, sample, all)
		require.NoError(t, err)
		new03, err := v03.Codec{}.Result(engine.OpGet, sample, all)
		require.NoError(t, err)
		contains(t, name, document, new03)
		schemas[0].Check(t, "Task", document)
		if !has01(sample.Status.State) || sample.Direct {
			continue // 0.1 has another name for the state, or shows a bare message as an artifact
		}
		old01, err := v01.Codec{}.Result(engine.OpGet, sample, all)
		require.NoError(t, err)
		contains(t, name, document, old01)
		schemas[1].Check(t, "Task", document)
		openings, err := v03.Codec{Union: true}.Opening(engine.OpSubscribe, sample)
		require.NoError(t, err)
		require.Equal(t, sample.Status.State.Settled(), len(openings) == 2, name)
		for _, opening := range openings[1:] {
			schemas[1].Check(t, "TaskStatusUpdateEvent", opening)
		}
	}
	identity := &task.Task{PublicID: "t-1", ContextID: "c-1"}
	for name, event := range dialecttest.Events() {
		for _, passed := range []bool{false, event.Kind == task.EventStatus} {
			document, err := v03.Codec{Union: true}.Event(identity, event, passed)
			require.NoError(t, err)
			new03, err := v03.Codec{}.Event(identity, event, passed)
			require.NoError(t, err)
			contains(t, name, document, new03)
			if event.Kind == task.EventStatus && !has01(event.State) {
				continue
			}
			old01, err := v01.Codec{}.Event(identity, event, passed)
			require.NoError(t, err)
			contains(t, name, document, old01)
		}
	}
	sample := dialecttest.Tasks()["completed"]
	document, err := v03.Codec{Union: true}.Result(engine.OpGet, sample, all)
	require.NoError(t, err)
	dialecttest.Golden(t, "union/completed", document)
	require.NotEqual(t, v03.Codec{}.Traits().ID, v03.Codec{Union: true}.Traits().ID, "the union has no form for events")
}

// has01 reports whether 0.1 has a state by the same name.
func has01(s task.State) bool { return s != task.StateRejected && s != task.StateAuthRequired }

// contains checks that whole has every member of part, with the same value.
func contains(t *testing.T, name string, whole, part []byte) {
	t.Helper()
	w, p := parse(t, whole), parse(t, part)
	require.Empty(t, cmp.Diff(p, within(w, p)), "%s: %s has not all of %s", name, whole, part)
}

func parse(t *testing.T, document []byte) (v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(document))
	d.UseNumber()
	require.NoError(t, d.Decode(&v))
	return v
}

// within returns whole without the members that part does not have.
func within(whole, part any) any {
	switch p := part.(type) {
	case map[string]any:
		w, ok := whole.(map[string]any)
		if !ok {
			return whole
		}
		kept := map[string]any{}
		for name, v := range w {
			if wanted, has := p[name]; has {
				kept[name] = within(v, wanted)
			}
		}
		return kept
	case []any:
		w, ok := whole.([]any)
		if !ok || len(w) != len(p) {
			return whole
		}
		kept := make([]any, len(w))
		for i := range w {
			kept[i] = within(w[i], p[i])
		}
		return kept
	}
	return whole
}
