package bench

import "testing"

// The benchmarks run in this order: raw limits and idle measurements before load. Each group has a database and
// replicas of its own. README.md says what each number means.

func BenchmarkRawNotify(b *testing.B) { rawNotify(b) }
func BenchmarkRawInsert(b *testing.B) { rawInsert(b) }
func BenchmarkRawUnnest(b *testing.B) { rawUnnest(b) }
func BenchmarkRawEcho(b *testing.B)   { rawEcho(b) }
func BenchmarkRawSSE(b *testing.B)    { rawSSE(b) }

func BenchmarkLatency(b *testing.B)   { latency(b) }
func BenchmarkPushLag(b *testing.B)   { pushLag(b) }
func BenchmarkFanOut(b *testing.B)    { fanOut(b) }
func BenchmarkWAL(b *testing.B)       { wal(b) }
func BenchmarkChunkCost(b *testing.B) { chunkCost(b) }
func BenchmarkMemory(b *testing.B)    { memory(b) }
func BenchmarkReads(b *testing.B)     { reads(b) }
func BenchmarkLongTask(b *testing.B)  { longTask(b) }
func BenchmarkGet(b *testing.B)       { get(b) }

func BenchmarkBlocking(b *testing.B)       { blocking(b) }
func BenchmarkPoll(b *testing.B)           { poll(b) }
func BenchmarkStream(b *testing.B)         { stream(b) }
func BenchmarkAway(b *testing.B)           { away(b) }
func BenchmarkLLM(b *testing.B)            { llm(b) }
func BenchmarkBindings(b *testing.B)       { bindings(b) }
func BenchmarkPushDeliveries(b *testing.B) { pushDeliveries(b) }
func BenchmarkPushCost(b *testing.B)       { pushCost(b) }
func BenchmarkIdentity(b *testing.B)       { identity(b) }
func BenchmarkReplicas(b *testing.B)       { replicated(b) }
func BenchmarkManyReplicas(b *testing.B)   { manyReplicas(b) }
func BenchmarkIdleStreams(b *testing.B)    { manyStreams(b) }
func BenchmarkStored(b *testing.B)         { stored(b) }
func BenchmarkRetention(b *testing.B)      { retention(b) }
func BenchmarkWorkersBegin(b *testing.B)   { begins(b) }
func BenchmarkWorkersClaims(b *testing.B)  { claimed(b) }
func BenchmarkWorkersIdle(b *testing.B)    { idleWorkers(b) }
func BenchmarkConsoles(b *testing.B)       { consoles(b) }
func BenchmarkConsoleView(b *testing.B)    { consoleView(b) }
func BenchmarkOldSnapshot(b *testing.B)    { oldSnapshot(b) }
