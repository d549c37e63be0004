package cli

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
	"github.com/holdfast-a2a/holdfast/internal/push"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/nettest"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

type received struct {
	header http.Header
	body   []byte
}

// hookReceiver answers with a status, and hands on the requests.
type hookReceiver struct {
	*httptest.Server
	status atomic.Int32
	got    chan received
}

func newReceiver(t *testing.T, status int) *hookReceiver {
	t.Helper()
	h := &hookReceiver{got: make(chan received, 100)}
	h.status.Store(int32(status))
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		w.WriteHeader(int(h.status.Load()))
		h.got <- received{r.Header, body}
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *hookReceiver) next(t *testing.T) received {
	t.Helper()
	return waittest.Within(t, "a delivery", h.got)
}

// hooked is a database with a task that has webhooks.
type hooked struct {
	session
	t *testing.T
}

func newHooked(t *testing.T, hooks ...*task.PushConfig) *hooked {
	t.Helper()
	url := storetest.New(t).URL
	s := storetest.Must(store.Open(t.Context(), store.Options{URL: url, APIConns: 2}))(t)
	t.Cleanup(func() { s.Close(context.WithoutCancel(t.Context())) })
	h := &hooked{t: t, session: session{deps: Live(io.Discard, nil), env: map[string]string{
		"HOLDFAST_DATABASE_URL": url, "HOLDFAST_PUBLIC_URL": "https://agents.example.com",
	}}}
	id := store.NewID()
	storetest.Must(s.Create(t.Context(), &store.NewTask{
		Task:    task.Task{ID: id, PublicID: "order-7", Agent: "weather", Owner: "alice", ContextID: "c", Dialect: "1.0"},
		Message: &task.Message{ID: "m", Role: task.RoleUser, Parts: []task.Part{task.Text("x")}}, ClientID: true,
	}))(t)
	for _, c := range hooks {
		require.NoError(t, s.SetPush(t.Context(), id, c, 10))
	}
	return h
}

// read runs a verb that prints JSON.
func read[T any](h *hooked, code int, args ...string) (v T) {
	h.t.Helper()
	r := h.run(h.t, append(args, "-o", "json")...)
	require.Equal(h.t, code, r.code, r.err)
	require.NoError(h.t, json.Unmarshal([]byte(r.out), &v), r.out)
	return v
}

func TestPushVerbsThatFindNothing(t *testing.T) {
	t.Parallel()
	h := newHooked(t)
	for _, args := range [][]string{
		{"attempts", "order-8"}, {"list", "--task", "order-8"}, {"enable", "order-8"}, {"disable", "order-8"}, {"redeliver", "order-8"},
	} {
		h.fails(t, exitFailed, "task order-8:", append([]string{"webhooks"}, args...)...)
	}
	require.Equal(t, result{exitFailed, "", "holdfast: task order-7 has no webhooks\n"}, h.run(t, "webhooks", "enable", "order-7"))
	for _, verb := range []string{"redeliver", "enable", "disable"} {
		failed := read[[]outcome](h, exitFailed, "webhooks", verb, "order-7", "none")
		require.Equal(t, outcomeFailed, failed[0].Outcome)
		require.Contains(t, failed[0].Error, "no such webhook")
	}
	require.Empty(t, read[[]store.PushAttempt](h, exitOK, "webhooks", "attempts", "order-7"))
}

// Without a name, a verb acts on all webhooks of the task.
func TestPushVerbsForAllOfATask(t *testing.T) {
	t.Parallel()
	h := newHooked(t,
		&task.PushConfig{ID: "a", URL: "https://a.example.com/x", Host: "a.example.com:443", Dialect: "0.3"}, &task.PushConfig{ID: "b", URL: "http://b.example.com:81", Host: "b.example.com:81", Dialect: "1.0"})
	require.Len(t, read[[]outcome](h, exitOK, "webhooks", "disable", "order-7"), 2)
	for _, v := range read[[]shown.Push](h, exitOK, "webhooks", "list", "--disabled") {
		require.Equal(t, "by an operator", v.DisabledFor)
	}
	require.Len(t, read[[]shown.Push](h, exitOK, "webhooks", "list", "--limit", "1"), 1)
	b := read[[]shown.Push](h, exitOK, "webhooks", "list", "--host", "b.example.com:81")
	require.Len(t, b, 1)
	require.Equal(t, "b", b[0].ConfigID)
	require.Equal(t, "alice", b[0].Owner)
}

// The secrets are sealed with the database's key, then with a configured key, then with the next one.
func TestPushRekey(t *testing.T) {
	t.Parallel()
	h := newHooked(t, &task.PushConfig{ID: "a", URL: "http://a", Dialect: "1.0", Token: "sesame"}, &task.PushConfig{ID: "b", URL: "http://b", Dialect: "1.0"})
	key := func(fill byte) string { return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{fill}, 32)) }
	sealed := func(n int, keys ...string) {
		t.Helper()
		h.env["HOLDFAST_SECRET_KEYS"] = strings.Join(keys, ",")
		require.Equal(t, map[string]int{"sealed": n}, read[map[string]int](h, exitOK, "reseal"))
	}
	sealed(1, key(1))
	sealed(0, key(1))
	sealed(1, key(2), key(1))
	h.env["HOLDFAST_SECRET_KEYS"] = key(3)
	h.fails(t, exitFailed, "sealed with a key that this server does not have", "reseal")
	sealed(0, key(2))
	without := session{env: map[string]string{"HOLDFAST_DATABASE_URL": "host=127.0.0.1 port=1"}, deps: h.deps}
	without.fails(t, exitUsage, "HOLDFAST_SECRET_KEYS has no key", "reseal")
}

// The receivers are of every kind.
func TestPushTest(t *testing.T) {
	t.Parallel()
	h := newHooked(t)
	to := newReceiver(t, http.StatusOK)
	gone := "http://" + nettest.Reserve(t)
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	t.Cleanup(secure.Close)

	// By default no webhook may lead to this machine.
	v := read[trialView](h, exitFailed, "webhooks", "test", to.URL)
	require.Equal(t, "refused", v.Class)
	require.Contains(t, v.LookFor, "push.allow_private")
	require.Empty(t, to.got)

	h.env["HOLDFAST_CONFIG"] = filepath.Join(t.TempDir(), "holdfast.yaml")
	require.NoError(t, os.WriteFile(h.env["HOLDFAST_CONFIG"], []byte("push: {allow_private: true, https_only: false, validation_challenge: false}\n"), 0o600))
	v = read[trialView](h, exitOK, "webhooks", "test", to.URL)
	require.Equal(t, "delivered", v.Class)
	require.Equal(t, http.StatusOK, v.Status)
	require.Equal(t, "https://agents.example.com", v.Issuer)
	got := to.next(t)
	require.Equal(t, v.DeliveryID, got.header.Get("Idempotency-Key"))
	require.Contains(t, string(got.body), v.TaskID)
	require.Equal(t, "Bearer "+got.header.Get("X-A2A-Signature"), got.header.Get("Authorization"))
	v = read[trialView](h, exitOK, "webhooks", "test", to.URL, "--tenant", "acme", "--owner", "alice", "--agent", "weather")
	signed := storetest.Must(jose.ParseSignedCompact(to.next(t).header.Get("X-A2A-Signature"), []jose.SignatureAlgorithm{jose.ES256}))(t)
	var claims map[string]any
	require.NoError(t, json.Unmarshal(signed.UnsafePayloadWithoutVerification(), &claims)) // package push verifies it
	require.Equal(t, []any{"acme", push.OwnerClaim(task.Owner{Tenant: "acme", Subject: "alice"}), "weather", v.TaskID},
		[]any{claims["tenant"], claims["owner"], claims["agent"], claims["taskId"]})

	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("sesame\n"), 0o600))
	for _, version := range []string{"0.1", "0.3", "1.0"} {
		h.in = "Basic eDp5\n"
		r := h.succeeds(t, "webhooks", "test", to.URL, "--dialect", version, "--token-file", token, "--authorization-file", "-")
		require.NotContains(t, r.out, "sesame")
		require.Contains(t, r.out, "class        delivered\nstatus       200\n")
		got := to.next(t)
		require.Equal(t, "sesame", got.header.Get("X-A2A-Notification-Token"))
		require.Equal(t, "Basic eDp5", got.header.Get("Authorization"))
	}
	require.Empty(t, read[[]shown.Push](h, exitOK, "webhooks", "list"), "nothing is stored")

	for status, class := range map[int]string{
		http.StatusGone: "gone", http.StatusFound: "redirect", http.StatusTooManyRequests: "throttled", http.StatusUnauthorized: "client",
		http.StatusNotFound: "client", http.StatusBadGateway: "server",
	} {
		to.status.Store(int32(status))
		v := read[trialView](h, exitFailed, "webhooks", "test", to.URL)
		require.Equal(t, class, v.Class)
		require.Equal(t, status, v.Status)
		require.NotEmpty(t, v.Error)
		require.NotEqual(t, "the error", v.LookFor)
	}
	for url, class := range map[string]string{gone: "network", secure.URL: "tls", "ftp://x": "refused"} {
		v := read[trialView](h, exitFailed, "webhooks", "test", url)
		require.Equal(t, class, v.Class, url)
		require.Zero(t, v.Status)
		require.NotEqual(t, "the error", v.LookFor)
	}

	delete(h.env, "HOLDFAST_PUBLIC_URL")
	to.status.Store(http.StatusNoContent)
	require.Contains(t, h.succeeds(t, "webhooks", "test", to.URL).err, "public_url is not set")
}

func TestPushSecretIsTheOwners(t *testing.T) {
	t.Parallel()
	master := "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	s := session{deps: Live(io.Discard, nil), env: map[string]string{
		"HOLDFAST_WEBHOOK_SECRETS": master, "HOLDFAST_PUBLIC_URL": "https://a.example/", "HOLDFAST_CONFIG": filepath.Join(t.TempDir(), "holdfast.yaml"),
	}}
	agents := "agents: [{name: demo, default: true, executor: {kind: demo}}, {name: weather, executor: {kind: demo}}]\n"
	require.NoError(t, os.WriteFile(s.env["HOLDFAST_CONFIG"], []byte(agents), 0o600))
	h := &hooked{t: t, session: s}
	v := read[secretView](h, exitOK, "webhooks", "secret", "--tenant", "acme", "--owner", "alice")
	secret := storetest.Must(push.ParseSecret(master))(t)
	owner := task.Owner{Tenant: "acme", Subject: "alice"}
	of := func(agent string) string {
		return secret.For(push.Origin{Issuer: "https://a.example", Owner: owner, Agent: agent}).Text()
	}
	require.Equal(t, secretView{
		Tenant: "acme", Owner: "alice", Claim: push.OwnerClaim(owner), Issuer: "https://a.example",
		Secrets: []agentSecret{{"demo", of("demo")}, {"weather", of("weather")}},
	}, v)
	require.Equal(t, v.Secrets[1:], read[secretView](h, exitOK, "webhooks", "secret", "--tenant", "acme", "--owner", "alice", "--agent", "weather").Secrets)
	s.fails(t, exitUsage, `no agent "nobody"`, "webhooks", "secret", "--owner", "alice", "--agent", "nobody")
	r := s.succeeds(t, "webhooks", "secret", "--tenant", "acme", "--owner", "alice")
	require.Equal(t, "claim iss    https://a.example\nclaim owner  "+v.Claim+"\nsecret       demo "+of("demo")+"\nsecret       weather "+of("weather")+"\n", r.out)
	require.NotContains(t, r.out, master)

	delete(s.env, "HOLDFAST_WEBHOOK_SECRETS")
	require.Empty(t, read[secretView](h, exitOK, "webhooks", "secret").Secrets)
}
