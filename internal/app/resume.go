package app

import (
	"context"

	"github.com/holdfast-a2a/holdfast/internal/resume"
	"github.com/holdfast-a2a/holdfast/internal/rpc/callback"
	"github.com/holdfast-a2a/holdfast/internal/store"
)

// newLinks makes the resume URLs of this server. Their keys are read once: another replica with a new first key needs one
// that this one has, too.
func newLinks(ctx context.Context, e *env, st *store.Store, p *ports) (*resume.Links, error) {
	keys, err := st.ResumeKeys(ctx)
	if err != nil {
		return nil, err
	}
	return resume.New(p.baseURL(e.cfg), keys), nil
}

func newCallbacks(e *env, agents *agents, st *store.Store, links *resume.Links) *callback.Handler {
	return callback.New(callback.Options{
		Links: links, Tasks: st, NewID: store.NewID, Agents: agents.callbacks,
		Timeout: e.cfg.Limits.BodyTimeout, Memory: e.memory, Log: e.log,
	})
}
