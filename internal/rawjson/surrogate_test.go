package rawjson_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/rawjson"
)

func TestRepair(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`"\ud83d"`:                    `"\ufffd"`,
		`"\uDE00 end"`:                `"\ufffd end"`,
		`"\ud83d\ud83d\ude00"`:        `"\ufffd\ud83d\ude00"`,
		`"\ud83d\u0041"`:              `"\ufffd\u0041"`,
		`"\ud83d\\ude00"`:             `"\ufffd\\ude00"`,
		`{"\udc00":["\ude00\ud83d"]}`: `{"\ufffd":["\ufffd\ufffd"]}`,
		// These stay.
		`"\ud83d\ude00"`: "", `"\\ud83d"`: "", `"\\\\ud83d"`: "", `"\u00d8\u0d80"`: "", `"\ud8zz"`: "", `"\ud8`: "", `"\`: "", `"\u`: "", ``: "",
	} {
		out, repaired := rawjson.Repair([]byte(in))
		require.Equal(t, want != "", repaired, in)
		if want == "" {
			want = in
		}
		require.Equal(t, want, string(out))
	}
}

// The standard library accepts half a pair, and our decoders refuse it. Repaired JSON suits both.
func FuzzRepair(f *testing.F) {
	f.Add([]byte(`{"a":"\ud83d\\\ude00"}`))
	f.Add([]byte(`["\ud83d\ude00\ude00"]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		given := bytes.Clone(text)
		out, repaired := rawjson.Repair(text)
		require.Equal(t, given, text)
		require.Equal(t, repaired, !bytes.Equal(text, out))
		_, again := rawjson.Repair(out)
		require.False(t, again)
		if json.Valid(text) && utf8.Valid(text) {
			require.True(t, jsontext.Value(out).IsValid(jsontext.AllowDuplicateNames(true)))
		}
	})
}
