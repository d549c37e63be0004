package rawjson

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
	if got := AppendQuoted([]byte("before"), s); string(want) != string(got) {
		t.Fatalf("%q: %s instead of %s", s, got, want)
	}
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
	require.NoError(t, json.Unmarshal(AppendQuoted(nil, "a\x01\"\\\n\u2029é😀"), &read))
	require.Equal(t, "a\x01\"\\\n\u2029é😀", read)
}

func FuzzAppend(f *testing.F) {
	for _, s := range []string{"", "plain text of some words", "a\nb", `"\`, "é😀", "\xff\x00"} {
		f.Add(s)
	}
	f.Fuzz(same)
}
