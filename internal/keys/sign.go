package keys

import (
	"crypto"
	"crypto/ecdsa"
	"io"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/cryptosigner"
)

// Header is what the protected header of a signature says beside algorithm and key.
type Header struct {
	Type string // typ
	JKU  string // where the key set is; empty: not said
}

// Sign returns the compact JWS of a payload.
func (r *Ring) Sign(payload []byte, h Header) (string, error) {
	k, err := r.active()
	if err != nil {
		return "", err
	}
	options := (&jose.SignerOptions{}).WithType(jose.ContentType(h.Type)).WithHeader("kid", k.id)
	if h.JKU != "" {
		options = options.WithHeader("jku", h.JKU)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: cryptosigner.Opaque(k.signer)}, options)
	if err != nil {
		return "", err
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		return "", err
	}
	return signed.CompactSerialize()
}

// deterministic signs as RFC 6979 has it: the same bytes for the same document, on every replica.
type deterministic struct{ private *ecdsa.PrivateKey }

func (d deterministic) Public() crypto.PublicKey { return d.private.Public() }

func (d deterministic) Sign(_ io.Reader, digest []byte, o crypto.SignerOpts) ([]byte, error) {
	return d.private.Sign(nil, digest, o)
}
