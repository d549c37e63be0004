package agent

import (
	"context"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// Wait describes a wait, by Until or by For. Its turn begins at that time, or later if the server is busy or down.
type Wait struct {
	Until time.Time     // a time that is over is allowed; at most 10 years ahead
	For   time.Duration // from the moment when the wait is stored, by the clock of the database
	// Interruptible lets a message of the client begin the turn earlier. Otherwise the agent answers the message after
	// the turn that the timer began.
	Interruptible bool
}

// Input is what began a turn besides a message.
type Input struct {
	Source      string    // Timer, Calls or Callback
	Until       time.Time // when the wait ended, or would have ended
	Interrupted bool      // Run.Message ended the wait
	Results     []Result  // of the calls, in their order
	Resumed     *Resumed  // the request by resume URL
}

// The sources of turns: the timer of a wait, and a request by the resume URL of the turn before.
const (
	Timer    = executor.SourceTimer
	Callback = executor.SourceResume
)

func fromInput(in *executor.Input) *Input {
	if in == nil {
		return nil
	}
	out := &Input{Source: in.Source, Until: in.Until, Interrupted: in.Interrupted, Results: fromResults(in.Results)}
	if in.Resumed != nil {
		out.Resumed = &Resumed{Method: in.Resumed.Method, Query: in.Resumed.Query, ContentType: in.Resumed.ContentType, Body: in.Resumed.Body}
	}
	return out
}

func (e *emitter) Wait(ctx context.Context, w Wait) error {
	return e.out.Wait(ctx, executor.Wait{Until: w.Until, For: w.For, Interruptible: w.Interruptible})
}
