package push_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/push"
	"github.com/holdfast-a2a/holdfast/internal/server/keys"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
	"github.com/holdfast-a2a/holdfast/internal/web"
)

func delivery(url string, change func(*task.PushConfig)) *push.Delivery {
	c := &task.PushConfig{ID: "c", URL: url, Dialect: "1.0"}
	if change != nil {
		change(c)
	}
	return &push.Delivery{
		ID: "d-1", TaskID: "t-1", Task: task.ID{1}, Agent: "demo", Owner: task.Owner{Tenant: "acme", Subject: "alice"}, Config: c, ContentType: "application/json", Body: []byte(`{"a":1}`),
	}
}

// tokenOf reads a JWT as a receiver should: with the published keys.
func tokenOf(t *testing.T, set []byte, compact string) map[string]any {
	t.Helper()
	parsed := storetest.Must(jose.ParseSignedCompact(compact, []jose.SignatureAlgorithm{jose.ES256}))(t)
	var published jose.JSONWebKeySet
	require.NoError(t, json.Unmarshal(set, &published))
	payload := storetest.Must(parsed.Verify(published))(t)
	require.Equal(t, "JWT", parsed.Signatures[0].Protected.ExtraHeaders[jose.HeaderType])
	require.NotContains(t, parsed.Signatures[0].Protected.ExtraHeaders, jose.HeaderKey("jku"))
	var claims map[string]any
	require.NoError(t, json.Unmarshal(payload, &claims))
	return claims
}

func TestWhatIsSent(t *testing.T) {
	t.Parallel()
	db := storetest.Must(store.Open(t.Context(), store.Options{URL: storetest.New(t).URL, APIConns: 2}))(t)
	t.Cleanup(func() { db.Close(context.WithoutCancel(t.Context())) })
	keys := keys.New(keys.Options{Store: db, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, keys.Refresh(t.Context()))
	url, got := receiver(t, accept)
	secrets := []push.Secret{[]byte("the secret that was new yesterday"), []byte("the secret that is old, by a year")}
	plain := sender(t, push.SenderOptions{Signer: keys, Issuer: "https://a.example"})
	standard := sender(t, push.SenderOptions{Signer: keys, Issuer: "https://a.example", Secrets: secrets, UserAgent: "Holdfast/9"})
	send := func(s *push.Sender, d *push.Delivery) received {
		t.Helper()
		a := s.Send(t.Context(), d)
		require.Equal(t, push.Delivered, a.Class, a.Error)
		require.Equal(t, http.StatusNoContent, a.Status)
		return waittest.Within(t, "the request", got)
	}

	hook := url + "/hook?x=1"
	before := time.Now().Unix()
	r := send(plain, delivery(hook, nil))
	require.Equal(t, "POST /hook?x=1", r.Method+" "+r.URL.String())
	require.JSONEq(t, `{"a":1}`, string(r.body))
	claims := tokenOf(t, keys.Set(), r.Header.Get("X-A2A-Signature"))
	at := int64(claims["iat"].(float64))
	require.GreaterOrEqual(t, at, before)
	require.LessOrEqual(t, at, time.Now().Unix())
	digest := sha256.Sum256(r.body)
	require.Empty(t, cmp.Diff(map[string]any{
		"iss": "https://a.example", "aud": hook, "sub": "t-1", "jti": "d-1", "iat": float64(at), "exp": float64(at + 300),
		"tenant": "acme", "agent": "demo", "taskId": task.ID{1}.String(),
		// printf 'acme\0alice' | sha256sum
		"owner":               "dea4eaeaeaa2ce73be2c366f5d0ea013f6752d12966a10583f32acf17d97d403",
		"request_body_sha256": hex.EncodeToString(digest[:]),
	}, claims))
	r.Header.Del("X-A2A-Signature")
	require.Equal(t, "Bearer ", r.Header.Get("Authorization")[:7])
	r.Header.Del("Authorization")
	require.Equal(t, http.Header{
		"Content-Type": {"application/json"}, "Content-Length": {"7"}, "User-Agent": {"Holdfast"}, "Idempotency-Key": {"d-1"},
	}, r.Header, "no other headers")

	r = send(standard, delivery(url, nil))
	require.Equal(t, "Holdfast/9", r.Header.Get("User-Agent"))
	require.Equal(t, "d-1", r.Header.Get("Webhook-Id"))
	signatures := strings.Fields(r.Header.Get("Webhook-Signature"))
	require.Len(t, signatures, 2)
	for i, s := range secrets {
		mac := hmac.New(sha256.New, s.For(push.Origin{Issuer: "https://a.example", Owner: task.Owner{Tenant: "acme", Subject: "alice"}, Agent: "demo"}))
		mac.Write([]byte("d-1." + r.Header.Get("Webhook-Timestamp") + "." + string(r.body)))
		require.Equal(t, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)), signatures[i])
	}

	for dialect, headers := range map[string][]string{
		"0.1": {"X-A2A-Notification-Token", "X-A2A-Token"},
		"0.3": {"X-A2A-Notification-Token"},
		"1.0": {"A2A-Notification-Token", "X-A2A-Notification-Token"},
	} {
		r := send(plain, delivery(url, func(c *task.PushConfig) { c.Dialect, c.Token = dialect, "the token" }))
		var have []string
		for name, values := range r.Header {
			if values[0] == "the token" {
				have = append(have, name)
			}
		}
		for i, name := range headers {
			headers[i] = http.CanonicalHeaderKey(name)
		}
		require.ElementsMatch(t, headers, have, dialect)
	}

	for _, c := range []struct {
		schemes               []string
		credentials, dialect  string
		authorization, apiKey string // "" for the JWT
	}{
		{nil, "", "1.0", "", ""},
		{nil, "x", "0.3", "", ""},
		{[]string{"Bearer"}, "", "0.1", "", ""},
		{[]string{"bearer"}, "abc", "0.3", "Bearer abc", ""},
		{[]string{"BASIC"}, "dTpw", "0.3", "Basic dTpw", ""},
		{[]string{"OAuth2", "Basic", "Bearer"}, "dTpw", "0.1", "Basic dTpw", ""},
		{[]string{"apikey"}, "k", "0.3", "", "k"},
		{[]string{"ApiKey"}, "k", "1.0", "ApiKey k", "k"},
		{[]string{"Custom"}, "k", "1.0", "Custom k", ""},
	} {
		r := send(plain, delivery(url, func(p *task.PushConfig) {
			p.Schemes, p.Credentials, p.Dialect = c.schemes, c.credentials, c.dialect
		}))
		name := fmt.Sprintf("%v %q in %s", c.schemes, c.credentials, c.dialect)
		require.Equal(t, c.apiKey, r.Header.Get("X-Api-Key"), name)
		if c.authorization == "" {
			require.Equal(t, "Bearer "+r.Header.Get("X-A2A-Signature"), r.Header.Get("Authorization"), name)
		} else {
			require.Equal(t, c.authorization, r.Header.Get("Authorization"), name)
		}
	}
}

// The credentials of an API key may name its header. Credentials that name no usable header are the key.
func TestAPIKeysInTheirOwnHeader(t *testing.T) {
	t.Parallel()
	url, got := receiver(t, accept)
	s := sender(t, push.SenderOptions{Issuer: "https://a.example"})
	send := func(credentials string) http.Header {
		t.Helper()
		a := s.Send(t.Context(), delivery(url, func(c *task.PushConfig) {
			c.Schemes, c.Credentials, c.Dialect = []string{"apikey"}, credentials, "0.3"
		}))
		require.Equal(t, push.Delivered, a.Class, a.Error)
		return waittest.Within(t, "the request", got).Header
	}
	for _, credentials := range []string{`{"in":"header","name":"X-K","value":"v"}`, ` {"name":"x-k","value":"v","in":"header","more":1}`} {
		h := send(credentials)
		require.Equal(t, "v", h.Get("X-K"), credentials)
		require.Empty(t, h.Get("X-Api-Key"), credentials)
		require.Equal(t, "Bearer "+h.Get("X-A2A-Signature"), h.Get("Authorization"))
	}
	h := send(`{"in":"header","name":"authorization","value":"Key v"}`)
	require.Equal(t, []string{"Key v"}, h.Values("Authorization"))
	require.Empty(t, h.Get("X-Api-Key"))
	for _, credentials := range []string{
		"k", `{"in":"query","name":"X-K","value":"v"}`, `{"in":"header","name":"X K","value":"v"}`, `{"in":"header","name":"X-K","value":"a\nb"}`,
		`{"in":"header","name":"X-K"}`, `{"in":"header","name":"content-type","value":"text/html"}`, `{"in":"header","name":"Host","value":"other"}`,
		`{"in":"header","name":"Transfer-Encoding","value":"gzip"}`, `{"in":"header","name":"x-a2a-signature","value":"forged"}`,
		`{"in":"header","name":"Content-Length","value":"0"}`, `{"in":"header","name":"Connection","value":"X-A2A-Signature"}`, `{"in":`,
	} {
		h := send(credentials)
		require.Equal(t, []string{credentials}, h.Values("X-Api-Key"), credentials)
		require.Equal(t, "application/json", h.Get("Content-Type"))
		require.Equal(t, "Bearer "+h.Get("X-A2A-Signature"), h.Get("Authorization"))
		require.Empty(t, h.Get("X-K")+h.Get("Connection"))
	}
}

func TestDeliveryIDsNameTheEvent(t *testing.T) {
	t.Parallel()
	made := time.Date(2026, 11, 21, 1, 2, 3, 4000, time.UTC)
	c := task.PushConfig{ID: "c", CreatedAt: made}
	id := push.DeliveryID(task.ID{1}, &c, 7, false)
	require.Len(t, id, 32)
	local := task.PushConfig{ID: "c", CreatedAt: made.In(time.FixedZone("x", 3600)), URL: "https://elsewhere"}
	require.Equal(t, id, push.DeliveryID(task.ID{1}, &local, 7, false))
	others := map[string]bool{id: true}
	for _, other := range []string{
		push.DeliveryID(task.ID{2}, &c, 7, false),
		push.DeliveryID(task.ID{1}, &c, 8, false),
		push.DeliveryID(task.ID{1}, &c, 7, true),
		push.DeliveryID(task.ID{1}, &task.PushConfig{ID: "d", CreatedAt: made}, 7, false),
		push.DeliveryID(task.ID{1}, &task.PushConfig{ID: "c", CreatedAt: made.Add(time.Second)}, 7, false),
	} {
		require.NotContains(t, others, other)
		others[other] = true
	}
}

// A receiver that is given its secret verifies with it for as long as the server has the secret that it comes from.
func TestSecretsOfOriginsDiffer(t *testing.T) {
	t.Parallel()
	s := storetest.Must(push.ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))(t)
	from := push.Origin{Issuer: "https://a.example", Owner: task.Owner{Tenant: "acme", Subject: "alice"}, Agent: "demo"}
	alice := s.For(from)
	// printf 'holdfast webhook secret\0https://a.example\0acme\0alice\0demo' | openssl dgst -sha256 -hmac KEY -binary | base64
	require.Equal(t, "whsec_QzUEjz7wqVfOwKcCzah2wReU/Rif5f4j8tqeRttcgKc=", alice.Text())
	require.Equal(t, alice, storetest.Must(push.ParseSecret(alice.Text()))(t))
	seen := map[string]bool{s.Text(): true, alice.Text(): true}
	for _, other := range []task.Owner{{}, {Subject: "alice"}, {Tenant: "acme"}, {Tenant: "alice", Subject: "acme"}, {Subject: "acmealice"}} {
		derived := s.For(push.Origin{Issuer: from.Issuer, Owner: other, Agent: from.Agent}).Text()
		require.NotContains(t, seen, derived)
		seen[derived] = true
		require.NotEqual(t, push.OwnerClaim(from.Owner), push.OwnerClaim(other))
	}
	for _, other := range []push.Origin{
		{Issuer: "https://b.example", Owner: from.Owner, Agent: from.Agent},
		{Issuer: from.Issuer, Owner: from.Owner, Agent: "other"},
		{Issuer: from.Issuer, Owner: from.Owner},
		{Issuer: from.Issuer, Owner: task.Owner{Tenant: "acme"}, Agent: "alice"},
	} {
		derived := s.For(other).Text()
		require.NotContains(t, seen, derived)
		seen[derived] = true
	}
}

func TestParseSecret(t *testing.T) {
	t.Parallel()
	require.Len(t, storetest.Must(push.ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))(t), 24)
	for _, bad := range []string{"", "whsec_", "whsec_c2hvcnQ=", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_not base64 not base64 not"} {
		_, err := push.ParseSecret(bad)
		require.Error(t, err, bad)
	}
}

// answer makes a receiver that always answers the same.
func answer(status int, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
	}
}

func TestReceivers(t *testing.T) {
	t.Parallel()
	s := sender(t, push.SenderOptions{})
	hurried := sender(t, push.SenderOptions{Timeout: 300 * time.Millisecond})
	elsewhere, strays := receiver(t, accept)

	closed := raw(t, func(net.Conn) {})
	for name, c := range map[string]struct {
		sender *push.Sender // nil: s
		url    string       // or
		answer http.HandlerFunc
		class  push.Class
		status int
		errors string
		retry  time.Duration
	}{
		"accepts":       {answer: answer(200), class: push.Delivered, status: 200},
		"accepts later": {answer: answer(202), class: push.Delivered, status: 202},
		"sends an early hint": {class: push.Delivered, status: 200, answer: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusOK)
		}},
		"never answers": {sender: hurried, class: push.Timeout, answer: func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
		}},
		"never ends its headers": {sender: hurried, class: push.Timeout, url: raw(t, func(c net.Conn) {
			readRequest(c)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nX-A: ")
			_, _ = io.Copy(io.Discard, c)
		})},
		"accepts and never ends": {class: push.Delivered, status: 200, answer: func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}},
		"refuses and never ends": {class: push.Server, status: 500, errors: "500 Internal Server Error: because", answer: func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, "because")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}},
		"accepts at endless length": {class: push.Delivered, status: 200, answer: func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = w.Write(make([]byte, 64<<10))
			}
		}},
		"has endless headers": {class: push.Network, errors: "exceeded", url: raw(t, func(c net.Conn) {
			readRequest(c)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n")
			for {
				if _, err := io.WriteString(c, "X-A: "+strings.Repeat("a", 1000)+"\r\n"); err != nil {
					return
				}
			}
		})},
		"has endless hints": {class: push.Network, errors: "exceeded", url: raw(t, func(c net.Conn) {
			readRequest(c)
			for {
				if _, err := io.WriteString(c, "HTTP/1.1 103 Early Hints\r\nX-A: "+strings.Repeat("a", 1000)+"\r\n\r\n"); err != nil {
					return
				}
			}
		})},
		"redirects": {class: push.Redirect, status: 307, errors: "not followed", answer: answer(307, "Location", elsewhere)},
		"moved":     {class: push.Redirect, status: 301, errors: "not followed", answer: answer(301, "Location", elsewhere)},
		"is gone":   {class: push.Gone, status: 410, errors: "410 Gone", answer: answer(410)},
		"refuses": {class: push.Client, status: 400, errors: "400 Bad Request: no such *** ***", answer: func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "no\r\nsuch t0ken cred", http.StatusBadRequest)
		}},
		"refuses at length": {class: push.Client, status: 400, errors: "aa ***", answer: func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, strings.Repeat("a", 507)+" t0ken", http.StatusBadRequest) // of which 512 bytes are shown
		}},
		"is not there":          {class: push.Client, status: 404, errors: "404", answer: answer(404)},
		"switches":              {class: push.Client, status: 101, errors: "101", answer: answer(101, "Upgrade", "x", "Connection", "Upgrade")},
		"fails":                 {class: push.Server, status: 503, errors: "503", answer: answer(503)},
		"is busy for seconds":   {class: push.Throttled, status: 429, errors: "429", retry: 90 * time.Second, answer: answer(429, "Retry-After", "90")},
		"is busy for a century": {class: push.Server, status: 503, errors: "503", retry: 24 * time.Hour, answer: answer(503, "Retry-After", "3153600000")},
		"is busy for nonsense":  {class: push.Throttled, status: 429, errors: "429", answer: answer(429, "Retry-After", "soon")},
		"closes":                {class: push.Network, errors: "EOF", url: raw(t, readRequest)},
		"is not HTTP":           {class: push.Network, errors: "malformed", url: raw(t, func(c net.Conn) { readRequest(c); _, _ = io.WriteString(c, "220 mail.example ESMTP\r\n") })},
		"breaks off":            {class: push.Network, errors: "malformed MIME header", url: raw(t, func(c net.Conn) { readRequest(c); _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-") })},
		"resets": {class: push.Network, errors: "reset", url: raw(t, func(c net.Conn) {
			readRequest(c)
			_ = c.(*net.TCPConn).SetLinger(0)
		})},
		"does not speak TLS": {class: push.TLS, errors: "HTTPS", url: strings.Replace(elsewhere, "http:", "https:", 1)},
		"hangs up on TLS":    {class: push.Network, url: strings.Replace(closed, "http:", "https:", 1)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := c.url
			if url == "" {
				url, _ = receiver(t, c.answer)
			}
			from := c.sender
			if from == nil {
				from = s
			}
			a := from.Send(t.Context(), delivery(url, func(p *task.PushConfig) { p.Token, p.Schemes, p.Credentials = "t0ken", []string{"Bearer"}, "cred" }))
			require.Equal(t, c.class, a.Class, a.Error)
			require.Equal(t, c.status, a.Status)
			require.Equal(t, c.retry, a.RetryAfter)
			require.Contains(t, a.Error, c.errors)
			require.Equal(t, c.class == push.Delivered, a.Error == "")
			require.NotContains(t, a.Error, url, "the URL may hold a secret")
			require.NotContains(t, a.Error, "t0ke")
			require.Positive(t, a.Took)
		})
	}
	t.Cleanup(func() { require.Empty(t, strays, "a redirect was followed") })
}

func TestCertificates(t *testing.T) {
	t.Parallel()
	s := httptest.NewUnstartedServer(http.HandlerFunc(accept))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.StartTLS()
	t.Cleanup(s.Close)
	known := x509.NewCertPool()
	known.AddCert(s.Certificate())
	trusting := sender(t, push.SenderOptions{RootCAs: known})
	require.Equal(t, push.Delivered, trusting.Send(t.Context(), delivery(s.URL, nil)).Class)

	a := sender(t, push.SenderOptions{}).Send(t.Context(), delivery(s.URL, nil))
	require.Equal(t, push.TLS, a.Class, "its authority is unknown")
	require.Contains(t, a.Error, "certificate")
	require.Equal(t, push.TLS, trusting.Send(t.Context(), delivery(strings.Replace(s.URL, "127.0.0.1", "localhost", 1), nil)).Class, "its name is another one")
}

// The webhooks were set under other rules.
func TestTheGuardChecksEveryDelivery(t *testing.T) {
	t.Parallel()
	url, got := receiver(t, accept)
	strict := sender(t, push.SenderOptions{Guard: web.NewGuard(web.GuardOptions{})})
	for _, target := range []string{
		url, strings.Replace(url, "127.0.0.1", "localhost", 1), "ftp://public.example/", "http://user@public.example/",
	} {
		a := strict.Send(t.Context(), delivery(target, nil))
		require.Equal(t, push.Refused, a.Class, "%s: %s", target, a.Error)
	}
	other := sender(t, push.SenderOptions{Guard: web.NewGuard(web.GuardOptions{Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})})
	require.Equal(t, push.Refused, other.Send(t.Context(), delivery(url, nil)).Class)
	require.Empty(t, got)
	require.Equal(t, push.DNS, strict.Send(t.Context(), delivery("http://nowhere.invalid/", nil)).Class)
}

func TestNoProxyOfTheEnvironmentIsUsed(t *testing.T) {
	proxy, strays := receiver(t, accept)
	url, got := receiver(t, accept)
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"} {
		t.Setenv(name, proxy)
	}
	require.Equal(t, push.Delivered, sender(t, push.SenderOptions{}).Send(t.Context(), delivery(url, nil)).Class)
	require.Len(t, got, 1)
	require.Empty(t, strays)
}

func TestAStopInterruptsAnAttempt(t *testing.T) {
	t.Parallel()
	url, got := receiver(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	s := sender(t, push.SenderOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan push.Answer, 1)
	go func() { done <- s.Send(ctx, delivery(url, nil)) }()
	waittest.Within(t, "the request", got)
	cancel()
	require.Equal(t, push.Interrupted, waittest.Within(t, "the answer", done).Class)
}

func TestATokenThatNoHeaderCanCarryIsAnError(t *testing.T) {
	t.Parallel()
	url, got := receiver(t, accept)
	a := sender(t, push.SenderOptions{}).Send(t.Context(), delivery(url, func(c *task.PushConfig) { c.Token = "a\r\nX-Injected: 1" }))
	require.NotEqual(t, push.Delivered, a.Class)
	require.Empty(t, got)
}

func TestChallenge(t *testing.T) {
	t.Parallel()
	patient, brief := sender(t, push.SenderOptions{}), sender(t, push.SenderOptions{ConnectTimeout: 500 * time.Millisecond})
	repeat := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.URL.Query().Get("validationToken")+"\n")
	}
	rules := web.NewGuard(web.GuardOptions{AllowPrivate: true})
	challenge := func(s *push.Sender, url string) error {
		to := storetest.Must(rules.Parse(url))(t)
		before := *to.URL
		err := s.Challenge(t.Context(), to)
		require.Equal(t, before, *to.URL)
		return err
	}
	url, got := receiver(t, repeat)
	require.NoError(t, challenge(patient, url+"/hook?tenant=a"))
	asked := waittest.Within(t, "the request", got)
	require.Equal(t, http.MethodGet, asked.Method)
	require.Equal(t, "a", asked.URL.Query().Get("tenant"))
	require.NotEmpty(t, asked.URL.Query().Get("validationToken"))

	for name, answer := range map[string]http.HandlerFunc{
		"a fixed answer": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") },
		"nothing":        accept,
		"an error":       func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNotFound); repeat(w, r) },
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, url+"?"+r.URL.RawQuery, http.StatusFound)
		},
		"more":    func(w http.ResponseWriter, r *http.Request) { repeat(w, r); _, _ = w.Write(make([]byte, 1<<20)) },
		"silence": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, _ := receiver(t, answer)
			s := patient
			if name == "silence" {
				s = brief
			}
			var refusal *web.GuardRefusal
			require.ErrorAs(t, challenge(s, url), &refusal)
			require.Contains(t, refusal.Reason, "validationToken")
		})
	}
}
