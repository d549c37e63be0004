package isolation

import (
	"context"
	"crypto/rand"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/auth"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/issuertest"
	"github.com/holdfast-a2a/holdfast/internal/test/pgproxytest"
	"github.com/holdfast-a2a/holdfast/internal/test/receivertest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// Two agents of one server: at the first a task is visible to its owner, at the second to the owner's whole tenant.
const guarded, shared = "guarded", "shared"

// secret is in all of alice's data.
const secret = "alice's and nobody else's"

// estate is a server with callers that know each other's names and ids.
type estate struct {
	*a2atest.Peer
	server *clustertest.Replica
	db     *clustertest.DB
	proxy  *pgproxytest.Proxy
	issuer *issuertest.Issuer
	keys   *store.Store
	hooks  *receivertest.Receiver
	// hook is the URL of alice's webhooks, thief that of the other callers'.
	hook, thief string

	alice, aliceToken []string // one owner, with a key and with a token
	mallory           []string // another subject of the same tenant
	eve               []string // the subject alice of another tenant
}

func newEstate(t *testing.T) *estate {
	t.Helper()
	e := &estate{db: clustertest.NewDB(t), issuer: issuertest.Start(t), hooks: receivertest.Start(t, 2)}
	e.hook, e.thief = e.hooks.URLs[0], e.hooks.URLs[1]
	e.proxy = pgproxytest.New(t, e.db.URL)
	var err error
	e.keys, err = store.Open(t.Context(), store.Options{URL: e.db.URL})
	require.NoError(t, err)
	t.Cleanup(func() { e.keys.Close(context.Background()) })
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: e.proxy.URL, Env: e.issuer.Trust(), Config: clustertest.Replace(clustertest.Replace(clustertest.Steady, "max_block: 1h", "failed_authentications: 0, max_block: 1h"), "  - name: demo", `  - name: shared
    executor: {kind: demo}
    auth: {scope: "shared:use", visibility: tenant}
    card: {extended: true}
  - name: guarded
    default: true
    auth: {scope: "guarded:use"}
    card: {extended: true}`) + `
public_url: https://agents.example
push: {allow_private: true, https_only: false, validation_challenge: false}
auth:
  schemes:
    - {name: keys, kind: api_key}
    - ` + e.issuer.Scheme("sso", ", tenant_claim: org") + "\n"})
	e.Peer, e.server = &r.Peer, r
	e.alice, e.mallory = e.key("acme", "alice"), e.key("acme", "mallory")
	e.aliceToken, e.eve = e.token("org", "acme"), e.token("org", "evil")
	return e
}

const bothScopes = "guarded:use shared:use"

// key returns the headers of a caller with a new key.
func (e *estate) key(tenant, subject string, scopes ...string) []string {
	e.T.Helper()
	if scopes == nil {
		scopes = strings.Fields(bothScopes)
	}
	key, id, hash := auth.NewAPIKey()
	_, err := e.keys.AddAPIKey(e.T.Context(), &store.APIKey{ID: id, Hash: hash, Tenant: tenant, Subject: subject, Scopes: scopes}, 0)
	require.NoError(e.T, err)
	return []string{"X-API-Key", key}
}

// token returns the headers of a caller with a token of alice's, with some claims changed.
func (e *estate) token(claims ...any) []string {
	return bearer(e.issuer.Sign(e.issuer.Claims("alice", append([]any{"scope", bothScopes, "org", "acme"}, claims...)...)))
}

func bearer(token string) []string { return []string{"Authorization", "Bearer " + token} }

// The wires for tests in which the version does not matter.
var oldest, current = a2atest.V01, a2atest.V10

// shownIDs finds the ids of the task in an answer.
var shownIDs = regexp.MustCompile(`"id": ?"([^"]+)"(?:, ?"(?:contextId|sessionId)": ?"([^"]+)")?`)

// shownContext finds the context of the task in a notification.
var shownContext = regexp.MustCompile(`"(?:contextId|sessionId)":"([^"]+)"`)

// task creates a task of alice's with a webhook. how is parked, running or ended; named: a client of 0.1 chose its
// id.
func (e *estate) task(agent, how string, named bool) *about {
	e.T.Helper()
	a := &about{agent: agent, text: map[string]string{"parked": "ask:" + secret, "running": "hold", "ended": "echo:" + secret}[how]}
	w, d := current, &clientOp{op: a2atest.Stream}
	if named {
		w = oldest
		a.task = "task-" + rand.Text()
	}
	if how != "running" {
		d.op = a2atest.Send
	}
	sent := e.do(w, d, a, e.alice...)
	if !named {
		a.task, a.context = idsIn(e.T, sent)
	} else {
		a.context = clustertest.One[string](e.db, "SELECT context_id FROM holdfast.tasks WHERE client_id = $1", a.task)
	}
	if how == "running" {
		waittest.Eventually(e.T, "it runs", func() error {
			state := clustertest.One[int](e.db, "SELECT state FROM holdfast.tasks WHERE context_id = $1", a.context)
			return waittest.Unless(state == 2, "it is in state %d", state)
		})
	}
	a.config, a.hook = "hook", e.hook
	set := e.do(current, &clientOp{op: a2atest.SetHook}, a, e.alice...)
	require.True(e.T, set.OK, set.Whole)
	return a
}

// idsIn are the ids of the task and of its context in an answer; streams of 0.1 have no context.
func idsIn(t testing.TB, r a2atest.Shown) (task, context string) {
	t.Helper()
	found := shownIDs.FindStringSubmatch(r.Whole)
	require.NotNil(t, found, r.Whole)
	return found[1], found[2]
}

// rows are all rows of all tables, except those that a server writes without requests.
func (e *estate) rows() []string { return e.rowsWhere("true") }

// rowsOf are the rows of one owner, and all that belong to its tasks.
func (e *estate) rowsOf(tenant, owner string) []string {
	return e.rowsWhere(`r->>'tenant' = $1 AND coalesce(r->>'owner', r->>'subject') = $2 OR coalesce(r->>'task', r->>'id') IN
		(SELECT id::text FROM holdfast.tasks WHERE tenant = $1 AND owner = $2)`, tenant, owner)
}

func (e *estate) rowsWhere(condition string, args ...any) []string {
	e.T.Helper()
	var all []string
	for _, table := range append(clustertest.Column[string](e.db, `SELECT relname::text FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace
		AND relkind IN ('r', 'p') AND NOT relispartition AND relname NOT IN ('workers', 'leases') ORDER BY 1`), "v_audit") {
		for _, row := range clustertest.Column[string](e.db, "SELECT r::text FROM (SELECT to_jsonb(t) - 'last_used_at' AS r FROM holdfast."+table+" t) x WHERE "+
			condition+" ORDER BY 1", args...) {
			all = append(all, table+" "+row)
		}
	}
	require.NotEmpty(e.T, all)
	return all
}

func TestIsolation(t *testing.T) { //nolint:tparallel // its parts count on each other and on a quiet server
	t.Parallel()
	e := newEstate(t)
	for _, part := range []struct {
		name string
		run  func(*estate)
	}{
		{"refused callers", (*estate).refusedCallers},
		{"cards", (*estate).cards},
		{"tasks of others do not exist", (*estate).foreignTasks},
		{"lists", (*estate).lists},
		{"same names", (*estate).sameNames},
		{"streams", (*estate).streams},
		{"own tasks", (*estate).ownTasks},
		{"tasks of colleagues, where the tenant sees them", (*estate).colleagues},
		{"which credential", (*estate).whichCredential},
		{"which agent", (*estate).whichAgent},
		{"which task", (*estate).whichTask},
	} {
		t.Run(part.name, func(t *testing.T) {
			inner, db := *e, *e.db
			inner.Peer, inner.db, db.T = e.In(t), &db, t
			part.run(&inner)
		})
	}
	e.issuer.Silent(e.server)
	e.db.NothingIsDue()
	hers := clustertest.Column[string](e.db, "SELECT context_id FROM holdfast.tasks WHERE owner = 'alice' AND tenant = 'acme'")
	for _, n := range e.hooks.Rest() {
		context := shownContext.FindStringSubmatch(string(n.Body))
		require.NotNil(t, context, "%s", n.Body)
		require.Equal(t, slices.Contains(hers, context[1]), strings.HasSuffix(e.hook, n.Host), "%s: %s", n.Host, n.Body)
	}
}

// foreignTasks: a caller gets the same answer about another's task as about a task that does not exist, by the same
// statements, for every operation. Nothing changes.
func (e *estate) foreignTasks() {
	unknown := map[bool]string{true: "task-" + rand.Text(), false: store.NewID().String()} // by whether a client chose the id
	type kept struct {
		*about
		name  string
		named bool
	}
	tasks := map[string][]kept{}
	for _, agent := range []string{guarded, shared} {
		for _, how := range []string{"parked", "running", "ended"} {
			tasks[agent] = append(tasks[agent], kept{e.task(agent, how, false), how, false})
		}
		named := e.task(agent, "parked", true)
		byUUID := *named
		byUUID.task = e.db.ID(named.task)
		tasks[agent] = append(tasks[agent],
			kept{e.task(agent, "running", true), "running, named by its client", true},
			kept{named, "parked, named by its client", true}, kept{&byUUID, "the same by its UUID", false})
	}
	type asking struct {
		shows []string
		agent string
	}
	others := map[string]map[string]asking{
		guarded: {
			"another of the tenant": {e.mallory, guarded}, "another tenant": {e.eve, guarded}, "another tenant, at the root": {e.eve, ""},
			"the owner elsewhere": {e.alice, shared}, "another of the tenant where all see": {e.mallory, shared},
		},
		shared: {
			"another tenant": {e.eve, shared}, "the owner elsewhere": {e.aliceToken, guarded}, "another of the tenant elsewhere": {e.mallory, guarded},
		},
	}
	e.db.NothingIsDue()
	before := e.rows()
	n := 0
	for _, w := range wires {
		for _, d := range clientOps {
			if !d.ofTask || !w.Has(d.op) || creates(w, d) {
				continue
			}
			for agent, tasks := range tasks {
				for who, by := range others[agent] {
					if !reaches(w, by.agent) {
						continue
					}
					ask := func(k kept, id string) (got string, took []string) {
						a := *k.about
						a.agent, a.task, a.text, a.hook = by.agent, id, "mine", e.thief
						if !d.inContext {
							a.context = ""
						}
						n++
						r, took := e.watched(w, d, &a, by.shows)
						require.Equal(e.T, notThere.answer(w, d, "", named(w, d, &a, true)), r.Whole, "%s: %s: %s of %s, %s", w, d.name, k.name, agent, who)
						return strings.ReplaceAll(r.Whole, id, "ID"), took
					}
					for _, named := range []bool{true, false} {
						var none string
						var takes []string
						for _, k := range tasks {
							if k.named != named {
								continue
							}
							if none == "" {
								none, takes = ask(k, unknown[named])
							}
							got, took := ask(k, k.task)
							require.Equal(e.T, none, got)
							require.Equal(e.T, takes, took, "%s: %s: %s of %s, %s", w, d.name, k.name, agent, who)
						}
					}
				}
			}
		}
	}
	e.T.Logf("%d requests", n)
	require.Equal(e.T, before, e.rows())
}

// statement finds the name of a statement.
var statement = regexp.MustCompile(`^-- name: (\w+)`)

// ofRequests are the statements that a server makes for requests outside of a caller's view, and for its streams.
var ofRequests = []string{"TaskAdmit", "TaskCreate", "TaskRename", "EventsAfter", "EventsCatchUp", "TaskSeqs"}

// watched does an operation and returns its statements.
func (e *estate) watched(w *a2atest.Wire, d *clientOp, a *about, shows []string) (got a2atest.Shown, took []string) {
	e.T.Helper()
	stop := e.proxy.Record()
	got = e.do(w, d, a, shows...)
	for _, sql := range stop() {
		name := statement.FindStringSubmatch(sql)
		if name != nil && (strings.HasSuffix(sql, "-- for a caller") || slices.Contains(ofRequests, name[1])) {
			took = append(took, name[1])
		}
	}
	require.NotEmpty(e.T, took, "%s: %s", w, d.name)
	return got, took
}

// lists contain no tasks of others, and a page token of one caller is refused for others.
func (e *estate) lists() {
	d := &clientOp{op: a2atest.List}
	mine := e.task(guarded, "parked", false)
	for range 2 {
		e.task(guarded, "ended", false)
		e.task(shared, "ended", false)
	}
	nobody := e.token("org", "nowhere", "sub", "nobody")
	for _, w := range wires {
		if !w.Has(d.op) {
			continue
		}
		for _, agent := range []string{guarded, shared} {
			if !reaches(w, agent) {
				continue
			}
			what := fmt.Sprintf("%s: %s", w, agent)
			first := e.do(w, d, &about{agent: agent}, e.alice...)
			token := nextPage.FindStringSubmatch(first.Whole)
			require.NotNil(e.T, token, first.Whole)
			_, context := idsIn(e.T, first)
			second := e.do(w, d, &about{agent: agent, token: token[1]}, e.aliceToken...)
			require.True(e.T, second.OK, second.Whole)
			idsIn(e.T, second)

			others := map[string][]string{"another tenant": e.eve, "another of the tenant": e.mallory}
			for who, shows := range others {
				stolen := e.do(w, d, &about{agent: agent, token: token[1]}, shows...)
				require.Equal(e.T, e.do(w, d, &about{agent: agent, token: strings.Repeat("A", len(token[1]))}, shows...), stolen, "%s: %s", what, who)
				require.False(e.T, stolen.OK)
				require.Contains(e.T, stolen.Whole, "pageToken: was not issued for this caller, agent and filter; list again without it")
			}
			if agent == shared {
				_, theirs := idsIn(e.T, e.do(w, d, &about{agent: agent}, e.mallory...))
				require.Equal(e.T, context, theirs, "%s: the list of an agent with visibility: tenant", what)
				delete(others, "another of the tenant")
			}
			for who, shows := range others {
				for _, of := range []string{"", context, mine.context} {
					got, took := e.watched(w, d, &about{agent: agent, context: of}, shows)
					require.True(e.T, got.OK, got.Whole)
					none, takes := e.watched(w, d, &about{agent: agent, context: of}, nobody)
					require.Equal(e.T, none, got, "%s: %s", what, who)
					require.Equal(e.T, takes, took, "%s: %s", what, who)
					require.NotContains(e.T, got.Whole, "ontextId")
				}
			}
		}
	}
}

var nextPage = regexp.MustCompile(`"nextPageToken": ?"([^"]+)"`)

// sameNames: names of tasks, keys and contexts belong to each owner.
func (e *estate) sameNames() {
	const nobodys = "0199a3c1-5b7e-7c3a-9a51-2f6f0c1d2e3f"
	others := map[string][]string{"another of the tenant": e.mallory, "another tenant": e.eve}
	parked := e.task(guarded, "parked", false)
	// Each caller uses each name once: the second use would find its own task.
	type pair struct {
		alike, unlike string
		leads         bool // to a task of hers
	}
	names, keys := map[string][]pair{}, map[string]pair{}
	hers := map[string]string{} // her tasks, by their keys
	for _, w := range wires {
		for _, d := range []*clientOp{{op: a2atest.Send}, {op: a2atest.Stream}} {
			if !w.Has(d.op) {
				continue
			}
			at := w.String() + " " + string(d.op)
			p := pair{"alice's " + at, "unknown " + at, true}
			sent := e.do(w, &clientOp{op: a2atest.Send}, &about{agent: guarded, text: "echo:" + secret}, append([]string{"Idempotency-Key", p.alike}, e.alice...)...)
			require.True(e.T, sent.OK, sent.Whole)
			keys[at] = p
			hers[p.alike], _ = idsIn(e.T, sent)
			if w.Version == "0.1" {
				named := e.task(guarded, "parked", true)
				names[at] = []pair{
					{named.task, "task-" + rand.Text(), true},
					{e.task(guarded, "running", false).task, store.NewID().String(), true},
					{e.db.ID(named.task), store.NewID().String(), false}, // the UUID is no name of it
				}
			}
		}
	}
	e.db.NothingIsDue()
	before := e.rowsOf("acme", "alice")
	for _, w := range wires {
		for _, d := range []*clientOp{{op: a2atest.Send}, {op: a2atest.Stream}} {
			if !w.Has(d.op) {
				continue
			}
			at := w.String() + " " + string(d.op)
			for who, shows := range others {
				what := at + " " + who
				sends := func(a about, headers ...string) a2atest.Shown {
					a.agent, a.text = guarded, "echo:mine"
					got := e.do(w, d, &a, append(headers, shows...)...)
					require.True(e.T, got.OK, "%s: %s", what, got.Whole)
					require.NotContains(e.T, got.Whole, secret, what)
					return got
				}
				require.Equal(e.T, unnamed(e.T, sends(about{context: nobodys})), unnamed(e.T, sends(about{context: parked.context})), what)

				key := keys[at]
				got := sends(about{}, "Idempotency-Key", key.alike)
				require.Equal(e.T, unnamed(e.T, sends(about{}, "Idempotency-Key", key.unlike)), unnamed(e.T, got), what)
				id, _ := idsIn(e.T, got)
				require.NotEqual(e.T, hers[key.alike], id)

				for _, name := range names[at] {
					got := sends(about{task: name.alike})
					require.Equal(e.T, unnamed(e.T, sends(about{task: name.unlike})), unnamed(e.T, got), what)
					theirs := e.do(w, &clientOp{op: a2atest.Get}, &about{agent: guarded, task: name.alike}, shows...)
					require.True(e.T, theirs.OK, theirs.Whole)
					require.NotContains(e.T, theirs.Whole, secret)
				}
			}
			again := e.do(w, d, &about{agent: guarded, text: "echo:" + secret}, append([]string{"Idempotency-Key", keys[at].alike}, e.aliceToken...)...)
			if w.Version != "0.1" { // in 0.1 a new name makes another request of it
				id, _ := idsIn(e.T, again)
				require.Equal(e.T, hers[keys[at].alike], id, "%s: her key is still hers", at)
			}
			for _, name := range names[at] {
				got := e.do(w, &clientOp{op: a2atest.Get}, &about{agent: guarded, task: name.alike}, e.alice...)
				require.Equal(e.T, name.leads, got.OK, got.Whole)
				if got.OK {
					_, context := idsIn(e.T, got)
					require.Equal(e.T, "alice", clustertest.One[string](e.db, "SELECT owner FROM holdfast.tasks WHERE context_id = $1", context))
				}
			}
		}
	}
	require.Equal(e.T, before, e.rowsOf("acme", "alice"))
}

var (
	anInstant = regexp.MustCompile(`"20\d\d-[^"]+Z"`)
	aMark     = regexp.MustCompile(`(?m)^(id: \d+)-[0-9a-f]+$`)
)

// unnamed is an answer without the values that are new in each.
func unnamed(t testing.TB, r a2atest.Shown) string {
	t.Helper()
	task, context := idsIn(t, r)
	whole := strings.ReplaceAll(r.Whole, task, "TASK")
	if context != "" {
		whole = strings.ReplaceAll(whole, context, "CONTEXT")
	}
	return aMark.ReplaceAllString(anInstant.ReplaceAllString(whole, `"AT"`), "$1-MARK")
}

// streams of two tasks with the same client-chosen id, of two owners, show each owner's own events.
func (e *estate) streams() {
	alices := e.task(guarded, "running", true)
	theirs := &about{agent: guarded, task: alices.task, text: "hold"}
	sent := e.do(oldest, &clientOp{op: a2atest.Stream}, theirs, e.mallory...)
	require.True(e.T, sent.OK, sent.Whole)
	open := func(shows []string) *a2atest.Reply {
		return e.Subscribe(a2atest.V03, a2atest.Say().To(alices.task).At(guarded).With(shows...))
	}
	hers, others := open(e.alice), open(e.mallory)
	require.Equal(e.T, alices.context, hers.Take(1)[0].ContextID)
	begin := others.Take(1)[0]
	require.NotEqual(e.T, alices.context, begin.ContextID)

	cancel := &clientOp{op: a2atest.Cancel}
	require.True(e.T, e.do(oldest, cancel, alices, e.alice...).OK)
	require.Equal(e.T, "canceled", a2atest.Last(hers.Rest()).State())
	require.Contains(e.T, e.do(oldest, &clientOp{op: a2atest.Get}, theirs, e.mallory...).Whole, `"working"`, "the task still runs")
	require.True(e.T, e.do(oldest, cancel, theirs, e.mallory...).OK)
	for _, ev := range others.Rest() {
		require.Equal(e.T, begin.ContextID, ev.ContextID)
		require.Greater(e.T, ev.Seq, begin.Seq)
	}
}

// ownTasks: the owner can do everything that was refused to others, in every version and with every credential.
func (e *estate) ownTasks() { e.succeeds(guarded, e.alice, e.aliceToken) }

// colleagues see, continue and cancel each other's tasks, and set their webhooks.
func (e *estate) colleagues() { e.succeeds(shared, e.mallory) }

// succeeds does every operation on tasks of alice's.
func (e *estate) succeeds(agent string, shows ...[]string) {
	n := 0
	for _, w := range wires {
		for _, d := range clientOps {
			if !w.Has(d.op) || !reaches(w, agent) {
				continue
			}
			a := &about{}
			if d.ofTask {
				a = e.task(agent, d.to, false)
			}
			id := a.task
			a.agent, a.text = agent, "echo:mine"
			if !d.inContext {
				a.context = ""
			}
			got := e.do(w, d, a, shows[n%len(shows)]...)
			n++
			what := fmt.Sprintf("%s: %s at %s: %s", w, d.name, agent, got.Whole)
			require.True(e.T, got.OK, what)
			events := func(kind int) int {
				return clustertest.One[int](e.db, "SELECT count(*) FROM holdfast.task_events WHERE task = $1 AND kind = $2", e.db.ID(id), kind)
			}
			configs := func() int {
				return clustertest.One[int](e.db, "SELECT count(*) FROM holdfast.push_configs WHERE task = $1", e.db.ID(id))
			}
			switch d.name {
			case "continue", "continue in its context", "continue and follow":
				require.Equal(e.T, 2, events(1), what)
				require.Contains(e.T, got.Whole, id)
			case "get":
				require.Contains(e.T, got.Whole, secret)
			case "list":
				require.Contains(e.T, got.Whole, "ontextId")
			case "cancel":
				require.Contains(e.T, strings.ToLower(got.Whole), "cancel", what)
			case "subscribe", "resume", "resume behind its end":
				require.Contains(e.T, got.Whole, id, what)
			case "set a webhook", "get a webhook", "list webhooks":
				require.Contains(e.T, got.Whole, e.hook, what)
			case "clear the webhook", "delete a webhook":
				require.Equal(e.T, map[string]int{"0.1": 1}[w.Version], configs(), what)
			}
		}
	}
	e.T.Logf("%d clientOps", n)
}
