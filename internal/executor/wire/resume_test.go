package wire

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/executor"
	"github.com/holdfast-a2a/holdfast/internal/executor/executortest"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

func TestRunDocumentOfAResume(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1)
	for name, c := range map[string]struct {
		in   task.Resumed
		want string
	}{
		"JSON":             {task.Resumed{Method: "POST", ContentType: "application/json", Body: []byte(`{"a": 1.0}`)}, `{"contentType":"application/json","data":{"a":1.0}}`},
		"a query":          {task.Resumed{Method: "GET", Query: "code=1&state=x"}, `{"method":"GET","query":"code=1&state=x"}`},
		"a form":           {task.Resumed{Method: "POST", ContentType: "application/x-www-form-urlencoded", Body: []byte("code=1")}, `{"contentType":"application/x-www-form-urlencoded","text":"code=1"}`},
		"bytes":            {task.Resumed{Method: "POST", Body: []byte{0xff, 0}}, `{"bytes":"/wA="}`},
		"not JSON":         {task.Resumed{Method: "POST", ContentType: "application/json", Body: []byte(`{`)}, `{"contentType":"application/json","text":"{"}`},
		"names twice":      {task.Resumed{Method: "POST", ContentType: "application/json", Body: []byte(`{"a":1,"a":2}`)}, `{"contentType":"application/json","text":"{\"a\":1,\"a\":2}"}`},
		"half a surrogate": {task.Resumed{Method: "POST", ContentType: "application/json", Body: []byte(`"\ud83d"`)}, `{"contentType":"application/json","text":"\"\\ud83d\""}`},
		"deep":             {task.Resumed{Method: "POST", ContentType: "application/json", Body: []byte(deep)}, `{"contentType":"application/json","text":"` + deep + `"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := executortest.NewRun("")
			run.Turn, run.Message, run.ResumeURL = 2, &task.Message{}, "https://example.com/resume/x"
			run.Input = &executor.Input{Source: executor.SourceResume, Resumed: &c.in}
			raw, err := EncodeRun(t.Context(), run, History{})
			require.NoError(t, err)
			require.NoError(t, compile(t, "run").Validate(instance(t, string(raw))))
			var doc map[string]json.RawMessage
			require.NoError(t, json.Unmarshal(raw, &doc))
			var got, want map[string]json.RawMessage
			require.NoError(t, json.Unmarshal(doc["input"], &got))
			require.NoError(t, json.Unmarshal([]byte(c.want), &want))
			want["source"], want["method"] = []byte(`"resume"`), []byte(`"`+c.in.Method+`"`)
			require.Len(t, got, len(want))
			for name, value := range want {
				require.JSONEq(t, string(value), string(got[name]), name)
			}
			require.JSONEq(t, `{"url":"https://example.com/resume/x"}`, string(doc["resume"]))
			require.Nil(t, doc["message"])
		})
	}
}

func TestPlayerAsksWithAResumeURL(t *testing.T) {
	t.Parallel()
	for event, want := range map[string]struct {
		valid time.Duration
		texts []string
	}{
		`{"type":"ask","message":"ok?","resume":{"for":60,"show":true}}`: {time.Minute, []string{"ok?", "\n" + executortest.ResumeURL}},
		`{"type":"auth","resume":{"show":true}}`:                         {24 * time.Hour, []string{executortest.ResumeURL}},
		`{"type":"ask","message":"ok?","resume":{}}`:                     {24 * time.Hour, []string{"ok?"}},
		`{"type":"ask","message":"ok?","resume":null}`:                   {0, []string{"ok?"}},
	} {
		require.NoError(t, compile(t, "event").Validate(instance(t, event)), event)
		out := executortest.NewRecorder()
		p := NewPlayer(executortest.NewRun("x"), out)
		require.NoError(t, p.PlayLine(t.Context(), 1, []byte(event)))
		require.True(t, p.Settled())
		var texts []string
		for _, part := range out.Events()[0].Message.Parts {
			texts = append(texts, part.Text)
		}
		require.Equal(t, want.texts, texts, event)
		require.Equal(t, want.valid, out.Events()[0].Resumable, event)
	}
	for event, why := range map[string]string{
		`{"type":"ask","message":"?","resume":{"for":0}}`:   "resume.for: must be more than 0",
		`{"type":"ask","message":"?","resume":{"until":1}}`: "resume.until",
		`{"type":"complete","message":"?","resume":{}}`:     "resume",
		`{"type":"auth","resume":{"for":1e300}}`:            "resume.for",
	} {
		_, bad := Decode([]byte(event))
		require.ErrorContains(t, bad, why, event)
		require.Error(t, compile(t, "event").Validate(instance(t, event)), event)
	}
}
