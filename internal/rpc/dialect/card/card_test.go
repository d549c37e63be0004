package card_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/card"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/dialecttest"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/registry"
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

			// A reader of 1.0 finds the strict card in the superset, apart from members that it ignores.
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

// notary "signs" by repeating its input, so that a test sees it.
type notary struct {
	key string
	err error
}

func (n *notary) KeyID() string { return n.key }

func (n *notary) Sign(payload []byte, typ, jku string) (string, error) {
	head := fmt.Sprintf("%s %s %s", n.key, typ, jku)
	return head + ".." + base64.RawURLEncoding.EncodeToString(payload), n.err
}

func publisher(signer card.Signer) *card.Publisher {
	below := func(_, below string) (string, string) { return below + "/", "" }
	return card.NewPublisher(card.Options{
		Bindings: []card.Binding{
			{Name: "JSONRPC", Versions: []string{"0.3", "1.0"}, Address: below},
			{Name: "GRPC", Versions: []string{"1.0"}, Address: func(agent, _ string) (string, string) { return "host:1", agent }},
		},
		Signer: signer, KeySetURL: "https://a/jwks",
	})
}

func TestInterfacesOfBindings(t *testing.T) {
	t.Parallel()
	require.Equal(t, []card.Interface{
		{Binding: "JSONRPC", Version: "1.0", URL: "https://a/x/"},
		{Binding: "GRPC", Version: "1.0", URL: "host:1", Tenant: "echo"},
		{Binding: "JSONRPC", Version: "0.3", URL: "https://a/x/"},
	}, publisher(nil).Interfaces("echo", "https://a/x"))
}

// signatures separates a document from its signatures.
func signatures(t *testing.T, document []byte) (unsigned []byte, signatures []card.Signature) {
	t.Helper()
	var members map[string]jsontext.Value
	require.NoError(t, json.Unmarshal(document, &members))
	if members["signatures"] != nil {
		require.NoError(t, json.Unmarshal(members["signatures"], &signatures))
		delete(members, "signatures")
	}
	unsigned, err := json.Marshal(members)
	require.NoError(t, err)
	return unsigned, signatures
}

func canonical(t *testing.T, document []byte) string {
	t.Helper()
	v := jsontext.Value(document).Clone()
	require.NoError(t, v.Canonicalize())
	return string(v)
}

func payload(t *testing.T, s card.Signature) string {
	t.Helper()
	b, err := base64.RawURLEncoding.DecodeString(s.Signature)
	require.NoError(t, err)
	return string(b)
}

func TestSignedContent(t *testing.T) {
	t.Parallel()
	p := publisher(&notary{key: "k1"})
	render := func(r card.Rendering) ([]byte, []card.Signature) {
		d, err := p.Render("echo", full(), "https://a", r, true)
		require.NoError(t, err)
		require.Equal(t, card.ETag(d.JSON), d.ETag)
		return signatures(t, d.JSON)
	}
	_, signed := render(card.RenderLegacy)
	require.Empty(t, signed)

	strict, signed := render(card.RenderStrict)
	require.Len(t, signed, 2)
	require.Equal(t, "k1 JOSE https://a/jwks", signed[0].Protected)
	require.Contains(t, string(strict), `"tags":[]`)
	require.NotContains(t, payload(t, signed[0]), `[]`, "for the official libraries, which drop empty members before they verify")
	require.Equal(t, canonical(t, strict), payload(t, signed[1]))

	superset, signed := render(card.RenderSuperset)
	require.Len(t, signed, 4)
	require.Equal(t, canonical(t, strict), payload(t, signed[1]), "for readers that rebuild the card of 1.0")
	require.Equal(t, canonical(t, superset), payload(t, signed[3]), "for readers that verify the served bytes")
}

func TestDocumentIsRenderedOncePerKey(t *testing.T) {
	t.Parallel()
	signer := &notary{key: "k1"}
	p := publisher(signer)
	render := func(r card.Rendering) *card.Document {
		d, err := p.Render("echo", full(), "https://a", r, true)
		require.NoError(t, err)
		return d
	}
	strict, legacy := render(card.RenderStrict), render(card.RenderLegacy)
	require.Same(t, strict, render(card.RenderStrict))
	require.NotEqual(t, strict.ETag, legacy.ETag)

	signer.key = "k2"
	require.NotEqual(t, strict.ETag, render(card.RenderStrict).ETag)
	require.Same(t, legacy, render(card.RenderLegacy), "the legacy rendering is not signed")

	signer.err = fmt.Errorf("no key")
	require.NotNil(t, render(card.RenderStrict), "a signed document stays available")
	signer.key = "k3"
	_, err := p.Render("echo", full(), "https://a", card.RenderStrict, true)
	require.ErrorContains(t, err, "card of echo: sign the card: no key")
}

func TestAddressFromRequestIsNotSigned(t *testing.T) {
	t.Parallel()
	p := publisher(&notary{key: "k1"})
	for _, r := range []card.Rendering{card.RenderStrict, card.RenderSuperset} {
		d, err := p.Render("echo", full(), "https://evil.example", r, false)
		require.NoError(t, err)
		_, signed := signatures(t, d.JSON)
		require.Empty(t, signed)
		again, err := p.Render("echo", full(), "https://evil.example", r, false)
		require.NoError(t, err)
		require.NotSame(t, d, again, "nor kept")
	}
}

func TestCardForReader(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]card.Rendering{
		"1.0": card.RenderStrict, "1.1": card.RenderStrict, "1": card.RenderStrict,
		"0.3": card.RenderSuperset, "0.1": card.RenderSuperset, "10.0": card.RenderLegacy, "": card.RenderLegacy,
	} {
		require.Equal(t, want, card.ForReader(version, card.RenderLegacy), version)
	}
}

func TestVersionsOfTheExtendedCard(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]card.Rendering{"1.0": card.RenderStrict, "0.3": card.RenderLegacy, "0.1": card.RenderLegacy} {
		require.Equal(t, want, registry.ByVersion(version).Traits().Card, version)
	}
}

func TestFilter(t *testing.T) {
	t.Parallel()
	c := &card.Card{
		Provider:     &card.Provider{Organization: "Acme", URL: "https://acme.example"},
		Capabilities: card.Capabilities{Streaming: true, Extensions: []card.Extension{{URI: "https://ext.example/one"}}},
		InputModes:   []string{"text/plain", "application/json"}, OutputModes: []string{"text/plain;charset=utf-8"},
		Skills: []card.Skill{
			{ID: "translate", Name: "Translation", Tags: []string{"language", "text"}},
			{ID: "speak", Name: "Speech", Tags: []string{"audio", "text"}, OutputModes: []string{"audio/*"}},
			{ID: "any", InputModes: []string{"*/*"}},
		},
	}
	for name, tt := range map[string]struct {
		filter card.Filter
		want   bool
	}{
		"nothing asked":                     {card.Filter{}, true},
		"a skill's id":                      {card.Filter{Skills: []string{"translate"}}, true},
		"its name, in another case":         {card.Filter{Skills: []string{"TRANSLATION"}}, true},
		"both of one skill":                 {card.Filter{Skills: []string{"translate", "Translation"}}, true},
		"two skills":                        {card.Filter{Skills: []string{"translate", "speak"}}, false},
		"part of an id":                     {card.Filter{Skills: []string{"trans"}}, false},
		"a tag":                             {card.Filter{Tags: []string{"Audio"}}, true},
		"tags of one skill":                 {card.Filter{Tags: []string{"audio", "text"}}, true},
		"tags of two":                       {card.Filter{Tags: []string{"audio", "language"}}, false},
		"a skill and a tag of another":      {card.Filter{Skills: []string{"translate"}, Tags: []string{"audio"}}, false},
		"a mode of the agent":               {card.Filter{InputModes: []string{"Application/JSON"}}, true},
		"a range":                           {card.Filter{InputModes: []string{"application/*"}}, true},
		"any mode":                          {card.Filter{OutputModes: []string{"*/*"}}, true},
		"a mode within the skill's range":   {card.Filter{OutputModes: []string{"audio/mpeg"}}, true},
		"the skill's mode replaces":         {card.Filter{Skills: []string{"speak"}, OutputModes: []string{"text/plain"}}, false},
		"the agent's mode has a parameter":  {card.Filter{OutputModes: []string{"text/plain"}}, true},
		"a mode that nothing reads but any": {card.Filter{InputModes: []string{"video/mp4"}}, true},
		"and not this skill":                {card.Filter{Skills: []string{"speak"}, InputModes: []string{"video/mp4"}}, false},
		"a mode that nothing writes":        {card.Filter{OutputModes: []string{"video/mp4"}}, false},
		"the provider":                      {card.Filter{Providers: []string{"ACME"}}, true},
		"its URL":                           {card.Filter{Providers: []string{"https://acme.example"}}, true},
		"another provider":                  {card.Filter{Providers: []string{"acme inc"}, Skills: []string{"speak"}}, false},
		"a capability":                      {card.Filter{Capabilities: []string{"Streaming"}, Tags: []string{"audio"}}, true},
		"a capability that it lacks":        {card.Filter{Capabilities: []string{"streaming", "pushNotifications"}}, false},
		"an extension":                      {card.Filter{Capabilities: []string{"https://ext.example/one"}}, true},
		"in and out of one skill":           {card.Filter{InputModes: []string{"application/json"}, OutputModes: []string{"audio/ogg"}}, true},
	} {
		require.Equal(t, tt.want, tt.filter.Matches(c), name)
	}
	require.True(t, (&card.Filter{InputModes: []string{"text/plain"}}).Matches(&card.Card{Skills: []card.Skill{{ID: "a"}}}), "the default")
	require.False(t, (&card.Filter{Providers: []string{"Acme"}}).Matches(&card.Card{}), "no provider")
	require.True(t, (&card.Filter{}).Matches(&card.Card{}), "an agent without skills is listed")
}
