package web

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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
			fmt.Fprintf(&b, "%d %s%s\n", line, s.ID(), raw)
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
		{"fields", "event: x\ndata: a\nretry: 5\n\ndata:b\n\n", "2 a\n5 b\nEOF\n"},
		{"an id stays until the next", "id: 1.\ndata: a\n\ndata: b\n\nid\ndata: c\n\n", "2 1.a\n4 1.b\n7 c\nEOF\n"},
		{"an id of an event without data", "id:9.\n\ndata: a\n\n", "3 9.a\nEOF\n"},
		{"an id with NUL is ignored", "id: 1.\ndata: a\n\nid: 2\x00\ndata: b\n\n", "2 1.a\n5 1.b\nEOF\n"},
		{"an id of a line that was cut is ignored", "id: 1.\ndata: a\n\nid: 2", "2 1.a\nEOF\n"},
		{"no object outside of data", "data: a\n\n{}\n", "1 a\nline 3: is not a line of server-sent events: \"data: \" is missing\n"},
		{"a byte order mark", "\ufeffdata: a\n\n", "1 a\nEOF\n"},
		{"data without content", "data:\n\ndata: \ndata:\n\ndata: a\n\ndata:\n", "6 a\nEOF\n"},
		{"several data lines", "data: {\ndata: }\n\n", "1 {\n}\nEOF\n"},
		{"an event without an end", "data: a\n\ndata: b\n", "1 a\n3 b\n" + ErrCut.Error() + "\n"},
		{"a line without an end", "data: a\n\ndata: b", "1 a\n3 b\n" + ErrCut.Error() + "\n"},
		{"CR, and CR LF", "data: a\r\rdata: b\r\ndata: c\r\n\r\ndata: d\n\r", "1 a\n3 b\nc\n6 d\nEOF\n"},
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
	const want = "line 2: is longer than the 100 bytes that an event may have"
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

// Large buffers are dropped with their event.
func TestLargeBuffersAreDropped(t *testing.T) {
	t.Parallel()
	event := "data: " + strings.Repeat("x", 1<<20) + "\n\n"
	s := ServerSentEvents(strings.NewReader(event), 2<<20)
	_, _, err := s.Next()
	require.NoError(t, err)
	require.Greater(t, cap(s.data), largest)
	s.Close()
	require.LessOrEqual(t, max(cap(s.buf), cap(s.data)), largest)
}

// A reader without more data blocks; an event that ended in CR must be delivered before that.
func TestEventEndingInCRIsNotDelayed(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe()
	go func() {
		_, _ = w.Write([]byte("data: a\r\r"))
	}()
	raw, _, err := ServerSentEvents(r, 100).Next()
	require.NoError(t, err)
	require.Equal(t, "a", string(raw))
	require.NoError(t, w.Close())
}

// FuzzStream looks for panics in the readers, and for events that depend on how the bytes arrive.
func FuzzStream(f *testing.F) {
	f.Add([]byte("{\"a\":1}\n\n{\"b\":2}\r\n{\"c\""), 3)
	f.Add([]byte(": hi\nid: 1\ndata: {\ndata: }\n\nevent: x\ndata:{}\n\ndata: cut"), 1)
	f.Fuzz(func(t *testing.T, raw []byte, piece int) {
		for _, open := range []func([]byte, int) *Stream{
			func(b []byte, n int) *Stream { return Lines(&pieces{b, n}, 50) },
			func(b []byte, n int) *Stream { return ServerSentEvents(&pieces{b, n}, 50) },
		} {
			whole, cut := collect(open(raw, len(raw))), collect(open(raw, max(1, piece%50)))
			if whole != cut {
				t.Fatalf("in one piece %q, in pieces %q", whole, cut)
			}
		}
	})
}
