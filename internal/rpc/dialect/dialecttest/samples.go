package dialecttest

import (
	"encoding/json"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// At is the time of everything in the samples.
var At = time.Date(2026, 1, 5, 11, 0, 2, 120987000, time.FixedZone("CET", 3600))

// Opaque is JSON that must pass through every codec unchanged: numbers that fit no machine type,
// key order, escapes, characters that HTML would escape.
const Opaque = `{"z":12345678901234567890123,"a":1.0,"m":1e400,"nested":{"b":[1,2.50,null],"a":{}},"esc":"\u00e9 \/ é 😀 <&>"}`

func raw(s string) json.RawMessage { return json.RawMessage(s) }

func message(id string, role task.Role, parts ...task.Part) task.Message {
	return task.Message{ID: id, Role: role, TaskID: "t-1", ContextID: "c-1", Parts: parts}
}

func agentSays(text string) *task.Message {
	m := message("m-2", task.RoleAgent, task.Text(text))
	return &m
}

// Parts returns parts of every kind. The last ones have no place in a strict schema before 1.0: a
// file with only a name.
func Parts() []task.Part {
	return []task.Part{
		task.Text("plain <text> & \"quotes\"\n\u2028second line"),
		{Kind: task.PartText, Text: "# heading", MediaType: "text/markdown", Filename: "a.md"},
		{Kind: task.PartText, Text: "taken", MediaType: "text/markdown", Metadata: raw(`{"mediaType":"mine"}`)},
		{Kind: task.PartRaw, Raw: []byte("hello\xff"), Filename: "r.txt", MediaType: "text/plain"},
		{Kind: task.PartRaw, Raw: []byte{}},
		{Kind: task.PartURL, URL: "https://example.com/a?b=c&d=<e>", MediaType: "image/png"},
		{Kind: task.PartData, Data: raw(Opaque), Metadata: raw(Opaque)},
		{Kind: task.PartData, Data: raw(`"a scalar"`)},
		{Kind: task.PartData, Data: raw(`null`), Metadata: raw(`{"mine":1}`)},
	}
}

// Tasks returns tasks in every state and shape, by names that suit a file.
func Tasks() map[string]*task.Task {
	base := func(s task.State, m *task.Message) *task.Task {
		return &task.Task{PublicID: "t-1", ContextID: "c-1", Status: task.Status{State: s, Message: m, At: At}}
	}
	completed := base(task.StateCompleted, agentSays("Done"))
	completed.History = []task.Message{
		message("m-0", task.RoleUser, task.Text("Make a report")),
		message("m-1", task.RoleAgent, task.Text("Which one?")),
	}
	completed.History[0].Metadata = raw(Opaque)
	completed.History[0].Extensions = []string{"https://example.com/ext"}
	completed.History[0].References = []string{"t-0"}
	completed.Artifacts = []task.Artifact{
		{ID: "a-1", Name: "report", Description: "what was found", Parts: Parts(), Metadata: raw(`{"pages":2}`), Extensions: []string{"https://example.com/ext"}},
		{ID: "a-2", Index: 1, Parts: []task.Part{task.Text("second")}},
	}
	completed.Metadata = raw(Opaque)

	direct := base(task.StateCompleted, agentSays("Hello yourself"))
	direct.Direct = true
	direct.History = []task.Message{message("m-1", task.RoleUser, task.Text("Hello"))}

	working := base(task.StateWorking, agentSays("Reading"))
	working.Artifacts = completed.Artifacts

	rejected := base(task.StateRejected, agentSays("Not my job"))
	rejected.Status.Message.Metadata = raw(`{"why":"policy"}`)
	bareReject := base(task.StateRejected, nil)
	bareReject.Metadata = raw(`{"mine":true}`)

	return map[string]*task.Task{
		"submitted":              base(task.StateSubmitted, nil),
		"working":                working,
		"input-required":         base(task.StateInputRequired, agentSays("Where to?")),
		"auth-required":          base(task.StateAuthRequired, agentSays("Please log in")),
		"completed":              completed,
		"failed":                 base(task.StateFailed, agentSays("No luck")),
		"canceled":               base(task.StateCanceled, nil),
		"rejected":               rejected,
		"rejected-no-message":    bareReject,
		"direct":                 direct,
		"unknown-state-and-role": base(task.StateUnspecified, &task.Message{ID: "m", Parts: []task.Part{task.Text("?")}}),
	}
}

// Events returns events of the task t-1, by names that suit a file.
func Events() map[string]*task.Event {
	status := func(s task.State, m *task.Message) *task.Event {
		return &task.Event{Seq: 3, Kind: task.EventStatus, At: At, State: s, Message: m, Cause: "for operators"}
	}
	withMetadata := status(task.StateWorking, nil)
	withMetadata.Metadata = raw(Opaque)
	artifact := func(parts ...task.Part) *task.Event {
		return &task.Event{Seq: 4, Kind: task.EventArtifact, At: At, Artifact: &task.Artifact{ID: "a-1", Index: 2, Parts: parts}}
	}
	first := artifact(task.Text("Unit 734 rolled across the red dust. "))
	first.Artifact.Name = "story"
	more := artifact(task.Text("Olympus Mons loomed."))
	more.Append, more.Last = true, true
	every := artifact(Parts()...)
	every.Metadata = raw(`{"step":4}`)
	return map[string]*task.Event{
		"working":                status(task.StateWorking, agentSays("Reading")),
		"working-metadata":       withMetadata,
		"input-required":         status(task.StateInputRequired, agentSays("Where to?")),
		"auth-required":          status(task.StateAuthRequired, agentSays("Please log in")),
		"rejected-no-message":    status(task.StateRejected, nil),
		"completed":              status(task.StateCompleted, nil),
		"artifact-first":         first,
		"artifact-last":          more,
		"artifact-of-every-part": every,
	}
}
