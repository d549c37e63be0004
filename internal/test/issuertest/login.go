package issuertest

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
)

// authorize logs the user in and sends the browser back with a code (OpenID Connect Core 1.0, 3.1.2). It insists on PKCE.
func (s *server) authorize(w http.ResponseWriter, r *http.Request, now *State) {
	q := r.URL.Query()
	if q.Get("redirect_uri") != now.Redirect || q.Get("client_id") == "" {
		http.Error(w, "unknown client or redirect_uri", http.StatusBadRequest) // and no redirect
		return
	}
	back := url.Values{"state": {q.Get("state")}, "iss": {s.url}}
	switch {
	case q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" || len(q.Get("code_challenge")) != 43 ||
		!strings.Contains(" "+q.Get("scope")+" ", " openid "):
		back.Set("error", "invalid_request")
	case now.User.Refuses:
		back.Set("error", "access_denied")
	default:
		code := rand.Text()
		s.codes.Store(code, q)
		back.Set("code", code)
	}
	http.Redirect(w, r, now.Redirect+"?"+back.Encode(), http.StatusFound)
}

// redeem exchanges a code for tokens, once.
func (s *server) redeem(w http.ResponseWriter, r *http.Request, now *State) {
	client, secret, _ := r.BasicAuth()
	refuse := func(status int, reason string) { http.Error(w, `{"error":"`+reason+`"}`, status) }
	if client == "" || subtle.ConstantTimeCompare([]byte(secret), []byte(now.Secret)) == 0 {
		refuse(http.StatusUnauthorized, "invalid_client")
		return
	}
	stored, ok := s.codes.LoadAndDelete(r.PostFormValue("code"))
	if !ok {
		refuse(http.StatusBadRequest, "invalid_grant")
		return
	}
	asked := stored.(url.Values)
	sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	if asked.Get("client_id") != client || asked.Get("redirect_uri") != r.PostFormValue("redirect_uri") ||
		base64.RawURLEncoding.EncodeToString(sum[:]) != asked.Get("code_challenge") {
		refuse(http.StatusBadRequest, "invalid_grant")
		return
	}
	access := usualClaims(s.url, Audience, now.User.Subject, now.User.Scope)
	id := usualClaims(s.url, client, now.User.Subject, "")
	delete(id, "scope")
	id["nonce"] = asked.Get("nonce")
	for _, claims := range []a2atest.Object{access, id} {
		if now.User.Org != "" {
			claims["org"] = now.User.Org
		}
	}
	if now.User.Other != "" {
		access["sub"] = now.User.Other
	}
	for name, value := range now.User.IDClaims {
		if value == nil {
			delete(id, name)
		} else {
			id[name] = value
		}
	}
	accessToken, err := signed(now.Keys[0], access)
	if err == nil {
		var idToken string
		if idToken, err = signed(now.Keys[0], id, "typ", "JWT"); err == nil {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Cache-Control", "no-store")
			_, _ = w.Write(a2atest.JSON(a2atest.Object{"access_token": accessToken, "id_token": idToken, "token_type": "Bearer", "expires_in": 3600}))
			return
		}
	}
	http.Error(w, err.Error(), http.StatusInternalServerError)
}
