package card

import "github.com/go-json-experiment/json"

// superset is the card of 0.3.0 with what 1.0 needs. A reader of either version that
// passes over what it does not know finds its own card. Without what 1.0 does not know
// it must be the strict one, member by member: that is what one of its signatures is of.
type superset struct {
	legacy
	Capabilities        supersetCapabilities `json:"capabilities"` // in place of legacy's
	SupportedInterfaces []strictInterface    `json:"supportedInterfaces"`
	Signatures          []Signature          `json:"signatures,omitempty"`
}

type supersetCapabilities struct {
	strictCapabilities
	StateTransitionHistory bool `json:"stateTransitionHistory,omitzero"`
}

// Superset renders the card for clients that did not say their version. It has two
// signatures: one of the strict card, for those who rebuild it from what they know, and
// one of this document, for those who keep it as it is.
func Superset(c *Card, interfaces []Interface, sign Sign) ([]byte, error) {
	old, err := newLegacy(c, interfaces)
	if err != nil {
		return nil, err
	}
	newest := newStrict(c, interfaces)
	document := superset{
		legacy:              *old,
		Capabilities:        supersetCapabilities{newest.Capabilities, c.Capabilities.StateTransitionHistory},
		SupportedInterfaces: newest.SupportedInterfaces,
	}
	if sign == nil {
		return json.Marshal(document)
	}
	var signatures []Signature
	for _, of := range []any{newest, document} {
		unsigned, err := json.Marshal(of)
		if err != nil {
			return nil, err
		}
		signature, err := sign(unsigned)
		if err != nil {
			return nil, err
		}
		signatures = append(signatures, *signature)
	}
	document.Signatures = signatures
	return json.Marshal(document)
}
