package shown

import (
	"encoding/json"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Task is a task as lists have it.
type Task struct {
	ID                string    `json:"id"`
	TaskID            string    `json:"task_id"`
	Agent             string    `json:"agent"`
	Tenant            string    `json:"tenant"`
	Owner             string    `json:"owner"`
	ContextID         string    `json:"context_id"`
	Dialect           string    `json:"dialect"`
	State             string    `json:"state"`
	StatusAt          time.Time `json:"status_at"`
	CreatedAt         time.Time `json:"created_at"`
	LastSeq           task.Seq  `json:"last_seq"`
	Direct            bool      `json:"direct,omitempty"`
	Attempt           int       `json:"attempt"`
	Runs              int       `json:"runs"`
	Turns             int       `json:"turns"`
	Pending           int       `json:"pending"`
	Worker            string    `json:"worker,omitempty"`
	ClaimedAt         time.Time `json:"claimed_at,omitzero"`
	CancelRequestedAt time.Time `json:"cancel_requested_at,omitzero"`
	HeldAt            time.Time `json:"held_at,omitzero"`
	RetriedAs         string    `json:"retried_as,omitempty"`
	ArtifactBytes     int64     `json:"artifact_bytes"`
	TraceID           string    `json:"trace_id,omitempty"`
}

// TasksPage is a page of tasks.
type TasksPage struct {
	Tasks []Task `json:"tasks"`
	// Next is the before of the next page.
	Next string `json:"next,omitempty"`
	// SearchedSince is how far back a search has come; absent: there is no text, or all tasks were searched.
	SearchedSince time.Time `json:"searched_since,omitzero"`
}

// Queued says what a task in the queue waits for.
type Queued struct {
	Phase       string    `json:"phase"`
	AvailableAt time.Time `json:"available_at,omitzero"`
	Turn        int       `json:"turn"`
	Tries       int       `json:"tries"`
	Worker      string    `json:"worker,omitempty"`
	WorkerName  string    `json:"worker_name,omitempty"`
	AwaySince   time.Time `json:"away_since,omitzero"`
}

// TaskDetail is one task.
type TaskDetail struct {
	Task
	Metadata      json.RawMessage `json:"metadata,omitempty"`
	StatusMessage json.RawMessage `json:"status_message,omitempty"`
	Queue         *Queued         `json:"queue,omitempty"`
}

// Event is an event of a log, as it is stored.
type Event struct {
	Seq        task.Seq        `json:"seq"`
	Kind       string          `json:"kind"`
	At         time.Time       `json:"at"`
	Attempt    int             `json:"attempt"`
	State      string          `json:"state,omitempty"`
	ArtifactID string          `json:"artifact_id,omitempty"`
	Append     bool            `json:"append,omitempty"`
	Last       bool            `json:"last,omitempty"`
	Payload    json.RawMessage `json:"payload,omitempty"`
	// A2A is the event as clients of the chosen version see it; absent: they do not see it.
	A2A json.RawMessage `json:"a2a,omitempty"`
}

// LogPage is a page of a log.
type LogPage struct {
	Events []Event `json:"events"`
	// Next is the after (or, backwards, the before) of the next page.
	Next task.Seq `json:"next,omitempty"`
}

// Lineage has the calls of a task, and the one that created it.
type Lineage struct {
	CalledBy string `json:"called_by,omitempty"`
	CallID   string `json:"call_id,omitempty"` // of the call that created it
	Calls    []Call `json:"calls"`
}

// WebhooksPage is a page of webhooks.
type WebhooksPage struct {
	Webhooks []Push `json:"webhooks"`
	Next     string `json:"next,omitempty"`
}

// Attempts are attempts to deliver.
type Attempts struct {
	Attempts []Attempt `json:"attempts"`
}

// Agent is an agent of the configuration.
type Agent struct {
	Name        string  `json:"name"`
	Default     bool    `json:"default,omitempty"`
	Kind        string  `json:"kind"`
	Concurrency int     `json:"concurrency,omitzero"` // absent: that of its remote workers
	MaxAttempts int     `json:"max_attempts"`
	Away        *Away   `json:"away,omitempty"`
	Queue       *Depths `json:"queue,omitempty"`
	// Workers is how many remote workers are connected, of an agent that has them.
	Workers   *int       `json:"workers,omitempty"`
	Signature *Signature `json:"signature,omitempty"`
}

// Away says since when an agent does not begin runs.
type Away struct {
	Since  time.Time `json:"since"`
	LastAt time.Time `json:"last_at"`
	Error  string    `json:"error,omitempty"`
}

// Depths count the tasks of an agent.
type Depths struct {
	Waiting       int64   `json:"waiting"`
	Running       int64   `json:"running"`
	Timers        int64   `json:"timers"`
	Calls         int64   `json:"calls"`
	Parked        int64   `json:"parked"` // counted up to 10,000
	OldestSeconds float64 `json:"oldest_seconds"`
}

// Agents are the agents of the configuration.
type Agents struct {
	Agents []*Agent `json:"agents"`
}

// Signature says whether clients can verify the card that a process serves.
type Signature struct {
	Status    string `json:"status"`
	KeyID     string `json:"key_id,omitempty"`
	Algorithm string `json:"algorithm,omitempty"`
	// Detail says why the card has no signature, or why nobody can verify it.
	Detail string `json:"detail,omitempty"`
}

// AgentDetail is an agent with its card.
type AgentDetail struct {
	*Agent
	Card json.RawMessage `json:"card,omitempty"`
}

// Workers are remote workers.
type Workers struct {
	Workers []Worker `json:"workers"`
}

// AuditRow is a row of the audit log.
type AuditRow struct {
	At      time.Time       `json:"at"`
	Chain   int             `json:"chain"`
	N       int64           `json:"n"`
	Login   string          `json:"login"`
	Entries json.RawMessage `json:"entries"`
}

// AuditPage is a page of the audit log.
type AuditPage struct {
	Rows []AuditRow `json:"rows"`
	Next string     `json:"next,omitempty"`
}

// Verified is the outcome of a verification of the audit log.
type Verified struct {
	Status string        `json:"status"`
	Rows   int64         `json:"rows"`
	Chains int           `json:"chains"`
	Broken []BrokenChain `json:"broken"`
	// Heads are the ends of the chains. They prove later that nothing was removed.
	Heads []store.AuditHead `json:"heads"`
}

// BrokenChain is a chain of the audit log that was changed.
type BrokenChain struct {
	Chain   int    `json:"chain"`
	Row     int64  `json:"row"`
	Problem string `json:"problem"`
}

// KeysPage is a page of API keys.
type KeysPage struct {
	Keys []Key  `json:"keys"`
	Next string `json:"next,omitempty"`
	// Accepted says that this server accepts API keys from clients or operators.
	Accepted bool `json:"accepted"`
}

// Job is a job.
type Job struct {
	ID         string             `json:"id"`
	Action     string             `json:"action"`
	State      string             `json:"state"`
	DryRun     bool               `json:"dry_run"`
	Filter     json.RawMessage    `json:"filter"`
	Options    json.RawMessage    `json:"options"`
	Reason     string             `json:"reason"`
	Tenant     *string            `json:"tenant,omitempty"` // the only tenant that the job may touch
	Actor      string             `json:"actor"`
	Matched    int64              `json:"matched"`
	Done       int64              `json:"done"`
	Skipped    int64              `json:"skipped"`
	Failed     int64              `json:"failed"`
	Failures   []store.JobFailure `json:"failures"`
	Worker     string             `json:"worker_name,omitempty"`
	CreatedAt  time.Time          `json:"created_at"`
	StartedAt  time.Time          `json:"started_at,omitzero"`
	CanceledAt time.Time          `json:"canceled_at,omitzero"`
	EndedAt    time.Time          `json:"ended_at,omitzero"`
}

// Plan is what retention would delete now.
type Plan struct {
	Steps []Step `json:"steps"`
}

// Resealed is the outcome of a reseal.
type Resealed struct {
	Sealed int `json:"sealed"`
	// Error says which values could not be opened. They stay as they are.
	Error string `json:"error,omitempty"`
}
