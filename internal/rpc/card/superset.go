package card

// superset is the card of 0.3.0 with what 1.0 needs. A reader of either version that
// passes over what it does not know finds its own card. Without what 1.0 does not know
// it must be the strict one, member by member: that is what one of its signatures is of.
type superset struct {
	legacy
	Capabilities         supersetCapabilities   `json:"capabilities"` // in place of legacy's
	SupportedInterfaces  []strictInterface      `json:"supportedInterfaces"`
	SecuritySchemes      map[string]bothSchemes `json:"securitySchemes,omitempty"` // in place of legacy's
	SecurityRequirements []newRequirement       `json:"securityRequirements,omitempty"`
	Skills               []supersetSkill        `json:"skills"` // in place of legacy's
	Signatures           []Signature            `json:"signatures,omitempty"`
}

type supersetSkill struct {
	skill
	Security             []map[string][]string `json:"security,omitempty"`
	SecurityRequirements []newRequirement      `json:"securityRequirements,omitempty"`
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
		legacy:               *old,
		Capabilities:         supersetCapabilities{newest.Capabilities, c.Capabilities.StateTransitionHistory},
		SupportedInterfaces:  newest.SupportedInterfaces,
		SecuritySchemes:      schemes(c, asBoth),
		SecurityRequirements: newest.SecurityRequirements,
		Skills:               make([]supersetSkill, len(c.Skills)),
	}
	for i := range c.Skills {
		document.Skills[i] = supersetSkill{old.Skills[i].skill, old.Skills[i].Security, newest.Skills[i].SecurityRequirements}
	}
	if sign == nil {
		return marshal(document)
	}
	var signatures []Signature
	for _, of := range []any{newest, document} {
		unsigned, err := marshal(of)
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
	return marshal(document)
}
