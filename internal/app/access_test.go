package app

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
)

func TestWhichRequestsHaveALine(t *testing.T) {
	t.Parallel()
	answers := []dispatch.Answer{
		{Operation: "send", Binding: "rest", Version: "v", Agent: "a", Outcome: "ok", Admitted: true, Tenant: "acme", Took: time.Second, TaskID: "t", ContextID: "c", TraceID: "x", RequestID: "r"},
		{Operation: "cancel", Outcome: "NOT_FOUND", Admitted: true},
		{Operation: "get", Outcome: "ok", Admitted: true},
		{Operation: "send", Outcome: "UNAUTHENTICATED"},
		{Operation: "none", Outcome: "refused"},
	}
	for which, want := range map[config.LogRequests]int{config.RequestsNone: 0, config.RequestsWrites: 2, config.RequestsAll: len(answers)} {
		var out bytes.Buffer
		log := slog.New(slog.NewJSONHandler(&out, nil))
		for i := range answers {
			logRequest(log, which, &answers[i])
		}
		lines := bytes.Count(out.Bytes(), []byte("\n"))
		require.Equal(t, want, lines, which)
		if lines == 0 {
			continue
		}
		var first map[string]any
		require.NoError(t, json.NewDecoder(&out).Decode(&first))
		delete(first, "time")
		require.Equal(t, map[string]any{
			"level": "INFO", "msg": "request", "operation": "send", "binding": "rest", "version": "v", "agent": "a", "outcome": "ok", "took": 1e9,
			"task_id": "t", "context_id": "c", "tenant": "acme", "trace_id": "x", "request_id": "r",
		}, first)
	}
}
