package runapi

import (
	"context"
	"errors"
	"net/http"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/web"
	"github.com/holdfast-a2a/holdfast/internal/worker"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/wire"
)

// The reasons of problems that only this API has.
const (
	reasonUnauthenticated = "unauthenticated"
	reasonOver            = "over"
	reasonOrdinal         = "ordinal"
	reasonAnswering       = "answering"
	reasonStateChanged    = "state_changed"
	reasonRefused         = "refused"
)

func malformed(m *wire.Malformed) *web.Problem {
	p := web.Invalid(m.Member, m.Problem)
	p.Line = m.Line
	return p
}

// toProblem says how an error appears to the agent.
func toProblem(err error) *web.Problem {
	var (
		p       *web.Problem
		over    *worker.Over
		failure *executor.Failure
	)
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &over):
		return web.Refuse(http.StatusGone, reasonOver, "", over.Error())
	case errors.Is(err, executor.ErrLeaseLost), errors.Is(err, task.LeaseLost):
		return web.Refuse(http.StatusGone, reasonOver, "", "the run is over")
	case errors.Is(err, executor.ErrStateChanged):
		return web.Refuse(http.StatusConflict, reasonStateChanged, "version", "the stored state has another version")
	case errors.Is(err, store.ErrPosted):
		return web.Refuse(http.StatusConflict, reasonOrdinal, "from", "another upload has posted events meanwhile; go on at next")
	case errors.Is(err, context.Canceled):
		return cut()
	case errors.As(err, &failure):
		return web.Refuse(http.StatusUnprocessableEntity, reasonRefused, "", failure.Msg)
	}
	return web.ProblemOf(err)
}

// fail answers with an error.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, context.Canceled) {
		return // the agent has left
	}
	p := toProblem(err)
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	p.Answer(w, r, a.o.Limits.Timeout, a.o.Log)
}
