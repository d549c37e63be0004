package client

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

func TestFrames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<20)
	for name, c := range map[string]struct {
		stream string
		want   []string // id|data
	}{
		"one event":                         {"id: 7\ndata: {}\n\n", []string{"7|{}"}},
		"an id stays until the next":        {"id: 1\ndata: a\n\ndata: b\n\nid\ndata: c\n\n", []string{"1|a", "1|b", "|c"}},
		"an id of an event without data":    {"id: 9\n\ndata: a\n\n", []string{"9|a"}},
		"an id with NUL is ignored":         {"id: 1\ndata: a\n\nid: 2\x00\ndata: b\n\n", []string{"1|a", "1|b"}},
		"comments and keep-alives":          {": hi\n\n: keep-alive\n\ndata: a\n: between\ndata: b\n\n", []string{"|a\nb"}},
		"several lines of data":             {"data: {\ndata:  \"a\": 1\ndata:}\n\n", []string{"|{\n \"a\": 1\n}"}},
		"CRLF":                              {"id: 1\r\ndata: a\r\n\r\ndata: b\r\n\r\n", []string{"1|a", "1|b"}},
		"CR":                                {"data: a\r\rdata: b\r\r", []string{"|a", "|b"}},
		"a mix of line ends":                {"data: a\r\n\ndata: b\n\r\n", []string{"|a", "|b"}},
		"no space after the colon":          {"data:a\nid:3\n\n", []string{"3|a"}},
		"only the first space is dropped":   {"data:  a\n\n", []string{"| a"}},
		"empty data is an event":            {"data\n\n", []string{"|"}},
		"unknown fields and event names":    {"event: message\nretry: 10\nfoo: bar\ndata: a\n\n", []string{"|a"}},
		"a long line":                       {"data: " + long + "\n\n", []string{"|" + long}},
		"a byte order mark":                 {"\ufeffdata: a\n\n", []string{"|a"}},
		"an event that was cut is dropped":  {"data: a\n\ndata: half", []string{"|a"}},
		"an event without its end, dropped": {"data: a\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, r := range []io.Reader{strings.NewReader(c.stream), iotest.OneByteReader(strings.NewReader(c.stream))} {
				f := newFrames(r)
				var got []string
				for {
					fr, err := f.next()
					if errors.Is(err, io.EOF) {
						break
					}
					require.NoError(t, err)
					got = append(got, fr.ID+"|"+string(fr.Data))
				}
				require.Empty(t, cmp.Diff(c.want, got))
			}
		})
	}
}

// A reader without more data blocks; an event that ended in CR must be delivered before that.
func TestEventEndingInCRIsNotDelayed(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe()
	go func() {
		_, _ = w.Write([]byte("data: a\r\r"))
	}()
	f, err := newFrames(r).next()
	require.NoError(t, err)
	require.Equal(t, "a", string(f.Data))
	require.NoError(t, w.Close())
}

func FuzzFrames(f *testing.F) {
	f.Add("id: 1\r\ndata: a\r\n\r\n: c\ndata\n\n")
	f.Fuzz(func(t *testing.T, stream string) {
		frames := newFrames(strings.NewReader(stream))
		for {
			fr, err := frames.next()
			if err != nil {
				require.ErrorIs(t, err, io.EOF)
				return
			}
			require.NotContains(t, string(fr.Data), "\r")
		}
	})
}
