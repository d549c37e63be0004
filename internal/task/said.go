package task

import "encoding/json"

// Said is one entry of a dialogue: a message, or an artifact of the agent with its whole content.
type Said struct {
	Task     ID
	TaskID   string // the public id
	Seq      Seq    // of the message, or of the event with which the artifact's content begins
	Message  *Message
	Artifact *Artifact
	State    State // of the status that carried an agent's message; working: it reported progress
	// Left is the size of a content that is left out because it is large: there are no parts.
	Left int64
}

// Reference is a task that a message refers to.
type Reference struct {
	TaskID    string
	ContextID string
	State     State
	Said      []Said
	Stored    json.RawMessage // the state that its agent has stored for the task, or nil
}

// Role returns who said it.
func (s *Said) Role() Role {
	if s.Message != nil {
		return s.Message.Role
	}
	return RoleAgent
}

// Parts returns the content.
func (s *Said) Parts() []Part {
	if s.Message != nil {
		return s.Message.Parts
	}
	return s.Artifact.Parts
}

// Size returns about how many bytes it takes.
func (s *Said) Size() int64 {
	if s.Message != nil {
		return s.Message.Size()
	}
	return overhead + s.Artifact.Size()
}

// Leave leaves the content, of this size, out.
func (s *Said) Leave(size int64) {
	s.Left = size
	if s.Message != nil {
		m := *s.Message
		m.Parts, m.Metadata = nil, nil
		s.Message = &m
		return
	}
	a := *s.Artifact
	a.Parts, a.Metadata = nil, nil
	s.Artifact = &a
}

// Bounds bound a dialogue. It keeps the newest entries. An entry that takes more than half of the bytes is there without
// its content, so that it does not push out all others.
type Bounds struct {
	Count    int
	Bytes    int64
	Progress bool // with the messages of the status working
}

// Large reports whether an entry of this size is there without its content.
func (b Bounds) Large(size int64) bool { return size > b.Bytes/2 }

// Newest returns the newest entries within the bounds. Entries are given and returned with the oldest first.
func (b Bounds) Newest(said []Said) []Said {
	first, bytes := len(said), int64(0)
	for ; first > 0 && len(said)-first < b.Count; first-- {
		s := &said[first-1]
		size := s.Size()
		if b.Large(size) {
			s.Leave(size)
			size = s.Size()
		}
		if bytes += size; bytes > b.Bytes {
			break
		}
	}
	return said[first:]
}
