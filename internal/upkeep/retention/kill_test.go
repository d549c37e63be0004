package retention

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/pg/partition"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/pgproxytest"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
)

// A process is killed at every statement of a sweep that writes, in turn, and another one finishes the work. Afterwards expired
// tasks are gone with all their rows, kept tasks are whole, and each deleted task has a line in the export.
func TestSweepIsKilledAtEveryWrite(t *testing.T) {
	t.Parallel()
	t.Run("of a period", func(t *testing.T) {
		t.Parallel()
		killEverywhere(t, newFixture(t), false, 20)
	})
	t.Run("of rows, since another agent has a longer retention", func(t *testing.T) {
		t.Parallel()
		killEverywhere(t, newFixture(t), true, 2)
	})
}

func killEverywhere(t *testing.T, f *fixture, rows bool, least int) {
	t.Helper()
	policies := Options{Default: Policy{Tasks: 30 * day}, Agents: map[string]Policy{"patient": {}}, Export: t.TempDir()}
	age := 40 * day
	if rows {
		f.make(past{agent: "patient", owner: "another", age: age, state: task.StateCompleted})
	}
	var writes []int // the places of the statements that write, in the second sweep that nothing interrupts
	for n := -2; n < len(writes); n++ {
		gone := []*task.Task{
			f.make(past{agent: "a", owner: "o", age: age, state: task.StateCompleted, chunks: 3, name: "gone", push: true}),
			f.make(past{agent: "a", owner: "o", age: age, state: task.StateFailed}),
		}
		stay := []*task.Task{
			f.make(past{agent: "a", owner: "o", age: age, since: 2 * day, state: task.StateFailed, chunks: 3, push: true}),
			f.make(past{agent: "a", owner: "o", age: age, state: task.StateInputRequired, chunks: 3, name: "parked"}),
		}
		if n < 0 {
			_, writes = f.sweepUntil(t, policies, 0)
			writes = append(writes, writes[len(writes)-1]+1) // after the last one
		} else {
			killed, _ := f.sweepUntil(t, policies, writes[n])
			require.True(t, killed, "it has statement %d", writes[n])
		}
		finishing := policies
		finishing.Store = f.Store
		clean := New(finishing)
		done(t, clean.Sweep)
		lines := exportedTasks(t, policies.Export)
		for _, h := range gone {
			require.False(t, f.there(h), "killed at %d", n)
			require.Contains(t, lines, h.ID.String(), "killed at %d", n)
		}
		for _, h := range stay {
			require.True(t, f.there(h), "killed at %d", n)
			require.NotContains(t, lines, h.ID.String(), "killed at %d", n)
		}
		require.Empty(t, storetest.Must(f.Detached(t.Context(), partition.Tasks))(t), "killed at %d", n)
		for _, h := range stay {
			storetest.Must(clean.Erase(t.Context(), h.ID, f.View))(t)
		}
	}
	t.Log("statements that write:", writes)
	require.Greater(t, len(writes), least, "the sweep has that many statements that write")
}

var writing = regexp.MustCompile(`\b(INSERT|UPDATE|DELETE|ALTER|DROP)\b|partition_`)

// sweepUntil sweeps in a process that dies at its nth statement, or with 0 never. It reports whether it died, and which of its
// statements write, from 1; and the first of each that only reads, whose error is another.
func (f *fixture) sweepUntil(t *testing.T, o Options, n int) (killed bool, writes []int) {
	t.Helper()
	proxy := pgproxytest.New(t, f.url)
	s, err := store.Open(t.Context(), store.Options{URL: proxy.URL, APIConns: 2, Widths: store.Widths{Tasks: partition.Day}})
	require.NoError(t, err)
	defer s.Close(context.WithoutCancel(t.Context()))
	statements, dead := proxy.Record(), proxy.Die(n)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		select {
		case <-dead:
			cancel()
		case <-ctx.Done():
		}
	}()
	o.Store = s
	r := New(o)
	for more := true; more && err == nil; {
		more, err = r.Sweep(ctx)
	}
	seen := map[string]bool{}
	for i, sql := range statements() {
		if writing.MatchString(sql) || !seen[sql] {
			writes = append(writes, i+1)
		}
		seen[sql] = true
	}
	select {
	case <-dead:
		return true, writes
	default:
		require.NoError(t, err)
		return false, writes
	}
}

// exportedTasks are the tasks with a line in the export; each line must be whole.
func exportedTasks(t *testing.T, dir string) map[string]int {
	t.Helper()
	files := storetest.Must(filepath.Glob(filepath.Join(dir, "*", "*.ndjson")))(t)
	lines := map[string]int{}
	for _, name := range files {
		file := storetest.Must(os.Open(name))(t)
		for s := bufio.NewScanner(file); s.Scan(); {
			var l struct{ Task string }
			require.NoError(t, json.Unmarshal(s.Bytes(), &l), s.Text())
			lines[l.Task]++
		}
		require.NoError(t, file.Close())
	}
	return lines
}

// A killed process may leave half a line at the end of a file. The next process cuts it off and appends its lines.
func TestHalfLineOfExportIsCutOff(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ before, after string }{
		{"", ""}, {"{}\n", "{}\n"}, {"{}\n{\"task\":\"x", "{}\n"}, {"{\"task\"", ""},
	} {
		name := filepath.Join(t.TempDir(), "f")
		require.NoError(t, os.WriteFile(name, []byte(c.before), 0o600))
		f := storetest.Must(os.OpenFile(name, os.O_RDWR, 0))(t)
		end := storetest.Must(wholeLines(f))(t)
		require.NoError(t, f.Close())
		require.EqualValues(t, len(c.after), end)
		require.Equal(t, c.after, string(storetest.Must(os.ReadFile(name))(t)))
	}
}
