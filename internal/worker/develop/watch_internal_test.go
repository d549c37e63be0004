package develop

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// Changes that come together are reported once. An agent that writes a file does not restart itself forever: the file is muted
// until it has not changed for a while, as an editor that saves by itself pauses, too.
func TestWatchMutesWhatTheAgentWrites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var said, reported []string
		w := &Watcher{root: t.TempDir(), muted: map[string]time.Time{}, say: func(line string) { said = append(said, line) }}
		events, errs, changes := make(chan fsnotify.Event), make(chan error), make(chan string)
		ctx, stop := context.WithCancel(t.Context())
		go w.report(ctx, events, errs, changes)
		go func() {
			for path := range changes {
				reported = append(reported, path)
			}
		}()
		defer func() { stop(); synctest.Wait(); close(changes) }()
		write := func(name string) { events <- fsnotify.Event{Name: filepath.Join(w.root, name), Op: fsnotify.Write} }
		during := func(d, every time.Duration, name string) int {
			before := len(reported)
			for range d / every {
				write(name)
				waittest.Advance(every)
			}
			return len(reported) - before
		}

		require.Equal(t, 1, during(time.Second, quiet/2, "a.py")+during(quiet, quiet, "b.py"))
		require.Equal(t, []string{"b.py"}, reported)
		require.Equal(t, 4, during(4*atLast, quiet/4, "agent.py"), "at last")
		waittest.Advance(soon)
		require.Equal(t, rapid, during(time.Minute, quiet/4, "answers.md"), "and then it is muted")
		require.Len(t, said, 1)
		require.Contains(t, said[0], "answers.md changes with every start")
		require.Equal(t, 1, during(quiet, quiet, "agent.py"))
		require.Zero(t, during(time.Minute, calm-1, "answers.md"))
		waittest.Advance(1)
		require.Equal(t, 1, during(calm, calm, "answers.md"))
		errs <- fmt.Errorf("too many events")
		synctest.Wait()
		require.Equal(t, "watch files: too many events", said[1])
	})
}
