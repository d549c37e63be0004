package card

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Signature is a JSON Web Signature whose payload is the card itself.
type Signature struct {
	Protected string `json:"protected"`
	Signature string `json:"signature"`
}

// Sign signs a document that has no signatures yet.
type Sign func(document []byte) (*Signature, error)

// Signer makes JSON Web Signatures with a key that all replicas share.
type Signer interface {
	// KeyID returns the name of the current signing key.
	KeyID() string
	// Sign returns a compact JWS. With the same key, the same payload has the same signature.
	Sign(payload []byte, typ, jku string) (string, error)
}

// signWith signs the canonical form (RFC 8785) of documents.
func signWith(signer Signer, jku string) Sign {
	return func(document []byte) (*Signature, error) {
		payload := jsontext.Value(document).Clone()
		if err := payload.Canonicalize(); err != nil {
			return nil, fmt.Errorf("canonical card: %w", err)
		}
		compact, err := signer.Sign(payload, "JOSE", jku)
		if err != nil {
			return nil, fmt.Errorf("sign the card: %w", err)
		}
		parts := strings.Split(compact, ".") // header, payload, signature
		return &Signature{Protected: parts[0], Signature: parts[2]}, nil
	}
}
