package worker

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"
)

func TestEmitterRefusesNamesThatBecomeEqual(t *testing.T) {
	t.Parallel()
	_, _, err := storable([]byte(`{"k\u0000":1,"k\ufffd":2}`))
	require.ErrorIs(t, err, errNotJSON)
}

// Of two uploads of the same events, one may write event 42 for both. The other learns that only after its own later events.
func TestLateResultDoesNotLowerWhatIsStored(t *testing.T) {
	t.Parallel()
	e := &emitter{window: semaphore.NewWeighted(1), waiting: 2}
	e.done(admission{}, 50, nil)
	e.done(admission{}, 42, nil)
	require.EqualValues(t, 50, (&Visit{run: &run{out: e}}).Committed())
}

// A program whose strings are UTF-16 may cut one in the middle of a character.
func TestStorableRepairsHalfPairs(t *testing.T) {
	t.Parallel()
	out, replaced, err := storable([]byte(`{"k\ud83d":"\ud83d\ude00\ude00"}`))
	require.NoError(t, err)
	require.True(t, replaced)
	require.JSONEq(t, `{"k\ufffd":"\ud83d\ude00\ufffd"}`, string(out))
}

// FuzzStorable looks for NUL characters and line breaks that reach the log, and for values that change otherwise.
func FuzzStorable(f *testing.F) {
	for _, seed := range []string{`{"k\u0000":"\\u0000\u0000"}`, `"\\\u0000"`, "[1.0,\n1e400]", `{"k\ud83d":"\ud83d\ude00\ude00"}`, `{"a":1,"a":2}`, `"\`, "\xff"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		given := bytes.Clone(raw)
		out, replaced, err := storable(raw)
		require.Equal(t, given, raw, "the executor's bytes stay unchanged")
		if err != nil {
			return
		}
		require.True(t, out.IsValid())
		require.NotContains(t, string(out), "\n")
		var want bytes.Buffer
		require.NoError(t, json.Compact(&want, raw))
		require.Equal(t, replaced, want.String() != string(out))
		for d := jsontext.NewDecoder(bytes.NewReader(out)); ; {
			token, err := d.ReadToken()
			if err != nil {
				return
			}
			if token.Kind() == '"' {
				require.NotContains(t, token.String(), "\x00")
			}
		}
	})
}
