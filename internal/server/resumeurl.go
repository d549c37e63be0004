package server

import (
	"github.com/holdfast-a2a/holdfast/internal/rpc/resumeurl"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// resumeURL returns the URL that begins the turn after a turn.
func resumeURL(e *env, p *ports, turns *task.Tokens) func(task.ID, int) string {
	base := p.baseURL(e.cfg) + task.ResumePath
	return func(id task.ID, turn int) string { return base + turns.Make(id, int64(turn)) }
}

// mostResumed bounds the body of a request by resume URL.
const mostResumed = 256 << 10

func newCallbacks(e *env, agents *agents, st *store.Store, turns *task.Tokens) *resumeurl.Handler {
	return resumeurl.New(resumeurl.Options{
		Tokens: turns, Tasks: st, NewID: store.NewID, Agents: agents.resumes,
		Timeout: e.cfg.Limits.RequestTimeout, Memory: e.memory, Log: e.log,
	})
}
