package card

import (
	"mime"
	"slices"
	"strings"
)

// Filter selects cards. The card must match Providers and Capabilities, and one skill of it all other members. Empty
// members match everything.
type Filter struct {
	Providers    []string // each is the provider's organization or its URL
	Capabilities []string // each is one of CapabilityNames, or the URI of an extension
	Skills       []string // each is the skill's id or its name
	Tags         []string // the skill has each
	InputModes   []string // media types or ranges such as text/*; the skill reads each
	OutputModes  []string // and writes each
}

// Matches reports whether the filter selects a card. Case does not matter.
func (f *Filter) Matches(c *Card) bool {
	if !every(f.Providers, c.providers(), strings.EqualFold) || !every(f.Capabilities, c.capabilities(), strings.EqualFold) {
		return false
	}
	if len(f.Skills)+len(f.Tags)+len(f.InputModes)+len(f.OutputModes) == 0 {
		return true
	}
	return slices.ContainsFunc(c.Skills, func(s Skill) bool {
		in, out := s.InputModes, s.OutputModes
		if len(in) == 0 {
			in = orAny(c.InputModes)
		}
		if len(out) == 0 {
			out = orAny(c.OutputModes)
		}
		return every(f.Skills, []string{s.ID, s.Name}, strings.EqualFold) && every(f.Tags, s.Tags, strings.EqualFold) &&
			every(f.InputModes, in, overlap) && every(f.OutputModes, out, overlap)
	})
}

// CapabilityNames are the names of capabilities in the card of 1.0.
var CapabilityNames = []string{"streaming", "pushNotifications", "extendedAgentCard"}

func (c *Card) capabilities() []string {
	var names []string
	for i, has := range []bool{c.Capabilities.Streaming, c.Capabilities.PushNotifications, c.Capabilities.ExtendedCard} {
		if has {
			names = append(names, CapabilityNames[i])
		}
	}
	for _, e := range c.Capabilities.Extensions {
		names = append(names, e.URI)
	}
	return names
}

func (c *Card) providers() []string {
	if c.Provider == nil {
		return nil
	}
	return []string{c.Provider.Organization, c.Provider.URL}
}

// every reports whether each wanted value matches one that is there.
func every(wanted, have []string, like func(wanted, have string) bool) bool {
	for _, w := range wanted {
		if !slices.ContainsFunc(have, func(h string) bool { return like(w, h) }) {
			return false
		}
	}
	return true
}

// overlap reports whether two media types or ranges have one in common. It ignores parameters.
func overlap(a, b string) bool {
	a, aOK := MediaType(a)
	b, bOK := MediaType(b)
	if !aOK || !bOK {
		return false
	}
	aType, aSub, _ := strings.Cut(a, "/")
	bType, bSub, _ := strings.Cut(b, "/")
	return meet(aType, bType) && meet(aSub, bSub)
}

func meet(a, b string) bool { return a == b || a == "*" || b == "*" }

// MediaType returns s in lower case and without parameters, if s is a media type or range.
func MediaType(s string) (string, bool) {
	media, _, err := mime.ParseMediaType(s)
	return media, err == nil && strings.Contains(media, "/")
}
