package card

// superset is the card of 0.3.0 plus what 1.0 needs. Readers of either version find their own card
// in it if they ignore unknown members. Without the members that 1.0 does not know it must equal
// the strict card, member by member: one of its signatures covers the strict card.
type superset struct {
	legacy
	Capabilities         supersetCapabilities   `json:"capabilities"` // replaces legacy's
	SupportedInterfaces  []Interface            `json:"supportedInterfaces"`
	SecuritySchemes      map[string]bothSchemes `json:"securitySchemes,omitempty"` // replaces legacy's
	SecurityRequirements []newRequirement       `json:"securityRequirements,omitempty"`
	Skills               []supersetSkill        `json:"skills"` // replaces legacy's
	Signatures           []Signature            `json:"signatures,omitempty"`
}

type supersetSkill struct {
	Skill
	Security             []map[string][]string `json:"security,omitempty"`
	SecurityRequirements []newRequirement      `json:"securityRequirements,omitempty"`
}

func newSupersetSkill(c *Card, s Skill) supersetSkill {
	return supersetSkill{s, skillScopes(c, s, oldRequirements), skillScopes(c, s, newRequirements)}
}

type supersetCapabilities struct {
	strictCapabilities
	StateTransitionHistory bool `json:"stateTransitionHistory,omitzero"`
}

// Superset renders the card for clients that did not state their version. Its signatures
// cover the strict card, for clients that rebuild the card from the members they know, and this
// document, for clients that keep it unchanged.
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
		Skills:               skills(c, newSupersetSkill),
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
		signed, err := sign(unsigned)
		if err != nil {
			return nil, err
		}
		signatures = append(signatures, signed...)
	}
	document.Signatures = signatures
	return marshal(document)
}
