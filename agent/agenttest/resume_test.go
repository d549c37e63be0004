package agenttest_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/agent"
	"github.com/holdfast-a2a/holdfast/agent/agenttest"
)

func TestResume(t *testing.T) {
	t.Parallel()
	var urls []string
	k := agenttest.New(t, agent.Func(func(ctx context.Context, run *agent.Run, out agent.Emitter) error {
		urls = append(urls, run.ResumeURL)
		if run.Input == nil {
			return out.Ask(ctx, agent.Ask{Auth: true, Message: agent.Say("Sign in."), Resume: &agent.Resume{}})
		}
		require.Equal(t, agent.Callback, run.Input.Source)
		require.Empty(t, run.Message.Parts)
		return out.Complete(ctx, agent.Say(run.Input.Resumed.Method+" "+string(run.Input.Resumed.Body)))
	}))
	k.Say("hi").Want("working", `auth-required: "Sign in."`)
	k.Resume(agent.Resumed{Method: "POST", Body: []byte("yes")}).Want("working", `completed: "POST yes"`)
	require.Len(t, urls, 2)
	require.NotEqual(t, urls[0], urls[1])
}
