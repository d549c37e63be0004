package wire

import (
	"time"

	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// input is the member of the run document that says what began the turn besides a message.
type input struct {
	Source      string    `json:"source"`
	Until       time.Time `json:"until,omitzero"`
	Interrupted bool      `json:"interrupted,omitzero"`
	Results     []result  `json:"results,omitempty"`
	resumed
}

func fromInput(in *executor.Input) *input {
	if in == nil {
		return nil
	}
	out := &input{Source: in.Source, Until: in.Until, Interrupted: in.Interrupted, resumed: fromResumed(in.Resumed)}
	for i := range in.Results {
		out.Results = append(out.Results, fromResult(&in.Results[i]))
	}
	return out
}

func readWait(in *eventDocument) (*Event, *Malformed) {
	event := &Event{Action: Wait, Wait: executor.Wait{Interruptible: in.Interruptible}}
	switch {
	case (in.Until == nil) == (in.For == nil):
		return nil, malformed("", "needs one of until, for")
	case in.Until != nil:
		until, err := time.Parse(time.RFC3339, *in.Until)
		if err != nil {
			return nil, malformed("until", "must be a time such as 2026-03-01T09:00:00Z")
		}
		if until.After(time.Now().Add(executor.MaxWait)) {
			return nil, malformed("until", "must be within 10 years")
		}
		event.Wait.Until = until
	case *in.For <= 0 || *in.For > executor.MaxWait.Seconds():
		return nil, malformed("for", "must be more than 0 and at most %.0f seconds", executor.MaxWait.Seconds())
	default:
		event.Wait.For = max(time.Duration(*in.For*float64(time.Second)), 1)
	}
	return event, nil
}
