package server

import (
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
	"github.com/holdfast-a2a/holdfast/internal/worker/runapi"
)

// runAPI returns where the agent of a run finds the run API; nil if this process cannot know.
func runAPI(e *env, p *ports, tokens *task.Tokens) func(task.ID, task.Fence) executor.API {
	if !e.cfg.KnowsRunAPI() {
		return nil
	}
	url := e.cfg.RunAPIURL(p.baseURL(e.cfg)) + runapi.Path
	return func(id task.ID, run task.Fence) executor.API {
		return executor.API{URL: url, Token: runapi.TokenPrefix + tokens.Make(id, run.ClaimedAt)}
	}
}

// newRunAPI makes the handler of the run API. pool has the agents.
func newRunAPI(e *env, agents *agents, st *store.Store, pool *worker.Pool, tokens *task.Tokens) *runapi.API {
	return runapi.New(runapi.Options{
		Store: st, Pool: pool, History: agents.history, Tokens: tokens, Memory: e.memory, Limits: bodyLimits(e.cfg), Log: e.log,
		Answered: e.metrics.RunAPIAnswered,
	})
}
