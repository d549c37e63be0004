// Package resume has what resume URLs are made of. A URL is a token of a task and a turn, so nothing is stored until it is
// used. Everybody with the URL may use it (decision 0052).
package resume

import "github.com/holdfast-a2a/holdfast/internal/task"

// Request is a request by the resume URL of a turn.
type Request struct {
	ID      task.ID // of the request; makes the write safe to retry
	Task    task.ID
	Turn    int
	Agent   string
	Content *task.Resumed
	Address string // of the sender
}

const (
	// Path is where resume URLs begin, below the public URL of the server. The token follows.
	Path = "/resume/"

	// Purpose names the keys of the tokens to store.Derive.
	Purpose = "resume url"
)
