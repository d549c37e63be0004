// Package login lets operators log in with a browser: by the authorization code flow of OpenID Connect with PKCE, or by an API key
// that they type. The result is a session in the database, which all replicas know, and a cookie with its secret.
//
// Until the issuer answers, a sealed cookie has the state of a login (state, nonce, verifier, the page to return to). So any replica
// can finish it, and requests without a credential write nothing.
package login

import (
	"context"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"

	"golang.org/x/oauth2"

	"github.com/holdfast-a2a/holdfast/internal/auth"
	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/secrets"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// The paths.
const (
	Path         = "/admin/login"
	CallbackPath = "/admin/login/callback"
	KeyPath      = "/admin/login/key"
	UserPath     = "/admin/login/user"
	LogoutPath   = "/admin/logout"
)

// Purpose is that of the keys that seal logins.
const Purpose = "console login"

// Issuer is how operators log in with OpenID Connect.
type Issuer struct {
	Scheme *auth.JWT
	Client string // its id
	// Secret returns the secret of the client; nil: the client has none.
	Secret     func(context.Context) (string, error)
	Scopes     []string
	Parameters map[string]string // added to the request for a login
	// FromID takes tenant, subject and scopes from the ID token; otherwise they are those of the access token.
	FromID bool
}

// Options configures the logins.
type Options struct {
	Issuer *Issuer // nil: none
	// Keys and Passwords say that API keys, and passwords of users, are accepted.
	Keys, Passwords bool
	// PublicURL is the address of the page in browsers, without a path.
	PublicURL string
	Secure    bool // browsers use TLS
	Lifetime  time.Duration
	Seal      *secrets.Keys
	// Admit finds the caller of a request with a credential that was typed. keyID is the API key; "" for a password.
	Admit func(ctx context.Context, r *auth.Request) (caller task.Caller, scheme, keyID string, err error)
	// Permits returns an error for a caller who is no operator. Otherwise it makes the caller the actor of the audit log.
	Permits func(caller *task.Caller, scheme string) error
	Origins *Origins
	// Refuse answers a write with an error, as the admin API does.
	Refuse func(w http.ResponseWriter, r *http.Request, err error)
	// Current returns the session of a request, and its operator.
	Current func(r *http.Request) (id task.ID, by task.Caller, err error)
	Store   *store.Store
	Home    string // where an operator goes without return_to
	Log     *slog.Logger
}

// Handler answers the requests of a login.
type Handler struct {
	o         Options
	mux       *http.ServeMux
	client    *http.Client
	exchanges *limit.Places[string]
}

// Bounds of the exchanges of codes that are under way, in total and from one address: each is a request to the issuer.
const (
	maxExchanges          = 64
	maxExchangesOfAddress = 8
	issuerTimeout         = 10 * time.Second
	// flowFor is how long an operator may take at the issuer.
	flowFor = 15 * time.Minute
)

// New makes a Handler.
func New(o Options) *Handler {
	h := &Handler{o: o, mux: http.NewServeMux(), exchanges: limit.NewPlaces[string](maxExchanges, maxExchangesOfAddress)}
	h.client = &http.Client{Timeout: issuerTimeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if o.Issuer != nil {
		h.mux.HandleFunc("GET "+Path, h.begin)
		h.mux.HandleFunc("GET "+CallbackPath, h.callback)
	}
	if o.Keys {
		h.mux.HandleFunc("POST "+KeyPath, h.typed)
	}
	if o.Passwords {
		h.mux.HandleFunc("POST "+UserPath, h.typed)
	}
	h.mux.HandleFunc("POST "+LogoutPath, h.logout)
	return h
}

// CookieName returns the name of the session's cookie. The prefix makes browsers refuse it from other hosts and without TLS.
func CookieName(secure bool) string {
	if secure {
		return "__Host-holdfast_session"
	}
	return "holdfast_session"
}

func (h *Handler) flowCookie() string {
	return strings.Replace(CookieName(h.o.Secure), "session", "login", 1)
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	head.Set("Cache-Control", "no-store")
	head.Set("Referrer-Policy", "no-referrer")
	head.Set("Content-Security-Policy", "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.mux.ServeHTTP(w, r)
}

// flow is a login that the issuer has not answered yet.
type flow struct {
	State    string    `json:"s"`
	Nonce    string    `json:"n"`
	Verifier string    `json:"v"`
	Return   string    `json:"r"`
	Until    time.Time `json:"t"`
}

// begin sends the browser to the issuer.
func (h *Handler) begin(w http.ResponseWriter, r *http.Request) {
	endpoints, err := h.o.Issuer.Scheme.Endpoints(r.Context())
	if err != nil {
		h.o.Log.Warn("login not begun: the issuer's metadata were not read", "error", err)
		h.page(w, http.StatusBadGateway, "The issuer does not answer", "Its metadata could not be read. Try again in a moment; the log of the server has the error.")
		return
	}
	config, err := h.config(r.Context(), endpoints)
	if err != nil {
		h.o.Log.Error("login not begun: the client secret was not read", "error", err)
		h.page(w, http.StatusInternalServerError, "Logins are not set up", "The client secret could not be read. The log of the server has the error.")
		return
	}
	f := flow{
		State: oauth2.GenerateVerifier(), Nonce: oauth2.GenerateVerifier(), Verifier: oauth2.GenerateVerifier(),
		Return: h.local(r.URL.Query().Get("return_to")), Until: time.Now().Add(flowFor),
	}
	raw, _ := json.Marshal(f) // strings and a time, so it cannot fail
	h.set(w, h.flowCookie(), base64.RawURLEncoding.EncodeToString(h.o.Seal.Seal(raw, Purpose)), http.SameSiteLaxMode, flowFor)
	options := []oauth2.AuthCodeOption{oauth2.S256ChallengeOption(f.Verifier), oauth2.SetAuthURLParam("nonce", f.Nonce)}
	for name, value := range h.o.Issuer.Parameters {
		options = append(options, oauth2.SetAuthURLParam(name, value))
	}
	http.Redirect(w, r, config.AuthCodeURL(f.State, options...), http.StatusSeeOther)
}

func (h *Handler) config(ctx context.Context, e *auth.Endpoints) (*oauth2.Config, error) {
	i := h.o.Issuer
	c := &oauth2.Config{
		ClientID: i.Client, RedirectURL: h.o.PublicURL + CallbackPath, Scopes: i.Scopes,
		Endpoint: oauth2.Endpoint{AuthURL: e.Authorization, TokenURL: e.Token, AuthStyle: oauth2.AuthStyleInParams},
	}
	if i.Secret == nil {
		return c, nil
	}
	// A guess by trial would use the code twice.
	if auth.Supports(e.AuthMethods, "client_secret_basic", "client_secret_basic") {
		c.Endpoint.AuthStyle = oauth2.AuthStyleInHeader
	}
	var err error
	c.ClientSecret, err = i.Secret(ctx)
	return c, err
}

// local returns a path of this server, or the home if the text is anything else: a link must not lead a browser elsewhere.
func (h *Handler) local(to string) string {
	u, err := url.Parse(to)
	if err != nil || len(to) > maxReturn || !strings.HasPrefix(to, "/") || strings.HasPrefix(to, "//") || strings.Contains(to, `\`) ||
		strings.ContainsFunc(to, unicode.IsControl) || u.Scheme != "" || u.Host != "" || u.User != nil || strings.HasPrefix(u.Path, "//") {
		return h.o.Home
	}
	return u.String()
}

// maxReturn keeps the cookie of a login below the limit of browsers.
const maxReturn = 2000

// callback ends a login with the issuer's answer.
func (h *Handler) callback(w http.ResponseWriter, r *http.Request) {
	f := h.flow(r)
	q := r.URL.Query()
	h.set(w, h.flowCookie(), "", http.SameSiteLaxMode, -1)
	switch {
	case f == nil || subtle.ConstantTimeCompare([]byte(q.Get("state")), []byte(f.State)) != 1:
		h.page(w, http.StatusBadRequest, "This login was not begun here", "It has expired, was used already, or began in another browser. Log in again.")
		return
	case q.Get("error") != "":
		h.o.Log.Info("login refused by the issuer", "error", q.Get("error"))
		h.page(w, http.StatusForbidden, "The issuer refused the login", "It said: "+bounded(q.Get("error"))+".")
		return
	}
	leave, ok := h.exchanges.Take(limit.Sender(r.RemoteAddr))
	if !ok {
		w.Header().Set("Retry-After", "2")
		h.page(w, http.StatusTooManyRequests, "Too many logins", "Try again in a moment.")
		return
	}
	defer leave()
	ctx, cancel := context.WithTimeout(r.Context(), 3*issuerTimeout)
	defer cancel()
	caller, err := h.exchange(ctx, r, f)
	if err != nil {
		h.o.Log.Warn("login failed", "error", err)
		status, detail := http.StatusForbidden, "The answer of the issuer was not accepted. Log in again; the log of the server has the reason."
		var denied *oauth2.RetrieveError
		if task.KindOf(err) == task.Unavailable || errors.As(err, new(*url.Error)) || errors.As(err, &denied) && denied.Response.StatusCode >= 500 {
			status, detail = http.StatusBadGateway, "The issuer does not answer as it should. Try again in a moment."
		}
		h.page(w, status, "The login failed", detail)
		return
	}
	scheme := h.o.Issuer.Scheme.Name()
	caller.Address = r.RemoteAddr
	if err := h.o.Permits(caller, scheme); err != nil {
		h.page(w, http.StatusForbidden, "You are no operator",
			"You have logged in as "+bounded(caller.Subject)+", but "+bounded(textOf(err))+". Ask those who run the issuer for the scope, and log in again.")
		return
	}
	if err := h.open(ctx, w, caller, scheme, ""); err != nil {
		h.o.Log.Error("session not opened", "error", err)
		h.page(w, http.StatusServiceUnavailable, "The login failed", "The database does not answer. Log in again in a moment.")
		return
	}
	http.Redirect(w, r, f.Return, http.StatusSeeOther)
}

// textOf returns the text of an error for the client.
func textOf(err error) string {
	var e *task.Error
	if errors.As(err, &e) && e.Msg != "" {
		return e.Msg
	}
	return "you have none of the scopes of operators"
}

// flow returns the login that this browser has begun; nil: none.
func (h *Handler) flow(r *http.Request) *flow {
	cookies := r.CookiesNamed(h.flowCookie())
	if len(cookies) != 1 {
		return nil
	}
	sealed, err := base64.RawURLEncoding.DecodeString(cookies[0].Value)
	if err != nil {
		return nil
	}
	raw, err := h.o.Seal.Open(sealed, Purpose)
	f := &flow{}
	if err != nil || json.Unmarshal(raw, f) != nil || f.State == "" || time.Now().After(f.Until) {
		return nil
	}
	return f
}

var (
	errMix     = errors.New("the answer names another issuer")
	errNoID    = errors.New("the issuer sent no ID token; is openid in the scopes?")
	errSubject = errors.New("the access token is of another subject than the ID token")
)

// exchange gets the tokens for the code, checks them, and returns the operator.
func (h *Handler) exchange(ctx context.Context, r *http.Request, f *flow) (*task.Caller, error) {
	i, q := h.o.Issuer, r.URL.Query()
	endpoints, err := i.Scheme.Endpoints(ctx)
	if err != nil {
		return nil, &task.Error{Kind: task.Unavailable, Msg: "the issuer's metadata were not read", Cause: err}
	}
	if iss := q.Get("iss"); iss != "" && iss != endpoints.Issuer || iss == "" && endpoints.NamesIssuer {
		return nil, errMix
	}
	config, err := h.config(r.Context(), endpoints)
	if err != nil {
		return nil, err
	}
	tokens, err := config.Exchange(context.WithValue(ctx, oauth2.HTTPClient, h.client), q.Get("code"), oauth2.VerifierOption(f.Verifier))
	if err != nil {
		return nil, err
	}
	id, _ := tokens.Extra("id_token").(string)
	if id == "" {
		return nil, errNoID
	}
	caller, subject, err := i.Scheme.VerifyID(ctx, id, i.Client, f.Nonce)
	switch {
	case err != nil:
		return nil, err
	case i.FromID:
		return caller, nil
	}
	caller, of, err := i.Scheme.Verify(ctx, tokens.AccessToken)
	if err != nil {
		return nil, err
	}
	if of != subject {
		return nil, errSubject
	}
	return caller, nil
}

// open opens a session and gives the browser its cookie.
func (h *Handler) open(ctx context.Context, w http.ResponseWriter, by *task.Caller, scheme, keyID string) error {
	cookie, id, hash := auth.NewSession()
	err := h.o.Store.AddSession(ctx, &store.Session{ID: task.ID(id), Hash: hash, Scheme: scheme, KeyID: keyID, By: *by}, h.o.Lifetime)
	if err != nil {
		return err
	}
	// The page asks for all it shows by itself, so a link to it from elsewhere needs no cookie.
	h.set(w, CookieName(h.o.Secure), cookie, http.SameSiteStrictMode, h.o.Lifetime)
	return nil
}

func (h *Handler) set(w http.ResponseWriter, name, value string, site http.SameSite, lifetime time.Duration) {
	age := int(lifetime.Seconds())
	if lifetime < 0 {
		age = -1
	}
	http.SetCookie(w, &http.Cookie{Name: name, Value: value, Path: "/", MaxAge: age, HttpOnly: true, Secure: h.o.Secure, SameSite: site}) //nolint:gosec // not Secure only if the page itself is at http
}

// typed opens a session for what an operator has typed: an API key, or a user and a password.
func (h *Handler) typed(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Key      string `json:"key"`
		User     string `json:"user"`
		Password string `json:"password"`
	}
	if err := h.o.Origins.Check(r, true); err != nil {
		h.o.Refuse(w, r, err)
		return
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		h.o.Refuse(w, r, task.Errorf(task.ContentType, "Content-Type must be application/json"))
		return
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4<<10)).Decode(&body); err != nil || (body.Key == "") == (body.User == "") {
		h.o.Refuse(w, r, task.Errorf(task.Invalid, "the body must be a JSON object with the member key, or with user and password"))
		return
	}
	credential := "Bearer " + body.Key
	if body.User != "" {
		credential = "Basic " + base64.StdEncoding.EncodeToString([]byte(body.User+":"+body.Password))
	}
	shown := &auth.Request{Address: r.RemoteAddr, Header: func(name string) []string {
		if name == "Authorization" {
			return []string{credential}
		}
		return nil
	}}
	caller, scheme, keyID, err := h.o.Admit(r.Context(), shown)
	if err == nil {
		err = h.o.Permits(&caller, scheme)
	}
	if err == nil {
		err = h.open(r.Context(), w, &caller, scheme, keyID)
	}
	if err != nil {
		h.o.Refuse(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// logout ends the session of the browser. Its answer says where to end that of the issuer.
func (h *Handler) logout(w http.ResponseWriter, r *http.Request) {
	if err := h.o.Origins.Check(r, true); err != nil {
		h.o.Refuse(w, r, err)
		return
	}
	id, by, err := h.o.Current(r)
	if err == nil {
		if err = h.o.Store.Operator(by, false).EndSession(r.Context(), id); task.KindOf(err) == task.NotFound {
			err = nil // another replica has ended it
		}
	} else if task.KindOf(err) == task.Unauthenticated {
		err = nil // it has ended
	}
	if err != nil {
		h.o.Refuse(w, r, err)
		return
	}
	h.set(w, CookieName(h.o.Secure), "", http.SameSiteStrictMode, -1)
	reply := struct {
		Issuer string `json:"issuer_logout,omitempty"`
	}{}
	if i := h.o.Issuer; i != nil {
		if e, err := i.Scheme.Endpoints(r.Context()); err == nil && e.EndSession != "" {
			if u, err := url.Parse(e.EndSession); err == nil {
				q := u.Query()
				q.Set("client_id", i.Client)
				q.Set("post_logout_redirect_uri", h.o.PublicURL+h.o.Home)
				u.RawQuery = q.Encode()
				reply.Issuer = u.String()
			}
		}
	}
	raw, _ := json.Marshal(reply) // strings only, so it cannot fail
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(raw)
}

func bounded(s string) string {
	const most = 200
	s = strings.ToValidUTF8(s, "")
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	return s
}

// page answers a browser with an error. It needs no script, and works without the console. Only the detail comes from outside.
func (h *Handler) page(w http.ResponseWriter, status int, title, detail string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	// A template calls methods by name, for which the linker would keep all exported methods of the binary.
	_, _ = fmt.Fprintf(w, `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>%[1]s · Holdfast</title></head>
<body><main><h1>%[1]s</h1><p>%[2]s</p><p><a href="%[3]s">Log in again</a> · <a href="%[4]s">Console</a></p></main></body></html>
`, title, html.EscapeString(detail), Path, h.o.Home)
}
