package store

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// DialogueOf selects what was said before a turn.
type DialogueOf struct {
	Task    *task.Task // header
	Said    task.Seq   // messages with a lower seq came before the turn
	Begins  task.Seq   // the event with which the turn began
	Context bool       // with the other tasks of the owner and the agent in the context that have ended or are parked
	task.Bounds
}

// How many rows the statements of Dialogue read: of the index of a task, in so many pages at most, and of tasks.
const (
	indexRows  = 500
	indexPages = 40
	tasksRows  = 50
)

// Dialogue returns what clients and the agent have said before a turn, the newest entries within the bounds,
// with the oldest first. Artifacts are whole; their place is where their content begins. The other tasks of the context come
// before the task, in the order of their creation. The output of earlier attempts at the same turn is left out.
// Errors: task.Unavailable.
func (s *Store) Dialogue(ctx context.Context, of DialogueOf) ([]task.Said, error) {
	if of.Count <= 0 || of.Bytes <= 0 {
		return nil, nil
	}
	begins, err := s.q.RunBegins(ctx, s.api, uuid.UUID(of.Task.ID), int64(of.Begins))
	if err != nil {
		return nil, translate("read dialogue", err)
	}
	r := &dialogue{s: s, Bounds: of.Bounds}
	if of.Before.Of(of.Task.ID) {
		if err := r.read(ctx, of.Task, max(task.Seq(begins)+1, of.Begins), of.Said); err != nil {
			return nil, translate("read dialogue", err)
		}
	}
	arg := dbsqlc.ContextTasksParams{
		ContextID: of.Task.ContextID, Tenant: of.Task.Tenant, Owner: of.Task.Owner, Agent: of.Task.Agent,
		Before: uuid.Max, Besides: uuid.UUID(of.Task.ID), MaxRows: tasksRows,
	}
	if !of.Before.Of(of.Task.ID) {
		arg.Before = next(of.Before.Task)
	}
	for of.Context && !r.full {
		tasks, err := s.q.ContextTasks(ctx, s.api, arg)
		if err != nil {
			return nil, translate("read dialogue", err)
		}
		for i := range tasks {
			if r.full {
				break
			}
			h := header(&tasks[i])
			if err := r.read(ctx, h, h.LastSeq+1, h.LastSeq+1); err != nil {
				return nil, translate("read dialogue", err)
			}
		}
		if len(tasks) < tasksRows {
			break
		}
		arg.Before = tasks[len(tasks)-1].ID
	}
	slices.Reverse(r.said)
	return r.Newest(r.said), nil
}

// next returns the id that follows another one.
func next(id task.ID) uuid.UUID {
	u := uuid.UUID(id)
	for i := len(u) - 1; i >= 0; i-- {
		if u[i]++; u[i] != 0 {
			return u
		}
	}
	return uuid.Max
}

// MostReferences is how many tasks of a message References reads.
const MostReferences = 20

// References returns the tasks with these public ids that the owner of a task has with its agent, with the state that the
// agent has stored for each, and what was said in it within the bounds. Other ids are left out.
func (s *Store) References(ctx context.Context, of *task.Task, ids []string, within task.Bounds) ([]task.Reference, error) {
	v := s.As(task.Caller{Tenant: of.Tenant, Subject: of.Owner}, Visibility{Agent: of.Agent})
	var out []task.Reference
	for _, id := range ids[:min(len(ids), MostReferences)] {
		h, err := v.FindTask(ctx, id)
		if errors.Is(err, task.NotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		stored, _, err := s.AgentState(ctx, StateOf{Task: h})
		if err != nil {
			return nil, err
		}
		r := &dialogue{s: s, Bounds: within}
		if within.Count > 0 {
			if err := r.read(ctx, h, h.LastSeq+1, h.LastSeq+1); err != nil {
				return nil, translate("read reference", err)
			}
		}
		slices.Reverse(r.said)
		out = append(out, task.Reference{
			TaskID: h.PublicID, ContextID: h.ContextID, State: h.Status.State, Said: r.Newest(r.said), Stored: stored,
		})
	}
	return out, nil
}

// dialogue collects entries, the newest first.
type dialogue struct {
	s *Store
	task.Bounds
	said  []task.Said
	bytes int64
	full  bool // older entries do not fit
}

// utterance is an entry whose content is not read yet.
type utterance struct {
	seqs []int64 // of its events, the newest first
	kind task.EventKind
	size int64 // on disk, where it may be compressed
}

// read adds what was said in a task: by clients before the event asked, and by its agent before the event begins. (The status
// that queues a task again may have a question of the run before it.)
func (d *dialogue) read(ctx context.Context, h *task.Task, begins, asked task.Seq) error {
	older := begins
	if d.Before.Task == h.ID && d.Before.Seq > 0 {
		older = min(older, d.Before.Seq)
	}
	found, err := d.index(ctx, h, begins, asked, older)
	for len(found) > 0 && !d.full && err == nil {
		n, size := 0, int64(0)
		for n < len(found) && (n == 0 || size+found[n].size <= pageBytes/4) {
			size += found[n].size
			n++
		}
		err = d.fetch(ctx, h, found[:n])
		found = found[n:]
	}
	return err
}

// index finds the newest entries of a task that begin before the event older, at least as many as fit, the newest first. Files take a third more on disk
// than in memory.
func (d *dialogue) index(ctx context.Context, h *task.Task, begins, asked, older task.Seq) (found []utterance, err error) {
	bytes := d.bytes
	add := func(u utterance) (more bool) {
		if task.Seq(u.seqs[len(u.seqs)-1]) >= older {
			return true
		}
		found = append(found, u)
		if !d.Large(u.size) {
			bytes += u.size
		}
		return bytes <= 2*d.Bytes && len(d.said)+len(found) < d.Count
	}
	growing := map[string]*utterance{} // artifacts whose beginning is further back
	whole := map[string]bool{}
	arg := dbsqlc.DialogueIndexParams{Task: uuid.UUID(h.ID), Before: int64(begins), Progress: d.Progress, MaxRows: indexRows}
	for range indexPages {
		rows, err := d.s.q.DialogueIndex(ctx, d.s.api, arg)
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			u := &utterance{seqs: []int64{r.Seq}, kind: task.EventKind(r.Kind), size: r.Size}
			switch {
			case u.kind == task.EventMessage && task.Seq(r.Seq) >= asked, u.kind == task.EventArtifact && whole[r.ArtifactID]:
				continue
			case u.kind == task.EventArtifact:
				if g := growing[r.ArtifactID]; g != nil {
					g.seqs, g.size = append(g.seqs, r.Seq), g.size+r.Size
					u = g
				}
				if r.Append {
					growing[r.ArtifactID] = u
					continue
				}
				delete(growing, r.ArtifactID)
				whole[r.ArtifactID] = true
			}
			if !add(*u) {
				return found, nil
			}
		}
		if len(rows) < indexRows {
			break
		}
		arg.Before = rows[len(rows)-1].Seq
	}
	// Artifacts that begin too far back, or whose beginning is deleted.
	rest := slices.SortedFunc(maps.Values(growing), func(a, b *utterance) int {
		return cmp.Compare(b.seqs[len(b.seqs)-1], a.seqs[len(a.seqs)-1])
	})
	for _, u := range rest {
		if !add(*u) {
			break
		}
	}
	return found, nil
}

// fetch reads the contents of entries. Of a large one it reads only the event with which it begins.
func (d *dialogue) fetch(ctx context.Context, h *task.Task, entries []utterance) error {
	var seqs []int64
	for i := range entries {
		u := &entries[i]
		if d.Large(u.size) {
			u.seqs = u.seqs[len(u.seqs)-1:]
		}
		seqs = append(seqs, u.seqs...)
	}
	m := &meter{DBTX: d.s.api, most: pageBytes}
	rows, err := d.s.q.EventsAt(ctx, m, uuid.UUID(h.ID), seqs)
	switch {
	case err != nil:
		return err
	case m.cut && len(entries) > 1:
		half := len(entries) / 2
		if err := d.fetch(ctx, h, entries[:half]); err != nil || d.full {
			return err
		}
		return d.fetch(ctx, h, entries[half:])
	case m.cut: // compressed a lot
		entries[0].size = max(entries[0].size, pageBytes, d.Bytes)
		return d.fetch(ctx, h, entries)
	}
	bySeq := make(map[int64]*dbsqlc.EventsAtRow, len(rows))
	for i := range rows {
		bySeq[rows[i].Event.Seq] = &rows[i]
	}
	for i := range entries {
		said, err := entry(h, &entries[i], bySeq)
		if err != nil {
			return err
		}
		if said == nil {
			continue
		}
		if size := entries[i].size; d.Large(size) {
			said.Leave(size)
		}
		d.said = append(d.said, *said)
		if size := said.Size(); !d.Large(size) {
			d.bytes += size
		}
		if d.bytes > d.Bytes || len(d.said) == d.Count {
			d.full = true
			return nil
		}
	}
	return nil
}

// entry decodes an entry. It is nil if there is nothing to read: a status has no message, or retention has deleted it.
func entry(h *task.Task, u *utterance, rows map[int64]*dbsqlc.EventsAtRow) (*task.Said, error) {
	t := Empty(h)
	said := &task.Said{Task: h.ID, TaskID: h.PublicID, Seq: task.Seq(u.seqs[len(u.seqs)-1])}
	for _, seq := range slices.Backward(u.seqs) {
		r := rows[seq]
		if r == nil {
			continue
		}
		e, err := event(&r.Event, t)
		if err != nil {
			return nil, err
		}
		t.LastSeq = e.Seq - 1
		if err := t.Apply(e); err != nil {
			return nil, err
		}
		if e.Message != nil {
			said.Message, said.State = e.Message, e.State
			return said, nil
		}
	}
	if len(t.Artifacts) == 0 {
		return nil, nil
	}
	said.Artifact = &t.Artifacts[0]
	return said, nil
}
