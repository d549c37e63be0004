package server

import (
	"context"
	"log/slog"

	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// logRequest writes the line of a request. Requests of callers that no agent admits have one only if all have: anyone can send
// them.
func logRequest(log *slog.Logger, which config.LogRequests, a *dispatch.Answer) {
	if which == config.RequestsNone || which == config.RequestsWrites && (!a.Admitted || !a.Writes()) {
		return
	}
	attrs := make([]slog.Attr, 0, 11)
	attrs = append(attrs, slog.String("operation", a.Operation), slog.String("binding", a.Binding), slog.String("version", a.Version),
		slog.String("agent", a.Agent), slog.String("outcome", a.Outcome), slog.Duration("took", a.Took))
	for _, id := range [...]slog.Attr{
		slog.String("task_id", task.Shown(a.TaskID)), slog.String("context_id", task.Shown(a.ContextID)), slog.String("tenant", a.Tenant),
		slog.String("trace_id", a.TraceID), slog.String("request_id", a.RequestID),
	} {
		if id.Value.String() != "" {
			attrs = append(attrs, id)
		}
	}
	log.LogAttrs(context.Background(), slog.LevelInfo, "request", attrs...)
}
