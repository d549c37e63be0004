package wire

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/executor"
	"github.com/holdfast-a2a/holdfast/internal/executor/executortest"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// pieces reads at most n bytes at a time.
type pieces struct {
	left []byte
	n    int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.left) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), max(1, p.n))], p.left)
	p.left = p.left[n:]
	return n, nil
}

// collect renders the events of a stream, one entry a line.
func collect(s *Stream) string {
	var b strings.Builder
	for {
		raw, line, err := s.Next()
		if err == nil || errors.Is(err, ErrCut) {
			fmt.Fprintf(&b, "%d %s\n", line, raw)
		}
		if err != nil {
			fmt.Fprintf(&b, "%v\n", err)
			return b.String()
		}
	}
}

func TestStreamsYieldEventsWithLineNumbers(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 200_000)
	for _, c := range []struct{ name, in, want string }{
		{"nothing", "", "EOF\n"},
		{"empty lines", "\n\r\n  \n", "EOF\n"},
		{"lines", "a\n\nb\r\nc\n", "1 a\n3 b\n4 c\nEOF\n"},
		{"a byte order mark", "\ufeffa\n\ufeffb\n", "1 a\n2 \ufeffb\nEOF\n"},
		{"nothing but a byte order mark", "\ufeff", "EOF\n"},
		{"a last line without an end", "a\nb", "1 a\n2 b\n" + ErrCut.Error() + "\n"},
		{"longer than the buffer", long + "\nb\n", "1 " + long + "\n2 b\nEOF\n"},
	} {
		t.Run("lines: "+c.name, func(t *testing.T) {
			t.Parallel()
			for _, n := range []int{1, 7, 1 << 20} {
				require.Equal(t, c.want, collect(Lines(&pieces{[]byte(c.in), n}, 1<<20)))
			}
		})
	}
	for _, c := range []struct{ name, in, want string }{
		{"nothing", "", "EOF\n"},
		{"comments only", ": keep-alive\n\n: again\n\n", "EOF\n"},
		{"fields", "id: 1\nevent: x\ndata: a\nretry: 5\n\ndata:b\n\n", "3 a\n6 b\nEOF\n"},
		{"a byte order mark", "\ufeffdata: a\n\n", "1 a\nEOF\n"},
		{"data without content", "data:\n\ndata: \ndata:\n\ndata: a\n\ndata:\n", "6 a\nEOF\n"},
		{"several data lines", "data: {\ndata: }\n\n", "1 {\n}\nEOF\n"},
		{"an event without an end", "data: a\n\ndata: b\n", "1 a\n3 b\n" + ErrCut.Error() + "\n"},
		{"a line without an end", "data: a\n\ndata: b", "1 a\n3 b\n" + ErrCut.Error() + "\n"},
		{"a comment without an end", "data: a\n\n: by", "1 a\nEOF\n"},
	} {
		t.Run("sse: "+c.name, func(t *testing.T) {
			t.Parallel()
			for _, n := range []int{1, 7, 1 << 20} {
				require.Equal(t, c.want, collect(ServerSentEvents(&pieces{[]byte(c.in), n}, 1<<20)))
			}
		})
	}
}

func TestTooLongEventNamesItsLine(t *testing.T) {
	t.Parallel()
	const want = "the agent's answer is not understood: line 2: is longer than the 100 bytes that an event may have"
	_, _, err := readTwo(Lines(strings.NewReader("a\n"+strings.Repeat("x", 200)+"\n"), 100))
	require.EqualError(t, err, want)
	many := "\ndata: " + strings.Repeat("x", 60) + "\ndata: " + strings.Repeat("x", 60) + "\n\n"
	_, _, err = ServerSentEvents(strings.NewReader(many), 100).Next()
	require.EqualError(t, err, want)
}

func readTwo(s *Stream) ([]byte, int, error) {
	if _, _, err := s.Next(); err != nil {
		return nil, 0, err
	}
	return s.Next()
}

func play(t *testing.T, run *executor.Run, out executor.Emitter, lines ...string) (*Player, error) {
	t.Helper()
	p := NewPlayer(run, out)
	stream := Lines(strings.NewReader(strings.Join(lines, "\n")), DefaultMaxEvent)
	return p, p.PlayStream(t.Context(), stream, func() error { return nil })
}

func TestTextsOfOneNameFormOneArtifact(t *testing.T) {
	t.Parallel()
	run, out := executortest.NewRun(""), executortest.NewRecorder()
	run.Turn = 3
	_, err := play(t, run, out,
		`{"type":"text","text":"one "}`,
		`{"type":"text","text":"two","last":true}`,
		`{"type":"text","name":"poem","text":"three"}`,
		`{"type":"text","artifactId":"mine","append":true,"text":"four"}`,
	)
	require.NoError(t, err)
	var got []string
	for _, e := range out.Events() {
		got = append(got, fmt.Sprint(e.Artifact.ID, e.Append, e.Last, e.Artifact.Parts[0].Text))
	}
	require.Empty(t, cmp.Diff([]string{
		fmt.Sprint("text-3", false, false, "one "),
		fmt.Sprint("text-3", true, true, "two"),
		fmt.Sprint("poem-3", false, false, "three"),
		fmt.Sprint("mine", true, false, "four"),
	}, got))
}

func TestNewTryReplacesText(t *testing.T) {
	t.Parallel()
	run, out := executortest.NewRun(""), executortest.NewRecorder()
	_, err := play(t, run, out, `{"type":"text","text":"half of"}`)
	require.NoError(t, err)
	run.Try = 2
	_, err = play(t, run, out, `{"type":"text","text":"all of "}`, `{"type":"text","text":"it"}`)
	require.NoError(t, err)
	require.Equal(t, "all of it", out.Text(t))
}

func TestSettlingEventEndsPlay(t *testing.T) {
	t.Parallel()
	out := executortest.NewRecorder()
	p, err := play(t, executortest.NewRun(""), out,
		`{"type":"status","message":"thinking"}`, `{"type":"ask","message":"Which?"}`, `not even JSON`)
	require.NoError(t, err)
	require.True(t, p.Settled())
	require.Len(t, out.Events(), 2)
	require.Equal(t, task.StateInputRequired, out.Events()[1].State)
}

func TestRetryReturnsARetryableError(t *testing.T) {
	t.Parallel()
	p, err := play(t, executortest.NewRun(""), executortest.NewRecorder(),
		`{"type":"checkpoint","data":{"at":7}}`, `{"type":"retry","reason":"busy","after":2}`)
	require.EqualError(t, err, "the agent asked for another attempt: busy")
	after, ok := executor.IsRetryable(err)
	require.True(t, ok)
	require.Equal(t, 2*time.Second, after)
	require.False(t, p.Settled())
}

func TestReplyMustBeOnlyEvent(t *testing.T) {
	t.Parallel()
	out := executortest.NewRecorder()
	_, err := play(t, executortest.NewRun(""), out, `{"type":"reply","message":"hi"}`)
	require.NoError(t, err)
	require.True(t, out.Events()[0].Direct)

	_, err = play(t, executortest.NewRun(""), executortest.NewRecorder(),
		`{"type":"text","text":"a"}`, `{"type":"reply","message":"hi"}`)
	require.EqualError(t, err, "the agent's answer is not understood: line 2: a reply must be the only event")
}

func TestMalformedEventErrorNamesLineAndMember(t *testing.T) {
	t.Parallel()
	_, err := play(t, executortest.NewRun(""), executortest.NewRecorder(),
		`{"type":"text","text":"a"}`, ``, `{"type":"artifact","artifact":{"parts":[{"txt":"a"}]}}`)
	failure, ok := errors.AsType[*executor.Failure](err)
	require.True(t, ok)
	require.Equal(t,
		"the agent's answer is not understood: line 3: artifact.parts[0].txt: is not a known member", failure.Msg)
}

func TestEmitterErrorsAreUnchanged(t *testing.T) {
	t.Parallel()
	out := executortest.NewRecorder()
	out.Refuse(executor.ErrLeaseLost)
	_, err := play(t, executortest.NewRun(""), out, `{"type":"text","text":"a"}`)
	require.ErrorIs(t, err, executor.ErrLeaseLost)
}
