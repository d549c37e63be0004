package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/engine"
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
	h := r.must(t, send("hi"))
	v := r.as(alice)
	about := func(id string, s *engine.PushSetting) *engine.PushRequest {
		return &engine.PushRequest{Dialect: "0.3", TaskID: h.PublicID, ConfigID: id, Set: s}
	}
	type operation = func(context.Context, *engine.PushRequest) (*engine.Pushes, error)
	ask := func(do operation, q *engine.PushRequest) *engine.Pushes {
		t.Helper()
		p, err := do(t.Context(), q)
		require.NoError(t, err)
		require.Equal(t, h.PublicID, p.TaskID)
		for _, c := range p.Configs {
			require.Empty(t, c.Token)
			require.True(t, c.Artifacts)
		}
		return p
	}
	refused := func(do operation, q *engine.PushRequest, kind task.Kind, says string) {
		t.Helper()
		_, err := do(t.Context(), q)
		require.ErrorIs(t, err, kind)
		require.ErrorContains(t, err, says)
	}
	refused(v.GetPush, about("", nil), task.NotFound, "has no push notification configuration")
	lacking := about("", nil)
	lacking.MayLack = true
	require.Empty(t, ask(v.GetPush, lacking).Configs)

	// A configuration of A2A 1.0 gets an id of its own; one of an older version has the task's id.
	further := setting("", "https://one.example")
	further.Further = true
	p := ask(v.SetPush, about("", further))
	require.Len(t, p.Configs, 1)
	one := p.Configs[0].ID
	require.NotContains(t, []string{"", h.PublicID}, one)
	require.Equal(t, "0.3", p.Configs[0].Dialect)
	require.Equal(t, []string{one}, ids(ask(v.GetPush, about("", nil))), "the oldest, without a default one")
	require.Equal(t, []string{h.PublicID}, ids(ask(v.SetPush, about("", setting("", "https://two.example")))))
	require.Equal(t, []string{h.PublicID}, ids(ask(v.GetPush, about("", nil))), "the default one")
	p = ask(v.SetPush, about("", setting("", "https://three.example")))
	require.Equal(t, "https://three.example", p.Configs[0].URL, "replaced")
	ask(v.SetPush, about("", setting("c", "https://c.example")))
	refused(v.SetPush, about("", setting("d", "https://d.example")), task.Invalid, "may not have more")
	require.Equal(t, []string{one, h.PublicID, "c"}, ids(ask(v.ListPush, about("", nil))))

	for range 2 {
		ask(v.DeletePush, about("c", nil)) // also after it was deleted
	}
	refused(v.GetPush, about("c", nil), task.NotFound, "")
	require.Empty(t, ask(v.SetPush, about("", nil)).Configs, "0.1 clears the default one")
	require.Equal(t, []string{one}, ids(ask(v.ListPush, about("", nil))))
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
	h := r.must(t, send("hi"))
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
	_, err := r.as(alice).SetPush(t.Context(), &engine.PushRequest{TaskID: "nothing", Set: setting("", "http://inside")})
	require.ErrorIs(t, err, task.NotFound)
}

func TestWebhooksAreDisabled(t *testing.T) {
	t.Parallel()
	r := start(t, setup{})
	h := r.must(t, send("hi"))
	v := r.as(alice)
	q := &engine.PushRequest{TaskID: h.PublicID, ConfigID: "c", Set: setting("", "https://hook.example")}
	for _, do := range []func(context.Context, *engine.PushRequest) (*engine.Pushes, error){v.SetPush, v.GetPush, v.ListPush, v.DeletePush} {
		_, err := do(t.Context(), q)
		require.ErrorIs(t, err, task.PushUnsupported)
	}
	m := send("hi")
	m.Push = setting("", "https://hook.example")
	r.refuses(t, m, task.PushUnsupported)
}

func TestAWebhookComesWithItsMessage(t *testing.T) {
	t.Parallel()
	r := start(t, setup{push: &engine.Push{MaxPerTask: 2}})
	first := func(dialect, url string) *sending {
		m := send("ask who")
		m.Push, m.Dialect, m.IdempotencyKey = setting("", url), dialect, "k"
		return m
	}
	h := r.must(t, first("1.0", "https://one.example"))
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
	require.Equal(t, h.ID, r.must(t, first("1.0", "https://one.example")).ID)
	r.refuses(t, first("0.3", "https://two.example"), task.Invalid)

	// A later message replaces the default one and may bring others.
	next := func(s *engine.PushSetting) *sending {
		m := to(send("ask again"), h)
		m.Push = s
		return m
	}
	r.must(t, next(setting("", "https://two.example")))
	all = list()
	require.Len(t, all, 1)
	require.Equal(t, "https://two.example", all[0].URL)
	require.Equal(t, "0.3", all[0].Dialect)
	r.must(t, next(setting("b", "https://b.example")))
	all = list()
	require.Len(t, all, 2)
	page, err := r.as(alice).ListPush(t.Context(), &engine.PushRequest{TaskID: h.PublicID, PageSize: 1})
	require.NoError(t, err)
	require.Equal(t, all[:1], page.Configs)
	page, err = r.as(alice).ListPush(t.Context(), &engine.PushRequest{TaskID: h.PublicID, PageSize: 1, PageToken: page.NextToken})
	require.NoError(t, err)
	require.Equal(t, all[1:], page.Configs)
	require.Empty(t, page.NextToken)
	_, err = r.as(alice).ListPush(t.Context(), &engine.PushRequest{TaskID: h.PublicID, PageToken: "zzz"})
	require.ErrorContains(t, err, "pageToken")
	rows, err := r.store.ListPushes(t.Context(), store.PushFilter{Limit: 10})
	require.NoError(t, err)
	for _, row := range rows {
		require.Equal(t, row.Config.URL, "https://"+row.Config.Host, "the host is the one that the check found")
	}
	r.refuses(t, next(setting("c", "https://c.example")), task.Invalid)
	require.Len(t, list(), 2)
}
