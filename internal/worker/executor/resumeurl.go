package executor

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// SourceResume is the source of a turn that a request by the resume URL of the turn before began.
const SourceResume = "resume"

// Resumed is a request by a resume URL.
type Resumed = task.Resumed

// Ask parks a task: it ends the run with a question, whose answer begins the next turn.
type Ask struct {
	State    task.State    // StateInputRequired or StateAuthRequired
	Message  *task.Message // may be nil
	Metadata json.RawMessage
	// Resume lets a request by Run.ResumeURL begin the next turn, too. Nil: only a message of the client does.
	Resume *Resume
}

// Resume says how the resume URL of the turn is valid.
type Resume struct {
	For  time.Duration // from the commit on; 0: DefaultResume
	Show bool          // add the URL to the message, as a text part
}

// The default and the bound of Resume.For.
const (
	DefaultResume = 24 * time.Hour
	MaxResume     = MaxWait
)

// Check returns an error that names the wrong member.
func (r *Resume) Check() error {
	if r != nil && (r.For < 0 || r.For > MaxResume) {
		return fmt.Errorf("resume.for: must be more than 0 and at most %.0f seconds (10 years)", MaxResume.Seconds())
	}
	return nil
}

// Shown returns the message with the URL if the client is to see it. It changes no part of the given message.
func (a *Ask) Shown(url string) *task.Message {
	if a.Resume == nil || !a.Resume.Show || url == "" {
		return a.Message
	}
	m := task.Message{}
	if a.Message != nil {
		m = *a.Message
	}
	m.Parts = append(m.Parts[:len(m.Parts):len(m.Parts)], task.Text(url))
	if len(m.Parts) > 1 {
		m.Parts[len(m.Parts)-1].Text = "\n" + url // clients may join the texts
	}
	return &m
}
