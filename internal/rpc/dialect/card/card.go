// Package card describes an agent to clients. Card is the description itself. A rendering writes it
// for a family of versions, since no document can satisfy all of them. A Publisher renders and
// signs the cards of a server.
package card

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"slices"
)

// Card is the description of an agent, independent of versions.
type Card struct {
	Name             string
	Description      string
	Version          string // of the agent, in its owner's format
	Provider         *Provider
	DocumentationURL string
	IconURL          string
	InputModes       []string // media types; text/plain when empty
	OutputModes      []string
	Skills           []Skill
	Capabilities     Capabilities
	// Security lists the ways to authenticate, the preferred one first. A client uses one of them.
	// Empty: no authentication.
	Security []Security
	// Scope is the scope that a client needs to use the agent, or "".
	Scope string
	// Revision tells the cards of an agent apart: two that differ have different revisions.
	Revision int
	// shown lists the restricted skills that this copy of the card contains.
	shown string
}

// Restricted reports whether some callers see less of the card than others.
func (c *Card) Restricted() bool {
	return slices.ContainsFunc(c.Skills, func(s Skill) bool { return s.Scope != "" })
}

// For returns the card as a caller with the granted scopes sees it.
func (c *Card) For(granted func(scope string) bool) *Card {
	if !c.Restricted() {
		return c
	}
	own := *c
	own.Skills = nil
	for _, s := range c.Skills {
		if s.Scope != "" && !granted(s.Scope) {
			continue
		}
		if s.Scope != "" {
			own.shown += s.ID + "\x00"
		}
		own.Skills = append(own.Skills, s)
	}
	return &own
}

// Provider is the organization responsible for the agent.
type Provider struct {
	Organization string `json:"organization"`
	URL          string `json:"url"`
}

// Skill is one thing that the agent can do. Its members are the same in all versions.
type Skill struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Tags        []string `json:"tags"`
	Examples    []string `json:"examples,omitempty"`
	InputModes  []string `json:"inputModes"` // if they differ from the card's
	OutputModes []string `json:"outputModes"`
	Scope       string   `json:"-"` // that a client needs, or ""
}

// Capabilities are the optional parts of the protocol that the server offers.
type Capabilities struct {
	Streaming              bool
	PushNotifications      bool
	StateTransitionHistory bool
	Extensions             []Extension
	ExtendedCard           bool
}

// Extension is a protocol extension that the agent understands.
type Extension struct {
	URI         string          `json:"uri"`
	Description string          `json:"description,omitzero"`
	Required    bool            `json:"required"`
	Params      json.RawMessage `json:"params,omitzero"` // an object, or nil
}

// Interface is an address of the agent, with the binding and version spoken there.
type Interface struct {
	URL     string `json:"url"`
	Binding string `json:"protocolBinding"` // "JSONRPC", "HTTP+JSON" or "GRPC"
	Version string `json:"protocolVersion"` // of the protocol, such as "1.0"
	Tenant  string `json:"tenant,omitzero"` // that requests must name, if the address serves several agents
}

// jsonRPC is the binding of a legacy card's url.
const jsonRPC = "JSONRPC"

// anyModes is what cards state of an agent that reads or writes anything: versions disagree on the meaning of a missing
// member, and */* is no media type.
var anyModes = []string{"text/plain", "application/json", "application/octet-stream"}

func orAny(modes []string) []string {
	if len(modes) == 0 {
		return anyModes
	}
	return modes
}

// ETag returns the entity tag of a rendering. It changes with every byte.
func ETag(document []byte) string {
	sum := sha256.Sum256(document)
	return `"` + base64.RawURLEncoding.EncodeToString(sum[:15]) + `"`
}
