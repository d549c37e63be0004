package agents

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/modeltest"
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
