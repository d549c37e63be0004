package quote

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
)

func same(t *testing.T, s string) {
	t.Helper()
	want, _ := jsontext.AppendQuote([]byte("before"), s)
	require.Equal(t, string(want), string(Append([]byte("before"), s)), "%q", s)
}

// Each byte is quoted at each place of eight bytes, behind bytes of each kind.
func TestAppend(t *testing.T) {
	for _, around := range []string{"", "a", "\x7f", "é", "\u2028", "\"", "\n", "\x00", "\xff"} {
		for c := range 256 {
			for n := range 18 {
				same(t, strings.Repeat(around, n)+string([]byte{byte(c)})+strings.Repeat(around, 17-n))
			}
		}
	}
	var read string
	require.NoError(t, json.Unmarshal(Append(nil, "a\x01\"\\\n\u2029é😀"), &read))
	require.Equal(t, "a\x01\"\\\n\u2029é😀", read)
}

func FuzzAppend(f *testing.F) {
	for _, s := range []string{"", "plain text of some words", "a\nb", `"\`, "é😀", "\xff\x00"} {
		f.Add(s)
	}
	f.Fuzz(same)
}

func BenchmarkAppend(b *testing.B) {
	for name, s := range map[string]string{
		"ASCII": strings.Repeat("0123456789abcdef", 128), "lines": strings.Repeat("a line of some words of text\n", 70), "Latin": strings.Repeat("größere Länge ", 128),
		"Chinese": strings.Repeat("任务的历史", 136), "32 bytes": "0123456789abcdef0123456789abcdef",
	} {
		dst := make([]byte, 0, 8<<10)
		b.Run(name+"/ours", func(b *testing.B) {
			b.SetBytes(int64(len(s)))
			for b.Loop() {
				dst = Append(dst[:0], s)
			}
		})
		b.Run(name+"/jsontext", func(b *testing.B) {
			b.SetBytes(int64(len(s)))
			for b.Loop() {
				dst, _ = jsontext.AppendQuote(dst[:0], s)
			}
		})
	}
}
