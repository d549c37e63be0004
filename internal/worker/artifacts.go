package worker

import "context"

// A status that parks the task lists its artifacts up to these limits. Beyond them the next run reads
// the ids from the chunks.
const (
	listedArtifacts = 100
	listedBytes     = 8 << 10
)

// loadIndex reads the ids of the artifacts that earlier runs of the task wrote.
func (e *emitter) loadIndex(ctx context.Context) error {
	e.mu.Lock()
	// Turn and Try would be wrong here: they do not count a run that was given back, but it may
	// have written.
	known := e.loaded || e.r.claim.Attempt == 1 && !e.visit
	e.mu.Unlock()
	if known {
		return nil
	}
	var ids []string
	err := e.r.read(ctx, func() (err error) {
		ids, err = e.r.pool.opt.Store.ArtifactIDs(ctx, e.r.claim.Task.ID)
		return err
	})
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.loaded {
		e.loaded = true
		for _, id := range ids {
			e.indexOf(id)
		}
	}
	return nil
}

// listing returns the ids of all artifacts of the task in their order, or nil if this run does not
// know them or they are too many.
func (e *emitter) listing() []string {
	known := e.loaded || e.r.claim.Attempt == 1
	if e.visit || !known || len(e.index) == 0 || len(e.index) > listedArtifacts {
		return nil
	}
	ids, size := make([]string, len(e.index)), 0
	for id, i := range e.index {
		ids[i] = id
		size += len(id)
	}
	if size > listedBytes {
		return nil
	}
	return ids
}

func (e *emitter) indexOf(id string) int {
	if e.index == nil {
		e.index = map[string]int{}
	}
	i, ok := e.index[id]
	if !ok {
		i = len(e.index)
		e.index[id] = i
	}
	return i
}
