package card

import (
	"errors"

	"github.com/go-json-experiment/json"
)

// legacy is the card of 0.3.0, which older clients read too: members they do not
// know are passed over. authentication is what 0.1 had; the later versions have it
// no more, so it stands there only when it says something.
type legacy struct {
	ProtocolVersion      string             `json:"protocolVersion"`
	Name                 string             `json:"name"`
	Description          string             `json:"description"`
	URL                  string             `json:"url"`
	PreferredTransport   string             `json:"preferredTransport"`
	AdditionalInterfaces []legacyInterface  `json:"additionalInterfaces"`
	Version              string             `json:"version"`
	Provider             *legacyProvider    `json:"provider,omitzero"`
	DocumentationURL     string             `json:"documentationUrl,omitzero"`
	IconURL              string             `json:"iconUrl,omitzero"`
	Capabilities         legacyCapabilities `json:"capabilities"`
	ExtendedCard         bool               `json:"supportsAuthenticatedExtendedCard,omitzero"`
	Authentication       *legacyAuth        `json:"authentication,omitzero"`
	DefaultInputModes    []string           `json:"defaultInputModes"`
	DefaultOutputModes   []string           `json:"defaultOutputModes"`
	Skills               []skill            `json:"skills"`
}

type legacyInterface struct {
	Transport string `json:"transport"`
	URL       string `json:"url"`
}

type legacyProvider struct {
	Organization string `json:"organization"`
	URL          string `json:"url"`
}

type legacyCapabilities struct {
	Streaming              bool              `json:"streaming"`
	PushNotifications      bool              `json:"pushNotifications"`
	StateTransitionHistory bool              `json:"stateTransitionHistory"`
	Extensions             []legacyExtension `json:"extensions,omitempty"`
}

type legacyExtension struct {
	URI         string `json:"uri"`
	Description string `json:"description,omitzero"`
	Required    bool   `json:"required"`
}

type legacyAuth struct {
	Schemes []string `json:"schemes"`
}

// skill is the same in all versions, as far as we have something to say.
type skill struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Tags        []string `json:"tags"`
	Examples    []string `json:"examples,omitempty"`
	InputModes  []string `json:"inputModes,omitempty"`
	OutputModes []string `json:"outputModes,omitempty"`
}

func skills(c *Card) []skill {
	out := make([]skill, len(c.Skills))
	for i := range c.Skills {
		out[i] = skill(c.Skills[i])
	}
	return out
}

// Legacy renders the card for clients of 0.1, 0.2 and 0.3.
func Legacy(c *Card, interfaces []Interface) ([]byte, error) {
	document, err := newLegacy(c, interfaces)
	if err != nil {
		return nil, err
	}
	if len(c.AuthSchemes) > 0 {
		document.Authentication = &legacyAuth{c.AuthSchemes}
	}
	return json.Marshal(document)
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
			StateTransitionHistory: c.Capabilities.StateTransitionHistory,
		},
		ExtendedCard:       c.Capabilities.ExtendedCard,
		DefaultInputModes:  orPlainText(c.InputModes),
		DefaultOutputModes: orPlainText(c.OutputModes),
		Skills:             skills(c),
	}
	for _, i := range interfaces {
		if i.Version != "0.3" || i.Tenant != "" { // which 0.3 has no member for
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
	for _, e := range c.Capabilities.Extensions {
		document.Capabilities.Extensions = append(document.Capabilities.Extensions, legacyExtension(e))
	}
	if c.Provider != nil {
		document.Provider = &legacyProvider{c.Provider.Organization, c.Provider.URL}
	}
	return document, nil
}
