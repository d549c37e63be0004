package a2a_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/executor/a2a"
	"github.com/holdfast-a2a/holdfast/internal/executor/executortest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// journal is a log that a test reads while the front writes.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) count(text string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Count(j.text.String(), text)
}

// watched watches the cards of a server until the test ends.
func watched(t *testing.T, opts a2a.Options) (a *agent, log *journal, changed chan *a2a.Cards) {
	t.Helper()
	log, changed = &journal{}, make(chan *a2a.Cards, 100)
	opts.CardInterval, opts.Log = 20*time.Millisecond, slog.New(slog.NewTextHandler(log, nil))
	a, e := newAgent(t, opts)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	a.show(500, "")
	go func() {
		defer close(done)
		e.(*a2a.Front).Watch(ctx, nil, func(c *a2a.Cards) { changed <- c })
	}()
	t.Cleanup(func() { cancel(); <-done })
	return a, log, changed
}

// reads waits until the card was read n more times.
func (a *agent) reads(n int) {
	a.t.Helper()
	from := a.cardReads.Load()
	waittest.Eventually(a.t, "the card is read", func() error {
		return waittest.Unless(a.cardReads.Load() >= from+int64(n), "%d times", a.cardReads.Load()-from)
	})
}

func await[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(time.Minute):
		require.Fail(t, "nothing came")
		panic("unreachable")
	}
}

func TestCardsAreReadAgain(t *testing.T) {
	t.Parallel()
	a, log, changed := watched(t, a2a.Options{})
	a.reads(3)
	require.Empty(t, changed, "no card was read yet")
	require.Zero(t, log.count("could not read"), "the start has logged it")

	a.show(200, streamingCard)
	require.Equal(t, "d", await(t, changed).Public.Description)
	require.Equal(t, 1, log.count("the agent's card was read"))
	a.reads(3)
	require.Empty(t, changed, "the card is the same")

	for _, bad := range []string{`{"name":`, strings.ReplaceAll(streamingCard, "%s/rpc", "http://192.0.2.1/rpc")} {
		a.show(200, bad)
		a.reads(4)
	}
	a.show(500, "")
	a.reads(4)
	require.Empty(t, changed, "the old card stays")
	require.Equal(t, 1, log.count("could not read the agent's card again"), "one failure after another is logged once")

	a.show(200, strings.Replace(streamingCard, `"d"`, `"other"`, 1))
	require.Equal(t, "other", await(t, changed).Public.Description)
	require.Equal(t, 2, log.count("the agent's card was read"))
}

func TestRunsFollowTheCard(t *testing.T) {
	t.Parallel()
	a, e := newAgent(t, a2a.Options{CardInterval: time.Hour})
	a.on("SendStreamingMessage", streams(working(""), status("COMPLETED", "")))
	a.on("SendMessage", says(working("")))
	a.on("GetTask", says(taskIn("COMPLETED", "")))
	_, err := execute(t, e, executortest.NewRun("hello"))
	require.NoError(t, err)
	a.show(200, strings.Replace(streamingCard, "true", "false", 1))
	_, err = execute(t, e, executortest.NewRun("hello"))
	require.NoError(t, err)
	require.Empty(t, a.called("SendMessage"), "a run does not read a card that is known")
	_, err = e.(*a2a.Front).Cards(t.Context())
	require.NoError(t, err)
	_, err = execute(t, e, executortest.NewRun("hello"))
	require.NoError(t, err)
	require.Len(t, a.called("SendMessage"), 1)
}
