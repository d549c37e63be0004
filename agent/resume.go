package agent

import (
	"context"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// Ask is a question that ends the run.
type Ask struct {
	Message Message // to the user; may be the zero Message
	Auth    bool    // the user must authenticate: auth-required instead of input-required
	Resume  *Resume // lets a request by Run.ResumeURL begin the next turn, too; nil: only the client's message does
}

// Resume says how the resume URL of the turn is valid. It can be used once, and no more when the client's message began
// the next turn.
type Resume struct {
	For  time.Duration // from the moment when the question is stored, by the clock of the database; default a day
	Show bool          // add the URL to the message, as its last text part
}

// Resumed is a request by a resume URL. Anybody with the URL may have sent it: check what it says.
type Resumed struct {
	Method      string // POST, or GET if the agent's configuration allows it
	Query       string // as it came, without the question mark
	ContentType string
	Body        []byte
}

func (e *emitter) Ask(ctx context.Context, a Ask) error {
	ask := executor.Ask{State: task.StateInputRequired, Metadata: a.Message.EventMetadata}
	if a.Auth {
		ask.State = task.StateAuthRequired
	}
	if a.Resume != nil {
		ask.Resume = &executor.Resume{For: a.Resume.For, Show: a.Resume.Show}
	}
	if len(a.Message.Parts) > 0 {
		msg, err := toMessage(a.Message)
		if err != nil {
			return err
		}
		ask.Message = msg
	}
	return e.out.Ask(ctx, ask)
}
