package store

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// endedShare is the part of the cache that one task may take.
const endedShare = 8

// ended has the folded logs of tasks that have ended, which no longer change: a further read of a long log need not read it
// again. Each read still asks the database whether the caller sees the task, and for the times of the witnesses, so it never
// shows what was deleted, nor what a failover has replaced. A nil ended has none.
type ended struct {
	tasks *limit.Kept[task.ID, *folded]
	read  func(hit bool)
}

// folded is the task of a log. All readers share it: nobody may change it.
type folded struct {
	task     *task.Task
	messages bool // with the contents of messages
	bytes    int64
	stored   int64 // bytes of the rows of its log
	// Witnesses are the last event of the log and the last of its artifact chunks. Deletions begin with the newest events, or
	// drop all artifacts or the whole log. So if both are there, all is there.
	witnesses []witness
}

type witness struct {
	seq int64
	at  time.Time
}

// fingerprint collects the witnesses of a log that is read in order.
type fingerprint struct{ last, chunk witness }

func (p *fingerprint) add(kind int16, seq int64, at time.Time) {
	p.last = witness{seq, at}
	if task.EventKind(kind) == task.EventArtifact {
		p.chunk = p.last
	}
}

// newEnded returns a cache that holds at most a budget, in which nothing else is.
func newEnded(bytes *limit.Budget, read func(hit bool)) *ended {
	if bytes == nil {
		return nil
	}
	if read == nil {
		read = func(bool) {}
	}
	return &ended{limit.NewKept[task.ID](bytes, endedShare, func(f *folded) int64 { return f.bytes }), read}
}

// get returns the task of a log, with the contents of messages if they are wanted; nil: it is not here.
func (e *ended) get(id task.ID, messages bool) *folded {
	if e == nil {
		return nil
	}
	f, ok := e.tasks.Get(id)
	if !ok || messages && !f.messages {
		e.read(false)
		return nil
	}
	return f
}

// put keeps a task if it has ended. Its log had so many bytes of rows.
func (e *ended) put(t *task.Task, messages bool, stored int64, seen fingerprint) {
	if e == nil || !t.Status.State.Terminal() || seen.last.seq != int64(t.LastSeq) || !e.tasks.Fits(footprint(t)) {
		return
	}
	t = quoted(t)
	f := &folded{task: t, messages: messages, stored: stored, bytes: footprint(t), witnesses: []witness{seen.last}}
	if c := seen.chunk; c.seq != 0 && c.seq != seen.last.seq {
		f.witnesses = append(f.witnesses, c)
	}
	e.tasks.Put(t.ID, f)
}

// forget drops tasks that were deleted, or that have changed.
func (e *ended) forget(ids ...task.ID) {
	if e != nil {
		e.tasks.Delete(ids...)
	}
}

// longText is the size of a text, in bytes, from which on its JSON is kept, too: most of the time of a further read went into
// quoting it.
const longText = 4 << 10

// quoted returns the task with the JSON of its long texts. A text without escapes takes no memory besides its JSON.
func quoted(t *task.Task) *task.Task {
	t = t.Shared()
	t.Artifacts = slices.Clone(t.Artifacts)
	for i := range t.Artifacts {
		a := &t.Artifacts[i]
		a.Parts = slices.Clone(a.Parts)
		for j := range a.Parts {
			p := &a.Parts[j]
			if p.Kind != task.PartText || len(p.Text) < longText {
				continue
			}
			p.Quoted = string(appendString(make([]byte, 0, len(p.Text)+len(p.Text)/16), p.Text))
			if inner := p.Quoted[1 : len(p.Quoted)-1]; inner == p.Text {
				p.Text = inner
			} else {
				p.Text = strings.Clone(p.Text) // it grew from chunks, and has room for more
			}
		}
	}
	return t
}

// footprint returns about how many bytes of memory a task takes.
func footprint(t *task.Task) int64 {
	const each = 512
	n := int64(2*each + len(t.Metadata))
	for i := range t.History {
		n += t.History[i].Size()
	}
	if t.Status.Message != nil {
		n += t.Status.Message.Size()
	}
	for i := range t.Artifacts {
		a := &t.Artifacts[i]
		n += each + a.Memory()
		for j := range a.Parts {
			if p := &a.Parts[j]; len(p.Quoted) != len(p.Text)+len(`""`) {
				n += int64(len(p.Quoted))
			}
		}
	}
	return n
}

// shows returns the task for a reader whose header was read now; nil: it is another task than the header's.
func (f *folded) shows(h *task.Task, withArtifacts bool) *task.Task {
	// The messages of a task have its public id, which changes when another task takes over its name.
	if f.task.LastSeq != h.LastSeq || f.task.PublicID != h.PublicID {
		return nil
	}
	t := f.task.Shared()
	t.Agent, t.Tenant, t.Owner, t.Dialect = h.Agent, h.Tenant, h.Owner, h.Dialect
	t.StreamBase, t.CreatedAt = h.StreamBase, h.CreatedAt
	if h.Traceparent != "" {
		t.Traceparent = h.Traceparent
	}
	if !withArtifacts {
		t.Artifacts = nil
	}
	return t
}

// holds reports whether the database has a witness.
func (f *folded) holds(seq int64, at time.Time) bool {
	for _, w := range f.witnesses {
		if w.seq == seq {
			return w.at.Equal(at)
		}
	}
	return false
}

// afford counts the bytes of a cached log against the account of the request, like those of rows that are read.
func (f *folded) afford(ctx context.Context) error {
	account := limit.AccountOf(ctx)
	if account.Use(f.stored) {
		return nil
	}
	if err := account.Reserve(ctx, f.stored); err != nil {
		return err
	}
	account.Use(f.stored)
	return nil
}

// readEnded is ReadTask for a task that this process has kept; nil: the log must be read.
func (v View) readEnded(ctx context.Context, id task.ID, withArtifacts bool) (*task.Task, error) {
	f := v.s.ended.get(id, true)
	if f == nil {
		return nil, nil
	}
	seqs := make([]int64, len(f.witnesses))
	for i, w := range f.witnesses {
		seqs[i] = w.seq
	}
	rows, err := v.s.q.TaskWitness(ctx, v.db, dbsqlc.TaskWitnessParams{
		ID: uuid.UUID(id), Tenant: v.by.Tenant, Owner: v.by.Subject, TenantWide: v.sees.TenantWide, Agent: v.sees.Agent, Seqs: seqs,
	})
	if err != nil {
		return nil, translate("read task", err)
	}
	var t *task.Task
	held := 0
	if len(rows) > 0 {
		// It has changed unless all is proven. Without rows it may only be hidden from this caller.
		defer func() {
			if t == nil || held < len(f.witnesses) {
				v.s.ended.forget(id)
			}
		}()
	}
	for i := range rows {
		r := &rows[i]
		if f.holds(r.Seq, r.CreatedAt) {
			held++
		}
		if r.Header != nil {
			h, err := v.headerBeside(id, r.Header)
			if err != nil {
				return nil, translate("read task", err)
			}
			t = f.shows(h, withArtifacts)
		}
	}
	return v.s.ended.proven(ctx, f, t, held)
}

// proven returns a cached task if its log is still the same, and its bytes are affordable. Otherwise the log must be read.
func (e *ended) proven(ctx context.Context, f *folded, t *task.Task, held int) (*task.Task, error) {
	if t == nil || held < len(f.witnesses) {
		e.read(false)
		return nil, nil
	}
	if err := f.afford(ctx); err != nil {
		return nil, translate("read task", err)
	}
	e.read(true)
	return t, nil
}

// witnessed returns those of some headers' tasks that this process has kept, by their ids, if their logs are still the same.
// The caller must afford them.
func (v View) witnessed(ctx context.Context, headers []*task.Task, messages bool) (map[task.ID]*folded, error) {
	var arg dbsqlc.EventsWitnessParams
	kept := map[task.ID]*folded{}
	for _, h := range headers {
		if !h.Status.State.Terminal() || v.s.ended == nil {
			continue
		}
		f := v.s.ended.get(h.ID, messages)
		if f == nil || f.task.LastSeq != h.LastSeq || f.task.PublicID != h.PublicID {
			continue
		}
		kept[h.ID] = f
		for _, w := range f.witnesses {
			arg.Tasks, arg.Seqs = append(arg.Tasks, uuid.UUID(h.ID)), append(arg.Seqs, w.seq)
		}
	}
	if len(kept) == 0 {
		return nil, nil
	}
	arg.Lowest, arg.Highest = span(arg.Tasks)
	rows, err := v.s.q.EventsWitness(ctx, v.db, arg)
	if err != nil {
		return nil, err
	}
	held := map[task.ID]int{}
	for i := range rows {
		if r := &rows[i]; kept[task.ID(r.Task)].holds(r.Seq, r.CreatedAt) {
			held[task.ID(r.Task)]++
		}
	}
	for id, f := range kept {
		same := held[id] == len(f.witnesses)
		if !same {
			delete(kept, id)
			v.s.ended.forget(id)
		}
		v.s.ended.read(same)
	}
	return kept, nil
}
