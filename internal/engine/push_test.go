package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/identity"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

func setting(id, url string) *engine.PushSetting {
	return &engine.PushSetting{PushConfig: task.PushConfig{ID: id, URL: url, Token: "tok"}, Member: "pushNotificationConfig"}
}

func ids(p *engine.Pushes) []string {
	var all []string
	for _, c := range p.Configs {
		all = append(all, c.ID)
	}
	return all
}

func TestWebhooksOfATask(t *testing.T) {
	t.Parallel()
	r := start(t, setup{push: &engine.Push{MaxPerTask: 3, Artifacts: true}})
	h, err := r.Send(t.Context(), send("hi"))
	require.NoError(t, err)
	about := func() *engine.PushRequest {
		return &engine.PushRequest{Dialect: "0.3", TaskID: h.PublicID}
	}
	set := func(s *engine.PushSetting) (*engine.Pushes, error) {
		q := about()
		q.Set = s
		return r.as(alice).SetPush(t.Context(), q)
	}
	get := func(id string) (*engine.Pushes, error) {
		q := about()
		q.ConfigID = id
		return r.as(alice).GetPush(t.Context(), q)
	}
	_, err = get("")
	require.ErrorIs(t, err, task.NotFound)
	require.ErrorContains(t, err, "has no push notification configuration")
	q := about()
	q.MayLack = true
	p, err := r.as(alice).GetPush(t.Context(), q)
	require.NoError(t, err)
	require.Empty(t, p.Configs)

	// A configuration of A2A 1.0 gets an id of its own; one of an older version has the task's id.
	further := setting("", "https://one.example")
	further.Further = true
	p, err = set(further)
	require.NoError(t, err)
	require.Len(t, p.Configs, 1)
	one := p.Configs[0].ID
	require.NotContains(t, []string{"", h.PublicID}, one)
	require.Empty(t, p.Configs[0].Token)
	require.True(t, p.Configs[0].Artifacts)
	require.Equal(t, "0.3", p.Configs[0].Dialect)
	p, err = get("")
	require.NoError(t, err)
	require.Equal(t, []string{one}, ids(p), "the oldest, without a default one")
	p, err = set(setting("", "https://two.example"))
	require.NoError(t, err)
	require.Equal(t, []string{h.PublicID}, ids(p))
	p, err = get("")
	require.NoError(t, err)
	require.Equal(t, []string{h.PublicID}, ids(p), "the default one")
	p, err = set(setting("", "https://three.example"))
	require.NoError(t, err)
	require.Equal(t, "https://three.example", p.Configs[0].URL, "replaced")
	_, err = set(setting("c", "https://c.example"))
	require.NoError(t, err)
	_, err = set(setting("d", "https://d.example"))
	require.ErrorIs(t, err, task.Invalid)
	require.ErrorContains(t, err, "may not have more")
	p, err = r.as(alice).ListPush(t.Context(), about())
	require.NoError(t, err)
	require.Equal(t, []string{one, h.PublicID, "c"}, ids(p))
	require.Equal(t, h.PublicID, p.TaskID)
	for _, c := range p.Configs {
		require.Empty(t, c.Token)
	}

	q = about()
	q.ConfigID = "c"
	for range 2 {
		_, err = r.as(alice).DeletePush(t.Context(), q)
		require.NoError(t, err, "also after it was deleted")
	}
	_, err = get("c")
	require.ErrorIs(t, err, task.NotFound)
	p, err = set(nil)
	require.NoError(t, err)
	require.Empty(t, p.Configs, "0.1 clears the default one")
	p, err = r.as(alice).ListPush(t.Context(), about())
	require.NoError(t, err)
	require.Equal(t, []string{one}, ids(p))

	// Webhooks of other callers cannot be seen.
	other := asker{Caller: identity.Caller{Tenant: "t", Subject: "other"}, Agent: alice.Agent}
	for _, c := range []asker{other, {Caller: alice.Caller, Agent: "strict"}} {
		v := r.as(c)
		q := &engine.PushRequest{TaskID: h.PublicID, ConfigID: one, Set: setting("x", "https://x.example")}
		for _, do := range []func(context.Context, *engine.PushRequest) (*engine.Pushes, error){v.SetPush, v.GetPush, v.ListPush, v.DeletePush} {
			_, err := do(t.Context(), q)
			require.ErrorIs(t, err, task.NotFound)
			require.Equal(t, "task not found", err.Error(), "the same error as for a task that does not exist")
		}
	}
	_, err = get(one)
	require.NoError(t, err)
	rows, err := r.store.ListPushes(t.Context(), store.PushFilter{Host: "one.example", Limit: 10})
	require.NoError(t, err)
	require.Len(t, rows, 1)
}

func TestWebhooksAreChecked(t *testing.T) {
	t.Parallel()
	r := start(t, setup{push: &engine.Push{Check: func(ctx context.Context, url string) (string, error) {
		if strings.Contains(url, "inside") {
			return "", errors.New("is an address that webhooks may not have")
		}
		return hostOf(ctx, url)
	}}})
	h, err := r.Send(t.Context(), send("hi"))
	require.NoError(t, err)
	const good = "https://hook.example/x"
	long := strings.Repeat("x", 5<<10)
	for want, s := range map[string]*engine.PushSetting{
		"pushNotificationConfig.url: is an address that webhooks may not have":                  setting("", "http://inside"),
		"pushNotificationConfig.id: must not be longer than 1024 bytes":                         setting(long, good),
		"pushNotificationConfig.token: must not have control characters":                        {PushConfig: task.PushConfig{URL: good, Token: "a\r\nb"}, Member: "pushNotificationConfig"},
		"pushNotificationConfig.authentication.credentials: must not be longer than 4096 bytes": {PushConfig: task.PushConfig{URL: good, Credentials: long}, Member: "pushNotificationConfig"},
		"authentication: schemes must each be one word, such as Bearer":                         {PushConfig: task.PushConfig{URL: good, Schemes: []string{"Bearer x"}}},
		"authentication.schemes: must not be more than 16":                                      {PushConfig: task.PushConfig{URL: good, Schemes: strings.Split(long, "")}},
		"url: is an address that webhooks may not have":                                         {PushConfig: task.PushConfig{URL: "inside"}},
	} {
		_, err := r.as(alice).SetPush(t.Context(), &engine.PushRequest{TaskID: h.PublicID, Set: s})
		require.ErrorIs(t, err, task.Invalid)
		require.Equal(t, want, err.Error())
		m := send("hi")
		m.Push = s
		_, err = r.Send(t.Context(), m)
		require.Equal(t, want, err.Error())
	}
	// A missing task is reported first: its URL is not checked.
	_, err = r.as(alice).SetPush(t.Context(), &engine.PushRequest{TaskID: "nothing", Set: setting("", "http://inside")})
	require.ErrorIs(t, err, task.NotFound)
}

func TestWebhooksAreDisabled(t *testing.T) {
	t.Parallel()
	r := start(t, setup{})
	h, err := r.Send(t.Context(), send("hi"))
	require.NoError(t, err)
	v := r.as(alice)
	q := &engine.PushRequest{TaskID: h.PublicID, ConfigID: "c", Set: setting("", "https://hook.example")}
	for _, do := range []func(context.Context, *engine.PushRequest) (*engine.Pushes, error){v.SetPush, v.GetPush, v.ListPush, v.DeletePush} {
		_, err := do(t.Context(), q)
		require.ErrorIs(t, err, task.PushUnsupported)
	}
	m := send("hi")
	m.Push = setting("", "https://hook.example")
	_, err = r.Send(t.Context(), m)
	require.ErrorIs(t, err, task.PushUnsupported)
}

func TestAWebhookComesWithItsMessage(t *testing.T) {
	t.Parallel()
	r := start(t, setup{push: &engine.Push{MaxPerTask: 2}})
	m := send("ask who")
	m.Push, m.Dialect, m.IdempotencyKey = setting("", "https://one.example"), "1.0", "k"
	h, err := r.Send(t.Context(), m)
	require.NoError(t, err)
	list := func() []task.PushConfig {
		p, err := r.as(alice).ListPush(t.Context(), &engine.PushRequest{TaskID: h.PublicID})
		require.NoError(t, err)
		return p.Configs
	}
	all := list()
	require.Len(t, all, 1)
	require.Equal(t, h.PublicID, all[0].ID)
	require.Equal(t, "1.0", all[0].Dialect)

	// The same key with another webhook is another request.
	again := send("ask who")
	again.Push, again.Dialect, again.IdempotencyKey = setting("", "https://one.example"), "1.0", "k"
	_, err = r.Send(t.Context(), again)
	require.NoError(t, err)
	again = send("ask who")
	again.Push, again.IdempotencyKey = setting("", "https://two.example"), "k"
	_, err = r.Send(t.Context(), again)
	require.ErrorIs(t, err, task.Invalid)

	// A later message replaces the default one and may bring others.
	next := to(send("ask again"), h)
	next.Push, next.Dialect = setting("", "https://two.example"), "0.3"
	_, err = r.Send(t.Context(), next)
	require.NoError(t, err)
	all = list()
	require.Len(t, all, 1)
	require.Equal(t, "https://two.example", all[0].URL)
	require.Equal(t, "0.3", all[0].Dialect)
	next = to(send("ask again"), h)
	next.Push = setting("b", "https://b.example")
	_, err = r.Send(t.Context(), next)
	require.NoError(t, err)
	require.Len(t, list(), 2)
	rows, err := r.store.ListPushes(t.Context(), store.PushFilter{Limit: 10})
	require.NoError(t, err)
	for _, row := range rows {
		require.Equal(t, row.Config.URL, "https://"+row.Config.Host, "the host is the one that the check found")
	}
	next = to(send("ask again"), h)
	next.Push = setting("c", "https://c.example")
	_, err = r.Send(t.Context(), next)
	require.ErrorIs(t, err, task.Invalid)
	require.Len(t, list(), 2)
}
