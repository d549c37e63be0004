package card_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/card"
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
	c.Security = []card.Security{
		{Name: "sso", Kind: card.OpenIDConnect, MetadataURL: "https://id.example.com/.well-known/openid-configuration"},
		{Name: "key", Kind: card.APIKey, Header: "X-API-Key", Description: "Ask <the operator> for one"},
		{Name: "password", Kind: card.Basic, Description: "Yours"},
		{Name: "token", Kind: card.BearerJWT},
	}
	c.Scope = "agents:use"
	c.Capabilities.Extensions = []card.Extension{{URI: "https://example.com/ext", Description: "Why", Required: true}, {URI: "urn:x", Params: json.RawMessage(`{"z":1.0,"a":["<b>",9007199254740993]}`)}}
	c.Capabilities.ExtendedCard = true
	c.Skills = []card.Skill{
		{ID: "echo", Name: "Echo", Description: "Repeats", Tags: []string{"demo"}, Examples: []string{"hello"}, InputModes: []string{"text/plain"}, OutputModes: []string{"text/plain"}},
		{ID: "bare", Name: "Bare"},
		{ID: "secret", Name: "Secret", Description: "Not for everybody", Tags: []string{}, Scope: "agents:secret"},
	}
	return c
}

// certified returns a card with security that 0.2 cannot express.
func certified() *card.Card {
	c := full()
	c.Security = append(c.Security, card.Security{Name: "certificate", Kind: card.MutualTLS, Description: "Of our authority"}, card.Security{Name: "other", Kind: card.MutualTLS})
	return c
}

// alone lists the interfaces of JSON-RPC only, all those of every binding.
var (
	alone = []card.Interface{
		{Binding: "JSONRPC", Version: "1.0", URL: "https://agent.example.com/a2a"},
		{Binding: "JSONRPC", Version: "0.3", URL: "https://agent.example.com/a2a"},
	}
	all = []card.Interface{
		alone[0],
		{Binding: "HTTP+JSON", Version: "1.0", URL: "https://agent.example.com/a2a"},
		{Binding: "GRPC", Version: "1.0", URL: "agent.example.com:443", Tenant: "echo"},
		alone[1],
		{Binding: "HTTP+JSON", Version: "0.3", URL: "https://agent.example.com/a2a"},
		{Binding: "GRPC", Version: "0.3", URL: "agent.example.com:443", Tenant: "echo"},
	}
)

func TestRenderings(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		card       *card.Card
		interfaces []card.Interface
		legacy     []string // the versions whose schemas accept the legacy rendering
		superset   []string // the versions whose schemas accept the superset
	}{
		// The schema published with 0.2.1 still requires the authentication of 0.1.
		"sparse":    {sparse(), alone, []string{"0.1.0", "0.2.5", "0.3.0"}, []string{"0.1.0", "0.2.5", "0.3.0"}},
		"full":      {full(), all, []string{"0.1.0", "0.2.1", "0.2.5", "0.3.0"}, []string{"0.1.0", "0.2.5", "0.3.0"}},
		"certified": {certified(), all, []string{"0.1.0", "0.3.0"}, []string{"0.1.0", "0.3.0"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			legacy, err := card.Legacy(tt.card, tt.interfaces)
			require.NoError(t, err)
			dialecttest.Golden(t, "legacy-"+name, legacy)
			check(t, legacy, tt.legacy...)

			either, err := card.Either(tt.card, tt.interfaces)
			require.NoError(t, err)
			dialecttest.Golden(t, "either-"+name, either)
			check(t, either, tt.superset...)

			superset, err := card.Superset(tt.card, tt.interfaces, nil)
			require.NoError(t, err)
			dialecttest.Golden(t, "superset-"+name, superset)
			check(t, superset, tt.superset...)

			strict, err := card.Strict(tt.card, tt.interfaces, nil)
			require.NoError(t, err)
			dialecttest.Golden(t, "strict-"+name, strict)
			dialecttest.NewProto(t, "1.0.1").Check(t, "AgentCard", strict)

			binary, err := card.Binary(tt.card, tt.interfaces)
			require.NoError(t, err)
			dialecttest.Golden(t, "binary-"+name, binary)
			// Its proto file lacks these members.
			for _, forgotten := range []string{`,"stateTransitionHistory":true`, `"iconUrl":"https://example.com/icon.png",`} {
				binary = bytes.Replace(binary, []byte(forgotten), nil, 1)
			}
			dialecttest.NewProto(t, "0.3.0").Check(t, "AgentCard", binary)

			// A reader of 1.0 finds the strict card in the superset, apart from members that it
			// ignores.
			requireWithin(t, superset, strict)
		})
	}
}

func check(t *testing.T, document []byte, versions ...string) {
	t.Helper()
	for _, version := range versions {
		dialecttest.NewSchemas(t, version).Check(t, "AgentCard", document)
	}
}

// unknown10 lists exactly the members of a superset that 1.0 does not know.
var unknown10 = []string{
	"protocolVersion", "url", "preferredTransport", "additionalInterfaces", "supportsAuthenticatedExtendedCard",
}

func requireWithin(t *testing.T, superset, strict []byte) {
	t.Helper()
	var have, want map[string]any
	require.NoError(t, json.Unmarshal(superset, &have))
	require.NoError(t, json.Unmarshal(strict, &want))
	for _, member := range unknown10 {
		delete(have, member)
	}
	delete(have["capabilities"].(map[string]any), "stateTransitionHistory")
	delete(have, "security")
	for _, s := range have["skills"].([]any) {
		delete(s.(map[string]any), "security")
	}
	named, _ := have["securitySchemes"].(map[string]any)
	for _, s := range named {
		for _, member := range []string{"type", "description", "in", "name", "scheme", "bearerFormat", "openIdConnectUrl"} {
			delete(s.(map[string]any), member)
		}
	}
	require.Equal(t, want, have)
}

func TestLegacyCardNeedsJSONRPC03(t *testing.T) {
	t.Parallel()
	_, err := card.Legacy(sparse(), alone[:1])
	require.ErrorContains(t, err, "0.3 on JSON-RPC")
	_, err = card.Superset(sparse(), alone[:1], nil)
	require.ErrorContains(t, err, "0.3 on JSON-RPC")
	_, err = card.Strict(sparse(), alone[:1], nil)
	require.NoError(t, err)
}

func TestETagDependsOnBytes(t *testing.T) {
	t.Parallel()
	require.NotEqual(t, card.ETag([]byte("a")), card.ETag([]byte("b")))
	require.Regexp(t, `^"[A-Za-z0-9_-]{20}"$`, card.ETag([]byte("a")))
}
