package admin

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/upkeep/retention"
)

type partitionView struct {
	retention.Partition
	Bytes int64 `json:"bytes"`
	Rows  int64 `json:"rows"` // as PostgreSQL estimates them; -1: not known
}

type partitionsView struct {
	Partitions []partitionView `json:"partitions"`
}

// measure has the sizes of the tables, and what is known of the partitions.
type measure struct {
	at         time.Time // by the database's clock
	partitions []partitionView
	facts      *store.DatabaseFacts
	groups     []sizeView
}

// measure measures the database, at most once in fifteen seconds.
func (a *API) measure(ctx context.Context) (*measure, error) {
	return a.sized.get(ctx, struct{}{}, func(ctx context.Context) (*measure, error) {
		now, err := a.o.Store.Now(ctx)
		if err != nil {
			return nil, err
		}
		all, err := a.o.Retention.Partitions(ctx)
		if err != nil {
			return nil, err
		}
		tables, err := a.o.Store.TableSizes(ctx)
		if err != nil {
			return nil, err
		}
		facts, err := a.o.Store.Database(ctx)
		if err != nil {
			return nil, err
		}
		m := &measure{at: now, facts: facts}
		m.partitions, m.groups = sizes(all, tables)
		return m, nil
	})
}

func (a *API) partitions(x *exchange) error {
	m, err := a.measure(x.ctx)
	if err != nil {
		return err
	}
	return x.ok(partitionsView{m.partitions})
}

type sizeView struct {
	What  string `json:"what"`
	Bytes int64  `json:"bytes"`
}

// The groups of tables.
const (
	ofTasks     = "tasks"
	ofLogs      = "logs"
	ofArtifacts = "artifacts"
	ofQueue     = "queue"
	ofWebhooks  = "webhooks"
	ofAudit     = "audit"
	ofKeys      = "idempotency_keys"
	ofOthers    = "others"
)

// groupOf says what a table holds, by the name of the table or of its parent.
func groupOf(table string) string {
	switch {
	case table == "tasks_open", table == "tasks_kept", table == "tasks_dated", table == "task_names", table == "task_states", table == "context_states":
		return ofTasks
	case table == "events_log", table == "events_kept":
		return ofLogs
	case table == "events_artifacts":
		return ofArtifacts
	case table == "task_queue", table == "task_calls", table == "task_settled":
		return ofQueue
	case strings.HasPrefix(table, "push_"):
		return ofWebhooks
	case strings.HasPrefix(table, "audit_"):
		return ofAudit
	case table == "idempotency_keys":
		return ofKeys
	}
	return ofOthers
}

// sizes joins partitions with their sizes, and adds up the tables by what they hold.
func sizes(all []retention.Partition, tables []store.TableSize) (partitions []partitionView, groups []sizeView) {
	parents, size := map[string]string{}, map[string]store.TableSize{}
	for _, t := range tables {
		size[t.Name] = t
	}
	partitions = []partitionView{}
	for _, p := range all {
		parents[p.Table] = p.Parent
		s, known := size[p.Table]
		if !known {
			s.Rows = -1
		}
		partitions = append(partitions, partitionView{p, s.Bytes, s.Rows})
	}
	sums := map[string]int64{}
	for _, t := range tables {
		name := t.Name
		if parent := parents[name]; parent != "" {
			name = parent
		}
		sums[groupOf(name)] += t.Bytes
	}
	for _, what := range []string{ofTasks, ofLogs, ofArtifacts, ofQueue, ofWebhooks, ofAudit, ofKeys, ofOthers} {
		groups = append(groups, sizeView{what, sums[what]})
	}
	return partitions, groups
}

// Disk is the file system of the database.
type Disk struct {
	Free int64 `json:"free_bytes"`
	Size int64 `json:"size_bytes"`
}

type growthView struct {
	BytesPerDay int64     `json:"bytes_per_day"`
	Since       time.Time `json:"since"`
	// RunwayDays is how long the free space lasts if the database grows like that and retention deletes nothing. Absent: the free
	// space is not known, or nothing grows.
	RunwayDays *float64 `json:"runway_days,omitempty"`
}

type databaseView struct {
	*store.DatabaseFacts
	Groups []sizeView  `json:"groups"`
	Disk   *Disk       `json:"disk,omitempty"`
	Growth *growthView `json:"growth,omitempty"`
	// NextDrop is the next partition that retention drops.
	NextDrop *dropView `json:"next_drop,omitempty"`
}

type dropView struct {
	At    time.Time `json:"at"`
	From  time.Time `json:"from"`
	To    time.Time `json:"to"`
	What  string    `json:"what"` // the family
	Bytes int64     `json:"bytes"`
}

func (a *API) database(x *exchange) error {
	m, err := a.measure(x.ctx)
	if err != nil {
		return err
	}
	f := m.facts
	view := databaseView{DatabaseFacts: f, Groups: m.groups, NextDrop: nextDrop(m.partitions, m.at)}
	if view.Growth = growth(m.partitions, f.Oldest, m.at); a.o.Disk != nil {
		if d, known := a.o.Disk(); known {
			view.Disk = &d
			if g := view.Growth; g != nil && g.BytesPerDay > 0 {
				days := float64(d.Free) / float64(g.BytesPerDay)
				g.RunwayDays = &days
			}
		}
	}
	return x.ok(view)
}

const (
	// growthSpan is how far back growth looks.
	growthSpan = 30 * 24 * time.Hour
	// growthLeast is how much history a rate needs.
	growthLeast = time.Hour
)

// growth is what was written lately and is still there, by day. It counts partitions, which have a time, from the first one that
// reaches into the last thirty days, but not before the first task. Nil: too little is known.
func growth(partitions []partitionView, oldest, now time.Time) *growthView {
	if oldest.IsZero() {
		return nil
	}
	var (
		bytes int64
		since time.Time
	)
	for i := range partitions {
		p := &partitions[i]
		if p.From.After(now) || !p.To.After(now.Add(-growthSpan)) {
			continue
		}
		bytes += p.Bytes
		if since.IsZero() || p.From.Before(since) {
			since = p.From
		}
	}
	if since.Before(oldest) {
		since = oldest
	}
	if now.Sub(since) < growthLeast {
		return nil
	}
	return &growthView{BytesPerDay: int64(float64(bytes) / now.Sub(since).Hours() * 24), Since: since.UTC()}
}

// nextDrop returns the period that retention drops next, with the sizes of all of its tables that go at that time.
func nextDrop(partitions []partitionView, now time.Time) (next *dropView) {
	due := slices.DeleteFunc(slices.Clone(partitions), func(p partitionView) bool { return p.DropsAt.IsZero() || p.From.After(now) })
	for i := range due {
		p := &due[i]
		switch {
		case next == nil || p.DropsAt.Before(next.At):
			next = &dropView{p.DropsAt, p.From, p.To, p.Family, p.Bytes}
		case p.DropsAt.Equal(next.At) && p.Family == next.What:
			next.Bytes += p.Bytes
		}
	}
	return next
}

type lagsView struct {
	*store.PushLags
	// Bound is up to where each number counts.
	Bound int64 `json:"bound"`
}

// lags says how many webhooks lag, at most once in two seconds.
func (a *API) lags(x *exchange) error {
	l, err := a.lagging.get(x.ctx, struct{}{}, a.o.Store.PushLags)
	if err != nil {
		return err
	}
	return x.ok(lagsView{l, store.PushLagBound})
}
