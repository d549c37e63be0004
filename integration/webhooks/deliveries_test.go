package webhooks

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/receivertest"
)

// classes are the outcomes of the attempts for a task, in order.
func classes(db *clustertest.DB, taskID string) []string {
	db.T.Helper()
	return clustertest.Column[string](db, "SELECT class FROM holdfast.v_push_attempts WHERE task_id = $1 ORDER BY attempt_id", taskID)
}

// The secrets of a client's webhook go to its receiver only: into no log, answer, table or view, even if the receiver
// repeats them.
func TestWebhookSecretsDoNotLeak(t *testing.T) {
	t.Parallel()
	key := "c2VjcmV0IGtleSBvZiAzMiBieXRlcywgYXMgaXQgaXM="
	db := clustertest.NewDB(t)
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: receivertest.Hooked(object{"give_up_after": "1ms"}), Env: []string{"HOLDFAST_SECRET_KEYS=" + key}})
	hook := receivertest.Start(t, 1)
	secrets := []string{key}
	secret := func() string {
		secrets = append(secrets, rand.Text())
		return secrets[len(secrets)-1]
	}
	var shown strings.Builder
	show := func(what []byte) { shown.Write(append(what, '\n')) }
	cases := []struct {
		*a2atest.Wire
		authentication func(credentials string) object
		header, prefix string
	}{
		{a2atest.V01, func(c string) object { return object{"schemes": []string{"Basic"}, "credentials": c} }, "Authorization", "Basic "},
		{a2atest.V03, func(c string) object { return object{"schemes": []string{"Bearer"}, "credentials": c} }, "Authorization", "Bearer "},
		{a2atest.V10, func(c string) object { return object{"scheme": "ApiKey", "credentials": c} }, "X-Api-Key", ""},
	}
	task := ""
	for _, c := range cases {
		token, credentials := secret(), secret()
		path := "/" + c.Version
		hook.Behave(path, receivertest.Act{Status: 401, Text: "I know " + token + " and " + credentials + "!"})
		more := object{"token": token, "authentication": c.authentication(credentials)}
		do := func(op a2atest.Op, a *a2atest.Args) (taskID string) {
			if !c.Has(op) {
				return ""
			}
			got := r.Finish(c.Wire, op, a)
			require.Zero(t, got.Code, got.Body)
			show([]byte(got.Body))
			return got.Task
		}
		var id string
		if c.Wire == a2atest.V01 { // 0.1 sets a webhook in a separate request, and the event comes after that
			id = do(a2atest.Send, a2atest.Say("ask:0"))
		} else {
			id = do(a2atest.Send, a2atest.Say("echo:x").Hooked(hook.URL+path, more))
		}
		hooked := a2atest.Say().To(id).Hooked(hook.URL+path, more)
		hooked.Config = "other"
		for _, op := range []a2atest.Op{a2atest.SetHook, a2atest.GetHook, a2atest.ListHooks} {
			do(op, hooked)
		}
		if c.Wire == a2atest.V01 {
			do(a2atest.Send, a2atest.Say("well").To(id))
		}
		do(a2atest.Get, a2atest.Say().To(id))
		n := hook.Next("an attempt")
		require.Equal(t, path, n.Path)
		require.Equal(t, token, n.Header.Get("X-A2A-Notification-Token"))
		require.Equal(t, c.prefix+credentials, n.Header.Get(c.header))
		db.NothingIsDue() // the webhook was disabled
		hook.Rest()
		show([]byte(db.Operate("webhooks", "attempts", id, "-o", "json")))
		task = id
	}
	for _, verb := range [][]string{{"webhooks", "attempts", task}, {"tasks", "get", task}, {"tasks", "events", task}, {"webhooks", "list"}} {
		show([]byte(db.Operate(verb...)))
		show([]byte(db.Operate(append(verb, "-o", "json")...)))
	}
	rekeyed := clustertest.Command(t, t.TempDir(), []string{"HOLDFAST_DATABASE_URL=" + db.URL, "HOLDFAST_SECRET_KEYS=" + key}, "reseal")
	require.Zero(t, rekeyed.Code, rekeyed.Err)
	show([]byte(rekeyed.Out + rekeyed.Err))
	require.Contains(t, shown.String(), "I know *** and ***!", "the receiver's text is shown without the secret")
	_, metrics, _ := r.Page("/metrics")
	show([]byte(metrics))
	for _, of := range clustertest.Column[string](db, "SELECT quote_ident(relname) FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace AND relkind IN ('r', 'p', 'v', 'm')") {
		for _, row := range clustertest.Column[string](db, "SELECT x::text FROM holdfast."+of+" x") {
			show([]byte(row))
		}
	}
	show([]byte(r.Log()))
	for _, s := range secrets {
		require.NotContains(t, shown.String(), s)
		require.NotContains(t, shown.String(), hex.EncodeToString([]byte(s)))
	}
}
