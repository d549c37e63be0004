package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/holdfast-a2a/holdfast/internal/rpc/client"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// answers prints what an agent answers. It prints each artifact once, and the chunks of a text as one text.
type answers struct {
	printer
	numbers bool // print the ids of events

	// seen is the task as far as it was printed, or earlier turns left it.
	seen task.Task
	// fresh has the ids of the artifacts that have come or changed.
	fresh map[string]bool
	// shown is the task whose ids are printed, and said its status.
	shown, said string

	// open is the id of the artifact whose text the last line begins. The line break is still missing.
	open string
	// breaks are the line breaks at the end of that text. They are printed when text follows.
	breaks string
}

// begin prepares for the answer to a message. If it continues a task, the artifacts of earlier turns are not printed again.
func (a *answers) begin(ctx context.Context, agent *client.Client, taskID string) {
	if taskID == "" || taskID == a.shown {
		return
	}
	// If this fails, the send also fails, or prints more than needed.
	if before, err := agent.Get(ctx, taskID); err == nil && before.Task != nil {
		a.seen.Artifacts = before.Task.Artifacts
	}
}

// keep folds an event into what was seen, and returns which artifacts of a whole task have changed.
func (a *answers) keep(e *client.Event) (news []change) {
	switch {
	case e.Event != nil && e.Event.Kind == task.EventArtifact:
		a.fresh[e.Event.Artifact.ID] = true
		a.apply(e.Event.Artifact, e.Event.Append)
	case e.Task != nil:
		for i := range e.Task.Artifacts {
			now := &e.Task.Artifacts[i]
			c, changed := a.compare(now)
			if changed {
				a.fresh[now.ID] = true
				a.apply(now, false)
				news = append(news, c)
			}
		}
	}
	return news
}

// apply folds an artifact, or a chunk of one.
func (a *answers) apply(artifact *task.Artifact, more bool) {
	// It cannot fail: the events have no gap.
	_ = a.seen.Apply(&task.Event{Seq: a.seen.LastSeq + 1, Kind: task.EventArtifact, Artifact: artifact, Append: more})
}

// change is an artifact that was not seen as it is now.
type change struct {
	artifact *task.Artifact
	rest     string // of its text, if the beginning was seen
}

// compare finds out what of an artifact was not seen.
func (a *answers) compare(now *task.Artifact) (c change, changed bool) {
	c.artifact = now
	for i := range a.seen.Artifacts {
		before := &a.seen.Artifacts[i]
		if before.ID != now.ID {
			continue
		}
		old, plain := wholeText(before.Parts)
		text, stillPlain := wholeText(now.Parts)
		if plain && stillPlain {
			rest, continues := strings.CutPrefix(text, old)
			if continues {
				c.rest = rest
			}
			return c, text != old
		}
		x, errX := json.Marshal(before.Parts)
		y, errY := json.Marshal(now.Parts)
		return c, errX != nil || errY != nil || !bytes.Equal(x, y)
	}
	return c, true
}

// wholeText joins parts that are all text.
func wholeText(parts []task.Part) (string, bool) {
	var b strings.Builder
	for i := range parts {
		if parts[i].Kind != task.PartText {
			return "", false
		}
		b.WriteString(parts[i].Text)
	}
	return b.String(), true
}

// event writes an answer, or one event of a stream.
func (a *answers) event(e *client.Event) {
	news := a.keep(e)
	if e.Event != nil && e.TaskID != "" && a.shown != e.TaskID { // in 0.1, no stream begins with the task
		a.endText()
		a.shown = e.TaskID
		a.field("task", e.TaskID)
		a.field("context", e.ContextID)
	}
	if e.Event != nil && e.Event.Kind == task.EventArtifact {
		a.chunk(a.number(e.ID), e.Event)
		return
	}
	switch {
	case e.Task != nil:
		a.task(e.Task, news)
	case e.Message != nil:
		a.endText()
		a.message(e.Message)
	case e.Event != nil:
		a.endText()
		a.said = status(e.Event.State, e.Event.Message)
		a.line("%s%s", a.number(e.ID), stateName(e.Event.State))
		if m := e.Event.Message; m != nil {
			a.storedParts(m.Parts)
		}
	}
}

// number returns the prefix of an event with an id.
func (a *answers) number(id string) string {
	if id == "" || !a.numbers {
		return ""
	}
	return "[" + id + "] "
}

// status identifies a status.
func status(s task.State, m *task.Message) string {
	text := stateName(s)
	if m != nil {
		text += " " + m.ID + " " + m.FirstText()
	}
	return text
}

// stateName returns the name of a state. Only an old version has one for a state that the server does not know.
func stateName(s task.State) string {
	if s == task.StateUnspecified {
		return "unknown"
	}
	return s.String()
}

func (a *answers) task(t *task.Task, news []change) {
	news = slices.DeleteFunc(news, func(c change) bool {
		onLine := c.rest != "" && a.open == c.artifact.ID
		if onLine {
			a.text(c.rest)
		}
		return onLine
	})
	a.endText()
	if a.shown != t.PublicID {
		a.shown = t.PublicID
		a.field("task", t.PublicID)
		a.field("context", t.ContextID)
	}
	if now := status(t.Status.State, t.Status.Message); now != a.said {
		a.said = now
		a.field("state", stateName(t.Status.State))
		if t.Status.Message != nil {
			a.message(t.Status.Message)
		}
	}
	for _, c := range news {
		a.line("artifact %s:", label(c.artifact))
		a.storedParts(c.artifact.Parts)
	}
}

func (a *answers) message(m *task.Message) {
	a.line("%s:", roleName(m.Role))
	a.storedParts(m.Parts)
}

// chunk writes an artifact event. A text that continues the last line is printed there, without the event's number.
func (a *answers) chunk(prefix string, e *task.Event) {
	id, parts := e.Artifact.ID, e.Artifact.Parts
	text := len(parts) == 1 && parts[0].Kind == task.PartText
	if !text || !e.Append || a.open != id {
		a.endText()
		note := ""
		if e.Append {
			note += ", more"
		}
		if e.Last {
			note += ", last"
		}
		a.line("%sartifact %s%s", prefix, label(e.Artifact), note)
		if !text {
			a.storedParts(parts)
			return
		}
		a.open = id
		a.raw("  ")
	}
	a.text(parts[0].Text)
	if e.Last {
		a.endText()
	}
}

// text continues the open line.
func (a *answers) text(s string) {
	words := strings.TrimRight(s, "\n")
	if words != "" {
		a.raw(strings.ReplaceAll(printable(a.breaks+words), "\n", "\n  "))
		a.breaks = ""
	}
	a.breaks += s[len(words):]
}

// endText ends the line of a text.
func (a *answers) endText() {
	if a.open != "" {
		a.raw("\n")
		a.open, a.breaks = "", ""
	}
}

func label(a *task.Artifact) string {
	if a.Name != "" {
		return a.Name
	}
	return a.ID
}
