package card_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/rpc/card"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/dialecttest"
)

func sparse() *card.Card {
	return &card.Card{Name: "echo", Version: "1", Capabilities: card.Capabilities{Streaming: true, StateTransitionHistory: true}}
}

func full() *card.Card {
	c := sparse()
	c.Description = "Says <it> again & again"
	c.Provider = &card.Provider{Organization: "Example Inc.", URL: "https://example.com"}
	c.DocumentationURL = "https://example.com/docs"
	c.IconURL = "https://example.com/icon.png"
	c.InputModes = []string{"application/json", "text/plain"}
	c.OutputModes = []string{"image/png"}
	c.AuthSchemes = []string{"Bearer"}
	c.Capabilities.Extensions = []card.Extension{{URI: "https://example.com/ext", Description: "Why", Required: true}, {URI: "urn:x"}}
	c.Skills = []card.Skill{
		{ID: "echo", Name: "Echo", Description: "Repeats", Tags: []string{"demo"}, Examples: []string{"hello"}, InputModes: []string{"text/plain"}, OutputModes: []string{"text/plain"}},
		{ID: "bare", Name: "Bare"},
	}
	return c
}

func TestLegacy(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		card    *card.Card
		others  []card.Interface
		schemas []string
	}{
		// The schema published with 0.2.1 still requires the authentication of 0.1.
		"sparse": {sparse(), nil, []string{"0.1.0", "0.2.5", "0.3.0"}},
		"full": {
			full(),
			[]card.Interface{{Transport: "HTTP+JSON", URL: "https://agent.example.com/a2a"}},
			[]string{"0.1.0", "0.2.1", "0.2.5", "0.3.0"},
		},
	} {
		document, err := card.Legacy(tt.card, "https://agent.example.com/a2a", tt.others...)
		require.NoError(t, err)
		dialecttest.Golden(t, "legacy-"+name, document)
		for _, version := range tt.schemas {
			dialecttest.NewSchemas(t, version).Check(t, "AgentCard", document)
		}
	}
}

func TestETagFollowsTheBytes(t *testing.T) {
	t.Parallel()
	one, err := card.Legacy(sparse(), "http://a/")
	require.NoError(t, err)
	again, err := card.Legacy(sparse(), "http://a/")
	require.NoError(t, err)
	other, err := card.Legacy(sparse(), "http://b/")
	require.NoError(t, err)
	require.Equal(t, card.ETag(one), card.ETag(again))
	require.NotEqual(t, card.ETag(one), card.ETag(other))
	require.Regexp(t, `^"[A-Za-z0-9_-]{20}"$`, card.ETag(one))
}
