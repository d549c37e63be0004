package server

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/server/telemetry"
)

// The part of the memory limit, in percent, that the Go runtime may use: the rest is for stacks of threads, the kernel's
// buffers, and processes beside this one.
const (
	runtimeShare = 90
	besideShare  = 60 // with an embedded PostgreSQL
)

// budgets sets the memory limit of the process and divides the bytes in flight. The first server of a process gives a small
// heap room until that ends.
func budgets(process context.Context, first bool, cfg *config.Config, registry prometheus.Registerer, log *slog.Logger) *limit.Budgets {
	share := int64(runtimeShare)
	if cfg.DatabaseURL == "" {
		share = besideShare
	}
	memory := limit.FindMemory(int64(cfg.Limits.Memory), share)
	if first {
		memory.Room(process)
	}
	inFlight := limit.MemoryShare(memory.Bytes)
	log.Info("memory limit", "bytes", memory.Bytes, "source", memory.Source, "runtime_bytes", memory.Runtime, "bytes_in_flight", inFlight)
	b := limit.NewBudgets(inFlight)
	telemetry.RegisterMemory(registry, memory.Bytes, b.Each)
	return b
}
