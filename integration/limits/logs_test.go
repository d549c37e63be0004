package limits

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/receivertest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// No log at any level contains secrets of clients, agents or operators, on success or failure.
func TestLogsContainNoSecrets(t *testing.T) {
	t.Parallel()
	const secret = "xyzzy" // part of every secret below
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("X-Token", r.Header.Get("Authorization"))
		http.Error(w, "out of paper", http.StatusBadGateway)
	}))
	defer broken.Close()
	db := clustertest.NewDB(t)
	url := strings.Replace(db.URL, "?", "?password="+secret+"-database&", 1)
	require.NotEqual(t, db.URL, url)
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: url, Config: clustertest.Steady + `
  - name: broken
    executor: {kind: http, http: {url: "` + broken.URL + `?key=` + secret + `-url", headers: {Authorization: "Bearer ` + secret + `-backend"}}}
    limits: {max_attempts: 2, backoff: 1ms, unreachable_for: 1s}
  - name: gone
    executor: {kind: http, http: {url: "http://user:` + secret + `-userinfo@127.0.0.1:1/run?key=` + secret + `-url"}}
    limits: {max_attempts: 2, backoff: 1ms, unreachable_for: 1s}
push: {allowed_networks: [127.0.0.0/8], retry_first: 10ms, retry_most: 20ms}
`})
	headers := []string{
		"Authorization", "Bearer " + secret + "-token", "X-API-Key", "hf_" + secret + "-key", "Cookie", "session=" + secret + "-cookie",
		"Proxy-Authorization", "Basic " + secret + "-proxy", "X-Api-Token", secret + "-header",
	}
	say := func(text string) object {
		p := params(a2atest.V03, "", text)
		p["metadata"] = object{"token": secret + "-metadata"}
		return p
	}
	var task string
	{ // success
		a, err := a2atest.Ask(waittest.Context(t), r.URL+"/?access_token="+secret+"-query", a2atest.Request("message/send", say("echo:"+secret+"-content")), headers...)
		require.NoError(t, err)
		res, err := a.Result()
		require.NoError(t, err)
		require.Equal(t, "completed", res.State())
		require.Contains(t, string(a.Body), secret+"-content", "the client gets its data back")
		task = res.Task()
		s := r.Stream(a2atest.V03, (&a2atest.Args{Params: say("ask:" + secret + "-question")}).With(headers...))
		require.Equal(t, "input-required", a2atest.Last(s.Rest()).State())
		r.Send(a2atest.GRPC10, a2atest.Say("echo:"+secret+"-grpc-content").With("authorization", "Bearer "+secret+"-grpc"))
	}
	{ // failure
		for _, body := range []string{
			`{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"text":"` + secret + `-malformed`,
			`{"jsonrpc":"2.0","id":1,"method":"` + secret + `-method"}`,
			`{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"messageId":"` + secret + `-id","role":"` + secret + `-role","parts":[]}}}`,
			`{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"messageId":"m","role":"user","parts":[{"kind":"text","text":"` + secret + `\u0000"}]}}}`,
			string(a2atest.Request("tasks/get", object{"id": secret + "-unknown"})),
		} {
			r.AskRaw([]byte(body), headers...)
		}
		for _, key := range []string{secret + "-idempotency", strings.Repeat(secret, 100)} {
			for _, text := range []string{"echo:1", "echo:2"} {
				r.Ask("message/send", say(text), append(headers, "Idempotency-Key", key)...)
			}
		}
		for _, path := range []string{"/agents/" + secret + "-path", "/tasks/" + secret + "-rest?token=" + secret, "/%00" + secret} {
			resp, err := a2atest.Post(waittest.Context(t), r.URL+path, []byte(secret), headers...)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
		}
	}
	{ // webhooks
		hook := receivertest.Start(t, 1)
		hook.Behave("", receivertest.Act{Status: http.StatusBadGateway, Text: "out of ink"})
		for _, to := range []string{
			"http://127.0.0.1:1/hook/" + secret + "?key=" + secret, hook.URL + "/hook/" + secret + "?key=" + secret,
			"http://10.0.0.1/" + secret, "http://" + secret + ":" + secret + "@127.0.0.1:1/", "ftp://" + secret,
		} {
			p := say("echo:" + secret + "-hooked")
			p["configuration"] = object{"pushNotificationConfig": object{
				"url": to, "token": secret + "-token", "authentication": object{"schemes": []string{"Bearer"}, "credentials": secret + "-credentials"},
			}}
			r.Ask("message/send", p, headers...)
		}
		waittest.Eventually(t, "several deliveries failed", func() error {
			n := r.Metric("holdfast_push_attempts_total")
			return waittest.Unless(n >= 6, "%v attempts", n)
		})
	}
	{ // agents that fail
		for path, text := range map[string]string{
			"/": "fail:" + secret + "-reason", "/v0.3": "reject:" + secret + "-reason",
			"/agents/broken": secret + "-to-the-backend", "/agents/gone": secret + "-to-nobody",
		} {
			a, err := a2atest.Ask(waittest.Context(t), r.URL+path, a2atest.Request("message/send", say(text)), headers...)
			require.NoError(t, err)
			res, err := a.Result()
			require.NoError(t, err)
			require.Contains(t, []string{"failed", "rejected"}, res.State(), path)
		}
		require.Equal(t, "failed", r.Call("message/send", say("crash")).State())
	}
	{ // a database that is down
		db.Exec("ALTER TABLE holdfast.task_events RENAME TO elsewhere")
		db.Exec("ALTER VIEW holdfast.callers_log RENAME TO elsewhere_log")
		a := r.Ask("message/send", say("echo:"+secret+"-unstored"), headers...)
		require.NotNil(t, a.Error)
		b := r.Ask("tasks/get", object{"id": task}, headers...)
		require.NotNil(t, b.Error)
		db.Exec("ALTER TABLE holdfast.elsewhere RENAME TO task_events")
		db.Exec("ALTER VIEW holdfast.elsewhere_log RENAME TO callers_log")
		for _, answer := range []*a2atest.Answer{a, b} {
			for _, internal := range []string{"task_events", "callers_log", "holdfast.", "SQLSTATE", "42P01", "pgx", "postgres", ".go:", "goroutine"} {
				require.NotContains(t, string(answer.Body), internal, "clients see no internal errors")
			}
		}
		waittest.Eventually(t, "operators do", func() error { return waittest.Unless(strings.Contains(r.Log(), "42P01"), "not yet") })
	}
	r.Stop()
	for line := range strings.Lines(r.Log()) {
		require.NotContains(t, line, secret)
	}
	for _, excuse := range []string{"out of paper", "out of ink"} {
		require.Contains(t, r.Log(), excuse, "operators see the errors of agents and receivers")
	}
}
