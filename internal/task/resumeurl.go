package task

// ResumeRequest is a request by the resume URL of a turn, a token of task and turn: nothing is stored until it is used. Everybody
// with the URL may use it (decision 0052).
type ResumeRequest struct {
	ID      ID // of the request; makes the write safe to retry
	Task    ID
	Turn    int
	Agent   string
	Content *Resumed
	Address string // of the sender
}

const (
	// ResumePath is where resume URLs begin, below the public URL of the server. The token follows.
	ResumePath = "/resume/"

	// ResumePurpose names the keys of the tokens to store.Derive.
	ResumePurpose = "resume url"
)
