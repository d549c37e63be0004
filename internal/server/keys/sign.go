package keys

import (
	"crypto"
	"crypto/ecdsa"
	"io"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/cryptosigner"
)

// Sign returns the compact JWS of a payload. Its protected header has typ, and jku unless that is empty.
func (r *Ring) Sign(payload []byte, typ, jku string) (string, error) {
	k, err := r.active()
	if err != nil {
		return "", err
	}
	options := (&jose.SignerOptions{}).WithType(jose.ContentType(typ)).WithHeader("kid", k.id)
	if jku != "" {
		options = options.WithHeader("jku", jku)
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

// deterministic signs as RFC 6979 requires: the same bytes for the same document, on every replica.
type deterministic struct{ private *ecdsa.PrivateKey }

func (d deterministic) Public() crypto.PublicKey { return d.private.Public() }

func (d deterministic) Sign(_ io.Reader, digest []byte, o crypto.SignerOpts) ([]byte, error) {
	return d.private.Sign(nil, digest, o)
}
