package worker_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/worker"
	httpexec "github.com/holdfast-a2a/holdfast/internal/worker/executor/http"
)

// v_usage shows the usage of an agent that reports it as docs/sql.md says.
func TestUsageInSQL(t *testing.T) {
	t.Parallel()
	manual := storetest.Must(os.ReadFile("../../docs/sql.md"))(t)
	_, usage, _ := strings.Cut(string(manual), "\n## Usage\n")
	_, events, _ := strings.Cut(usage, "```ndjson\n")
	events, _, found := strings.Cut(events, "```")
	require.True(t, found)
	// A value that is not a number counts as nothing, and breaks no sum.
	const odd = `{"type": "artifact", "artifact": {"parts": [{"text": "x"}], "metadata": {"usage": {"totalTokens": "many"}}}}
{"type": "artifact", "artifact": {"parts": [{"text": "x"}]}, "metadata": {"usage": 7}}
`
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		_, _ = w.Write([]byte(odd + events))
	}))
	t.Cleanup(backend.Close)
	agent := storetest.Must(httpexec.New(httpexec.Options{URL: backend.URL}))(t)
	p := start(t, setup{}, worker.Agent{Executor: agent})
	p.become(p.create("a", "Book a trip"), task.StateCompleted)

	conn := storetest.Must(pgx.Connect(t.Context(), p.url))(t)
	defer conn.Close(context.Background()) //nolint:errcheck // the database goes next
	var rows int
	var input, output, total int64
	require.NoError(t, conn.QueryRow(t.Context(),
		"SELECT count(*), sum(input_tokens)::bigint, sum(output_tokens)::bigint, sum(total_tokens)::bigint FROM holdfast.v_usage").
		Scan(&rows, &input, &output, &total))
	require.Equal(t, []int64{3, 1000, 200, 2000}, []int64{int64(rows), input, output, total})
}
