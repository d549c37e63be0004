package client

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/holdfast-a2a/holdfast/internal/rawjson"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/card"
)

// Keys are the public keys that may sign a card.
type Keys []jose.JSONWebKey

// signatureAlgorithms are those with public keys. With a shared one, anybody who has the keys could sign.
var signatureAlgorithms = []jose.SignatureAlgorithm{
	jose.ES256, jose.ES384, jose.ES512, jose.EdDSA, jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
}

const (
	minRSA        = 2048 // bits
	maxSignatures = 16   // of a card
)

// ParseKeys reads a JSON Web Key Set, a JSON Web Key, or public keys in PEM. It returns an error for anything that is no
// public key, and does not repeat it.
func ParseKeys(text []byte) (Keys, error) {
	var keys Keys
	var err error
	if trimmed := strings.TrimSpace(string(text)); strings.HasPrefix(trimmed, "{") {
		keys, err = jsonKeys([]byte(trimmed))
	} else {
		keys, err = pemKeys([]byte(trimmed))
	}
	if err != nil {
		return nil, err
	}
	for i := range keys {
		if err := checkKey(&keys[i]); err != nil {
			return nil, fmt.Errorf("key %d: %w", i+1, err)
		}
	}
	return keys, nil
}

func jsonKeys(text []byte) (Keys, error) {
	var set struct {
		Keys []jsontext.Value `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, errors.New("is not JSON of a key or a key set")
	}
	if set.Keys == nil {
		set.Keys = []jsontext.Value{text}
	}
	if len(set.Keys) == 0 {
		return nil, errors.New("has no key")
	}
	keys := make(Keys, len(set.Keys))
	for i, one := range set.Keys {
		if keys[i].UnmarshalJSON(one) != nil {
			return nil, fmt.Errorf("key %d: is no JSON Web Key", i+1)
		}
	}
	return keys, nil
}

func pemKeys(text []byte) (keys Keys, err error) {
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			break
		}
		text = rest
		key, err := x509.ParsePKIXPublicKey(block.Bytes)
		if block.Type != "PUBLIC KEY" || err != nil {
			return nil, fmt.Errorf("key %d: is not a PEM block PUBLIC KEY", len(keys)+1)
		}
		keys = append(keys, jose.JSONWebKey{Key: key})
	}
	if len(keys) == 0 || len(strings.TrimSpace(string(text))) > 0 {
		return nil, errors.New("is neither a JSON Web Key Set nor PEM")
	}
	return keys, nil
}

func checkKey(k *jose.JSONWebKey) error {
	switch key := k.Key.(type) {
	case *rsa.PublicKey:
		if key.N.BitLen() < minRSA {
			return fmt.Errorf("has %d bits; RSA needs %d", key.N.BitLen(), minRSA)
		}
	case *ecdsa.PublicKey, ed25519.PublicKey:
	default:
		return errors.New("is not a public key; a card needs one of RSA, EC or Ed25519")
	}
	if !k.Valid() {
		return errors.New("is not valid")
	}
	return nil
}

// Verify returns what one of the keys has signed: the card without its signatures, in its canonical form (RFC 8785). It
// fetches no key, wherever the card says that keys are.
func (k Keys) Verify(document []byte, maxDepth int) (signed []byte, err error) {
	if err := rawjson.Check(document, maxDepth); err != nil {
		return nil, err
	}
	var members map[string]jsontext.Value
	if err := json.Unmarshal(document, &members); err != nil {
		return nil, errors.New("is no JSON object")
	}
	var all []card.Signature
	if raw := members["signatures"]; raw != nil && json.Unmarshal(raw, &all) != nil {
		return nil, errors.New("signatures: is no list of signatures")
	}
	switch {
	case len(all) == 0:
		return nil, errors.New("signatures: is missing; with keys for cards, a card must be signed")
	case len(all) > maxSignatures:
		return nil, fmt.Errorf("signatures: has more than %d", maxSignatures)
	}
	delete(members, "signatures")
	served, err := json.Marshal(members)
	if err != nil {
		return nil, err
	}
	payloads, err := card.Forms(served)
	if err != nil {
		return nil, err
	}
	var seen []string
	for _, s := range all {
		made := "unreadable"
		for _, payload := range payloads {
			object, err := jose.ParseSignedCompact(s.Protected+"."+base64.RawURLEncoding.EncodeToString(payload)+"."+s.Signature, signatureAlgorithms)
			if err != nil {
				break
			}
			if k.signed(object) {
				return payload, nil
			}
			made = cut(object.Signatures[0].Header.Algorithm + " " + object.Signatures[0].Header.KeyID)
		}
		seen = append(seen, made)
	}
	return nil, fmt.Errorf("signatures: none is of a known key; the card has %q", seen)
}

// signed reports whether one of the keys has signed an object.
func (k Keys) signed(object *jose.JSONWebSignature) bool {
	header := &object.Signatures[0].Header
	for i := range k {
		key := &k[i]
		if header.KeyID != "" && key.KeyID != "" && header.KeyID != key.KeyID || key.Algorithm != "" && key.Algorithm != header.Algorithm {
			continue
		}
		if _, err := object.Verify(key.Key); err == nil {
			return true
		}
	}
	return false
}
