package main

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"net/http"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

type claims struct {
	jwt.Claims
	Owner  string `json:"owner"`
	Agent  string `json:"agent"`
	TaskID string `json:"taskId"`
	Body   string `json:"request_body_sha256"`
}

// verify returns the claims of a genuine delivery. After an error, answer 401.
func verify(h http.Header, body []byte, token string, want *claims, keyOf func(kid string) (any, error)) (*claims, error) {
	if subtle.ConstantTimeCompare([]byte(h.Get("X-A2A-Notification-Token")), []byte(token)) != 1 {
		return nil, errors.New("another token")
	}
	parsed, err := jwt.ParseSigned(h.Get("X-A2A-Signature"), []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		return nil, err
	}
	key, err := keyOf(parsed.Headers[0].KeyID)
	if err != nil {
		return nil, err
	}
	c, digest := new(claims), sha256.Sum256(body)
	if err := parsed.Claims(key, c); err != nil {
		return nil, err
	}
	if c.Owner != want.Owner || c.Agent != want.Agent || c.Body != hex.EncodeToString(digest[:]) || c.Expiry == nil {
		return nil, errors.New("another owner, agent or body")
	}
	return c, c.Validate(jwt.Expected{Issuer: want.Issuer, AnyAudience: want.Audience})
}
