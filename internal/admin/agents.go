package admin

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/client"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// The states of a signature.
const (
	signatureVerified = "verified" // by a key of the set that this server publishes
	signatureUnsigned = "unsigned"
	signatureInvalid  = "invalid"
)

// maxCardDepth is more than cards have.
const maxCardDepth = 100

// signatureOf verifies the signatures of a card with the keys that clients get. unsigned says why cards have none.
func signatureOf(card, set []byte, unsigned string) *shown.Signature {
	var signed struct {
		Signatures []struct {
			Protected string `json:"protected"`
		} `json:"signatures"`
	}
	if json.Unmarshal(card, &signed) != nil || len(signed.Signatures) == 0 {
		return &shown.Signature{Status: signatureUnsigned, Detail: unsigned}
	}
	v := &shown.Signature{Status: signatureInvalid}
	var header struct {
		Algorithm string `json:"alg"`
		KeyID     string `json:"kid"`
	}
	if raw, err := base64.RawURLEncoding.DecodeString(signed.Signatures[0].Protected); err == nil && json.Unmarshal(raw, &header) == nil {
		v.KeyID, v.Algorithm = header.KeyID, header.Algorithm
	}
	keys, err := client.ParseKeys(set)
	if err == nil {
		_, err = keys.Verify(card, maxCardDepth)
	}
	if err != nil {
		v.Detail = bounded(err.Error())
		return v
	}
	v.Status = signatureVerified
	return v
}

// queues are the queues of all agents.
type queues struct {
	depths []store.QueueDepth
	parked map[string]int64
}

// queues reads the queues, at most once in two seconds.
func (a *API) queues(ctx context.Context) (*queues, error) {
	return a.queued.get(ctx, struct{}{}, func(ctx context.Context) (*queues, error) {
		agents, err := a.known(ctx)
		if err != nil {
			return nil, err
		}
		names := namesOf(agents)
		var q queues
		if q.depths, err = a.o.Store.QueueDepths(ctx); err != nil {
			return nil, err
		}
		q.parked, err = a.o.Store.Parked(ctx, names)
		return &q, err
	})
}

// known returns the agents of the configuration. To a local API it may be that of no server, so there those follow that live processes
// have or that have tasks in the queue, and, without a configuration, those that have tasks.
func (a *API) known(ctx context.Context) ([]Agent, error) {
	if !a.o.Local {
		return a.o.Agents, nil
	}
	var others []string
	if len(a.o.Agents) == 0 {
		parked, err := a.o.Store.ParkedAgents(ctx)
		if err != nil {
			return nil, err
		}
		ended, err := a.withEnded(ctx)
		if err != nil {
			return nil, err
		}
		others = append(parked, ended...)
	}
	remote, err := a.o.Store.AgentsServed(ctx)
	if err != nil {
		return nil, err
	}
	others = slices.AppendSeq(others, maps.Keys(remote))
	depths, err := a.o.Store.QueueDepths(ctx)
	if err != nil {
		return nil, err
	}
	for i := range depths {
		others = append(others, depths[i].Agent)
	}
	slices.Sort(others)
	all := slices.Clone(a.o.Agents)
	for _, name := range slices.Compact(others) {
		if slices.Contains(namesOf(a.o.Agents), name) {
			continue
		}
		g := Agent{Name: name, Remote: remote[name]}
		if g.Remote {
			g.Kind = kindWorker
		}
		all = append(all, g)
	}
	return all, nil
}

// withEnded returns the agents that have tasks that have ended, read at most once in three seconds.
func (a *API) withEnded(ctx context.Context) ([]string, error) {
	return a.ended.get(ctx, struct{}{}, func(ctx context.Context) ([]string, error) {
		dated := store.Everything
		dated.Kept = false
		names, err := a.o.Store.EndedAgents(ctx, store.Everything)
		if err != nil {
			return nil, err
		}
		more, err := a.o.Store.EndedAgents(ctx, dated)
		return append(names, more...), err
	})
}

// kindWorker is the kind of agents that remote workers run.
const kindWorker = "worker"

func namesOf(agents []Agent) []string {
	names := make([]string, len(agents))
	for i := range agents {
		names[i] = agents[i].Name
	}
	return names
}

// agentViews shows the agents, with their health, and their queues to operators who see all tenants.
func (a *API) agentViews(x *exchange) ([]*shown.Agent, error) {
	agents, err := a.known(x.ctx)
	if err != nil {
		return nil, err
	}
	all, byName := make([]*shown.Agent, len(agents)), map[string]*shown.Agent{}
	for i := range agents {
		g := &agents[i]
		all[i] = &shown.Agent{Name: g.Name, Default: g.Default, Kind: g.Kind, Concurrency: g.Concurrency, MaxAttempts: g.MaxAttempts}
		byName[g.Name] = all[i]
		if g.Card == nil {
			continue
		}
		card, err := g.Card()
		if err != nil {
			// The card is for clients; the rest is what an operator looks for now.
			a.o.Log.Warn("card not rendered", "agent", g.Name, "error", err)
			all[i].Signature = &shown.Signature{Status: signatureInvalid, Detail: "the card cannot be rendered now; the server's log says why"}
			continue
		}
		var says struct {
			Description string `json:"description"`
		}
		_ = json.Unmarshal(card, &says) // rendered here
		all[i].Description = bounded(says.Description)
		all[i].Signature = signatureOf(card, a.o.KeySet(), a.o.Unsigned)
	}
	key, op := statsKey{bound: x.who.Bound}, x.op
	if key.bound {
		key.tenant = x.who.Caller.Tenant
	}
	healths, err := a.judged.get(x.ctx, key, func(ctx context.Context) ([]store.AgentHealth, error) {
		return op.AgentHealths(ctx, namesOf(agents))
	})
	if err != nil {
		return nil, err
	}
	for _, h := range healths {
		if v := byName[h.Agent]; v != nil {
			if v.AgentHealth = h; x.who.Bound {
				v.Workers = nil
			}
		}
	}
	if x.who.Bound {
		return all, nil
	}
	q, err := a.queues(x.ctx)
	if err != nil {
		return nil, err
	}
	for _, v := range all {
		v.Queue = &store.QueueDepth{Parked: q.parked[v.Name]}
	}
	for _, d := range q.depths {
		if v := byName[d.Agent]; v != nil {
			d.Parked = v.Queue.Parked
			v.Queue = &d
		}
	}
	return all, nil
}

func (a *API) agents(x *exchange) error {
	all, err := a.agentViews(x)
	if err != nil {
		return err
	}
	return x.ok(shown.Agents{Agents: all})
}

// index returns the place of the agent of the path in the configuration.
func (a *API) index(x *exchange) (int, error) {
	name := x.r.PathValue("name")
	i := slices.IndexFunc(a.o.Agents, func(g Agent) bool { return g.Name == name })
	if i < 0 {
		return 0, errNoAgent
	}
	return i, nil
}

var errNoAgent = task.Errorf(task.NotFound, "no agent of the configuration has this name")

func (a *API) agent(x *exchange) error {
	all, err := a.agentViews(x)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(v *shown.Agent) bool { return v.Name == x.r.PathValue("name") })
	if i < 0 {
		return errNoAgent
	}
	d := shown.AgentDetail{Agent: all[i]}
	if i < len(a.o.Agents) && a.o.Agents[i].Card != nil {
		if d.Card, err = a.o.Agents[i].Card(); err != nil {
			return err
		}
	}
	return x.ok(d)
}

// statWindows are the spans of statistics, and the widths of their intervals.
var statWindows = map[string]struct{ span, width time.Duration }{
	"1h":  {time.Hour, time.Minute},
	"6h":  {6 * time.Hour, 5 * time.Minute},
	"24h": {24 * time.Hour, 20 * time.Minute},
	"7d":  {7 * 24 * time.Hour, 2 * time.Hour},
}

// window reads the parameter that chooses a span.
func (q *query) window() (name string, span, width time.Duration) {
	if name = q.word("window"); name == "" {
		name = "1h"
	}
	w, ok := statWindows[name]
	if !ok {
		q.bad("window", "%q is not a span; use one of 1h, 6h, 24h, 7d", name)
	}
	return name, w.span, w.width
}

type statsView struct {
	Since        time.Time       `json:"since"`
	WidthSeconds float64         `json:"width_seconds"`
	Buckets      int             `json:"buckets"`
	Agents       []*agentStatRow `json:"agents"`
}

// agentStatRow has a number for each interval, the oldest first.
type agentStatRow struct {
	Agent string `json:"agent"`
	// CountedSince is how far back the tasks were counted, if that is later than since.
	CountedSince time.Time  `json:"counted_since,omitzero"`
	Ended        []int64    `json:"ended"`
	Failed       []int64    `json:"failed"`
	Rejected     []int64    `json:"rejected"`
	Canceled     []int64    `json:"canceled"`
	RunP50       []*float64 `json:"run_p50"` // null: nothing to measure
	RunP95       []*float64 `json:"run_p95"`
	TookP50      []*float64 `json:"took_p50"`
	TookP95      []*float64 `json:"took_p95"`
}

// statsKey says whose answer it is: the statistics of an operator of one tenant are for its tenant.
type statsKey struct {
	window, agent, tenant string
	bound                 bool
}

// stats shows what ended in each interval of a span.
func (a *API) stats(x *exchange) error {
	agent := x.q.word("agent")
	name, span, width := x.q.window()
	if err := x.q.done(); err != nil {
		return err
	}
	key := statsKey{window: name, agent: agent, bound: x.who.Bound}
	if key.bound {
		key.tenant = x.who.Caller.Tenant
	}
	var names []string
	for i := range a.o.Agents {
		if g := a.o.Agents[i].Name; agent == "" || agent == g {
			names = append(names, g)
		}
	}
	if len(names) == 0 && agent != "" {
		return errNoAgent
	}
	op := x.op
	view, err := a.measured.get(x.ctx, key, func(ctx context.Context) (*statsView, error) {
		now, err := a.o.Store.Now(ctx)
		if err != nil {
			return nil, err
		}
		// The newest interval is the one that has begun.
		since := now.Truncate(width).Add(width - span)
		found, err := op.AgentStats(ctx, names, since, width)
		if err != nil {
			return nil, err
		}
		return viewStats(names, found, since, width, int(span/width)), nil
	})
	if err != nil {
		return err
	}
	return x.ok(view)
}

func viewStats(names []string, found *store.AgentStats, since time.Time, width time.Duration, n int) *statsView {
	v := &statsView{Since: since.UTC(), WidthSeconds: width.Seconds(), Buckets: n, Agents: make([]*agentStatRow, len(names))}
	at := map[string]*agentStatRow{}
	for i, name := range names {
		v.Agents[i] = &agentStatRow{
			Agent: name, CountedSince: found.Since[name].UTC(), Ended: make([]int64, n), Failed: make([]int64, n), Rejected: make([]int64, n),
			Canceled: make([]int64, n), RunP50: make([]*float64, n), RunP95: make([]*float64, n), TookP50: make([]*float64, n), TookP95: make([]*float64, n),
		}
		at[name] = v.Agents[i]
	}
	for i := range found.Stats {
		s := &found.Stats[i]
		row, b := at[s.Agent], s.Bucket
		if row == nil || b < 0 || b >= n {
			continue // it ended after the answer was asked for
		}
		row.Ended[b], row.Failed[b], row.Rejected[b], row.Canceled[b] = s.Ended, s.Failed, s.Rejected, s.Canceled
		row.TookP50[b], row.TookP95[b] = &s.TookP50, &s.TookP95
		if s.Timed > 0 {
			row.RunP50[b], row.RunP95[b] = &s.RunP50, &s.RunP95
		}
	}
	return v
}

type failuresView struct {
	// Since is how far back the tasks were looked at.
	Since  time.Time       `json:"since"`
	Tasks  int             `json:"tasks"`
	More   bool            `json:"more,omitempty"` // only the newest tasks are grouped
	Groups []*failureGroup `json:"groups"`
}

// failureGroup has the tasks that failed for one reason, apart from numbers and ids in it.
type failureGroup struct {
	Reason  string    `json:"reason"` // of the newest task
	State   string    `json:"state"`
	Tasks   int       `json:"tasks"`
	FirstAt time.Time `json:"first_at"`
	LastAt  time.Time `json:"last_at"`
	// Examples are the newest tasks.
	Examples []failureExample `json:"examples"`
}

type failureExample struct {
	ID     string    `json:"id"`
	TaskID string    `json:"task_id"`
	At     time.Time `json:"at"`
}

const (
	maxFailures = 500
	maxExamples = 3
)

// varying are the parts of a reason that differ from task to task.
var varying = regexp.MustCompile(`[0-9a-fA-F]{8}-[0-9a-fA-F-]{27,}|\b[0-9a-fA-F]{12,}\b|\d+`)

// placed is the beginning of a reason that names a type of error and its place in the agent's code.
var placed = regexp.MustCompile(`^\S+ at \S+: `)

// constant returns a reason without the parts that differ from task to task: the type of the error and its place if it names them,
// else its first line.
func constant(reason string) string {
	reason, _, _ = strings.Cut(reason, "\n")
	if at := placed.FindString(reason); at != "" {
		reason = at
	}
	return varying.ReplaceAllString(reason, "#")
}

// sameReason returns a function that says whether another reason is in the same group.
func sameReason(reason string) func(string) bool {
	want := constant(reason)
	return func(other string) bool { return constant(other) == want }
}

// failures groups the newest failures of an agent by their reason.
func (a *API) failures(x *exchange) error {
	_, span, _ := x.q.window()
	if err := x.q.done(); err != nil {
		return err
	}
	i, err := a.index(x)
	if err != nil {
		return err
	}
	now, err := a.o.Store.Now(x.ctx)
	if err != nil {
		return err
	}
	failed, from, err := x.op.Failures(x.ctx, a.o.Agents[i].Name, now.Add(-span), maxFailures+1)
	if err != nil {
		return err
	}
	view := failuresView{Since: from.UTC(), Groups: []*failureGroup{}}
	if len(failed) > maxFailures {
		failed, view.More = failed[:maxFailures], true
	}
	view.Tasks = len(failed)
	view.Groups = grouped(failed)
	return x.ok(view)
}

// grouped groups failures by their reason, the largest group first. The newest failure comes first.
func grouped(failed []store.FailedTask) []*failureGroup {
	groups, by := []*failureGroup{}, map[string]*failureGroup{}
	for i := range failed {
		f := &failed[i]
		key := f.State.String() + " " + constant(f.Reason)
		g := by[key]
		if g == nil {
			g = &failureGroup{Reason: f.Reason, State: f.State.String(), LastAt: f.At.UTC()}
			by[key], groups = g, append(groups, g)
		}
		g.Tasks, g.FirstAt = g.Tasks+1, f.At.UTC()
		if len(g.Examples) < maxExamples {
			g.Examples = append(g.Examples, failureExample{f.ID.String(), f.PublicID, f.At.UTC()})
		}
	}
	slices.SortStableFunc(groups, func(a, b *failureGroup) int { return cmp.Or(b.Tasks-a.Tasks, b.LastAt.Compare(a.LastAt)) })
	return groups
}

// maxWorkers bounds the workers of one answer.
const maxWorkers = 10_000

// workers lists remote workers, those that were seen last first.
func (a *API) workers(x *exchange) error {
	agent, connected, limit := x.q.word("agent"), x.q.flag("connected"), x.q.upto(maxWorkers)
	if err := x.q.done(); err != nil {
		return err
	}
	all, err := a.o.Store.RemoteWorkersOf(x.ctx, agent, connected, limit)
	if err != nil {
		return err
	}
	return x.ok(shown.Workers{Workers: all})
}

// reason reads a request that has only a reason.
func (x *exchange) reason() error {
	var body struct {
		Reason string `json:"reason"`
	}
	if err := x.body(&body); err != nil {
		return err
	}
	return x.reasoned(body.Reason)
}

// retire tells a remote worker to claim no more.
func (a *API) retire(x *exchange) error {
	if err := x.reason(); err != nil {
		return err
	}
	id, err := task.ParseID(x.r.PathValue("id"))
	if err != nil {
		return task.Errorf(task.NotFound, "no worker has this id")
	}
	if err = x.op.RetireRemote(x.ctx, id); task.KindOf(err) == task.NotFound {
		return task.Errorf(task.NotFound, "no worker has this id")
	} else if err != nil {
		return err
	}
	return x.ok(map[string]task.ID{"id": id})
}
