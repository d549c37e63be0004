// Package webhooks_test sends genuine and forged notifications to the example receivers.
package webhooks_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/push"
	"github.com/holdfast-a2a/holdfast/internal/rpc/webhook"
	"github.com/holdfast-a2a/holdfast/internal/server/keys"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/web"
)

const (
	clientToken = "what the client chose"
	secretText  = "whsec_d2hhdCBib3RoIHNpZGVzIGtub3csIG9mIHNpemU="
	agent       = "weather"
)

// victim owns the tasks that the receivers know.
var victim = task.Owner{Tenant: "acme", Subject: "alice"}

// origin is a server that signs and publishes its keys.
type origin struct {
	keys *keys.Ring
	url  string
}

func newOrigin(t *testing.T) *origin {
	t.Helper()
	s, err := store.Open(t.Context(), store.Options{URL: storetest.New(t).URL, APIConns: 2})
	require.NoError(t, err)
	t.Cleanup(func() { s.Close(context.WithoutCancel(t.Context())) })
	o := &origin{keys: keys.New(keys.Options{Store: s, Log: slog.New(slog.DiscardHandler)})}
	require.NoError(t, o.keys.Refresh(t.Context()))
	published := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/.well-known/jwks.json" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(o.keys.Set())
	}))
	t.Cleanup(published.Close)
	o.url = published.URL
	return o
}

// rules allow receivers on this machine.
var rules = web.NewGuard(web.GuardOptions{AllowPrivate: true})

func (o *origin) sender(t *testing.T, secrets ...push.Secret) *push.Sender {
	t.Helper()
	s := push.NewSender(push.SenderOptions{
		Guard: rules, Signer: o.keys, Issuer: o.url, Secrets: secrets, Headers: webhook.Headers,
		Timeout: time.Minute, ConnectTimeout: time.Minute,
	})
	t.Cleanup(s.Close)
	return s
}

// receiver is a running example.
type receiver struct {
	t     *testing.T
	url   string
	lines chan string // its output
}

// program is the Go example, compiled: killing `go run` would leave its child running.
var program string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "holdfast-receiver-")
	if err != nil {
		panic(err)
	}
	program = filepath.Join(dir, "receiver")
	if out, err := exec.Command("go", "build", "-o", program, "./go").CombinedOutput(); err != nil {
		panic(string(out))
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

func start(t *testing.T, argv []string, env ...string) *receiver {
	t.Helper()
	path, err := exec.LookPath(argv[0])
	require.NoError(t, err, "the examples need %s in PATH", argv[0])
	cmd := exec.CommandContext(t.Context(), path, append(argv[1:], "0")...)
	cmd.Env = append(cmd.Environ(), env...)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	require.NoError(t, cmd.Start())
	r := &receiver{t: t, lines: make(chan string, 100)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(r.lines)
		for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
			r.lines <- scanner.Text()
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
		_ = cmd.Wait()
		require.Empty(t, complaints.String(), "on stderr")
	})
	url, ok := strings.CutPrefix(<-r.lines, "listening at ")
	require.True(t, ok, "the example did not start")
	r.url = url
	return r
}

// request is a request to a receiver.
type request struct {
	header http.Header
	body   []byte
}

// capture returns the request that a sender makes for a URL.
func capture(t *testing.T, s *push.Sender, d *push.Delivery) *request {
	t.Helper()
	caught := make(chan *request, 1)
	trap := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		caught <- &request{r.Header.Clone(), body}
	}))
	defer trap.Close()
	elsewhere := *d
	c := *d.Config
	c.URL = trap.URL
	elsewhere.Config = &c
	require.Equal(t, push.Delivered, s.Send(t.Context(), &elsewhere).Class)
	return <-caught
}

// send returns the status and the receiver's answer.
func (r *receiver) send(q *request) (status int, said string) {
	r.t.Helper()
	post, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, r.url, bytes.NewReader(q.body))
	require.NoError(r.t, err)
	post.Header = q.header.Clone()
	post.Header.Del("Content-Length")
	answer, err := http.DefaultClient.Do(post)
	require.NoError(r.t, err)
	require.NoError(r.t, answer.Body.Close())
	return answer.StatusCode, <-r.lines
}

func delivery(url, id string) *push.Delivery {
	return &push.Delivery{
		ID: id, TaskID: "t-1", Agent: agent, Owner: victim, ContentType: "application/a2a+json", Body: []byte(`{"statusUpdate":{"taskId":"t-1","name":"é 🙂"}}`),
		Config: &task.PushConfig{ID: "c", URL: url, Token: clientToken, Dialect: "1.0"},
	}
}

// deliveries are of tasks of other owners.
func deliveries(url string, owners []task.Owner) (all []*push.Delivery) {
	for _, o := range owners {
		d := delivery(url, "d-2")
		d.Owner = o
		all = append(all, d)
	}
	return all
}

// claims are the claims of a genuine delivery, which the test then changes.
func (o *origin) claims(r *receiver, body []byte) map[string]any {
	digest := sha256.Sum256(body)
	now := time.Now().Unix()
	return map[string]any{
		"iss": o.url, "aud": r.url, "sub": "t-1", "tenant": victim.Tenant, "owner": push.OwnerClaim(victim), "agent": agent, "iat": now, "exp": now + 300, "jti": "forged",
		"request_body_sha256": hex.EncodeToString(digest[:]),
	}
}

func (o *origin) sign(t *testing.T, claims any) string {
	t.Helper()
	payload, err := json.Marshal(claims)
	require.NoError(t, err)
	compact, err := o.keys.Sign(payload, "JWT", "")
	require.NoError(t, err)
	return compact
}

func encode(v any) string {
	b, _ := json.Marshal(v) // of maps of strings and numbers
	return base64.RawURLEncoding.EncodeToString(b)
}

func examples() map[string][]string {
	return map[string][]string{"Go": {program}, "Python": {"python3", "python/receiver.py"}, "Node": {"node", "node/receiver.mjs"}}
}

// env configures a receiver for the tasks of the victim.
func (o *origin) env() []string {
	return []string{"ISSUER=" + o.url, "TOKEN=" + clientToken, "OWNER=" + push.OwnerClaim(victim), "AGENT=" + agent}
}

// secret is the one of Standard Webhooks for the tasks of the victim.
func (o *origin) secret(of push.Secret) string {
	return of.For(push.Origin{Issuer: o.url, Owner: victim, Agent: agent}).Text()
}

func TestReceivers(t *testing.T) {
	t.Parallel()
	o, stranger := newOrigin(t), newOrigin(t)
	sender := o.sender(t)
	for name, argv := range examples() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, argv, o.env()...)

			// A genuine delivery, its repetition, and a second one.
			for _, step := range []struct{ id, said string }{
				{"d-1", "accepted d-1"}, {"d-1", "repeated d-1"}, {"d-2", "accepted d-2"},
			} {
				a := sender.Send(t.Context(), delivery(r.url, step.id))
				require.Equal(t, push.Delivered, a.Class, a.Error)
				require.Equal(t, step.said, <-r.lines)
			}
			to, err := rules.Parse(r.url)
			require.NoError(t, err)
			require.NoError(t, sender.Challenge(t.Context(), to))

			// A tenant that knows everything about the task, even the token of its webhook, has a task of the same name.
			attackers := []task.Owner{
				{Tenant: "evil", Subject: victim.Subject},
				{Tenant: victim.Tenant, Subject: "mallory"},
				{Subject: victim.Subject},
				{Subject: victim.Tenant + "\x1f" + victim.Subject},
			}
			foreign := delivery(r.url, "d-3")
			foreign.Agent = "demo"
			for _, d := range append(deliveries(r.url, attackers), foreign) {
				require.Equal(t, push.Client, sender.Send(t.Context(), d).Class, d.Owner)
				require.Contains(t, <-r.lines, "refused: ", "of %q, agent %s", d.Owner, d.Agent)
			}

			// Forged deliveries.
			genuine := capture(t, sender, delivery(r.url, "d-3"))
			status, said := r.send(genuine)
			require.Equal(t, http.StatusUnauthorized, status, "a delivery for another receiver: %s", said)
			spoil := func(change func(claims map[string]any)) *request {
				q := &request{genuine.header.Clone(), genuine.body}
				claims := o.claims(r, q.body)
				change(claims)
				q.header.Set("X-A2A-Signature", o.sign(t, claims))
				return q
			}
			status, said = r.send(spoil(func(map[string]any) {}))
			require.Equal(t, http.StatusNoContent, status, said)
			require.Equal(t, "accepted forged", said, "the test signs like the server")

			now := time.Now().Unix()
			valid := strings.Split(o.sign(t, o.claims(r, genuine.body)), ".")
			signed := func(parts ...string) *request {
				q := &request{genuine.header.Clone(), genuine.body}
				q.header.Set("X-A2A-Signature", strings.Join(parts, "."))
				return q
			}
			kid := o.keys.KeyID()
			otherBody := signed(valid...)
			otherBody.body = bytes.Replace(genuine.body, []byte("t-1"), []byte("t-2"), 1)
			otherToken := signed(valid...)
			otherToken.header.Set("X-A2A-Notification-Token", "guessed")
			noToken := signed(valid...)
			noToken.header.Del("X-A2A-Notification-Token")
			emptyToken := signed(valid...)
			emptyToken.header.Set("X-A2A-Notification-Token", "")
			unsigned := signed()
			unsigned.header.Del("X-A2A-Signature")
			confused := hmac.New(sha256.New, o.keys.Set())
			head := encode(map[string]any{"alg": "HS256", "kid": kid, "typ": "JWT"})
			confused.Write([]byte(head + "." + valid[1]))
			for attack, q := range map[string]*request{
				"another body": otherBody, "another token": otherToken, "no token": noToken, "an empty token": emptyToken,
				"no signature":       unsigned,
				"an empty signature": signed(valid[0], valid[1], ""),
				"half a signature":   signed(valid[0], valid[1], valid[2][:43]),
				"two parts":          signed(valid[0], valid[1]),
				"four parts":         signed(valid[0], valid[1], valid[2], valid[2]),
				"no algorithm":       signed(encode(map[string]any{"alg": "none", "kid": kid}), valid[1], ""),
				"a symmetric one":    signed(head, valid[1], base64.RawURLEncoding.EncodeToString(confused.Sum(nil))),
				"a critical header":  signed(encode(map[string]any{"alg": "ES256", "kid": kid, "crit": []string{"exp"}}), valid[1], valid[2]),
				"another header":     signed(encode(map[string]any{"alg": "ES256", "kid": kid}), valid[1], valid[2]),
				"other claims":       signed(valid[0], encode(o.claims(r, []byte("x"))), valid[2]),
				"no JSON":            signed(valid[0], base64.RawURLEncoding.EncodeToString([]byte("x")), valid[2]),
				"garbage":            signed("a.b.c"),
				"a stranger":         signed(stranger.sign(t, o.claims(r, genuine.body))),
				"a stranger's token with a link to his keys": signed(encode(map[string]any{
					"alg": "ES256", "kid": stranger.keys.KeyID(), "jku": stranger.url + "/.well-known/jwks.json",
				}), valid[1], valid[2]),
				"another issuer":   spoil(func(c map[string]any) { c["iss"] = stranger.url }),
				"no issuer":        spoil(func(c map[string]any) { delete(c, "iss") }),
				"another owner":    spoil(func(c map[string]any) { c["owner"] = push.OwnerClaim(task.Owner{Subject: "acme\x1falice"}) }),
				"no owner":         spoil(func(c map[string]any) { delete(c, "owner") }),
				"another agent":    spoil(func(c map[string]any) { c["agent"] = "demo" }),
				"no agent":         spoil(func(c map[string]any) { delete(c, "agent") }),
				"another receiver": spoil(func(c map[string]any) { c["aud"] = r.url + "/other" }),
				"no receiver":      spoil(func(c map[string]any) { delete(c, "aud") }),
				"an old one":       spoil(func(c map[string]any) { c["iat"], c["exp"] = now-3600, now-3300 }),
				"one of tomorrow":  spoil(func(c map[string]any) { c["iat"], c["exp"] = now+86400, now+86700 }),
				"no end":           spoil(func(c map[string]any) { delete(c, "exp") }),
				"no id":            spoil(func(c map[string]any) { delete(c, "jti") }),
				"no digest":        spoil(func(c map[string]any) { delete(c, "request_body_sha256") }),
			} {
				status, said := r.send(q)
				require.Equal(t, http.StatusUnauthorized, status, "%s: %s", attack, said)
				require.True(t, strings.HasPrefix(said, "refused: "), "%s: %s", attack, said)
			}
			require.Equal(t, push.Delivered, sender.Send(t.Context(), delivery(r.url, "d-4")).Class, "the receiver still runs")
		})
	}
}

func TestReceiversOfStandardWebhooks(t *testing.T) {
	t.Parallel()
	o := newOrigin(t)
	known, err := push.ParseSecret(secretText)
	require.NoError(t, err)
	next := push.Secret(bytes.Repeat([]byte("next"), 8))
	stranger := newOrigin(t)
	for name, argv := range examples() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, argv, "ISSUER="+o.url, "TOKEN="+clientToken, "WEBHOOK_SECRET="+o.secret(known))
			require.Equal(t, push.Delivered, o.sender(t, known).Send(t.Context(), delivery(r.url, "d-1")).Class)
			require.Equal(t, "accepted d-1", <-r.lines)
			require.Equal(t, push.Delivered, o.sender(t, next, known).Send(t.Context(), delivery(r.url, "d-1")).Class)
			require.Equal(t, "repeated d-1", <-r.lines, "while secrets are rotated")
			require.Equal(t, push.Client, o.sender(t, next).Send(t.Context(), delivery(r.url, "d-2")).Class)
			require.Contains(t, <-r.lines, "refused: ")
			require.Equal(t, push.Client, o.sender(t).Send(t.Context(), delivery(r.url, "d-2")).Class)
			require.Contains(t, <-r.lines, "refused: ")

			// Of another owner, of another agent, and of another server that has the same secrets.
			elsewhere := delivery(r.url, "d-2")
			elsewhere.Agent = "demo"
			for _, d := range append(deliveries(r.url, []task.Owner{{Tenant: "evil", Subject: victim.Subject}}), elsewhere) {
				require.Equal(t, push.Client, o.sender(t, known).Send(t.Context(), d).Class)
				require.Contains(t, <-r.lines, "refused: ")
			}
			require.Equal(t, push.Client, stranger.sender(t, known).Send(t.Context(), delivery(r.url, "d-2")).Class)
			require.Contains(t, <-r.lines, "refused: ")

			genuine := capture(t, o.sender(t, known), delivery(r.url, "d-3"))
			for attack, change := range map[string]func(*request){
				"another body": func(q *request) { q.body = append(bytes.Clone(q.body), ' ') },
				"another id":   func(q *request) { q.header.Set("Webhook-Id", "d-4") },
				"another time": func(q *request) { q.header.Set("Webhook-Timestamp", "1700000000") },
				"no time":      func(q *request) { q.header.Del("Webhook-Timestamp") },
				"odd time":     func(q *request) { q.header.Set("Webhook-Timestamp", "²") },
				"no version": func(q *request) {
					q.header.Set("Webhook-Signature", strings.TrimPrefix(q.header.Get("Webhook-Signature"), "v1,"))
				},
			} {
				q := &request{genuine.header.Clone(), genuine.body}
				change(q)
				status, said := r.send(q)
				require.Equal(t, http.StatusUnauthorized, status, "%s: %s", attack, said)
			}
			status, said := r.send(genuine)
			require.Equal(t, http.StatusNoContent, status)
			require.Equal(t, "accepted d-3", said)
		})
	}
}

// A receiver that is not told by what to recognize its deliveries would accept those of everybody.
func TestReceiversNeedAllSettings(t *testing.T) {
	t.Parallel()
	for name, argv := range examples() {
		for _, missing := range []string{"ISSUER", "TOKEN", "OWNER", "AGENT"} {
			t.Run(name+" without "+missing, func(t *testing.T) {
				t.Parallel()
				cmd := exec.CommandContext(t.Context(), argv[0], append(argv[1:], "0")...)
				for _, setting := range []string{"ISSUER=http://x", "TOKEN=x", "OWNER=x", "AGENT=x"} {
					if !strings.HasPrefix(setting, missing) {
						cmd.Env = append(cmd.Environ(), setting)
					}
				}
				out, err := cmd.CombinedOutput()
				require.Error(t, err)
				require.Contains(t, string(out), missing+" is not set")
			})
		}
	}
}

// The page has the code that these tests run.
func TestPageHasTheChecks(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/webhooks.md")
	require.NoError(t, err)
	for language, file := range map[string]string{"python": "python/verify.py", "js": "node/verify.mjs", "go": "go/verify.go"} {
		code, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Contains(t, string(page), "```"+language+" "+filepath.Base(file)+"\n"+string(code)+"```\n")
	}
}
