package store

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Place is the position of a task in the order of lists.
type Place struct {
	At time.Time // of its status
	ID task.ID
}

// Newest is the place before every task.
var Newest = Place{
	At: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC),
	ID: task.ID{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
}

// Listing selects tasks that a view sees, newest status first. A task that an agent answered with a
// bare message is in no list.
type Listing struct {
	ContextID string     // empty: any
	State     task.State // StateUnspecified: any
	Since     time.Time  // only with a status at or after this time; zero: any
	After     Place      // only tasks behind this place; Newest for the first page
	Limit     int
	// History and Artifacts say what to read of each task besides its status.
	History   bool
	Artifacts bool
}

// pageEvents is how many events a page reads at most, unless one task alone has more. A page that
// reaches it, or pageBytes, is shorter than requested, and another one follows.
const pageEvents = 20_000

// List returns a page of tasks, and whether more follow.
func (v View) List(ctx context.Context, l *Listing) (page []*task.Task, more bool, err error) {
	rows, err := v.listed(ctx, l)
	if err != nil {
		return nil, false, translate("list tasks", err)
	}
	if len(rows) > l.Limit {
		rows, more = rows[:l.Limit], true
	}
	whole := l.History || l.Artifacts
	read := dbsqlc.EventsOfManyParams{WithMessages: l.History, WithArtifacts: l.Artifacts}
	events, stored := int64(0), int64(0)
	for i := range rows {
		r := &rows[i]
		// If the page shows only the status of a task, read only the event that set it.
		from, upto := r.StatusSeq, r.StatusSeq
		if whole {
			from, upto = 1, r.LastSeq
		}
		if l.Artifacts {
			stored += r.ArtifactBytes
		}
		if events += upto - from + 1; (events > pageEvents || stored > pageBytes) && i > 0 {
			more = true
			break
		}
		read.Tasks = append(read.Tasks, r.ID)
		read.Froms = append(read.Froms, from)
		read.Uptos = append(read.Uptos, upto)
		h := header(r)
		h.Metadata = task.Merge(h.Metadata, rawJSON(r.AgentMetadata))
		page = append(page, h)
	}
	read.Lowest, read.Highest = span(read.Tasks)
	if len(page) == 0 {
		return nil, false, nil
	}
	fit := 0
	if events <= pageEvents && stored <= pageBytes {
		if fit, err = v.fillKept(ctx, page, read, l); err != nil {
			return nil, false, err
		}
	}
	if fit == 0 { // the first task alone is large, or there is no memory now
		fit = 1
		f := newFold(page[0])
		_, err := v.s.walk(ctx, v.db, page[0], 0, walkRows, l.Artifacts, func(r *dbsqlc.EventsOfRow) error {
			if !l.History && task.EventKind(r.Kind) == task.EventMessage {
				r.Payload = nil
			}
			return f.add(r)
		})
		if err != nil {
			return nil, false, translate("list tasks", tooLong(err, page[0]))
		}
		f.task.LastSeq, page[0] = page[0].LastSeq, f.task
	}
	return page[:fit], more || fit < len(page), nil
}

// tooLong adds to an error that a page is too large what a client can do about it.
func tooLong(err error, h *task.Task) error {
	if !errors.Is(err, task.TooLarge) {
		return err
	}
	return &task.Error{Kind: task.TooLarge, Msg: "task " + h.PublicID + " does not fit the memory of this server; list past it without artifacts and history", Cause: err}
}

// fillKept is fill for a page of which this process may have kept some tasks.
func (v View) fillKept(ctx context.Context, page []*task.Task, read dbsqlc.EventsOfManyParams, l *Listing) (fit int, err error) {
	if !l.History && !l.Artifacts {
		return v.fill(ctx, page, read, l)
	}
	kept, err := v.witnessed(ctx, page, l.History)
	if err != nil {
		return 0, translate("list tasks", err)
	}
	account, stored := limit.AccountOf(ctx), int64(0)
	for _, f := range kept {
		stored += f.stored
	}
	if len(kept) == 0 || stored > pageBytes || !account.Use(stored) {
		return v.fill(ctx, page, read, l)
	}
	rest := make([]*task.Task, 0, len(page))
	others := dbsqlc.EventsOfManyParams{WithMessages: read.WithMessages, WithArtifacts: read.WithArtifacts}
	for i, h := range page {
		if f := kept[h.ID]; f != nil {
			page[i] = f.shows(h, l.Artifacts)
			continue
		}
		rest = append(rest, h)
		others.Tasks, others.Froms, others.Uptos = append(others.Tasks, read.Tasks[i]), append(others.Froms, read.Froms[i]), append(others.Uptos, read.Uptos[i])
	}
	if len(rest) == 0 {
		return len(page), nil
	}
	others.Lowest, others.Highest = span(others.Tasks)
	filled, err := v.fill(ctx, rest, others, l)
	if err != nil {
		return 0, err
	}
	for ; fit < len(page); fit++ {
		if kept[page[fit].ID] != nil {
			continue
		}
		if filled == 0 {
			break
		}
		page[fit], rest, filled = rest[0], rest[1:], filled-1
	}
	if fit == 0 {
		account.Unuse(stored) // the caller reads the first task alone
	}
	return fit, nil
}

// fill reads the events of a page into its tasks, and returns how many of them fit.
func (v View) fill(ctx context.Context, page []*task.Task, read dbsqlc.EventsOfManyParams, l *Listing) (fit int, err error) {
	folds := l.History || l.Artifacts
	m := &meter{DBTX: v.db, most: pageBytes, account: limit.AccountOf(ctx)}
	rows, err := v.s.q.EventsOfMany(ctx, m, read)
	if err != nil {
		return 0, translate("list tasks", err)
	}
	if m.cut && len(rows) > 0 {
		last := rows[len(rows)-1]
		whole := last.Seq == read.Uptos[slices.Index(read.Tasks, last.Task)]
		for !whole && len(rows) > 0 && rows[len(rows)-1].Task == last.Task {
			rows = rows[:len(rows)-1]
		}
	}
	for len(rows) > 0 {
		n := 1
		for n < len(rows) && rows[n].Task == rows[0].Task {
			n++
		}
		h := page[fit]
		if task.ID(rows[0].Task) != h.ID {
			// The log's partition was dropped meanwhile: the header remains.
			fit++
			continue
		}
		if folds {
			f, stored := newFold(h), int64(0)
			for i := range n {
				stored += int64(len(rows[i].Payload)) + rowBytes
				if err := f.add(listedRow(&rows[i])); err != nil {
					return 0, translate("list tasks", err)
				}
			}
			f.task.LastSeq, page[fit] = h.LastSeq, f.task
			if l.Artifacts {
				v.s.ended.put(f.task, l.History, stored, f.seen)
			}
		} else if err := setStatus(h, &rows[0]); err != nil {
			return 0, err
		}
		fit++
		rows = rows[n:]
	}
	switch {
	case !m.cut:
		return len(page), nil // logs of the rest were dropped
	case fit == 0:
		m.account.Unuse(m.read)
	}
	return fit, nil
}

// rowBytes is about what a row of a log has besides its payload.
const rowBytes = 64

func listedRow(r *dbsqlc.EventsOfManyRow) *dbsqlc.EventsOfRow {
	return &dbsqlc.EventsOfRow{
		Seq: r.Seq, Kind: r.Kind, State: r.State, Append: r.Append, ArtifactID: r.ArtifactID, Payload: r.Payload, CreatedAt: r.CreatedAt,
	}
}

// setStatus adds the message of its status to a header.
func setStatus(h *task.Task, r *dbsqlc.EventsOfManyRow) error {
	e, err := event(eventOf(listedRow(r)), h)
	if err != nil {
		return translate("list tasks", err)
	}
	if e.Kind == task.EventStatus { // not the message that created the task
		h.Status.Message = e.Message
	}
	return nil
}

// listed reads one row more than the limit, which tells whether there is another page.
func (v View) listed(ctx context.Context, l *Listing) ([]dbsqlc.Task, error) {
	limit := int32(l.Limit) + 1
	owners, err := v.owners(ctx, l)
	if err != nil {
		return nil, err
	}
	if l.ContextID == "" {
		return v.s.q.TasksListed(ctx, v.db, dbsqlc.TasksListedParams{
			Owners: owners, States: states(l), HighestState: slices.Max(states(l)), Tenant: v.by.Tenant, Agent: v.sees.Agent, Since: l.Since,
			BeforeAt: l.After.At, BeforeID: uuid.UUID(l.After.ID), MaxRows: limit,
		})
	}
	return v.s.q.TasksListedOfContext(ctx, v.db, dbsqlc.TasksListedOfContextParams{
		ContextID: cleanName(l.ContextID), Owners: owners, States: states(l), HighestState: slices.Max(states(l)), Tenant: v.by.Tenant, Agent: v.sees.Agent, Since: l.Since,
		BeforeAt: l.After.At, BeforeID: uuid.UUID(l.After.ID), MaxRows: limit,
	})
}

// owners returns the owners whose tasks a listing of the view can contain.
func (v View) owners(ctx context.Context, l *Listing) ([]string, error) {
	if !v.sees.TenantWide {
		return []string{v.by.Subject}, nil
	}
	return v.s.q.TaskOwners(ctx, v.db, v.by.Tenant, slices.Max(states(l)))
}

// states returns the states of a listing, which lead its indexes.
func states(l *Listing) []int16 {
	if l.State != task.StateUnspecified {
		return []int16{int16(l.State)}
	}
	all := make([]int16, len(task.States))
	for i, state := range task.States {
		all[i] = int16(state)
	}
	return all
}

// Uncounted is a bound that counts every task, however long that takes.
const Uncounted = math.MaxInt32

// Count returns how many tasks a listing has over all pages, but at most bound.
func (v View) Count(ctx context.Context, l *Listing, bound int) (int, error) {
	owners, err := v.owners(ctx, l)
	if err != nil {
		return 0, translate("count tasks", err)
	}
	var n int64
	if l.ContextID == "" {
		n, err = v.s.q.TasksCounted(ctx, v.db, dbsqlc.TasksCountedParams{
			Owners: owners, States: states(l), HighestState: slices.Max(states(l)), Tenant: v.by.Tenant, Agent: v.sees.Agent, Since: l.Since, Bound: int32(bound),
		})
	} else {
		n, err = v.s.q.TasksCountedOfContext(ctx, v.db, dbsqlc.TasksCountedOfContextParams{
			ContextID: cleanName(l.ContextID), Owners: owners, States: states(l), HighestState: slices.Max(states(l)), Tenant: v.by.Tenant, Agent: v.sees.Agent,
			Since: l.Since, Bound: int32(bound),
		})
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "57014" {
		return 0, &task.Error{
			Kind: task.Unavailable, Msg: "the tasks could not be counted in time; narrow the filter", RetryAfter: retryAfter, Cause: err,
		}
	}
	return int(n), translate("count tasks", err)
}

// SecretPageToken signs page tokens, and SecretMemory makes the keys under which agents keep memory.
const (
	SecretPageToken = "page_token"
	SecretMemory    = "memory"
)

// Secret reads a secret that all replicas share.
func (s *Store) Secret(ctx context.Context, name string) ([]byte, error) {
	var value []byte
	err := s.again(ctx, "secret", func() (err error) {
		value, err = s.q.SecretGet(ctx, s.api, name)
		return err
	})
	return value, translate("read a secret", err)
}
