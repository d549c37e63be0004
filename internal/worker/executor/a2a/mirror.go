package a2a

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/client"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// mirror emits what the agent's task has and our log lacks.
type mirror struct {
	out    executor.Emitter
	have   *task.Task // our task, with all that this run emitted
	direct bool       // bare messages are replies
	asked  string     // the id of the question that the run's message answers
	spoken map[string]bool
	size   int // of what have and spoken keep
	most   int
	blind  bool // it was too large to keep
	moved  bool // something was emitted since the last look
}

func newMirror(out executor.Emitter, have *task.Task, direct bool, most int) *mirror {
	m := &mirror{out: out, have: have, direct: direct, spoken: map[string]bool{}, most: most}
	for i := range have.History {
		m.speak(have.History[i].ID)
	}
	if have.Status.Message != nil {
		m.speak(have.Status.Message.ID)
	}
	for i := range have.Artifacts {
		m.keep(&have.Artifacts[i])
	}
	return m
}

// overhead is about what a part or an id takes in memory besides its bytes.
const overhead = 256

// keep counts an artifact that have gets, and reports whether there is room for it. Without room the mirror keeps nothing.
func (m *mirror) keep(a *task.Artifact) bool {
	return m.grow(int(a.Size()) + overhead*(1+len(a.Parts)))
}

// speak remembers the id of a message.
func (m *mirror) speak(id string) {
	if !m.spoken[id] && m.grow(len(id)+overhead) {
		m.spoken[id] = true
	}
}

func (m *mirror) grow(n int) bool {
	if m.size += n; m.size > m.most {
		m.blind, m.have.Artifacts, m.spoken = true, nil, nil
	}
	return !m.blind
}

// reply ends the run with a bare message.
func (m *mirror) reply(ctx context.Context, msg *task.Message) error {
	if m.direct && len(m.have.History) == 0 {
		return m.out.Reply(ctx, shown(msg))
	}
	return m.out.Status(ctx, task.StateCompleted, shown(msg))
}

// update emits an event, or what is new in a snapshot. It reports whether the run has settled.
func (m *mirror) update(ctx context.Context, u *client.Update) (done bool, err error) {
	switch {
	case u.Task != nil:
		return m.snapshot(ctx, u.Task)
	case u.Message != nil: // within a task: something that the agent says while it works
		return false, m.say(ctx, u.Message, nil)
	case u.Event == nil:
		return false, errNoTask
	case u.Event.Kind == task.EventArtifact:
		return false, m.chunk(ctx, executor.Chunk{
			Artifact: *u.Event.Artifact, Append: u.Event.Append, Last: u.Event.Last, Metadata: u.Event.Metadata,
		})
	}
	return m.status(ctx, u.Event.State, u.Event.Message, u.Event.Metadata)
}

func (m *mirror) status(ctx context.Context, s task.State, msg *task.Message, metadata json.RawMessage) (done bool, err error) {
	switch {
	case s == task.StateCanceled:
		// Only our client cancels our task. If the agent's was canceled elsewhere, ours has failed.
		if msg == nil {
			msg = &task.Message{Parts: []task.Part{task.Text("The agent canceled the task.")}}
		}
		s = task.StateFailed
	case !s.Settled():
		return false, m.say(ctx, msg, metadata)
	}
	return true, m.out.StatusAbout(ctx, s, shown(msg), executor.About{Metadata: metadata})
}

// say emits a message of an agent that works, with the metadata of its status. Without either it is a sign of life.
func (m *mirror) say(ctx context.Context, msg *task.Message, metadata json.RawMessage) error {
	if msg == nil || len(msg.Parts) == 0 || m.spoken[msg.ID] && msg.ID != "" || msg.ID == "" && m.repeats(msg) {
		return m.out.StatusAbout(ctx, task.StateWorking, nil, executor.About{Metadata: metadata})
	}
	m.moved = true
	m.speak(msg.ID)
	m.have.Status.Message = msg
	return m.out.StatusAbout(ctx, task.StateWorking, shown(msg), executor.About{Metadata: metadata})
}

// shown returns an agent's message without the ids of its tasks, which our clients do not know.
func shown(msg *task.Message) *task.Message {
	if msg == nil {
		return nil
	}
	own := *msg
	own.Role, own.References = task.RoleAgent, nil
	return &own
}

// repeats reports whether a message without an id is the newest one again.
func (m *mirror) repeats(msg *task.Message) bool {
	last := m.have.Status.Message
	return last != nil && slices.EqualFunc(last.Parts, msg.Parts, samePart)
}

func (m *mirror) chunk(ctx context.Context, c executor.Chunk) error {
	if len(c.Artifact.Parts) == 0 {
		return m.out.Status(ctx, task.StateWorking, nil) // it may end an artifact, which has all its parts already
	}
	m.moved = true
	if err := m.out.Artifact(ctx, c); err != nil {
		return err
	}
	if !m.keep(&c.Artifact) {
		return nil
	}
	artifact := c.Artifact
	return m.have.Apply(&task.Event{Seq: m.have.LastSeq + 1, Kind: task.EventArtifact, Artifact: &artifact, Append: c.Append})
}

// snapshot emits what is new in the agent's task: messages, artifacts and at last the state.
func (m *mirror) snapshot(ctx context.Context, theirs *task.Task) (done bool, err error) {
	if m.blind {
		return false, executor.Retryable(errTooLarge, 0)
	}
	for i := range theirs.History {
		msg := &theirs.History[i]
		// Messages without an id (0.1) cannot be told apart, so only the newest one is shown.
		if msg.Role != task.RoleAgent || msg.ID == "" || m.spoken[msg.ID] || len(msg.Parts) == 0 {
			continue
		}
		if err := m.say(ctx, msg, nil); err != nil {
			return false, err
		}
	}
	for i := range theirs.Artifacts {
		if err := m.catchUp(ctx, &theirs.Artifacts[i], theirs.Status.State.Terminal()); err != nil {
			return false, err
		}
	}
	if q := theirs.Status.Message; theirs.Status.State.Parked() && m.asked != "" && q != nil && q.ID == m.asked {
		// The agent has not begun the turn. Servers of the JavaScript SDK 1 begin the stream of each turn with such a task.
		return false, m.out.Status(ctx, task.StateWorking, nil)
	}
	return m.status(ctx, theirs.Status.State, theirs.Status.Message, nil)
}

var errTooLarge = &executor.Failure{Msg: "the task is too large to compare it after a cut: its artifacts, and the ids of its messages, have more than four times limits.max_event"}

// catchUp emits what an artifact of the agent has and ours lacks.
func (m *mirror) catchUp(ctx context.Context, theirs *task.Artifact, last bool) error {
	if len(theirs.Parts) == 0 {
		return nil
	}
	i := slices.IndexFunc(m.have.Artifacts, func(a task.Artifact) bool { return a.ID == theirs.ID })
	if i < 0 {
		return m.chunk(ctx, executor.Chunk{Artifact: *theirs, Last: last})
	}
	ours := &m.have.Artifacts[i]
	rest, fits := beyond(joined(ours.Parts), joined(theirs.Parts))
	if !fits || theirs.Name != "" && theirs.Name != ours.Name {
		return m.chunk(ctx, executor.Chunk{Artifact: *theirs, Last: last})
	}
	if len(rest) == 0 {
		return nil
	}
	more := *theirs
	more.Parts = rest
	return m.chunk(ctx, executor.Chunk{Artifact: more, Append: true, Last: last})
}

// joined returns parts with neighbouring pieces of text as one. Some servers join the text of chunks as we do, others
// keep a part for each chunk.
func joined(parts []task.Part) []task.Part {
	var all []task.Part
	var text []byte
	flush := func() {
		if text != nil {
			all[len(all)-1].Text, text = string(text), nil
		}
	}
	for _, p := range parts {
		if n := len(all); n > 0 && plain(&p) && plain(&all[n-1]) && p.MediaType == all[n-1].MediaType {
			if text == nil {
				text = []byte(all[n-1].Text)
			}
			text = append(text, p.Text...)
			continue
		}
		flush()
		all = append(all, p)
	}
	flush()
	return all
}

func plain(p *task.Part) bool {
	return p.Kind == task.PartText && p.Filename == "" && p.Metadata == nil
}

// beyond returns the parts that theirs has beyond ours. It reports false if ours is no beginning of theirs.
func beyond(ours, theirs []task.Part) (rest []task.Part, fits bool) {
	if len(ours) > len(theirs) {
		return nil, false
	}
	for i := range ours {
		a, b := &ours[i], &theirs[i]
		if samePart(*a, *b) {
			continue
		}
		// The last text may have grown.
		if i != len(ours)-1 || !plain(a) || !plain(b) || a.MediaType != b.MediaType || len(b.Text) < len(a.Text) || b.Text[:len(a.Text)] != a.Text {
			return nil, false
		}
		grown := *b
		grown.Text = b.Text[len(a.Text):]
		return append([]task.Part{grown}, theirs[i+1:]...), true
	}
	return theirs[len(ours):], true
}

func samePart(a, b task.Part) bool {
	return a.Kind == b.Kind && a.Text == b.Text && bytes.Equal(a.Raw, b.Raw) && a.URL == b.URL && bytes.Equal(a.Data, b.Data) &&
		a.Filename == b.Filename && a.MediaType == b.MediaType && bytes.Equal(a.Metadata, b.Metadata)
}
