package operators

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/admin"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/issuertest"
	"github.com/holdfast-a2a/holdfast/internal/test/nettest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// browser keeps cookies as browsers do, for the host of the console, which all replicas have here. It follows no redirects, so a
// test can tamper with each.
type browser struct {
	t       testing.TB
	http    *http.Client
	cookies map[string]*http.Cookie
}

func (b *browser) do(method, address, body string, headers ...string) *answer {
	b.t.Helper()
	req, err := http.NewRequestWithContext(waittest.Context(b.t), method, address, strings.NewReader(body))
	require.NoError(b.t, err)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	if req.URL.Scheme == "http" { // the issuer has no cookies
		for _, c := range b.cookies {
			req.AddCookie(&http.Cookie{Name: c.Name, Value: c.Value})
		}
	}
	res, err := b.http.Do(req)
	require.NoError(b.t, err)
	defer res.Body.Close()
	for _, c := range res.Cookies() {
		require.True(b.t, c.HttpOnly, c.Name)
		require.Equal(b.t, "/", c.Path)
		require.Empty(b.t, c.Domain)
		if b.cookies[c.Name] = c; c.MaxAge < 0 {
			delete(b.cookies, c.Name)
		}
	}
	a := &answer{t: b.t, Status: res.StatusCode, Header: res.Header}
	a.Body, err = io.ReadAll(res.Body)
	require.NoError(b.t, err)
	return a
}

// session is the cookie of the session; nil: the browser has none.
func (b *browser) session() *http.Cookie { return b.cookies["holdfast_session"] }

// login is a server with logins at an issuer, and the address of the console.
type login struct {
	t      testing.TB
	db     *clustertest.DB
	issuer *issuertest.Issuer
	a, b   *clustertest.Replica
}

func newLogin(t testing.TB, more string) *login {
	t.Helper()
	l := &login{t: t, db: clustertest.NewDB(t), issuer: issuertest.Start(t)}
	address := nettest.Reserve(t)
	config := clustertest.Replace(clustertest.WithKeys, "  schemes:\n", "  schemes:\n    - "+l.issuer.Scheme("sso", ", tenant_claim: org, subject_prefix: 'sso:'")+"\n") +
		fmt.Sprintf("admin: {schemes: [keys, sso], all_tenants_scope: admin:all, public_url: %q, login: {scheme: sso, client_id: console, client_secret: %q, scopes: [openid]%s}}\n",
			"http://"+address, l.issuer.Secret(), more)
	first := clustertest.Options{Name: "a", DB: l.db.URL, Config: clustertest.Replace(config, "admin_listen: 127.0.0.1:0", "admin_listen: "+address), Env: l.issuer.Trust()}
	second := clustertest.Options{Name: "b", DB: l.db.URL, Config: config, Env: l.issuer.Trust()}
	both := clustertest.Together(t, first, second)
	l.a, l.b = both[0], both[1]
	require.Equal(t, "http://"+address, l.a.Admin)
	l.issuer.Change(func(s *issuertest.State) {
		s.Redirect = l.a.Admin + "/admin/login/callback"
		s.User = issuertest.User{Subject: "ada", Scope: "admin:act admin:all"}
	})
	return l
}

func (l *login) browser() *browser {
	return &browser{l.t, l.issuer.Client(), map[string]*http.Cookie{}}
}

// begin goes to the issuer and back, up to the callback, whose address it returns.
func (l *login) begin(b *browser, at *clustertest.Replica, returnTo string) (callback *url.URL, asked url.Values) {
	l.t.Helper()
	a := b.do("GET", at.Admin+"/admin/login?return_to="+url.QueryEscape(returnTo), "")
	require.Equal(l.t, http.StatusSeeOther, a.Status, "%s", a.Body)
	to, err := url.Parse(a.Header.Get("Location"))
	require.NoError(l.t, err)
	require.Equal(l.t, l.issuer.URL+"/authorize", to.Scheme+"://"+to.Host+to.Path)
	flow := b.cookies["holdfast_login"]
	require.NotNil(l.t, flow)
	require.Equal(l.t, http.SameSiteLaxMode, flow.SameSite, "the issuer's redirect must bring it")
	back := b.do("GET", to.String(), "")
	require.Equal(l.t, http.StatusFound, back.Status, "%s", back.Body)
	callback, err = url.Parse(back.Header.Get("Location"))
	require.NoError(l.t, err)
	return callback, to.Query()
}

// in logs a browser in.
func (l *login) in(b *browser, at *clustertest.Replica, returnTo string) *answer {
	l.t.Helper()
	callback, _ := l.begin(b, at, returnTo)
	return b.do("GET", at.Admin+callback.RequestURI(), "")
}

// me asks a replica who the browser is.
func (l *login) me(b *browser, at *clustertest.Replica) *answer {
	l.t.Helper()
	a := b.do("GET", at.Admin+admin.Path+"/me", "")
	require.NoError(l.t, document.Check("GET", "/me", a.Status, a.Header, a.Body), "%s", a.Body)
	return a
}

// An operator logs in at one replica and uses another one. The session ends on both at the logout, with its streams.
func TestLoginWithAnIssuer(t *testing.T) {
	t.Parallel()
	l := newLogin(t, "")
	b := l.browser()
	a := l.me(b, l.a)
	require.Equal(t, http.StatusUnauthorized, a.Status)
	require.Equal(t, object{"url": "/admin/login", "issuer": l.issuer.URL, "key_url": "/admin/login/key"}, a.read()["login"])

	callback, asked := l.begin(b, l.a, "/console/tasks?state=failed")
	require.Equal(t, "S256", asked.Get("code_challenge_method"))
	require.NotEqual(t, asked.Get("state"), asked.Get("nonce"))
	require.Equal(t, l.a.Admin+"/admin/login/callback", asked.Get("redirect_uri"))
	// Any replica ends a login that another one has begun.
	done := b.do("GET", l.b.Admin+callback.RequestURI(), "")
	require.Equal(t, http.StatusSeeOther, done.Status, "%s", done.Body)
	require.Equal(t, "/console/tasks?state=failed", done.Header.Get("Location"))
	require.Equal(t, "no-store", done.Header.Get("Cache-Control"))
	require.Nil(t, b.cookies["holdfast_login"], "it is used")
	require.Equal(t, http.SameSiteStrictMode, b.session().SameSite)
	require.False(t, b.session().Secure, "the page is at http")

	for _, r := range []*clustertest.Replica{l.a, l.b} {
		me := l.me(b, r)
		require.Equal(t, http.StatusOK, me.Status, "%s", me.Body)
		require.Equal(t, "sso:ada", me.text("subject"))
		require.Equal(t, "acme", me.text("tenant"))
		require.Equal(t, "act", me.text("right"))
		require.Equal(t, "/admin/logout", me.read()["session"].(object)["logout_url"])
	}
	// The page writes with its origin, and the audit log knows who it was.
	id := send(l.a, l.db.Keys(store.APIKey{Tenant: "acme"}, "client")[0], "ask:x")
	path := admin.Path + "/tasks/" + id
	for name, headers := range map[string][]string{
		"no origin":      nil,
		"another origin": {"Origin", "https://evil.example.com"},
		"another site":   {"Sec-Fetch-Site", "cross-site"},
		"a site next to": {"Sec-Fetch-Site", "same-site", "Origin", "http://other.127.0.0.1.nip.example"},
		"an opaque page": {"Origin", "null"},
		"another port":   {"Origin", "http://127.0.0.1:1"},
	} {
		a := b.do("POST", l.a.Admin+path+"/cancel", `{"reason":"r"}`, headers...)
		require.Equal(t, http.StatusForbidden, a.Status, name)
		require.Equal(t, "Origin", a.text("field"), name)
		require.Equal(t, http.StatusForbidden, b.do("POST", l.a.Admin+"/admin/logout", "", headers...).Status, name)
		require.Equal(t, http.StatusForbidden, b.do("POST", l.a.Admin+"/admin/login/key", `{"key":"x"}`, headers...).Status, name)
	}
	require.Equal(t, http.StatusOK, l.me(b, l.b).Status, "no attack has ended the session")
	require.Equal(t, http.StatusOK, b.do("POST", l.b.Admin+path+"/hold", `{"reason":"look"}`, "Origin", l.a.Admin).Status, "behind a balancer: admin.public_url")
	require.Equal(t, http.StatusForbidden, b.do("POST", l.a.Admin+path+"/purge", `{"reason":"r"}`, "Origin", l.a.Admin).Status, "the scope is missing")
	sid := l.me(b, l.a).read()["session"].(object)["id"].(string)
	require.Equal(t, "sso:ada|acme|operator|session sso/"+sid+"|look", clustertest.One[string](l.db,
		"SELECT concat_ws('|', subject, tenant, method, credential, reason) FROM holdfast.v_audit WHERE action = 'task.held'"))

	// The other pages of the address accept no cookie: they have no check of the origin.
	for _, page := range []string{"/metrics", "/debug/pprof/"} {
		require.Equal(t, http.StatusUnauthorized, b.do("GET", l.a.Admin+page, "").Status, page)
	}

	streams := make([]<-chan event, 0, 2)
	for _, r := range []*clustertest.Replica{l.a, l.b} {
		s := as(t, r, "").follow(waittest.Context(t), "/tasks/stream", "Cookie", "holdfast_session="+b.session().Value)
		require.Equal(t, "ready", waittest.Within(t, "a live list", s).name)
		streams = append(streams, s)
	}
	old := b.session().Value
	out := b.do("POST", l.a.Admin+"/admin/logout", "", "Origin", l.a.Admin)
	require.Equal(t, http.StatusOK, out.Status, "%s", out.Body)
	require.Contains(t, out.text("issuer_logout"), l.issuer.URL+"/logout?client_id=console")
	require.Nil(t, b.session())
	for _, s := range streams {
		for range s { // until it ends
		}
	}
	b.cookies["holdfast_session"] = &http.Cookie{Name: "holdfast_session", Value: old}
	for _, r := range []*clustertest.Replica{l.a, l.b} {
		waittest.Eventually(t, "the session has ended everywhere", func() error {
			a := l.me(b, r)
			return waittest.Unless(a.Status == http.StatusUnauthorized, "%d", a.Status)
		})
	}
	require.Equal(t, "session.opened "+sid+", session.ended "+sid, clustertest.One[string](l.db,
		"SELECT string_agg(action || ' ' || object, ', ' ORDER BY at) FROM holdfast.v_audit WHERE action LIKE 'session.%' AND subject = 'sso:ada'"))
	for _, r := range []*clustertest.Replica{l.a, l.b} {
		l.issuer.Silent(r)
		require.NotContains(t, r.Log(), old)
		require.NotContains(t, r.Log(), callback.Query().Get("code"))
	}
}

// No change that an attacker can make to a login leads to a session.
func TestAttacksOnLogins(t *testing.T) {
	t.Parallel()
	l := newLogin(t, "")
	refused := func(name string, b *browser, a *answer, status int) {
		t.Helper()
		require.Equal(t, status, a.Status, "%s: %s", name, a.Body)
		require.Nil(t, b.session(), name)
		require.Contains(t, a.Header.Get("Content-Type"), "text/html")
		require.Contains(t, a.Header.Get("Content-Security-Policy"), "default-src 'none'")
	}
	back := func(change func(q url.Values)) (*browser, *answer) {
		t.Helper()
		b := l.browser()
		callback, _ := l.begin(b, l.a, "/console/")
		q := callback.Query()
		change(q)
		return b, b.do("GET", l.a.Admin+callback.Path+"?"+q.Encode(), "")
	}
	b, a := back(func(q url.Values) { q.Set("state", flip(q.Get("state"), 0)) })
	refused("another state", b, a, http.StatusBadRequest)
	b, a = back(func(q url.Values) { q.Del("state") })
	refused("no state", b, a, http.StatusBadRequest)
	b, a = back(func(q url.Values) { q.Set("iss", "https://id.example.com") })
	refused("another issuer (mix-up)", b, a, http.StatusForbidden)
	b, a = back(func(q url.Values) { q.Del("iss") })
	refused("no issuer, although it announces that it says so", b, a, http.StatusForbidden)
	b, a = back(func(q url.Values) { q.Set("code", "guessed") })
	refused("another code", b, a, http.StatusForbidden)
	b, a = back(func(q url.Values) { q.Set("error", "<script>alert(1)</script>") })
	refused("an error with markup", b, a, http.StatusForbidden)
	require.NotContains(t, string(a.Body), "<script>")

	// The callback of an attacker's login in a victim's browser, which has begun none, or one of its own.
	attacker, victim := l.browser(), l.browser()
	callback, _ := l.begin(attacker, l.a, "/console/")
	refused("login in another browser", victim, victim.do("GET", callback.String(), ""), http.StatusBadRequest)
	l.begin(victim, l.a, "/console/")
	refused("login of another browser", victim, victim.do("GET", callback.String(), ""), http.StatusBadRequest)
	// A code that was stolen on its way fails without the verifier, which is in the cookie of the browser that began.
	thief := l.browser()
	own, _ := l.begin(thief, l.a, "/console/")
	q := own.Query()
	q.Set("code", callback.Query().Get("code"))
	refused("a stolen code", thief, thief.do("GET", l.a.Admin+own.Path+"?"+q.Encode(), ""), http.StatusForbidden)

	// A callback works once, also for somebody who has kept the cookie of the login.
	b = l.browser()
	callback, _ = l.begin(b, l.a, "/console/")
	flow := b.cookies["holdfast_login"]
	require.Equal(t, http.StatusSeeOther, b.do("GET", callback.String(), "").Status)
	again := l.browser()
	refused("a repeated callback", again, again.do("GET", callback.String(), ""), http.StatusBadRequest)
	again.cookies[flow.Name] = flow
	refused("a repeated callback with its cookie", again, again.do("GET", callback.String(), ""), http.StatusForbidden)
	forged := l.browser()
	callback, _ = l.begin(forged, l.a, "/console/")
	v := []byte(forged.cookies["holdfast_login"].Value)
	v[40] ^= 1
	forged.cookies["holdfast_login"] = &http.Cookie{Name: "holdfast_login", Value: string(v)}
	refused("a changed cookie", forged, forged.do("GET", callback.String(), ""), http.StatusBadRequest)

	for name, user := range map[string]issuertest.User{
		"another nonce":            {IDClaims: object{"nonce": "n"}},
		"no nonce":                 {IDClaims: object{"nonce": nil}},
		"an ID token of a client":  {IDClaims: object{"aud": "other"}},
		"two audiences, no azp":    {IDClaims: object{"aud": []string{"console", "other"}}},
		"azp of another client":    {IDClaims: object{"azp": "other"}},
		"an expired ID token":      {IDClaims: object{"exp": 1000}},
		"another issuer":           {IDClaims: object{"iss": "https://id.example.com"}},
		"an access token of other": {Other: "eve"},
	} {
		user.Subject, user.Scope = "ada", "holdfast:operator admin:all"
		l.issuer.Change(func(s *issuertest.State) { s.User = user })
		b := l.browser()
		refused(name, b, l.in(b, l.a, "/"), http.StatusForbidden)
	}
	l.issuer.Change(func(s *issuertest.State) { s.User = issuertest.User{Subject: "ada", Refuses: true} })
	b = l.browser()
	refused("the user refuses", b, l.in(b, l.a, "/"), http.StatusForbidden)
	// A person without a scope of operators learns that, and nothing else.
	l.issuer.Change(func(s *issuertest.State) { s.User = issuertest.User{Subject: "<b>bob", Scope: "weather:use"} })
	b = l.browser()
	a = l.in(b, l.a, "/")
	refused("no operator", b, a, http.StatusForbidden)
	require.Contains(t, string(a.Body), "You are no operator")
	require.Contains(t, string(a.Body), "admin:view")
	require.Contains(t, string(a.Body), "sso:&lt;b&gt;bob")
	require.Zero(t, clustertest.One[int](l.db, "SELECT count(*) FROM holdfast.admin_sessions WHERE subject <> 'sso:ada'"))

	// No link leads elsewhere.
	l.issuer.Change(func(s *issuertest.State) { s.User = issuertest.User{Subject: "ada", Scope: "admin:view"} })
	for to, want := range map[string]string{
		"/console/x?y=1#z": "/console/x?y=1#z", "": "/console/", "https://evil.example.com/": "/console/", "//evil.example.com": "/console/",
		`/\evil.example.com`: "/console/", "/\t/evil.example.com": "/console/", "javascript:alert(1)": "/console/", "evil": "/console/",
		"/%2f/evil.example.com": "/console/", "///evil.example.com": "/console/", "http:/evil": "/console/", " //evil": "/console/",
	} {
		done := l.in(l.browser(), l.a, to)
		require.Equal(t, http.StatusSeeOther, done.Status, "%s", done.Body)
		require.Equal(t, want, done.Header.Get("Location"), "return_to=%q", to)
	}
	l.issuer.Kill()
	a = l.browser().do("GET", l.a.Admin+"/admin/login", "")
	require.Equal(t, http.StatusBadGateway, a.Status, "%s", a.Body)
}

// A session lasts as long as it may, and ends earlier with its scheme's key or by an administrator. Forged ones are refused.
func TestSessionsEnd(t *testing.T) {
	t.Parallel()
	l := newLogin(t, ", claims: id_token")
	l.issuer.Change(func(s *issuertest.State) {
		s.User = issuertest.User{Subject: "ada", IDClaims: object{"scope": "admin:view", "org": "acme"}, Other: "nobody asks the access token"}
	})
	root := as(t, l.b, l.db.Keys(store.APIKey{Tenant: "acme", Scopes: []string{"admin:administer", "admin:all"}}, "root")[0])
	ada := l.browser()
	require.Equal(t, http.StatusSeeOther, l.in(ada, l.a, "/").Status)
	me := l.me(ada, l.a)
	require.Equal(t, "view", me.text("right"))
	require.Equal(t, false, me.read()["all_tenants"], "an operator of one tenant")

	// The form of the page takes a key, and no other text.
	key := l.db.Keys(store.APIKey{Tenant: "acme", Scopes: []string{"admin:act", "admin:all"}}, "grace")[0]
	grace := l.browser()
	post := func(b *browser, body string) *answer {
		return b.do("POST", l.a.Admin+"/admin/login/key", body, "Origin", l.a.Admin)
	}
	typed, _ := json.Marshal(map[string]string{"key": key})
	require.Equal(t, http.StatusNoContent, post(grace, string(typed)).Status)
	require.NotContains(t, grace.session().Value, strings.Split(key, "_")[2])
	require.Equal(t, "grace", l.me(grace, l.b).text("subject"))
	for body, status := range map[string]int{
		`{"key":"hfk_x"}`: http.StatusUnauthorized, `{}`: http.StatusBadRequest, `[`: http.StatusBadRequest,
		`{"key":"` + l.issuer.Token("eve", "holdfast:operator") + `"}`:                           http.StatusUnauthorized,
		`{"key":"` + l.db.Keys(store.APIKey{Scopes: []string{"weather:use"}}, "alice")[0] + `"}`: http.StatusForbidden,
	} {
		b := l.browser()
		require.Equal(t, status, post(b, body).Status, body)
		require.Nil(t, b.session())
	}

	list := root.get("/sessions").list("sessions")
	require.Equal(t, []string{"grace", "sso:ada"}, column(list, "subject"))
	require.Equal(t, []string{"keys", "sso"}, column(list, "scheme"))
	require.Equal(t, strings.Split(key, "_")[1], list[0]["key"])
	other := as(t, l.a, l.db.Keys(store.APIKey{Tenant: "globex", Scopes: []string{"admin:administer"}}, "root")[0])
	require.Empty(t, other.get("/sessions").list("sessions"), "of another tenant")
	sid := column(list, "id")[1]
	require.Equal(t, http.StatusNotFound, other.do("POST", "/sessions/"+sid+"/end", `{"reason":"r"}`).Status)

	// A wrong secret, or a cookie twice.
	for _, value := range []string{ada.session().Value[:50], flip(ada.session().Value, 0), flip(ada.session().Value, 50)} {
		b := l.browser()
		b.cookies["holdfast_session"] = &http.Cookie{Name: "holdfast_session", Value: value}
		require.Equal(t, http.StatusUnauthorized, l.me(b, l.a).Status)
	}
	twice := l.browser().do("GET", l.a.Admin+admin.Path+"/me", "", "Cookie", "holdfast_session="+ada.session().Value+"; holdfast_session="+ada.session().Value)
	require.Equal(t, http.StatusUnauthorized, twice.Status)

	stream := as(t, l.a, "").follow(waittest.Context(t), "/tasks/stream", "Cookie", "holdfast_session="+ada.session().Value)
	require.Equal(t, "ready", waittest.Within(t, "a live list", stream).name)
	root.act("/sessions/"+sid+"/end", `{"reason":"she has left"}`)
	for range stream { // until it ends
	}
	require.Equal(t, http.StatusUnauthorized, l.me(ada, l.b).Status)
	require.Equal(t, "root|she has left", clustertest.One[string](l.db, "SELECT subject || '|' || reason FROM holdfast.v_audit WHERE action = 'session.ended'"))

	l.db.Operate("api-keys", "revoke", strings.Split(key, "_")[1])
	waittest.Eventually(t, "the session ends with its key", func() error {
		a := l.me(grace, l.b)
		return waittest.Unless(a.Status == http.StatusUnauthorized, "%d", a.Status)
	})

	require.Equal(t, http.StatusSeeOther, l.in(ada, l.a, "/").Status)
	waittest.Eventually(t, "a live list begins before the session expires", func() error {
		l.db.Exec("UPDATE holdfast.admin_sessions SET expires_at = now() + interval '2 s'")
		res, err := as(t, l.b, "").begin(waittest.Context(t), http.MethodGet, "/tasks/stream", "", "Cookie", "holdfast_session="+ada.session().Value)
		require.NoError(t, err)
		defer res.Body.Close()
		_, _ = io.Copy(io.Discard, res.Body) // until the session expires
		return waittest.Unless(res.StatusCode == http.StatusOK, "%d", res.StatusCode)
	})
	require.Equal(t, http.StatusUnauthorized, l.me(ada, l.b).Status)
}

func flip(s string, at int) string {
	b := bytes.Clone([]byte(s))
	if b[at]++; b[at] > 'z' {
		b[at] = 'a'
	}
	return string(b)
}
