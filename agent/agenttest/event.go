package agenttest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/agent"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Event is an event of the task's log. It has a State, an Artifact, a Checkpoint, a Record or an Outcome.
type Event struct {
	State   agent.TaskState
	Message *agent.Message // of the status; may be nil
	Reply   bool           // the Message is a bare reply

	Artifact *agent.Artifact // a whole artifact or a chunk
	Append   bool
	Last     bool
	Metadata json.RawMessage // of the event: of the status, or of the chunk but not of its artifact

	Checkpoint json.RawMessage
	Record     string // of a durable run: kind, name and result

	// Outcome says why a try ended without an answer: retry, away (the error was Unavailable), lost (the lease), returned
	// (the server has stopped), waits (Emitter.Wait, until the time Until) or calls (Emitter.Call, of Calls).
	Outcome string
	Until   time.Time
	Calls   []agent.Call
	Err     string // for operators: why a try or the task failed
}

// String describes the event in a line:
//
//	working                          a status
//	working: "Half way."             a status with a message
//	reply: "Hi"                      a bare reply
//	artifact report: "Hello"         a whole artifact, by its name, or by its ID if it has no name
//	artifact report: "Hel"...        a chunk that starts the artifact, or starts it again
//	artifact report: +"lo"...        a chunk that continues it
//	artifact report: +"!"            the last chunk
//	checkpoint: {"page":1}
//	step pay: {"receipt":"r-7"}      a record of a durable run
//	retry: the model is busy         a try that ended, and why
//	lost, returned, away: …, waits
//	calls flights, hotels            by the names of the agents
//
// Parts that are not text read [file a.txt text/plain 5 bytes], [url https://example.com] and [data {"a":1}]. Several
// parts are separated by a space.
func (e Event) String() string {
	switch {
	case e.Artifact != nil:
		return "artifact " + e.name() + e.content()
	case e.Checkpoint != nil:
		return "checkpoint: " + string(e.Checkpoint)
	case e.Record != "":
		return e.Record
	case e.Outcome != "" && e.Err != "":
		return e.Outcome + ": " + e.Err
	case len(e.Calls) > 0:
		return "calls " + e.called()
	case e.Outcome != "":
		return e.Outcome
	}
	text := string(e.State)
	if e.Reply {
		text = "reply"
	}
	if e.Message != nil {
		text += ": " + parts(e.Message.Parts)
	}
	return text
}

// name is the artifact's name, or its ID. An artifact without either has a random ID, which a test cannot know.
func (e Event) name() string {
	if e.Artifact.Name != "" {
		return e.Artifact.Name
	}
	return e.Artifact.ID
}

// called names the agents, or the tasks that get an answer.
func (e Event) called() string {
	names := make([]string, len(e.Calls))
	for i := range e.Calls {
		names[i] = cmp.Or(e.Calls[i].Agent, e.Calls[i].TaskID)
	}
	return strings.Join(names, ", ")
}

func (e Event) content() string {
	text := ": "
	if e.Append {
		text += "+"
	}
	text += parts(e.Artifact.Parts)
	if !e.Last {
		text += "..."
	}
	return text
}

func parts(of []agent.Part) string {
	out := make([]string, len(of))
	for i := range of {
		switch p := &of[i]; p.Kind {
		case agent.KindText:
			out[i] = fmt.Sprintf("%q", p.Text)
		case agent.KindFile:
			out[i] = fmt.Sprintf("[file %s %s %d bytes]", p.Filename, p.MediaType, len(p.Bytes))
		case agent.KindURL:
			out[i] = fmt.Sprintf("[url %s]", p.URL)
		case agent.KindData:
			out[i] = fmt.Sprintf("[data %s]", p.Data)
		}
	}
	return strings.Join(out, " ")
}

func fromCall(c *task.Call) agent.Call {
	out := agent.Call{ID: c.ID, Agent: c.Agent, ContextID: c.ContextID, Message: convert.FromMessage(c.Message), Metadata: c.Metadata, Relay: c.Relay}
	if c.Answers {
		out.TaskID = c.Task.String()
	}
	return out
}

func fromEvent(e *task.Event) Event {
	out := Event{Reply: e.Direct, Append: e.Append, Last: e.Last, Metadata: e.Metadata, Err: e.Cause}
	if e.Kind == task.EventStatus {
		out.State = agent.TaskState(e.State.String())
	}
	if e.Message != nil {
		m := convert.FromMessage(e.Message)
		out.Message = &m
	}
	if e.Artifact != nil {
		a := convert.FromArtifact(e.Artifact)
		out.Artifact = &a
	}
	switch {
	case e.Run == nil:
	case e.Run.Outcome == task.RunCheckpoint:
		out.Checkpoint = e.Run.Checkpoint
	case e.Run.Recorded() != nil:
		out.Record = e.Run.Recorded().String()
	default:
		out.Outcome, out.Err, out.Until = e.Run.Outcome, e.Run.Error, e.Run.Until
		for i := range e.Run.Calls {
			out.Calls = append(out.Calls, fromCall(&e.Run.Calls[i]))
		}
	}
	return out
}
