package card

import "github.com/go-json-experiment/json"

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
	Authentication       *legacyAuth        `json:"authentication,omitzero"`
	DefaultInputModes    []string           `json:"defaultInputModes"`
	DefaultOutputModes   []string           `json:"defaultOutputModes"`
	Skills               []legacySkill      `json:"skills"`
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

type legacySkill struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Tags        []string `json:"tags"`
	Examples    []string `json:"examples,omitempty"`
	InputModes  []string `json:"inputModes,omitempty"`
	OutputModes []string `json:"outputModes,omitempty"`
}

// jsonRPC is the binding of a card's url.
const jsonRPC = "JSONRPC"

// HTTPJSON is the transport of an Interface over HTTP+JSON.
const HTTPJSON = "HTTP+JSON"

// Legacy renders the card for clients of 0.1, 0.2 and 0.3. url is where the agent
// answers JSON-RPC; others are further interfaces that a 0.3 client can use.
func Legacy(c *Card, url string, others ...Interface) ([]byte, error) {
	document := legacy{
		ProtocolVersion:    "0.3.0",
		Name:               c.Name,
		Description:        c.Description,
		URL:                url,
		PreferredTransport: jsonRPC,
		Version:            c.Version,
		DocumentationURL:   c.DocumentationURL,
		IconURL:            c.IconURL,
		Capabilities: legacyCapabilities{
			Streaming: c.Capabilities.Streaming, PushNotifications: c.Capabilities.PushNotifications,
			StateTransitionHistory: c.Capabilities.StateTransitionHistory,
		},
		DefaultInputModes:  orPlainText(c.InputModes),
		DefaultOutputModes: orPlainText(c.OutputModes),
	}
	for _, i := range append([]Interface{{jsonRPC, url}}, others...) {
		document.AdditionalInterfaces = append(document.AdditionalInterfaces, legacyInterface(i))
	}
	for _, e := range c.Capabilities.Extensions {
		document.Capabilities.Extensions = append(document.Capabilities.Extensions, legacyExtension(e))
	}
	if c.Provider != nil {
		document.Provider = &legacyProvider{c.Provider.Organization, c.Provider.URL}
	}
	if len(c.AuthSchemes) > 0 {
		document.Authentication = &legacyAuth{c.AuthSchemes}
	}
	for i := range c.Skills {
		document.Skills = append(document.Skills, legacySkill(c.Skills[i]))
	}
	return json.Marshal(document)
}

// orPlainText is the modes, or the default, which is always written out: the versions
// do not agree on what its absence means.
func orPlainText(modes []string) []string {
	if len(modes) == 0 {
		return []string{"text/plain"}
	}
	return modes
}
