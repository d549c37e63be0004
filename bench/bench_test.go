package bench

import "testing"

// The benchmarks run in this order: raw limits and idle measurements before load. Each group has a database and
// replicas of its own. README.md says what each number means.

func BenchmarkRawNotify(b *testing.B) { rawNotify(b) }
func BenchmarkRawInsert(b *testing.B) { rawInsert(b) }
func BenchmarkRawUnnest(b *testing.B) { rawUnnest(b) }
func BenchmarkRawEcho(b *testing.B)   { rawEcho(b) }
func BenchmarkRawSSE(b *testing.B)    { rawSSE(b) }

func BenchmarkLatency(b *testing.B) { latency(b) }
func BenchmarkFanOut(b *testing.B)  { fanOut(b) }

func BenchmarkBlocking(b *testing.B) { blocking(b) }
func BenchmarkPoll(b *testing.B)     { poll(b) }
func BenchmarkStream(b *testing.B)   { stream(b) }
func BenchmarkReplicas(b *testing.B) { replicated(b) }
