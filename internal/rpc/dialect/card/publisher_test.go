package card_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/card"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/registry"
)

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
	require.Len(t, signed, 1)
	require.Equal(t, "k1 JOSE https://a/jwks", signed[0].Protected)
	require.Equal(t, canonical(t, strict), payload(t, signed[0]))

	superset, signed := render(card.RenderSuperset)
	require.Len(t, signed, 2)
	require.Equal(t, canonical(t, strict), payload(t, signed[0]), "for readers that rebuild the card of 1.0")
	require.Equal(t, canonical(t, superset), payload(t, signed[1]), "for readers that verify the served bytes")
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
