package app

import (
	"cmp"
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/memory"
	"github.com/holdfast-a2a/holdfast/internal/telemetry"
)

// The part of the memory limit, in percent, that the Go runtime may use: the rest is for stacks of threads, the kernel's
// buffers, and processes beside this one.
const (
	runtimeShare = 90
	besideShare  = 60 // with an embedded PostgreSQL
)

// budgets sets the memory limit of the process and divides the bytes in flight. The first server of a process gives a small
// heap room until that ends.
func budgets(process context.Context, first bool, cfg *config.Config, registry prometheus.Registerer, log *slog.Logger) *memory.Budgets {
	share := int64(runtimeShare)
	if cfg.DatabaseURL == "" {
		share = besideShare
	}
	limit := memory.Find(int64(cfg.Limits.Memory), share)
	if first {
		limit.Room(process)
	}
	inFlight := cmp.Or(int64(cfg.Limits.BytesInFlight), memory.Share(limit.Bytes))
	log.Info("memory limit", "bytes", limit.Bytes, "source", limit.Source, "runtime_bytes", limit.Runtime, "bytes_in_flight", inFlight)
	b := memory.New(inFlight)
	if n := int64(cfg.Limits.EndedTasks); n > 0 {
		b.Ended, b.Replays = memory.NewBudget(n/2), memory.NewBudget(n/2)
	}
	telemetry.RegisterMemory(registry, limit.Bytes, func(visit func(string, memory.Stat)) {
		b.Each(func(name string, of *memory.Budget) { visit(name, of.Stat()) })
	})
	return b
}
