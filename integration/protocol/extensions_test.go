package protocol

import (
	"encoding/json"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
)

// Each extension that a card declares has a document at its URI.
func TestDeclaredExtensionsAreDocumented(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	const mine = "https://example.com/mine"
	config := clustertest.Replace(clustertest.Steady, "name: demo", "name: demo\n    card: {extensions: [{uri: "+mine+"}]}")
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: config})
	body := r.Read("/.well-known/agent-card.json")
	var card struct {
		Capabilities struct {
			Extensions []struct {
				URI, Description string
				Required         bool
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(body), &card), body)
	declared := card.Capabilities.Extensions
	require.Len(t, declared, 3)
	require.Equal(t, mine, declared[2].URI)
	for _, e := range declared[:2] {
		require.False(t, e.Required)
		document, err := os.ReadFile("../../docs/extensions/" + path.Base(e.URI))
		require.NoError(t, err)
		require.Contains(t, string(document), "| URI | `"+e.URI+"` |")
		require.Contains(t, string(document), `"description": "`+e.Description+`"`)
	}
	all := []string{declared[0].URI, declared[1].URI, mine}
	for w, header := range map[*a2atest.Wire]string{a2atest.REST10: "A2A-Extensions", a2atest.REST03: "X-A2A-Extensions"} {
		got := r.Finish(w, a2atest.Send, a2atest.Say("echo:x").With(header, strings.Join(all, ",")))
		require.Equal(t, strings.Join(all, ", "), got.Header.Get(header))
	}
}
