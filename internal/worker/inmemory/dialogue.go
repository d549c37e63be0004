package inmemory

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Dialogue implements worker.Store.
func (s *Store) Dialogue(_ context.Context, of store.DialogueOf) ([]task.Said, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.rows[of.Task.ID]
	begins := of.Begins
	for _, e := range own.log {
		if e.Seq > of.Begins && e.Kind == task.EventStatus && e.State == task.StateSubmitted {
			begins = e.Seq + 1
		}
	}
	said, err := own.said(begins, of.Said, of.Progress)
	if err != nil || !of.Context {
		return of.Newest(said), err
	}
	var others []*row
	for _, r := range s.rows {
		if r != own && r.state >= task.StateInputRequired && keyOf(store.StateOf{Task: &r.head, Context: true}) == keyOf(store.StateOf{Task: &own.head, Context: true}) {
			others = append(others, r)
		}
	}
	slices.SortFunc(others, func(a, b *row) int { return bytes.Compare(a.head.ID[:], b.head.ID[:]) })
	var all []task.Said
	for _, r := range others {
		more, err := r.said(r.head.LastSeq+1, r.head.LastSeq+1, of.Progress)
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	return of.Newest(append(all, said...)), nil
}

// References implements worker.Store.
func (s *Store) References(_ context.Context, of *task.Task, ids []string, within task.Bounds) ([]task.Reference, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []task.Reference
	for _, id := range ids[:min(len(ids), store.MostReferences)] {
		for _, r := range s.rows {
			if r.head.PublicID != id || r.head.Tenant != of.Tenant || r.head.Owner != of.Owner || r.head.Agent != of.Agent {
				continue
			}
			said, err := r.said(r.head.LastSeq+1, r.head.LastSeq+1, within.Progress)
			if err != nil {
				return nil, err
			}
			out = append(out, task.Reference{
				TaskID: id, ContextID: r.head.ContextID, State: r.state, Said: within.Newest(said),
				Stored: s.states[stateKey{task: r.head.ID}].value,
			})
		}
	}
	return out, nil
}

// said returns what clients have said before the event asked, and the agent before the event begins.
func (r *row) said(begins, asked task.Seq, progress bool) ([]task.Said, error) {
	artifacts := map[string]*task.Said{}
	t := store.Empty(&r.head)
	var all []task.Said
	for _, e := range r.log {
		entry := task.Said{Task: r.head.ID, TaskID: r.head.PublicID, Seq: e.Seq}
		switch {
		case e.Seq >= begins:
		case e.Kind == task.EventArtifact:
			t.LastSeq = e.Seq - 1
			if err := t.Apply(e); err != nil {
				return nil, err
			}
			if artifacts[e.Artifact.ID] == nil || !e.Append {
				artifacts[e.Artifact.ID] = &entry
			}
		case e.Kind == task.EventMessage && e.Seq < asked,
			e.Kind == task.EventStatus && e.Message != nil && (progress || e.State != task.StateWorking):
			entry.Message, entry.State = e.Message, e.State
			all = append(all, entry)
		}
	}
	for i := range t.Artifacts {
		entry := artifacts[t.Artifacts[i].ID]
		entry.Artifact = &t.Artifacts[i]
		all = append(all, *entry)
	}
	// An artifact that begins with an appended chunk comes first, as if its beginning had been deleted.
	headless := func(s *task.Said) int {
		if s.Artifact != nil && r.log[s.Seq-1].Append {
			return 0
		}
		return 1
	}
	slices.SortFunc(all, func(a, b task.Said) int {
		return cmp.Or(cmp.Compare(headless(&a), headless(&b)), cmp.Compare(a.Seq, b.Seq))
	})
	return all, nil
}
