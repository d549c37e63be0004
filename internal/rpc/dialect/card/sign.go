package card

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Signature is a JSON Web Signature whose payload is the card itself.
type Signature struct {
	Protected string `json:"protected"`
	Signature string `json:"signature"`
}

// Sign signs a document that has no signatures yet, in each of its forms.
type Sign func(document []byte) ([]Signature, error)

// Signer makes JSON Web Signatures with a key that all replicas share.
type Signer interface {
	// KeyID returns the name of the current signing key.
	KeyID() string
	// Sign returns a compact JWS. With the same key, the same payload has the same signature.
	Sign(payload []byte, typ, jku string) (string, error)
}

// signWith signs the canonical forms of documents.
func signWith(signer Signer, jku string) Sign {
	return func(document []byte) ([]Signature, error) {
		forms, err := Forms(document)
		if err != nil {
			return nil, err
		}
		signatures := make([]Signature, len(forms))
		for i, form := range forms {
			compact, err := signer.Sign(form, "JOSE", jku)
			if err != nil {
				return nil, fmt.Errorf("sign the card: %w", err)
			}
			parts := strings.Split(compact, ".") // header, payload, signature
			signatures[i] = Signature{Protected: parts[0], Signature: parts[2]}
		}
		return signatures, nil
	}
}

// Forms returns the canonical forms (RFC 8785) that signatures of a card may cover: of what remains of the document without
// empty members, and of the document itself, if that is more. The official libraries drop empty members before they sign and
// verify, and a requirement without scopes, {"schemes": {"key": {}}}, is one. The document has no signatures.
func Forms(document []byte) ([][]byte, error) {
	var tree any
	if err := json.Unmarshal(document, &tree); err != nil {
		return nil, fmt.Errorf("canonical card: %w", err)
	}
	tree, _ = withoutEmpty(tree)
	lean, err := json.Marshal(tree)
	if err != nil {
		return nil, fmt.Errorf("canonical card: %w", err)
	}
	var forms [][]byte
	for _, form := range []jsontext.Value{lean, jsontext.Value(document).Clone()} {
		if err := form.Canonicalize(); err != nil {
			return nil, fmt.Errorf("canonical card: %w", err)
		}
		if len(forms) == 0 || !bytes.Equal(forms[0], form) {
			forms = append(forms, form)
		}
	}
	return forms, nil
}

// withoutEmpty removes empty texts, lists and objects, and null. It reports false if nothing is left.
func withoutEmpty(v any) (any, bool) {
	switch v := v.(type) {
	case nil:
		return nil, false
	case string:
		return v, v != ""
	case []any:
		var all []any
		for _, item := range v {
			if item, ok := withoutEmpty(item); ok {
				all = append(all, item)
			}
		}
		return all, len(all) > 0
	case map[string]any:
		for name, member := range v {
			if member, ok := withoutEmpty(member); ok {
				v[name] = member
			} else {
				delete(v, name)
			}
		}
		return v, len(v) > 0
	}
	return v, true
}
