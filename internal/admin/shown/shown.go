// Package shown has the answers of the admin API, which the command line reads. They are the program's own format, in snake_case and
// with the names of the log, and do not depend on an A2A version. Rows that operators see as they are stored are types of package store.
package shown

import (
	"encoding/json"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/upkeep/retention"
)

// Task is a task as lists have it.
type Task struct {
	ID                task.ID      `json:"id"`
	TaskID            string       `json:"task_id"`
	Agent             string       `json:"agent"`
	Tenant            string       `json:"tenant"`
	Owner             string       `json:"owner"`
	ContextID         string       `json:"context_id"`
	Dialect           string       `json:"dialect"`
	State             task.State   `json:"state"`
	StatusAt          time.Time    `json:"status_at"`
	CreatedAt         time.Time    `json:"created_at"`
	LastSeq           task.Seq     `json:"last_seq"`
	Direct            bool         `json:"direct,omitempty"`
	Attempt           task.Attempt `json:"attempt"`
	Runs              int          `json:"runs"`
	Turns             int          `json:"turns"`
	Pending           int          `json:"pending"`
	Worker            task.ID      `json:"worker,omitzero"`
	ClaimedAt         time.Time    `json:"claimed_at,omitzero"`
	CancelRequestedAt time.Time    `json:"cancel_requested_at,omitzero"`
	HeldAt            time.Time    `json:"held_at,omitzero"`
	RetriedAs         task.ID      `json:"retried_as,omitzero"`
	ArtifactBytes     int64        `json:"artifact_bytes"`
	TraceID           string       `json:"trace_id,omitempty"`
	// Said is the beginning of the client's first message, Reason why the task failed, and Tokens what its last events report.
	Said   string `json:"said,omitempty"`
	Reason string `json:"reason,omitempty"`
	Tokens int64  `json:"tokens,omitempty"`
	// Cost is what these tokens cost; 0: their models have no prices.
	Cost float64 `json:"cost,omitempty"`
	// Line says what the task does or waits for; absent: it was deleted meanwhile.
	Line *store.StatusLine `json:"status_line,omitempty"`
}

// TasksPage is a page of tasks.
type TasksPage struct {
	Tasks []Task `json:"tasks"`
	// Next is the before of the next page.
	Next string `json:"next,omitempty"`
	// SearchedSince is how far back a search has come; absent: there is no text, or all tasks were searched.
	SearchedSince time.Time `json:"searched_since,omitzero"`
}

// TaskDetail is one task.
type TaskDetail struct {
	Task
	Metadata      json.RawMessage `json:"metadata,omitempty"`
	StatusMessage json.RawMessage `json:"status_message,omitempty"`
}

// Inbox is a page of the tasks that wait for people.
type Inbox struct {
	Tasks []TaskDetail `json:"tasks"`
	Next  string       `json:"next,omitempty"`
}

// Event is an event of a log, as it is stored.
type Event struct {
	store.AdminEvent
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
	CalledBy task.ID         `json:"called_by,omitzero"`
	CallID   string          `json:"call_id,omitempty"` // of the call that created it
	Calls    []store.CallRow `json:"calls"`
}

// The states of a webhook. The first one that applies counts.
const (
	PushDisabled   = "disabled"
	PushDelivering = "delivering"
	PushFailing    = "failing"
	PushDue        = "due"
	PushIdle       = "idle"
)

// Push is a webhook.
type Push struct {
	ID           task.ID   `json:"id"`
	TaskID       string    `json:"task_id"`
	Agent        string    `json:"agent"`
	Tenant       string    `json:"tenant"`
	Owner        string    `json:"owner"`
	ConfigID     string    `json:"config_id"`
	URL          string    `json:"url"`
	Host         string    `json:"host"`
	Dialect      string    `json:"dialect"`
	Artifacts    bool      `json:"artifacts"`
	CreatedAt    time.Time `json:"created_at"`
	State        string    `json:"state"`
	DeliveredSeq task.Seq  `json:"delivered_seq"`
	Behind       task.Seq  `json:"behind"`
	DueSince     time.Time `json:"due_since,omitzero"`
	DueAt        time.Time `json:"due_at,omitzero"`
	Failures     int       `json:"failures"`
	FailingSince time.Time `json:"failing_since,omitzero"`
	LastError    string    `json:"last_error,omitempty"`
	DisabledAt   time.Time `json:"disabled_at,omitzero"`
	DisabledFor  string    `json:"disabled_for,omitempty"`
}

// OfPush shows a webhook.
func OfPush(r *store.PushRow) Push {
	v := Push{
		ID: r.Task, TaskID: r.PublicID, Agent: r.Agent, Tenant: r.Tenant, Owner: r.Owner, ConfigID: r.Config.ID,
		URL: r.Config.URL, Host: r.Config.Host, Dialect: r.Config.Dialect, Artifacts: r.Config.Artifacts, CreatedAt: r.Config.CreatedAt,
		State: PushIdle, DeliveredSeq: r.Next - 1, Behind: max(0, r.Upto-(r.Next-1)), DueSince: r.DueSince, DueAt: r.DueAt,
		Failures: r.Failures, FailingSince: r.FailingSince, LastError: r.LastError, DisabledAt: r.Config.DisabledAt, DisabledFor: r.Config.DisabledFor,
	}
	switch {
	case !v.DisabledAt.IsZero():
		v.State = PushDisabled
	case r.LockedUntil.After(time.Now()):
		v.State = PushDelivering
	case v.Failures > 0:
		v.State = PushFailing
	case !v.DueAt.IsZero():
		v.State = PushDue
	}
	return v
}

// WebhooksPage is a page of webhooks.
type WebhooksPage struct {
	Webhooks []Push `json:"webhooks"`
	Next     string `json:"next,omitempty"`
}

// Attempts are attempts to deliver.
type Attempts struct {
	Attempts []store.PushAttempt `json:"attempts"`
}

// Trial is a delivery to a receiver without a task, and its outcome.
type Trial struct {
	URL         string  `json:"url"`
	Dialect     string  `json:"dialect"`
	ContentType string  `json:"content_type"`
	TaskID      string  `json:"task_id"`
	DeliveryID  string  `json:"delivery_id"`
	Issuer      string  `json:"issuer"` // that the receiver must know
	Class       string  `json:"class"`
	Status      int     `json:"status,omitempty"`
	Error       string  `json:"error,omitempty"`
	TookMS      float64 `json:"took_ms"`
}

// Agent is an agent of the configuration.
type Agent struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"` // of its card
	Default     bool   `json:"default,omitempty"`
	Kind        string `json:"kind"`
	Concurrency int    `json:"concurrency,omitzero"` // absent: that of its remote workers
	MaxAttempts int    `json:"max_attempts"`
	store.AgentHealth
	Queue     *store.QueueDepth `json:"queue,omitempty"`
	Signature *Signature        `json:"signature,omitempty"`
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
	Workers []store.RemoteWorker `json:"workers"`
}

// AuditPage is a page of the audit log.
type AuditPage struct {
	Rows []store.AuditRow `json:"rows"`
	Next string           `json:"next,omitempty"`
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

// Key is an API key. Only the answer to its creation has the secret.
type Key struct {
	store.APIKey
	Key   string `json:"key,omitempty"`
	State string `json:"state"`
}

// OfKey shows an API key as of now.
func OfKey(k *store.APIKey, now time.Time) Key {
	v := Key{APIKey: *k, State: "valid"}
	switch {
	case !k.RevokedAt.IsZero():
		v.State = "revoked"
	case !k.ExpiresAt.IsZero() && !now.Before(k.ExpiresAt):
		v.State = "expired"
	}
	return v
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
	ID         task.ID            `json:"id"`
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

// JobsPage is a page of jobs.
type JobsPage struct {
	Jobs []Job  `json:"jobs"`
	Next string `json:"next,omitempty"`
}

// Replica is a process of the server.
type Replica struct {
	store.AdminProcess
	// This says that the process answers this request.
	This bool `json:"this,omitempty"`
}

// Replicas are the processes that are registered.
type Replicas struct {
	Replicas []Replica `json:"replicas"`
	// Duties are those that processes have or had.
	Duties []store.Duty `json:"duties"`
}

// Plan is what retention would delete now.
type Plan struct {
	Steps []retention.Step `json:"steps"`
}

// Resealed is the outcome of a reseal.
type Resealed struct {
	Sealed int `json:"sealed"`
	// Error says which values could not be opened. They stay as they are.
	Error string `json:"error,omitempty"`
}
