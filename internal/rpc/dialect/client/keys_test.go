package client_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"os"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/client"
)

// jwks returns the key set of a public key.
func jwks(t *testing.T, kid string, key any) string {
	t.Helper()
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key, KeyID: kid}}})
	require.NoError(t, err)
	return string(set)
}

func pemOf(t *testing.T, kind string, key any) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// sign returns the member signatures for a card, as RFC 8785 and RFC 7515 say.
func sign(t *testing.T, document, kid string, algorithm jose.SignatureAlgorithm, key any) string {
	t.Helper()
	payload := jsontext.Value(document).Clone()
	require.NoError(t, payload.Canonicalize())
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key},
		(&jose.SignerOptions{}).WithType("JOSE").WithHeader("kid", kid).WithHeader("jku", "http://192.0.2.1/keys"))
	require.NoError(t, err)
	object, err := signer.Sign(payload)
	require.NoError(t, err)
	compact, err := object.CompactSerialize()
	require.NoError(t, err)
	parts := strings.Split(compact, ".")
	return `{"protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`
}

// signedBy adds signatures to a card.
func signedBy(document string, signatures ...string) string {
	return strings.TrimSuffix(document, "}") + `,"signatures":[` + strings.Join(signatures, ",") + `]}`
}

func parse(t *testing.T, text string) client.Keys {
	t.Helper()
	keys, err := client.ParseKeys([]byte(text))
	require.NoError(t, err)
	return keys
}

const unsigned = `{"version":"1","name":"n","url":"https://h","x":[3,1.50,"\u00fc"],"description":""}`

func TestVerifiesSignaturesOfCards(t *testing.T) {
	t.Parallel()
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	bits, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	for algorithm, key := range map[jose.SignatureAlgorithm]crypto.Signer{jose.ES256: ec, jose.RS256: bits, jose.PS512: bits, jose.EdDSA: ed} {
		card := signedBy(unsigned, sign(t, unsigned, "k", algorithm, key))
		for name, keys := range map[string]string{
			"a set": jwks(t, "k", key.Public()), "a set without ids": jwks(t, "", key.Public()), "PEM": pemOf(t, "PUBLIC KEY", key.Public()),
			"several in PEM": pemOf(t, "PUBLIC KEY", other.Public()) + "\n" + pemOf(t, "PUBLIC KEY", key.Public()) + "\n",
		} {
			got, err := parse(t, keys).Verify([]byte(card), depth)
			require.NoError(t, err, name)
			require.Equal(t, `{"description":"","name":"n","url":"https://h","version":"1","x":[3,1.5,"ü"]}`, string(got)) //nolint:testifylint // the canonical form
		}
	}
	good := sign(t, unsigned, "k", jose.ES256, ec)
	lean := sign(t, strings.Replace(unsigned, `,"description":""`, "", 1), "k", jose.ES256, ec)
	wrong := sign(t, unsigned, "k", jose.ES256, other)
	keys := parse(t, jwks(t, "k", ec.Public()))
	_, err = keys.Verify([]byte(signedBy(unsigned, `{"protected":"e30","signature":""}`, wrong, good)), depth)
	require.NoError(t, err, "one of several is enough")
	got, err := keys.Verify([]byte(signedBy(unsigned, lean)), depth)
	require.NoError(t, err)
	require.NotContains(t, string(got), "description", "only what was signed is read")

	shared := sign(t, unsigned, "k", jose.HS256, []byte(pemOf(t, "PUBLIC KEY", ec.Public())))
	none := `{"protected":"` + base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","kid":"k"}`)) + `","signature":""}`
	critical := `{"protected":"` + base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"ES256","kid":"k","crit":["x"],"x":1}`)) + `","signature":"AA"}`
	for name, c := range map[string]struct{ card, want string }{
		"unsigned":              {unsigned, "signatures: is missing; with keys for cards, a card must be signed"},
		"an empty list":         {signedBy(unsigned), "signatures: is missing"},
		"null":                  {strings.TrimSuffix(unsigned, "}") + `,"signatures":null}`, "signatures: is missing"},
		"no list":               {strings.TrimSuffix(unsigned, "}") + `,"signatures":"x"}`, "signatures: is no list"},
		"no objects":            {signedBy(unsigned, `7`), "signatures: is no list"},
		"another key":           {signedBy(unsigned, wrong), `signatures: none is of a known key; the card has ["ES256 k"]`},
		"another id":            {signedBy(unsigned, sign(t, unsigned, "z", jose.ES256, ec)), `["ES256 z"]`},
		"another card":          {signedBy(strings.Replace(unsigned, "//h", "//evil", 1), good), "signatures: none"},
		"a member more":         {signedBy(strings.Replace(unsigned, `"n"`, `"n","supportedInterfaces":[{"url":"https://evil"}]`, 1), good), "signatures: none"},
		"a member less":         {signedBy(strings.Replace(unsigned, `"version":"1",`, "", 1), good), "signatures: none"},
		"a member twice":        {signedBy(strings.Replace(unsigned, `"n"`, `"n","url":"https://evil"`, 1), good), "url"},
		"a shared secret":       {signedBy(unsigned, shared), `["unreadable"]`},
		"no algorithm":          {signedBy(unsigned, none), `["unreadable"]`},
		"an unknown condition":  {signedBy(unsigned, critical), "signatures: none"},
		"no base64":             {signedBy(unsigned, `{"protected":"!","signature":"!"}`), `["unreadable"]`},
		"points in a signature": {signedBy(unsigned, `{"protected":"a.b.c.d","signature":"e"}`), `["unreadable"]`},
		"very many":             {signedBy(unsigned, strings.Split(strings.Repeat(wrong+" ", 17), " ")[:17]...), "signatures: has more than 16"},
		"too deep":              {strings.Repeat("[", depth+1) + strings.Repeat("]", depth+1), "deep"},
		"no object":             {`[]`, "is no JSON object"},
		"no JSON":               {`{`, ""},
	} {
		got, err := keys.Verify([]byte(c.card), depth)
		require.ErrorContains(t, err, c.want, name)
		require.Nil(t, got, name)
	}
}

// The cards are of the official libraries: a2a-sdk 1.3.0 of Python and @a2a-js/sdk 1.3.0, which sign without empty members.
func TestVerifiesCardsOfOfficialLibraries(t *testing.T) {
	t.Parallel()
	set, err := os.ReadFile("testdata/keys.json")
	require.NoError(t, err)
	keys := parse(t, string(set))
	for _, name := range []string{"signed-python-1.json", "signed-js-1.json"} {
		document, err := os.ReadFile("testdata/" + name)
		require.NoError(t, err)
		signed, err := keys.Verify(document, depth)
		require.NoError(t, err, name)
		c, err := client.ReadCard(signed, depth)
		require.NoError(t, err)
		require.Equal(t, "Signed — ü", c.Name)
		_, err = keys.Verify([]byte(strings.Replace(string(document), "9999", "9998", 1)), depth)
		require.ErrorContains(t, err, "signatures: none", name)
	}
}

func TestKeysOfCardsAreChecked(t *testing.T) {
	t.Parallel()
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	short, err := rsa.GenerateKey(rand.Reader, 1024)
	require.NoError(t, err)
	private := jwks(t, "k", ec)
	for text, want := range map[string]string{
		"":                                   "neither a JSON Web Key Set nor PEM",
		"ssh-ed25519 AAAA":                   "neither a JSON Web Key Set nor PEM",
		`{"keys":[]}`:                        "has no key",
		`{"keys":7}`:                         "is not JSON",
		`{`:                                  "is not JSON",
		`{"keys":[{"kty":"?"}]}`:             "key 1: is no JSON Web Key",
		`{"kty":"oct","k":"c2VjcmV0"}`:       "key 1: is not a public key",
		private:                              "key 1: is not a public key",
		jwks(t, "k", short.Public()):         "key 1: has 1024 bits; RSA needs 2048",
		pemOf(t, "CERTIFICATE", ec.Public()): "key 1: is not a PEM block PUBLIC KEY",
		pemOf(t, "PUBLIC KEY", ec.Public()) + "and a letter": "neither",
	} {
		_, err := client.ParseKeys([]byte(text))
		require.ErrorContains(t, err, want, text)
		require.NotContains(t, err.Error(), "c2VjcmV0")
	}
	one, err := json.Marshal(jose.JSONWebKey{Key: ec.Public(), KeyID: "k"})
	require.NoError(t, err)
	require.Len(t, parse(t, string(one)), 1)
}
