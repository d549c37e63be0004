package operators

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/invarianttest"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// commands are the ones of docs/operations.md under a mark, so that operators run what the test runs.
func commands(t *testing.T, mark string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	m := regexp.MustCompile("(?s)<!-- test: " + regexp.QuoteMeta(mark) + " -->\n```sh\n(.*?)```").FindSubmatch(page)
	require.NotNil(t, m, "docs/operations.md has no commands for "+mark)
	return string(m[1])
}

// directory makes a directory for PostgreSQL's account.
func directory(t *testing.T, pg *storetest.PrivateServer) string {
	t.Helper()
	dir := strings.TrimSpace(pg.Shell("mktemp -d"))
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// needPrograms skips a test where PostgreSQL's clients are missing, as in the embedded distribution.
func needPrograms(t *testing.T, programs ...string) {
	t.Helper()
	base, err := storetest.Basebackup(t.Context())
	if err != nil {
		t.Skipf("backups need PostgreSQL's programs: %v", err)
	}
	for _, p := range programs {
		if _, err := os.Stat(filepath.Join(filepath.Dir(base), p)); err != nil {
			t.Skipf("backups need PostgreSQL's programs: %v", err)
		}
	}
}

// before is what clients have when a backup is made.
type before struct {
	ended, asked, running string
	stream                *a2atest.Reply
}

// client leaves a task of each kind, and reads the first events of one that runs.
func client(r *clustertest.Replica) (b before) {
	b.ended = r.Send(a2atest.V03, a2atest.Say("echo:kept")).Task()
	b.asked = r.Send(a2atest.V03, a2atest.Say("ask:what?")).Task()
	b.stream = r.Stream(a2atest.V03, a2atest.Say("hold"))
	b.running = b.stream.UntilState("working").Task()
	return b
}

// lose ends the running task, and creates one. The backup has neither.
func (b *before) lose(r *clustertest.Replica) (created string) {
	r.Cancel(b.running)
	require.Equal(r.T, "canceled", a2atest.Last(b.stream.Rest()).State())
	return r.Send(a2atest.V03, a2atest.Say("echo:lost")).Task()
}

// restored checks what a client finds on the restored database: what was there goes on, what is lost is unknown, and the
// stream begins with a snapshot.
func (b *before) restored(t *testing.T, r *clustertest.Replica, database, lost string) {
	t.Helper()
	require.Equal(t, "completed", r.Get(b.ended).State())
	require.Equal(t, -32001, r.Ask("tasks/get", map[string]any{"id": lost}).Error.Code)
	require.Equal(t, "completed", r.Send(a2atest.V03, a2atest.Say("that").To(b.asked)).State())
	late := r.ResumeAt(b.running, b.stream.LastID)
	require.Equal(t, "task", late.Take(1)[0].Kind, "a snapshot, whichever event has the number of the lost one")
	db := clustertest.OpenDB(t, database)
	waittest.Eventually(t, "the task that was running runs again", func() error {
		worker := clustertest.One[string](db, "SELECT coalesce(max(w.name), '') FROM holdfast.tasks t JOIN holdfast.workers w ON w.id = t.worker_id WHERE t.id = $1", b.running)
		return waittest.Unless(r.Is(worker), "%q has it", worker)
	})
	r.Cancel(b.running)
	require.Equal(t, "canceled", a2atest.Last(late.Rest()).State())
	require.NoError(t, invarianttest.Check(t.Context(), database))
	db.Sound()
}

func TestRestoreADump(t *testing.T) {
	t.Parallel()
	needPrograms(t, "pg_dump", "pg_dumpall", "pg_restore", "psql")
	pg := storetest.Server(t, map[string]string{"fsync": "off"})
	dir := directory(t, pg)
	a := clustertest.Start(t, clustertest.Options{Name: "a", DB: pg.URL, Config: clustertest.Settings})
	b := client(a)
	env := []string{"DATABASE_URL=" + pg.URL, "BACKUPS=" + dir}
	pg.Shell(commands(t, "dump"), env...)
	lost := b.lose(a) // later than the dump
	a.Stop()

	other := storetest.Empty(t, map[string]string{"fsync": "off"})
	other.Shell(commands(t, "restore a dump"), append(env, "RESTORED_URL="+other.URL)...)
	a.Options.DB = other.URL
	a.Run()
	require.NotContains(t, a.Log(), "row-level security is off")
	b.restored(t, a, other.URL, lost)
	res := clustertest.Command(t, t.TempDir(), []string{"HOLDFAST_DATABASE_URL=" + other.URL}, "audit", "verify")
	require.Zero(t, res.Code, res.Err)
}

func TestRestoreToAPointInTime(t *testing.T) {
	t.Parallel()
	needPrograms(t)
	// The archive is beside the cluster, whose account makes it before the first segment is full.
	archive, err := os.MkdirTemp("", "holdfast-archive-") //nolint:usetesting // as root, PostgreSQL's user cannot enter t.TempDir
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(archive) })
	require.NoError(t, os.Chmod(archive, 0o777|os.ModeSticky))
	pg := storetest.Server(t, map[string]string{
		"fsync": "off", "archive_mode": "on", "archive_command": fmt.Sprintf("test ! -f %[1]s/%%f && cp %%p %[1]s/%%f", archive),
	})
	dir := directory(t, pg)
	env := []string{"DATABASE_URL=" + pg.URL, "BACKUPS=" + dir, "ARCHIVE=" + archive}
	a := clustertest.Start(t, clustertest.Options{Name: "a", DB: pg.URL, Config: clustertest.Settings})
	pg.Shell(commands(t, "base backup"), env...)

	b := client(a) // later than the base backup
	db := clustertest.OpenDB(t, pg.URL)
	target := clustertest.One[string](db, "SELECT now()::text")
	waittest.Eventually(t, "the mistake is later", func() error {
		return waittest.Unless(clustertest.One[bool](db, "SELECT clock_timestamp() > $1::timestamptz + interval '50 ms'", target), "not yet")
	})
	lost := b.lose(a)
	db.Operate("tasks", "purge", "--owner", "", "--yes")
	require.Equal(t, -32001, a.Ask("tasks/get", map[string]any{"id": b.ended}).Error.Code)
	last := clustertest.One[string](db, "SELECT pg_walfile_name(pg_switch_wal())")
	waittest.Eventually(t, "the WAL is archived", func() error {
		_, err := os.Stat(filepath.Join(archive, last))
		return err
	})
	a.Signal(syscall.SIGTERM)
	a.Wait()
	pg.Stop()

	back := storetest.Restored(t, map[string]string{"fsync": "off"}, func(s *storetest.PrivateServer, data string) {
		s.Shell(commands(t, "restore to a point in time"), append(env, "DATA="+data, "TARGET_TIME="+target)...)
	})
	waittest.Eventually(t, "it has reached the time", func() error {
		return waittest.Unless(back.Count("SELECT pg_is_in_recovery()::int") == 0, "in recovery")
	})
	a.Options.DB = back.URL
	a.Run()
	b.restored(t, a, back.URL, lost)
}
