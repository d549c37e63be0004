// Package card describes an agent to clients. Card is the description itself;
// a rendering writes it for a family of versions. One document cannot satisfy all
// of them, so further versions are further renderings of the same Card.
package card

import (
	"crypto/sha256"
	"encoding/base64"
)

// Card is what is to be said about an agent, in no version's shape.
type Card struct {
	Name             string
	Description      string
	Version          string // of the agent, in its owner's own format
	Provider         *Provider
	DocumentationURL string
	IconURL          string
	InputModes       []string // media types; text/plain when empty
	OutputModes      []string
	Skills           []Skill
	Capabilities     Capabilities
	// AuthSchemes are the HTTP authentication schemes asked for, such as Bearer.
	AuthSchemes []string
}

// Provider is who answers for the agent.
type Provider struct {
	Organization string
	URL          string
}

// Skill is one thing that the agent can do.
type Skill struct {
	ID          string
	Name        string
	Description string
	Tags        []string
	Examples    []string
	InputModes  []string // where they differ from the card's
	OutputModes []string
}

// Capabilities are the optional parts of the protocol that the server offers.
type Capabilities struct {
	Streaming              bool
	PushNotifications      bool
	StateTransitionHistory bool
	Extensions             []Extension
}

// Extension is an extension of the protocol that the agent understands.
type Extension struct {
	URI         string
	Description string
	Required    bool
}

// Interface is an address of the agent and the binding spoken there.
type Interface struct {
	Transport string // "JSONRPC", "HTTP+JSON" or "GRPC"
	URL       string
}

// ETag is the entity tag of a rendering: it changes when a byte does.
func ETag(document []byte) string {
	sum := sha256.Sum256(document)
	return `"` + base64.RawURLEncoding.EncodeToString(sum[:15]) + `"`
}
