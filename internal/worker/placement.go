package worker

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// placement places what an attempt writes after what earlier attempts at the turn have left: what they wrote before their newest
// checkpoint or record stays, and what came after it is replaced. So a try that goes on there leaves each text once.
type placement struct {
	mu      sync.Mutex      // for the order of texts, too
	begun   map[string]bool // the attempt has written these artifacts
	unnamed int             // how many artifacts without an id the turn has

	known      bool // the rest was read
	kept, last map[string]task.Seq

	// posted reports whether the attempt has written a part of an artifact through another emitter. nil: there is no other.
	posted func(ctx context.Context, artifact string) (bool, error)
}

// place completes a chunk that grows, or whose artifact has no id.
func (e *emitter) place(ctx context.Context, c *executor.Chunk) error {
	if !c.Grows {
		return e.number(ctx, &c.Artifact)
	}
	g := &e.placement
	c.Artifact.ID = e.cleanText(c.Artifact.ID)
	id := c.Artifact.ID
	begun, err := e.hasBegun(ctx, id)
	switch {
	case err != nil:
		return err
	case begun:
		c.Append = true
		return nil
	}
	if err := e.recall(ctx); err != nil {
		return err
	}
	kept := g.kept[id]
	if c.Append = kept > 0; c.Append && kept < g.last[id] {
		whole, err := (&runMemory{e.r}).artifact(ctx, id, kept)
		if err != nil {
			return err
		}
		c.Artifact, c.Append = whole.With(&c.Artifact), false
	}
	return nil
}

// number gives an artifact the id artifact-TURN-N, so that the next try replaces it.
func (e *emitter) number(ctx context.Context, a *task.Artifact) error {
	g := &e.placement
	id := func(n int) string { return fmt.Sprintf("artifact-%d-%d", e.r.claim.Turn, n) }
	if g.unnamed == 0 {
		if err := e.recall(ctx); err != nil {
			return err
		}
		for n := 1; g.kept[id(n)] > 0; n++ {
			g.unnamed = n
		}
		for {
			begun, err := e.hasBegun(ctx, id(g.unnamed+1))
			if err != nil {
				return err
			}
			if !begun {
				break
			}
			g.unnamed++
		}
	}
	g.unnamed++
	a.ID = id(g.unnamed)
	return nil
}

func (e *emitter) hasBegun(ctx context.Context, artifact string) (bool, error) {
	g := &e.placement
	if g.begun[artifact] || g.posted == nil {
		return g.begun[artifact], nil
	}
	return g.posted(ctx, artifact)
}

func (g *placement) has(artifact string) {
	if g.begun == nil {
		g.begun = map[string]bool{}
	}
	g.begun[artifact] = true
}

// recall reads once what earlier attempts have left.
func (e *emitter) recall(ctx context.Context) (err error) {
	g := &e.placement
	if !g.known {
		g.kept, g.last, err = (&runMemory{e.r}).remains(ctx)
		g.known = err == nil
	}
	return err
}

// remains tells what earlier attempts at the turn have written: the seq of the last chunk of each artifact, and of the last
// one that a checkpoint or record keeps. It keeps what its own attempt wrote before it, but not what a record calls open, and what
// the one before it kept.
func (m *runMemory) remains(ctx context.Context) (kept, last map[string]task.Seq, err error) {
	kept, last = map[string]task.Seq{}, map[string]task.Seq{}
	own, of := map[string]task.Seq{}, task.Attempt(0)
	err = m.since(ctx, func(e *task.Event) {
		switch {
		case e == nil:
			clear(kept)
			clear(last)
			clear(own)
			return
		case e.Attempt != of:
			clear(own)
			of = e.Attempt
		}
		switch {
		case e.Kind == task.EventArtifact:
			last[e.Artifact.ID], own[e.Artifact.ID] = e.Seq, e.Seq
		case e.Keeps():
			var open []string
			if record := e.Run.Recorded(); record != nil {
				open = record.Open
			}
			for id, seq := range own {
				if !slices.Contains(open, id) {
					kept[id] = seq
				}
			}
		}
	})
	return kept, last, err
}

// artifact is an artifact as it was at a seq.
func (m *runMemory) artifact(ctx context.Context, id string, at task.Seq) (*task.Artifact, error) {
	t := store.Empty(m.r.claim.Task)
	err := m.walk(ctx, 0, func(e *task.Event) error {
		if e.Kind != task.EventArtifact || e.Artifact.ID != id || e.Seq > at {
			return nil
		}
		return fold(t, e)
	})
	if err != nil || len(t.Artifacts) == 0 {
		return &task.Artifact{ID: id}, err
	}
	return &t.Artifacts[0], nil
}
