package keys

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/base64"
	"fmt"

	"github.com/go-jose/go-jose/v4"

	"github.com/holdfast-a2a/holdfast/internal/store"
)

// encode returns a key for the store, which seals it. Only encode and decode know this form.
func encode(private *ecdsa.PrivateKey) (store.SigningKey, error) {
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return store.SigningKey{}, fmt.Errorf("encode a signing key: %w", err)
	}
	web := public("", &private.PublicKey)
	thumbprint, err := web.Thumbprint(crypto.SHA256)
	if err != nil {
		return store.SigningKey{}, fmt.Errorf("name a signing key: %w", err)
	}
	return store.SigningKey{ID: base64.RawURLEncoding.EncodeToString(thumbprint), Algorithm: string(jose.ES256), Private: der}, nil
}

func decode(row store.SigningKey) (*ecdsa.PrivateKey, error) {
	if row.Algorithm != string(jose.ES256) {
		return nil, fmt.Errorf("signing key %s: this version does not support the algorithm %q", row.ID, row.Algorithm)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(row.Private)
	if err != nil {
		return nil, fmt.Errorf("signing key %s: %w", row.ID, err)
	}
	private, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("signing key %s is a %T, not an ECDSA key", row.ID, parsed)
	}
	return private, nil
}

// public returns a key as it is published.
func public(id string, key *ecdsa.PublicKey) jose.JSONWebKey {
	return jose.JSONWebKey{Key: key, KeyID: id, Algorithm: string(jose.ES256), Use: "sig"}
}
