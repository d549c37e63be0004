package faults

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
)

// A replica dies in the middle of its runs. Another one goes on at the first chunk that is not stored, and clients resume there.
func TestTasksOfKilledReplicaEndOnAnother(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	a := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: clustertest.Patient}) // alone: it runs all tasks that it acknowledges
	var streams []*a2atest.Reply
	var tasks []string
	for i := range 12 {
		// Each run stores one chunk, and waits for a day before the next one.
		s := a.Stream(a2atest.Old[i%2], a2atest.Say("chunks=2 size=48 delay=24h"))
		tasks = append(tasks, s.Until("a chunk", func(e *a2atest.Event) bool { return e.Artifact != nil }).Task())
		streams = append(streams, s)
	}
	ended := a.Send(a2atest.V03, a2atest.Say("echo:before")).Task()
	a.Kill()
	db.Expire(a)
	b := clustertest.Start(t, clustertest.Options{Name: "b", DB: db.URL, Config: clustertest.Patient})
	for i, id := range tasks {
		_, err := streams[i].UntilEnd()
		require.Error(t, err, "the stream broke")
		rest := b.Resume(id, streams[i].Last).Rest()
		require.Equal(t, "completed", a2atest.Last(rest).State())
		clustertest.Indexed(t, db.Chunks(id), 2)
		require.Contains(t, db.Runs(id), "lost", "the log has the lost attempt")
		all := db.Seqs(id)
		require.Equal(t, all[len(all)-len(rest):], a2atest.Seqs(rest), "the rest, once and in order")
		require.Equal(t, streams[i].Last, all[len(all)-len(rest)-1])
	}
	require.Equal(t, "completed", b.Get(ended).State())
	require.Equal(t, len(tasks), clustertest.One[int](db, "SELECT count(*) FROM holdfast.tasks WHERE runs > 1 AND attempt > 1"), "attempts are visible")
	require.Equal(t, 1, clustertest.One[int](db, "SELECT count(*) FROM holdfast.workers"), "the dead process is gone")

	a.Run()
	require.Equal(t, "completed", a.Send(a2atest.V03, a2atest.Say("echo:again")).State())
}
