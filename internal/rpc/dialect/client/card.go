package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/holdfast-a2a/holdfast/internal/rawjson"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/card"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v01"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v03"
)

// Card is the card of another server.
type Card struct {
	card.Card
	Interfaces []card.Interface // in the server's order

	unversioned int // index of the first that has no version in the card
}

// document has the members of a card in every version.
type document struct {
	Name             *string        `json:"name"`
	Description      string         `json:"description"`
	Version          string         `json:"version"`
	DocumentationURL string         `json:"documentationUrl"`
	IconURL          string         `json:"iconUrl"`
	Provider         *card.Provider `json:"provider"`
	Capabilities     struct {
		Streaming  bool             `json:"streaming"`
		Push       bool             `json:"pushNotifications"`
		Extended   bool             `json:"extendedAgentCard"` // 1.0
		Extensions []card.Extension `json:"extensions"`
	} `json:"capabilities"`
	InputModes  []string     `json:"defaultInputModes"`
	OutputModes []string     `json:"defaultOutputModes"`
	Skills      []card.Skill `json:"skills"`

	SupportedInterfaces []card.Interface `json:"supportedInterfaces"` // 1.0

	// 0.x
	Extended             bool            `json:"supportsAuthenticatedExtendedCard"` // 0.2.1 and newer
	ProtocolVersion      string          `json:"protocolVersion"`
	URL                  string          `json:"url"`
	PreferredTransport   string          `json:"preferredTransport"`
	Authentication       json.RawMessage `json:"authentication"`
	AdditionalInterfaces []struct {
		URL       string `json:"url"`
		Transport string `json:"transport"`
	} `json:"additionalInterfaces"`
}

// ReadCard reads a card of any version. Unknown members are ignored.
func ReadCard(raw []byte, maxDepth int) (*Card, error) {
	if err := rawjson.Check(raw, maxDepth); err != nil {
		return nil, err
	}
	var d document
	if err := json.Unmarshal(raw, &d); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			return nil, fmt.Errorf("%s: is a JSON %s", wrong.Field, wrong.Value)
		}
		return nil, err
	}
	if d.Name == nil {
		return nil, errors.New("name: is required")
	}
	c := new(Card)
	c.Interfaces, c.unversioned = d.interfaces()
	if len(c.Interfaces) == 0 {
		return nil, errors.New("it names no URL")
	}
	c.Name, c.Description, c.Version = *d.Name, d.Description, d.Version
	c.DocumentationURL, c.IconURL, c.InputModes, c.OutputModes = d.DocumentationURL, d.IconURL, d.InputModes, d.OutputModes
	c.Capabilities = card.Capabilities{Streaming: d.Capabilities.Streaming, PushNotifications: d.Capabilities.Push}
	c.Capabilities.ExtendedCard = d.Capabilities.Extended || d.Extended
	for _, e := range d.Capabilities.Extensions {
		if !bytes.HasPrefix(e.Params, []byte("{")) {
			e.Params = nil // also null
		}
		c.Capabilities.Extensions = append(c.Capabilities.Extensions, e)
	}
	if d.Provider != nil && d.Provider.Organization != "" {
		c.Provider = d.Provider
	}
	c.Skills = d.Skills
	return c, nil
}

// none is the index of the first interface without a version, if all have one.
const none = math.MaxInt

func (d *document) interfaces() (all []card.Interface, unversioned int) {
	add := func(i card.Interface) {
		if i.URL != "" && !slices.Contains(all, i) {
			all = append(all, i)
		}
	}
	for _, i := range d.SupportedInterfaces {
		add(i)
	}
	unversioned = len(all)
	version := d.ProtocolVersion
	switch {
	case version != "":
		unversioned = none
	case len(d.Authentication) > 0: // a member of 0.1 alone
		version, unversioned = v01.Version, none
	default: // the documents before 0.2.5 have no member for it, and in 0.1 authentication is optional
		version = v03.Version
	}
	binding := d.PreferredTransport
	if binding == "" {
		binding = JSONRPC
	}
	add(card.Interface{Binding: binding, Version: version, URL: d.URL})
	for _, i := range d.AdditionalInterfaces {
		add(card.Interface{Binding: i.Transport, Version: version, URL: i.URL})
	}
	return all, unversioned
}

// Guessed reports whether the card names no version for an interface. Then it has the newest that it may be, 0.3.
func (c *Card) Guessed(i card.Interface) bool { return slices.Index(c.Interfaces, i) >= c.unversioned }

// Choose returns the interface to use, and its wire: the newest version, JSON-RPC before HTTP+JSON, and gRPC only if there is nothing else.
// version and binding restrict the choice unless they are "". An interface without a version has the one that is asked for.
func (c *Card) Choose(version, binding string) (*Wire, card.Interface, error) {
	for _, w := range wires {
		if version != "" && Find(version, w.Binding) != w || binding != "" && !strings.EqualFold(binding, w.Binding) {
			continue
		}
		for n, i := range c.Interfaces {
			if version != "" && n >= c.unversioned {
				i.Version = version
			}
			if Find(i.Version, i.Binding) == w && i.Binding != "" {
				return w, i, nil
			}
		}
	}
	var offers []string
	for _, i := range c.Interfaces {
		offers = append(offers, cut(i.Binding+" "+i.Version))
	}
	return nil, card.Interface{}, fmt.Errorf("the card offers %s; Holdfast speaks 0.1 to 1.0 over JSONRPC and 0.3 to 1.0 over HTTP+JSON and GRPC, unless version and binding restrict it",
		strings.Join(offers, ", "))
}
