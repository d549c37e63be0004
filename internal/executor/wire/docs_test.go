package wire

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestExamplesInGuideAreValid(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../../docs/executors.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```(ndjson|json answer|json run|json cancel)\n(.*?)```").FindAllStringSubmatch(string(guide), -1)
	require.NotEmpty(t, blocks)
	seen := map[string]bool{}
	for _, block := range blocks {
		kind, text := block[1], block[2]
		seen[kind] = true
		switch kind {
		case "ndjson":
			for line := range strings.Lines(text) {
				_, bad := Decode([]byte(line))
				require.Nil(t, bad, line)
				require.NoError(t, compile(t, "event").Validate(instance(t, line)), line)
			}
		case "json answer":
			_, bad := DecodeAnswer([]byte(text))
			require.Nil(t, bad, text)
			require.NoError(t, compile(t, "answer").Validate(instance(t, text)), text)
		case "json run", "json cancel":
			require.NoError(t, compile(t, strings.TrimPrefix(kind, "json ")).Validate(instance(t, text)), text)
		}
	}
	require.Len(t, seen, 4, "an example of each document")
	for name := range decoders {
		require.Contains(t, string(guide), "| `"+name+"` |")
	}
}
