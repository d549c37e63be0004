// Package card describes an agent to clients. Card is the description itself; a
// rendering writes it for a family of versions, since no document can satisfy all of
// them; a Publisher renders and signs the cards of a server.
package card

import (
	"crypto/sha256"
	"encoding/base64"
	"slices"
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
	// Security are the ways to show who one is, of which a client takes one, the preferred
	// one first. None: nobody is asked.
	Security []Security
	// Scope is what a client must have been granted to use the agent, or "".
	Scope string
	// shown names the skills that only some see and that are in it.
	shown string
}

// Restricted reports whether some see less of the card than others.
func (c *Card) Restricted() bool {
	return slices.ContainsFunc(c.Skills, func(s Skill) bool { return s.Scope != "" })
}

// For is the card as one sees it who has been granted some scopes.
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
	Scope       string // that a client must have been granted, or ""
}

// Capabilities are the optional parts of the protocol that the server offers.
type Capabilities struct {
	Streaming              bool
	PushNotifications      bool
	StateTransitionHistory bool
	Extensions             []Extension
	ExtendedCard           bool
}

// Extension is an extension of the protocol that the agent understands.
type Extension struct {
	URI         string
	Description string
	Required    bool
}

// Interface is an address of the agent, and the binding and version spoken there.
type Interface struct {
	Binding string // "JSONRPC", "HTTP+JSON" or "GRPC"
	Version string // of the protocol, such as "1.0"
	URL     string
	Tenant  string // to be named in requests, when the address serves several agents
}

// jsonRPC is the binding of a legacy card's url.
const jsonRPC = "JSONRPC"

// orPlainText is the modes, or the default, which is always written out: the versions
// do not agree on what its absence means.
func orPlainText(modes []string) []string {
	if len(modes) == 0 {
		return []string{"text/plain"}
	}
	return modes
}

// ETag is the entity tag of a rendering: it changes when a byte does.
func ETag(document []byte) string {
	sum := sha256.Sum256(document)
	return `"` + base64.RawURLEncoding.EncodeToString(sum[:15]) + `"`
}
