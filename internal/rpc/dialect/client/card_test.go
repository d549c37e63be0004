package client_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/card"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/client"
)

func TestReadsOurCards(t *testing.T) {
	t.Parallel()
	c := &card.Card{
		Name: "n", Description: "d", Version: "7", Provider: &card.Provider{Organization: "o", URL: "https://o"},
		Skills:       []card.Skill{{ID: "s", Name: "S", Description: "x", Tags: []string{"t"}, InputModes: []string{"a/b"}, OutputModes: []string{"c/d"}}},
		Capabilities: card.Capabilities{Streaming: true, ExtendedCard: true, Extensions: []card.Extension{{URI: "https://x", Required: true, Params: json.RawMessage(`{"a":[1.0]}`)}}},
		InputModes:   []string{"text/plain"}, OutputModes: []string{"text/plain"},
	}
	interfaces := []card.Interface{
		{Binding: "JSONRPC", Version: "1.0", URL: "https://h/a"},
		{Binding: "HTTP+JSON", Version: "1.0", URL: "https://h/a", Tenant: "x"},
		{Binding: "JSONRPC", Version: "0.3", URL: "https://h/a"},
		{Binding: "HTTP+JSON", Version: "0.3", URL: "https://h/a"},
	}
	strict, err := card.Strict(c, interfaces, nil)
	require.NoError(t, err)
	superset, err := card.Superset(c, interfaces, nil)
	require.NoError(t, err)
	legacy, err := card.Legacy(c, interfaces)
	require.NoError(t, err)
	for name, document := range map[string][]byte{"strict": strict, "superset": superset, "legacy": legacy} {
		got, err := client.ReadCard(document, depth)
		require.NoError(t, err, name)
		require.Equal(t, *c, got.Card, name)
		w, _, err := got.Choose("", "")
		require.NoError(t, err)
		if name == "legacy" {
			require.Equal(t, "0.3", w.Version)
			continue
		}
		require.Equal(t, "1.0", w.Version)
		w, at, err := got.Choose("1.0.1", "http+json")
		require.NoError(t, err)
		require.Equal(t, "HTTP+JSON", w.Binding)
		require.Equal(t, "x", at.Tenant)
	}
}

func TestChoosesAnInterface(t *testing.T) {
	t.Parallel()
	for document, want := range map[string]string{
		`{"name":"n","url":"https://h"}`:                                                            "0.3 JSONRPC",
		`{"name":"n","url":"https://h","authentication":{"schemes":["Bearer"]}}`:                    "0.1 JSONRPC",
		`{"name":"n","url":"https://h","protocolVersion":"0.2.6","preferredTransport":"HTTP+JSON"}`: "0.3 HTTP+JSON",
		`{"name":"n","url":"https://h","protocolVersion":"0.3.0","preferredTransport":"GRPC","additionalInterfaces":[{"url":"https://i","transport":"JSONRPC"}]}`: "0.3 JSONRPC",
		`{"name":"n","url":"https://h","supportedInterfaces":[{"url":"grpc://h","protocolBinding":"GRPC","protocolVersion":"1.0"}]}`:                              "0.3 JSONRPC",
		`{"name":"n","url":"h:1","preferredTransport":"GRPC"}`: "0.3 GRPC",
		`{"name":"n","supportedInterfaces":[{"url":"h:1","protocolBinding":"GRPC","protocolVersion":"0.3"},{"url":"h:1","protocolBinding":"GRPC","protocolVersion":"1.0"}]}`: "1.0 GRPC",
	} {
		c, err := client.ReadCard([]byte(document), depth)
		require.NoError(t, err, document)
		w, _, err := c.Choose("", "")
		require.NoError(t, err, document)
		require.Equal(t, want, w.Version+" "+w.Binding, document)
	}
	c, err := client.ReadCard([]byte(`{"name":"n","url":"https://h","preferredTransport":"SLIMRPC"}`), depth)
	require.NoError(t, err)
	_, _, err = c.Choose("", "")
	require.ErrorContains(t, err, "the card offers SLIMRPC 0.3")
	for document, want := range map[string]string{
		`[]`: "", `{}`: "name: is required", `{"name":7}`: "name: is a JSON number", `{"name":"n"}`: "names no URL",
		`{"name":"n","skills":{}}`: "skills: is a JSON object",
	} {
		_, err := client.ReadCard([]byte(document), depth)
		require.ErrorContains(t, err, want, document)
	}
}
