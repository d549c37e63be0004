package auth

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Endpoints are the parts of an issuer's metadata for a login in a browser.
type Endpoints struct {
	Issuer        string   `json:"issuer"`
	Authorization string   `json:"authorization_endpoint"`
	Token         string   `json:"token_endpoint"`
	EndSession    string   `json:"end_session_endpoint"`
	AuthMethods   []string `json:"token_endpoint_auth_methods_supported"`
	Challenges    []string `json:"code_challenge_methods_supported"`
	// NamesIssuer says that the answers of the authorization endpoint have the parameter iss (RFC 9207).
	NamesIssuer bool `json:"authorization_response_iss_parameter_supported"`
}

// Endpoints reads the issuer's metadata.
func (s *JWT) Endpoints(ctx context.Context) (*Endpoints, error) {
	ctx, cancel := context.WithTimeout(ctx, s.pace.within)
	defer cancel()
	raw, err := s.metadata(ctx)
	if err != nil {
		return nil, err
	}
	e := &Endpoints{}
	if err := json.Unmarshal(raw, e); err != nil {
		return nil, err
	}
	if e.Issuer != s.opt.Issuer {
		return nil, fmt.Errorf("they name the issuer %.200q, not %.200q", e.Issuer, s.opt.Issuer)
	}
	for _, one := range []struct {
		name, url string
		optional  bool
	}{{"authorization_endpoint", e.Authorization, false}, {"token_endpoint", e.Token, false}, {"end_session_endpoint", e.EndSession, true}} {
		if one.url == "" && one.optional {
			continue
		}
		if u, err := url.Parse(one.url); err != nil || u.Host == "" || u.Fragment != "" || u.Scheme != "https" && (u.Scheme != "http" || !strings.HasPrefix(s.opt.Issuer, "http://")) {
			return nil, fmt.Errorf("%s %.200q is not an https URL", one.name, one.url)
		}
	}
	return e, nil
}

// Verify returns the caller of a token of this issuer for one of the scheme's audiences, as a request with it would. subject is the
// token's sub.
func (s *JWT) Verify(ctx context.Context, token string) (caller *task.Caller, subject string, err error) {
	_, c, err := s.verified(ctx, token)
	if err != nil {
		return nil, "", err
	}
	caller, _, err = s.caller(c, s.opt.Audiences, time.Now())
	return caller, c.standard.Subject, err
}

// VerifyID returns the caller of an ID token that was issued to a client for a login with this nonce (OpenID Connect Core 1.0,
// 3.1.3.7). subject is the token's sub.
func (s *JWT) VerifyID(ctx context.Context, token, client, nonce string) (caller *task.Caller, subject string, err error) {
	_, c, err := s.verified(ctx, token)
	if err != nil {
		return nil, "", err
	}
	caller, _, err = s.caller(c, []string{client}, time.Now())
	if err != nil {
		return nil, "", err
	}
	said, _ := c.all["nonce"].(string)
	party, _ := c.all["azp"].(string)
	switch {
	case nonce == "" || subtle.ConstantTimeCompare([]byte(said), []byte(nonce)) != 1:
		return nil, "", refuse(Claims, errors.New("the nonce is not that of this login"))
	case len(c.standard.Audience) > 1 && party == "", party != "" && party != client:
		return nil, "", refuse(Audience, errors.New("azp is not this client"))
	case c.standard.IssuedAt == nil:
		return nil, "", refuse(Claims, errors.New("the token has no iat"))
	}
	return caller, c.standard.Subject, nil
}

// Supports reports whether a list of the metadata has a value. A list that is missing has the default.
func Supports(list []string, value, otherwise string) bool {
	if len(list) == 0 {
		return value == otherwise
	}
	return slices.Contains(list, value)
}
