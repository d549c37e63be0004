package wire

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/executor/executortest"
	"github.com/holdfast-a2a/holdfast/internal/memory"
)

// ledger is a Buffer that notes what it gave.
type ledger struct {
	now, most int
	drops     int
	refuse    error
}

func (l *ledger) Grow(_ context.Context, n int) error {
	l.now = max(l.now, n)
	l.most = max(l.most, n)
	return l.refuse
}

func (l *ledger) Release() { l.now, l.drops = 0, l.drops+1 }

// Streams wait for the memory of large events before they keep them, and return it with the next event.
func TestLargeEventsTakeMemory(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	large := `{"type":"text","text":"` + strings.Repeat("x", size) + `"}`
	small := `{"type":"text","text":"x"}`
	for name, c := range map[string]struct {
		stream func(io.Reader, int) *Stream
		in     string
		most   int
	}{
		"lines":                      {Lines, large + "\n" + small + "\n", size},
		"a last line without an end": {Lines, small + "\n" + large, size},
		"server-sent events":         {ServerSentEvents, "data: " + large + "\n\ndata: " + small + "\n\n", 2 * size},
		"an event of several lines":  {ServerSentEvents, "data: " + large[:size/2] + "\ndata: " + large[size/2:] + "\n\n", size},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run, out, l := executortest.NewRun("x"), executortest.NewRecorder(), &ledger{}
			run.Buffer = l
			s := c.stream(&pieces{[]byte(c.in), 10_000}, 2*size)
			err := NewPlayer(run, out).PlayStream(t.Context(), s, func() error { return nil })
			if name == "an event of several lines" {
				require.Error(t, err, "a line end within a string")
			} else {
				require.NoError(t, err)
			}
			require.GreaterOrEqual(t, l.most, c.most)
			require.Zero(t, l.now)
			require.LessOrEqual(t, cap(s.buf), memory.Small, "large buffers are dropped with their event")
			require.LessOrEqual(t, cap(s.data), memory.Small)
		})
	}
}

func TestAStreamEndsIfItGetsNoMemory(t *testing.T) {
	t.Parallel()
	gone := errors.New("the run has ended")
	in := strings.Repeat("x", 1<<20) + "\n"
	for _, stream := range []func(io.Reader, int) *Stream{Lines, ServerSentEvents} {
		run, l := executortest.NewRun("x"), &ledger{refuse: gone}
		run.Buffer = l
		player := NewPlayer(run, executortest.NewRecorder())
		require.ErrorIs(t, player.PlayStream(t.Context(), stream(strings.NewReader("data: "+in), 2<<20), nil), gone)
		_, err := player.ReadAnswer(t.Context(), strings.NewReader(in), 2<<20)
		require.ErrorIs(t, err, gone)
	}
}

func TestReadAnswerIsBounded(t *testing.T) {
	t.Parallel()
	run, l := executortest.NewRun("x"), &ledger{}
	run.Buffer = l
	player := NewPlayer(run, executortest.NewRecorder())
	in := strings.Repeat("x", 200_000)
	for limit, want := range map[int]int{300_000: 200_000, 200_000: 200_000, 100_000: 100_001} {
		raw, err := player.ReadAnswer(t.Context(), &pieces{[]byte(in), 7777}, limit)
		require.NoError(t, err)
		require.Len(t, raw, want)
		require.GreaterOrEqual(t, l.most, want)
	}
}
