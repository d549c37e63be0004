package develop

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A file that an editor saves by itself counts again after a pause.
func TestMutedFilesCountAgain(t *testing.T) {
	t.Parallel()
	now := time.Now()
	w := &Watcher{muted: map[string]time.Time{"/a/agent.py": now}}
	for _, change := range []struct {
		after time.Duration
		want  bool
	}{{calm - time.Second, true}, {calm - time.Second, true}, {calm, false}, {time.Second, true}} {
		now = now.Add(change.after)
		require.Equal(t, change.want, w.quiets("/a/agent.py", now))
	}
	require.False(t, w.quiets("/a/other.py", now))
}
