package engine

import (
	"bytes"
	"encoding/base64"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

func TestNegotiate(t *testing.T) {
	t.Parallel()
	text, data := task.Text("x"), task.Part{Kind: task.PartData, Data: []byte("{}")}
	file := func(media string) task.Part { return task.Part{Kind: task.PartRaw, MediaType: media} }
	tests := []struct {
		name        string
		reads       []string
		writes      []string
		parts       []task.Part
		wants       []string
		field, says string // of the error; empty: accepted
	}{
		{name: "an agent that declares nothing", parts: []task.Part{text, file("image/png")}, wants: []string{"image/png"}},
		{name: "a declared mode", reads: []string{"text/plain", "image/png"}, parts: []task.Part{text, file("Image/PNG; q=1")}},
		{name: "a file that does not say", reads: []string{"text/plain"}, parts: []task.Part{file("")}},
		{name: "a pattern", reads: []string{"text/plain", "image/*"}, parts: []task.Part{file("image/png")}},
		{name: "any", reads: []string{"*/*"}, parts: []task.Part{data, file("a/b")}},
		{
			name: "a file of another type", reads: []string{"text/plain"}, parts: []task.Part{text, file("image/png")},
			field: "message.parts[1]", says: `message.parts[1]: the agent reads text/plain, not "image/png"; an operator can allow it with agents[].card.default_input_modes`,
		},
		{
			name: "data for an agent that reads text", reads: []string{"text/plain"}, parts: []task.Part{data},
			field: "message.parts[0]", says: `message.parts[0]: the agent reads text/plain, not "application/json"; an operator can allow it with agents[].card.default_input_modes`,
		},
		{
			name: "text for an agent that reads images", reads: []string{"image/*"}, parts: []task.Part{text},
			field: "message.parts[0]", says: `message.parts[0]: the agent reads image/*, not "text/plain"; an operator can allow it with agents[].card.default_input_modes`,
		},
		{name: "one output of several", writes: []string{"text/plain"}, parts: []task.Part{text}, wants: []string{"image/png", "text/*"}},
		{name: "any output", writes: []string{"text/plain"}, parts: []task.Part{text}, wants: []string{"*/*"}},
		{name: "the modes of the first documents", writes: []string{"text/plain"}, parts: []task.Part{text}, wants: []string{"text"}},
		{
			name: "no output in common", writes: []string{"text/plain"}, parts: []task.Part{text}, wants: []string{"image/png", "a/b"},
			field: "configuration.acceptedOutputModes",
			says:  `configuration.acceptedOutputModes: the agent writes text/plain, not "image/png, a/b"; an operator can allow it with agents[].card.default_output_modes`,
		},
	}
	many := &SendRequest{Message: &task.Message{}, OutputModes: make([]string, maxOutputModes+1)}
	require.ErrorIs(t, (&Agent{}).negotiate(many), task.Invalid)
	many.OutputModes = many.OutputModes[1:]
	require.NoError(t, (&Agent{}).negotiate(many))
	require.Len(t, many.OutputModes, 100)
	named := &SendRequest{PartsMember: "message.content", Message: &task.Message{Parts: []task.Part{data}}}
	require.ErrorContains(t, (&Agent{InputModes: []string{"text/plain"}}).negotiate(named), "message.content[0]: ")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			agent := Agent{InputModes: tt.reads, OutputModes: tt.writes}
			r := &SendRequest{Message: &task.Message{Parts: tt.parts}, OutputModes: tt.wants}
			err := agent.negotiate(r)
			if tt.field == "" {
				require.NoError(t, err)
				return
			}
			var fault *task.Error
			require.ErrorAs(t, err, &fault)
			require.Equal(t, task.ContentType, fault.Kind)
			require.Equal(t, tt.field, fault.Field)
			require.Equal(t, tt.says, fault.Msg)
		})
	}
}

var (
	listed = &ListRequest{ContextID: "c"}
	at     = position{place: store.Place{At: time.UnixMicro(1_767_607_202_120_987), ID: task.ID{1, 2, 3}}, total: 7}
)

func viewOf(key string, c task.Caller, agent string) *View {
	return New(Options{PageKey: []byte(key), Store: func(task.Caller, store.Visibility) Store { return nil }}).As(c, agent)
}

// A token is good for the same list of the same caller only, but for lists that show other parts of the tasks.
func TestPageTokens(t *testing.T) {
	t.Parallel()
	alice := task.Caller{Tenant: "t", Subject: "alice"}
	v := viewOf("key", alice, "a")
	token := v.token(listed, at)
	got, ok := v.readToken(listed, token)
	require.True(t, ok)
	require.True(t, at.place.At.Equal(got.place.At))
	require.Equal(t, at.place.ID, got.place.ID)
	require.Equal(t, at.total, got.total)
	_, ok = v.readToken(&ListRequest{ContextID: "c", PageSize: 3, WithArtifacts: true, WithHistory: true, ExactTotal: true}, token)
	require.True(t, ok)
	for name, at := range map[string]struct {
		*View
		*ListRequest
	}{
		"another caller":   {viewOf("key", task.Caller{Tenant: "t", Subject: "bob"}, "a"), listed},
		"another tenant":   {viewOf("key", task.Caller{Tenant: "u", Subject: "alice"}, "a"), listed},
		"another agent":    {viewOf("key", alice, "strict"), listed},
		"another page key": {viewOf("another", alice, "a"), listed},
		"another context":  {v, &ListRequest{ContextID: "d"}},
		"another state":    {v, &ListRequest{ContextID: "c", State: task.StateCompleted}},
		"another since":    {v, &ListRequest{ContextID: "c", Since: time.Unix(1, 0)}},
	} {
		_, ok := at.readToken(at.ListRequest, token)
		require.False(t, ok, name)
	}
}

// FuzzPageToken: the server accepts only tokens that it issued, bit for bit.
func FuzzPageToken(f *testing.F) {
	v := viewOf("key", task.Caller{}, "a")
	token := v.token(listed, at)
	raw, err := base64.RawURLEncoding.DecodeString(token)
	require.NoError(f, err)
	for i := range raw {
		forged := bytes.Clone(raw)
		forged[i] ^= 1
		f.Add(base64.RawURLEncoding.EncodeToString(forged))
	}
	for _, seed := range []string{"", token, token[1:], token[:len(token)/2], token + "=", token + "A", "AAAA", "\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, token string) {
		if p, ok := v.readToken(listed, token); ok {
			require.Equal(t, token, v.token(listed, p))
		}
	})
}
