package card

import "errors"

// legacy is the card of 0.3.0. Older clients also read it and ignore members that they do not know.
// authentication belongs to 0.1. Later versions lack it, so the card contains it only when it is
// not empty.
type legacy struct {
	ProtocolVersion      string                `json:"protocolVersion"`
	Name                 string                `json:"name"`
	Description          string                `json:"description"`
	URL                  string                `json:"url"`
	PreferredTransport   string                `json:"preferredTransport"`
	AdditionalInterfaces []legacyInterface     `json:"additionalInterfaces"`
	Version              string                `json:"version"`
	Provider             *Provider             `json:"provider,omitzero"`
	DocumentationURL     string                `json:"documentationUrl,omitzero"`
	IconURL              string                `json:"iconUrl,omitzero"`
	Capabilities         legacyCapabilities    `json:"capabilities"`
	ExtendedCard         bool                  `json:"supportsAuthenticatedExtendedCard,omitzero"`
	Authentication       *legacyAuth           `json:"authentication,omitzero"`
	SecuritySchemes      map[string]oldScheme  `json:"securitySchemes,omitempty"`
	Security             []map[string][]string `json:"security,omitempty"`
	DefaultInputModes    []string              `json:"defaultInputModes"`
	DefaultOutputModes   []string              `json:"defaultOutputModes"`
	Skills               []legacySkill         `json:"skills"`
}

type legacyInterface struct {
	Transport string `json:"transport"`
	URL       string `json:"url"`
}

type legacyCapabilities struct {
	Streaming              bool        `json:"streaming"`
	PushNotifications      bool        `json:"pushNotifications"`
	StateTransitionHistory bool        `json:"stateTransitionHistory"`
	Extensions             []Extension `json:"extensions,omitempty"`
}

type legacyAuth struct {
	Schemes []string `json:"schemes"`
}

type legacySkill struct {
	Skill
	Security []map[string][]string `json:"security,omitempty"`
}

func newLegacySkill(c *Card, s Skill) legacySkill {
	return legacySkill{s, skillScopes(c, s, oldRequirements)}
}

// skills renders the skills of a card. It repeats the card's modes in a skill without modes of its own: some clients require
// them there.
func skills[T any](c *Card, of func(*Card, Skill) T) []T {
	out := make([]T, len(c.Skills))
	for i, s := range c.Skills {
		if len(s.InputModes) == 0 {
			s.InputModes = orAny(c.InputModes)
		}
		if len(s.OutputModes) == 0 {
			s.OutputModes = orAny(c.OutputModes)
		}
		out[i] = of(c, s)
	}
	return out
}

// Legacy renders the card for clients of 0.1, 0.2 and 0.3.
func Legacy(c *Card, interfaces []Interface) ([]byte, error) {
	document, err := newLegacy(c, interfaces)
	if err != nil {
		return nil, err
	}
	document.Authentication = authentication(c)
	return marshal(document)
}

func newLegacy(c *Card, interfaces []Interface) (*legacy, error) {
	document := &legacy{
		ProtocolVersion:  "0.3.0",
		Name:             c.Name,
		Description:      c.Description,
		Version:          c.Version,
		DocumentationURL: c.DocumentationURL,
		IconURL:          c.IconURL,
		Capabilities: legacyCapabilities{
			Streaming: c.Capabilities.Streaming, PushNotifications: c.Capabilities.PushNotifications,
			StateTransitionHistory: c.Capabilities.StateTransitionHistory, Extensions: c.Capabilities.Extensions,
		},
		Provider:           c.Provider,
		ExtendedCard:       c.Capabilities.ExtendedCard,
		DefaultInputModes:  orAny(c.InputModes),
		DefaultOutputModes: orAny(c.OutputModes),
		Skills:             skills(c, newLegacySkill),
		SecuritySchemes:    schemes(c, asOld),
		Security:           oldRequirements(c, c.Scope),
	}
	for _, i := range interfaces {
		if i.Version != "0.3" || i.Tenant != "" { // 0.3 has no member for a tenant
			continue
		}
		if document.URL == "" && i.Binding == jsonRPC {
			document.URL, document.PreferredTransport = i.URL, i.Binding
		}
		document.AdditionalInterfaces = append(document.AdditionalInterfaces, legacyInterface{i.Binding, i.URL})
	}
	if document.URL == "" {
		return nil, errors.New("no interface speaks 0.3 on JSON-RPC")
	}
	return document, nil
}

// either is the legacy card, whose schemes also have the members of the proto file.
type either struct {
	legacy
	SecuritySchemes map[string]bothSchemes `json:"securitySchemes,omitempty"`
}

// Either renders the card for clients of 0.3 over HTTP+JSON: some read it as the schema defines it, and some as the proto
// file does.
func Either(c *Card, interfaces []Interface) ([]byte, error) {
	old, err := newLegacy(c, interfaces)
	if err != nil {
		return nil, err
	}
	return marshal(either{legacy: *old, SecuritySchemes: schemes(c, asBoth)})
}

// binary is the card of 0.3.0 as its proto file defines it. Its schema differs.
type binary struct {
	legacy
	SecuritySchemes map[string]newScheme `json:"securitySchemes,omitempty"`
	Security        []newRequirement     `json:"security,omitempty"`
	Skills          []binarySkill        `json:"skills"`
}

type binarySkill struct {
	Skill
	Security []newRequirement `json:"security,omitempty"`
}

func newBinarySkill(c *Card, s Skill) binarySkill {
	return binarySkill{s, skillScopes(c, s, newRequirements)}
}

// Binary renders the card for clients of 0.3 over gRPC.
func Binary(c *Card, interfaces []Interface) ([]byte, error) {
	old, err := newLegacy(c, interfaces)
	if err != nil {
		return nil, err
	}
	return marshal(binary{
		legacy: *old, SecuritySchemes: schemes(c, asNew), Security: newRequirements(c, c.Scope), Skills: skills(c, newBinarySkill),
	})
}
