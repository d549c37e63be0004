package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/holdfast-a2a/holdfast/internal/cli/client"
)

// answers prints what an agent answers. It prints each artifact once, and the chunks of a text as one text.
type answers struct {
	printer

	// known has the artifacts that are printed or that earlier turns left, as JSON by id.
	known map[string]string
	// open is the id of the artifact whose text the last line begins. The line break is still missing.
	open string
	// breaks are the line breaks at the end of that text. They are printed when text follows.
	breaks string
}

// answers prepares the output of an answer. If the message continues a task, the artifacts of earlier turns are not
// printed again.
func (c *command) answers(ctx context.Context, agent *client.Client, p *client.SendParams, format output) *answers {
	a := &answers{printer: printer{w: c.Out}, known: map[string]string{}}
	if p.TaskID == "" || format == outputJSON {
		return a
	}
	// If this fails, the send also fails, or prints more than needed.
	if before, err := agent.Get(ctx, p.TaskID); err == nil && before.Task != nil {
		for _, artifact := range before.Task.Artifacts {
			a.fresh(artifact)
		}
	}
	return a
}

// fresh reports whether the artifact is new or has changed, and remembers it.
func (a *answers) fresh(artifact client.Artifact) bool {
	b, err := json.Marshal(artifact)
	if err != nil || a.known[artifact.ArtifactID] == string(b) {
		return err != nil
	}
	a.known[artifact.ArtifactID] = string(b)
	return true
}

// event writes an answer, or one event of a stream.
func (a *answers) event(e *client.Event) {
	if e.Artifact != nil {
		a.chunk(e)
		return
	}
	a.endText()
	switch {
	case e.Task != nil:
		a.task(e.Task)
	case e.Message != nil:
		a.message(e.Message)
	case e.Status != nil:
		a.line("%s%s", number(e.ID), e.Status.Status.State)
		if m := e.Status.Status.Message; m != nil {
			a.parts(m.Parts)
		}
	}
}

func (a *answers) task(t *client.Task) {
	a.field("task", t.ID)
	a.field("context", t.ContextID)
	a.field("state", t.Status.State)
	if t.Status.Message != nil {
		a.message(t.Status.Message)
	}
	for _, artifact := range t.Artifacts {
		if a.fresh(artifact) {
			a.line("artifact %s:", label(artifact))
			a.parts(artifact.Parts)
		}
	}
}

// chunk writes an artifact event. A text that continues the last line is printed there, without the event's number.
func (a *answers) chunk(e *client.Event) {
	id, parts := e.Artifact.Artifact.ArtifactID, e.Artifact.Artifact.Parts
	text := len(parts) == 1 && parts[0].Kind == "text"
	if !text || !e.Artifact.Append || a.open != id {
		a.endText()
		note := ""
		if e.Artifact.Append {
			note += ", more"
		}
		if e.Artifact.LastChunk {
			note += ", last"
		}
		a.line("%sartifact %s%s", number(e.ID), label(e.Artifact.Artifact), note)
		if !text {
			a.parts(parts)
			return
		}
		a.open = id
		a.raw("  ")
	}
	words := strings.TrimRight(parts[0].Text, "\n")
	if words != "" {
		a.raw(strings.ReplaceAll(printable(a.breaks+words), "\n", "\n  "))
		a.breaks = ""
	}
	a.breaks += parts[0].Text[len(words):]
	if e.Artifact.LastChunk {
		a.endText()
	}
}

// endText ends the line of a text.
func (a *answers) endText() {
	if a.open != "" {
		a.raw("\n")
		a.open, a.breaks = "", ""
	}
}

func (a *answers) raw(s string) {
	if a.err == nil {
		_, a.err = fmt.Fprint(a.w, s)
	}
}

func label(a client.Artifact) string {
	if a.Name != "" {
		return a.Name
	}
	return a.ArtifactID
}
