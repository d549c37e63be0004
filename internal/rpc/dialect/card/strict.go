package card

import "encoding/json"

// strict is the card of 1.0 and nothing else. It omits false and empty members, because a client
// that rebuilds the card from a parsed message loses such defaults. Then all clients get the same
// canonical form, and the signature holds for all of them.
type strict struct {
	Name                 string               `json:"name"`
	Description          string               `json:"description"`
	SupportedInterfaces  []Interface          `json:"supportedInterfaces"`
	Provider             *strictProvider      `json:"provider,omitzero"`
	Version              string               `json:"version"`
	DocumentationURL     string               `json:"documentationUrl,omitzero"`
	IconURL              string               `json:"iconUrl,omitzero"`
	Capabilities         strictCapabilities   `json:"capabilities"`
	SecuritySchemes      map[string]newScheme `json:"securitySchemes,omitempty"`
	SecurityRequirements []newRequirement     `json:"securityRequirements,omitempty"`
	DefaultInputModes    []string             `json:"defaultInputModes"`
	DefaultOutputModes   []string             `json:"defaultOutputModes"`
	Skills               []strictSkill        `json:"skills"`
	Signatures           []Signature          `json:"signatures,omitempty"`
}

type strictProvider struct {
	URL          string `json:"url"`
	Organization string `json:"organization"`
}

type strictCapabilities struct {
	Streaming         bool              `json:"streaming,omitzero"`
	PushNotifications bool              `json:"pushNotifications,omitzero"`
	ExtendedAgentCard bool              `json:"extendedAgentCard,omitzero"`
	Extensions        []strictExtension `json:"extensions,omitempty"`
}

type strictExtension struct {
	URI         string          `json:"uri"`
	Description string          `json:"description,omitzero"`
	Required    bool            `json:"required,omitzero"`
	Params      json.RawMessage `json:"params,omitzero"`
}

type strictSkill struct {
	Skill
	SecurityRequirements []newRequirement `json:"securityRequirements,omitempty"`
}

func newStrictSkill(c *Card, s Skill) strictSkill {
	return strictSkill{s, skillScopes(c, s, newRequirements)}
}

// Strict renders the card for clients of 1.0. Without sign the card has no signatures.
func Strict(c *Card, interfaces []Interface, sign Sign) ([]byte, error) {
	document := newStrict(c, interfaces)
	unsigned, err := marshal(document)
	if err != nil || sign == nil {
		return unsigned, err
	}
	if document.Signatures, err = sign(unsigned); err != nil {
		return nil, err
	}
	return marshal(document)
}

func newStrict(c *Card, interfaces []Interface) *strict {
	document := &strict{
		Name:                c.Name,
		Description:         c.Description,
		SupportedInterfaces: interfaces,
		Version:             c.Version,
		DocumentationURL:    c.DocumentationURL,
		IconURL:             c.IconURL,
		Capabilities: strictCapabilities{
			Streaming: c.Capabilities.Streaming, PushNotifications: c.Capabilities.PushNotifications,
			ExtendedAgentCard: c.Capabilities.ExtendedCard,
		},
		DefaultInputModes:    orAny(c.InputModes),
		DefaultOutputModes:   orAny(c.OutputModes),
		Skills:               skills(c, newStrictSkill),
		SecuritySchemes:      schemes(c, asNew),
		SecurityRequirements: newRequirements(c, c.Scope),
	}
	for _, e := range c.Capabilities.Extensions {
		document.Capabilities.Extensions = append(document.Capabilities.Extensions, strictExtension(e))
	}
	if c.Provider != nil {
		document.Provider = &strictProvider{c.Provider.URL, c.Provider.Organization}
	}
	return document
}
