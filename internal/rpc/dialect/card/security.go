package card

import (
	"slices"

	"github.com/go-json-experiment/json"
)

// Security is one way for a client to authenticate.
type Security struct {
	Name string // chosen by the card; requirements refer to it
	Kind SecurityKind
	// Header is the header of an APIKey. MetadataURL is where an OpenIDConnect issuer describes
	// itself.
	Header      string
	MetadataURL string
	Description string // for the authors of clients
}

// SecurityKind is the kind of credential.
type SecurityKind uint8

// The kinds.
const (
	APIKey SecurityKind = iota
	Basic
	Bearer // an opaque token
	BearerJWT
	OpenIDConnect
	MutualTLS
)

// httpScheme returns the scheme in the Authorization header. 0.1 states nothing else.
func (s *Security) httpScheme() string {
	switch s.Kind {
	case APIKey:
		return "ApiKey"
	case Basic:
		return "Basic"
	case Bearer, BearerJWT, OpenIDConnect:
		return "Bearer"
	default:
		return ""
	}
}

// oldScheme is a scheme as OpenAPI defines it; 0.2 and 0.3 follow OpenAPI.
type oldScheme struct {
	Type             string `json:"type"`
	Description      string `json:"description,omitzero"`
	In               string `json:"in,omitzero"`
	Name             string `json:"name,omitzero"`
	Scheme           string `json:"scheme,omitzero"`
	BearerFormat     string `json:"bearerFormat,omitzero"`
	OpenIDConnectURL string `json:"openIdConnectUrl,omitzero"`
}

// newScheme is a scheme as the proto files define it: exactly one member is set.
type newScheme struct {
	APIKey        *apiKeyScheme `json:"apiKeySecurityScheme,omitempty"`
	HTTPAuth      *httpScheme   `json:"httpAuthSecurityScheme,omitempty"`
	OpenIDConnect *openIDScheme `json:"openIdConnectSecurityScheme,omitempty"`
	MTLS          *mtlsScheme   `json:"mtlsSecurityScheme,omitzero"`
}

type apiKeyScheme struct {
	Description string `json:"description,omitzero"`
	Location    string `json:"location"`
	Name        string `json:"name"`
}

type httpScheme struct {
	Description  string `json:"description,omitzero"`
	Scheme       string `json:"scheme"`
	BearerFormat string `json:"bearerFormat,omitzero"`
}

type openIDScheme struct {
	Description string `json:"description,omitzero"`
	URL         string `json:"openIdConnectUrl"`
}

type mtlsScheme struct {
	Description string `json:"description,omitzero"`
}

// bothSchemes contains a scheme in both forms.
type bothSchemes struct {
	oldScheme
	newScheme
}

func (s *Security) spell() bothSchemes {
	var b bothSchemes
	switch s.Kind {
	case APIKey:
		b.oldScheme = oldScheme{Type: "apiKey", In: "header", Name: s.Header}
		b.APIKey = &apiKeyScheme{s.Description, "header", s.Header}
	case OpenIDConnect:
		b.oldScheme = oldScheme{Type: "openIdConnect", OpenIDConnectURL: s.MetadataURL}
		b.OpenIDConnect = &openIDScheme{s.Description, s.MetadataURL}
	case MutualTLS:
		b.oldScheme = oldScheme{Type: "mutualTLS"}
		b.MTLS = &mtlsScheme{s.Description}
	default:
		format := ""
		if s.Kind == BearerJWT {
			format = "JWT"
		}
		b.oldScheme = oldScheme{Type: "http", Scheme: s.httpScheme(), BearerFormat: format}
		b.HTTPAuth = &httpScheme{s.Description, s.httpScheme(), format}
	}
	b.Description = s.Description
	return b
}

// schemes returns the schemes of a card by name. It returns nil without any.
func schemes[T any](c *Card, of func(bothSchemes) T) map[string]T {
	if len(c.Security) == 0 {
		return nil
	}
	all := map[string]T{}
	for i := range c.Security {
		all[c.Security[i].Name] = of(c.Security[i].spell())
	}
	return all
}

func asOld(b bothSchemes) oldScheme    { return b.oldScheme }
func asNew(b bothSchemes) newScheme    { return b.newScheme }
func asBoth(b bothSchemes) bothSchemes { return b }

// newRequirement is a security requirement as the proto files define it.
type newRequirement struct {
	Schemes map[string]scopeList `json:"schemes"`
}

type scopeList struct {
	List []string `json:"list,omitempty"`
}

// oldRequirements returns the client's alternatives, in the order of the card. Each needs one
// scheme.
func oldRequirements(c *Card, scopes ...string) []map[string][]string {
	var all []map[string][]string
	for _, s := range c.Security {
		all = append(all, map[string][]string{s.Name: given(scopes)})
	}
	return all
}

func newRequirements(c *Card, scopes ...string) []newRequirement {
	var all []newRequirement
	for _, s := range c.Security {
		all = append(all, newRequirement{map[string]scopeList{s.Name: {given(scopes)}}})
	}
	return all
}

// given returns the scopes that are not empty. The list is never nil.
func given(scopes []string) []string {
	return slices.DeleteFunc(append([]string{}, scopes...), func(s string) bool { return s == "" })
}

// authentication returns the member of that name in 0.1. It returns nil if there are no schemes.
func authentication(c *Card) *legacyAuth {
	var all legacyAuth
	for i := range c.Security {
		if s := c.Security[i].httpScheme(); s != "" && !slices.Contains(all.Schemes, s) {
			all.Schemes = append(all.Schemes, s)
		}
	}
	if all.Schemes == nil {
		return nil
	}
	return &all
}

// skillScopes returns the requirements of a skill that requires more than its agent.
func skillScopes[T any](c *Card, s Skill, of func(*Card, ...string) []T) []T {
	if s.Scope == "" {
		return nil
	}
	return of(c, c.Scope, s.Scope)
}

// marshal sorts the members of maps, so that the same card has the same bytes.
func marshal(v any) ([]byte, error) { return json.Marshal(v, json.Deterministic(true)) }
