package agent_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/agent"
	"github.com/holdfast-a2a/holdfast/internal/test/nettest"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

func TestServeRunsAgentsOfTheProgram(t *testing.T) {
	addr := nettest.Reserve(t)
	t.Setenv("HOLDFAST_DATABASE_URL", storetest.New(t).URL)
	t.Setenv("HOLDFAST_LISTEN", addr)
	t.Setenv("HOLDFAST_ADMIN_LISTEN", nettest.Reserve(t))
	t.Setenv("HOLDFAST_GRPC_LISTEN", "off")
	t.Setenv("HOLDFAST_CONFIG", "")

	shout := agent.Func(func(ctx context.Context, run *agent.Run, out agent.Emitter) error {
		return out.Artifact(ctx, agent.Text("shout", strings.ToUpper(run.Text())))
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- agent.Serve(ctx, slog.New(slog.DiscardHandler), map[string]agent.Executor{"shout": shout})
	}()
	defer func() {
		cancel()
		require.NoError(t, <-ended)
	}()

	const body = `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":
		{"messageId":"m","role":"user","parts":[{"kind":"text","text":"hear me"}]}}}`
	waittest.Eventually(t, "the answer of the agent", func() error {
		resp, err := http.Post("http://"+addr+"/agents/shout", "application/json", strings.NewReader(body))
		if err != nil {
			return err // not listening yet
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		heard := strings.Contains(string(answer), "HEAR ME") && strings.Contains(string(answer), `"completed"`)
		return errors.Join(err, waittest.Unless(heard, "%s", answer))
	})
}

func TestServeNamesMissingAgent(t *testing.T) {
	t.Setenv("HOLDFAST_CONFIG", "../examples/holdfast.yaml")
	t.Setenv("WEATHER_TOKEN", "secret")
	err := agent.Serve(context.Background(), nil, map[string]agent.Executor{"absent": agent.Func(nil)})
	require.ErrorContains(t, err, `has no agent named "absent", which the program brings`)
}
