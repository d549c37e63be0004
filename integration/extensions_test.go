package integration

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a card declares is written down, under the address that the card has for it.
func TestOurExtensionsAreDeclared(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	const mine = "https://example.com/mine"
	config := replace(settings, "name: demo", "name: demo\n    card: {extensions: [{uri: "+mine+"}]}")
	r := start(t, replicaOptions{Name: "a", DB: db.url, Config: config})
	resp, err := http.Get(r.url + "/.well-known/agent-card.json")
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	var card struct {
		Capabilities struct {
			Extensions []struct {
				URI, Description string
				Required         bool
			}
		}
	}
	require.NoError(t, json.Unmarshal(body, &card), "%s", body)
	declared := card.Capabilities.Extensions
	require.Len(t, declared, 3)
	require.Equal(t, mine, declared[2].URI)
	for _, e := range declared[:2] {
		require.False(t, e.Required)
		document, err := os.ReadFile("../docs/extensions/" + path.Base(e.URI))
		require.NoError(t, err)
		require.Contains(t, string(document), "| URI | `"+e.URI+"` |")
		require.Contains(t, string(document), `"description": "`+e.Description+`"`)
	}
	all := []string{declared[0].URI, declared[1].URI, mine}
	for _, c := range restClients {
		header := map[*restClient]string{rest10: "A2A-Extensions", rest03: "X-A2A-Extensions"}[c]
		resp := c.do(t, r, http.MethodPost, "/message:send", c.message("echo:x", nil), header, strings.Join(all, ","))
		require.NoError(t, resp.Body.Close())
		require.Equal(t, strings.Join(all, ", "), resp.Header.Get(header))
	}
}
