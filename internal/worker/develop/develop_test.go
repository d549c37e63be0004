package develop_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
	"github.com/holdfast-a2a/holdfast/internal/worker/develop"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// book has the lines that were said.
type book struct {
	mu    sync.Mutex
	lines []string
}

func (b *book) note(line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, line)
}

func (b *book) count(text string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, line := range b.lines {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

func (b *book) see(t *testing.T, times int, text string) {
	t.Helper()
	waittest.Eventually(t, text, func() error {
		b.mu.Lock()
		said := strings.Join(b.lines, "\n")
		b.mu.Unlock()
		return waittest.Unless(b.count(text) >= times, "%s", said)
	})
}

// watch watches a new directory until the test ends.
func watch(t *testing.T, ignore ...string) (dir string, changes chan string, said *book) {
	t.Helper()
	dir, changes, said = t.TempDir(), make(chan string), &book{}
	w, err := develop.Watch(dir, []string{filepath.Join(dir, "server")}, ignore, said.note)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx, changes)
	}()
	t.Cleanup(func() {
		stop()
		<-done
	})
	return dir, changes, said
}

func write(t *testing.T, dir, name string) {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
	require.NoError(t, os.WriteFile(path, []byte(name), 0o600))
}

// until reads changes until one is of a path. On a slow machine one change may be reported twice.
func until(t *testing.T, path string, changes <-chan string) {
	t.Helper()
	for waittest.Within(t, "a change of "+path, changes) != path {
	}
}

func TestWatchReportsSourcesAlone(t *testing.T) {
	t.Parallel()
	dir, changes, _ := watch(t, "data", "*.csv", "docs/draft.md")
	for _, name := range []string{
		".git/HEAD", "node_modules/a/index.js", "sub/__pycache__/a.py", "venv/a.py", ".venv/a.py", ".holdfast/x", "data/a.py", "sub/list.csv",
		"docs/draft.md", "agent.log", "agent.py~", "state.db", "send.txt", "answer.json", "crashed",
	} {
		write(t, dir, name)
	}
	write(t, dir, "sub/agent.py") // after all others, so theirs would come first, or with it
	require.Equal(t, "sub/agent.py", waittest.Within(t, "a change", changes))
	write(t, dir, "server")
	until(t, "server", changes)
	write(t, dir, "new/deep/prompt.md")
	until(t, "new/deep/prompt.md", changes)
	require.NoError(t, os.Remove(filepath.Join(dir, "sub/agent.py")))
	until(t, "sub/agent.py", changes)
}

func TestWatchRefusesPatterns(t *testing.T) {
	t.Parallel()
	_, err := develop.Watch(t.TempDir(), nil, []string{"[a"}, func(string) {})
	require.ErrorContains(t, err, `"[a" is not a pattern`)
	_, err = develop.Watch(filepath.Join(t.TempDir(), "gone"), nil, nil, func(string) {})
	require.Error(t, err)
}

// run runs a shell script as the agent until the test ends.
func run(t *testing.T, script string) (said, wrote *book, changes chan string, stop func() error) {
	t.Helper()
	said, wrote, changes = &book{}, &book{}, make(chan string)
	a := &develop.Agent{
		Argv: []string{"sh", "-c", script}, Dir: t.TempDir(), Env: os.Environ(), Grace: 200 * time.Millisecond,
		Pause: time.Millisecond, MaxPause: 4 * time.Millisecond, Ended: func() {}, Say: said.note, Output: wrote.note,
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx, changes) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return waittest.Within(t, "the agent stops", ended)
	})
	t.Cleanup(func() { _ = stop() })
	return said, wrote, changes, stop
}

func TestAgentStartsAgain(t *testing.T) {
	t.Parallel()
	said, wrote, _, stop := run(t, "echo begun; echo broken >&2; printf half; exit 3")
	said.see(t, 4, "agent restarted")
	wrote.see(t, 4, "begun")
	wrote.see(t, 4, "broken")
	wrote.see(t, 4, "half")
	for _, text := range []string{"exit status 3; it starts again in 1ms", "in 2ms", "in 4ms"} {
		said.see(t, 1, text)
	}
	require.NoError(t, stop())
	require.Zero(t, said.count("in 8ms"))
}

func TestAgentRestartsAtAChange(t *testing.T) {
	t.Parallel()
	said, wrote, changes, stop := run(t, "trap '' TERM; echo begun; while :; do sleep 0.05; done")
	wrote.see(t, 1, "begun")
	changes <- "agent.py"
	wrote.see(t, 2, "begun")
	said.see(t, 1, "agent.py changed")
	said.see(t, 1, "agent did not end; killing it")
	require.NoError(t, stop())
}

func TestAgentThatCannotStart(t *testing.T) {
	t.Parallel()
	a := &develop.Agent{Argv: []string{"/no/such/program"}, Say: func(string) {}, Output: func(string) {}}
	require.ErrorContains(t, a.Run(t.Context(), nil), "start the agent: ")
	require.Error(t, develop.Find("/no/such/program"))
	require.NoError(t, develop.Find("sh"))
}

func TestLongLinesArePassedOnInPieces(t *testing.T) {
	t.Parallel()
	_, wrote, _, _ := run(t, "head -c 20000 /dev/zero | tr '\\0' x; echo; exec sleep 600")
	waittest.Eventually(t, "all of it", func() error {
		wrote.mu.Lock()
		defer wrote.mu.Unlock()
		n := 0
		for _, line := range wrote.lines {
			n += len(line)
		}
		return waittest.Unless(n == 20000 && len(wrote.lines) == 3, "%d bytes in %d lines", n, len(wrote.lines))
	})
}
