// Package shown has the types that operators read as JSON, from the command line and from the admin API. They are the program's own
// format, in snake_case and with the names of the log, and do not depend on an A2A version.
package shown

import (
	"time"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/upkeep/retention"
)

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
	ID           string    `json:"id"`
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
		ID: r.Task.String(), TaskID: r.PublicID, Agent: r.Agent, Tenant: r.Tenant, Owner: r.Owner, ConfigID: r.Config.ID,
		URL: r.Config.URL, Host: r.Config.Host, Dialect: r.Config.Dialect, Artifacts: r.Config.Artifacts, CreatedAt: r.Config.CreatedAt.UTC(),
		State: PushIdle, DeliveredSeq: r.Next - 1, Behind: max(0, r.Upto-(r.Next-1)), DueSince: r.DueSince.UTC(), DueAt: r.DueAt.UTC(),
		Failures: r.Failures, FailingSince: r.FailingSince.UTC(), LastError: r.LastError,
		DisabledAt: r.Config.DisabledAt.UTC(), DisabledFor: r.Config.DisabledFor,
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

// Attempt is an attempt to deliver.
type Attempt struct {
	ConfigID   string    `json:"config_id"`
	At         time.Time `json:"at"`
	FromSeq    task.Seq  `json:"from_seq"`
	ToSeq      task.Seq  `json:"to_seq"`
	DeliveryID string    `json:"delivery_id"`
	Attempt    int       `json:"attempt"`
	Class      string    `json:"class"`
	Status     int       `json:"status,omitempty"`
	Error      string    `json:"error,omitempty"`
	TookMS     float64   `json:"took_ms"`
	Worker     string    `json:"worker,omitempty"`
}

// OfAttempt shows an attempt to deliver.
func OfAttempt(a *store.PushAttempt) Attempt {
	return Attempt{
		ConfigID: a.ConfigID, At: a.At.UTC(), FromSeq: a.From, ToSeq: a.To, DeliveryID: a.DeliveryID, Attempt: a.Attempt,
		Class: a.Class, Status: a.Status, Error: a.Error, TookMS: float64(a.Took.Microseconds()) / 1000, Worker: a.Worker,
	}
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

// The outcomes of a change to a webhook.
const (
	Due      = "due"      // its delivery starts now
	Nothing  = "nothing"  // nothing to deliver
	Disabled = "disabled" // no delivery until it is enabled
	Enabled  = "enabled"  // enabled, with nothing to deliver
)

// Redelivered returns the outcome of a redelivery.
func Redelivered(due, disabled bool) string {
	switch {
	case disabled:
		return Disabled
	case due:
		return Due
	}
	return Nothing
}

// Step is a line of a retention plan.
type Step struct {
	What  string    `json:"what"`
	How   string    `json:"how"`
	From  time.Time `json:"from,omitzero"` // without a period: tasks that outlived theirs
	To    time.Time `json:"to,omitzero"`
	Agent string    `json:"agent,omitempty"`
	Tasks int64     `json:"tasks"`
	Held  int64     `json:"held"`
	Bytes int64     `json:"bytes"`
}

// OfStep shows a line of a retention plan.
func OfStep(s *retention.Step) Step {
	v := Step(*s)
	if s.From.Equal(store.Everything.From) {
		v.From, v.To = time.Time{}, time.Time{}
	}
	return v
}

// Call is a call of one task for another.
type Call struct {
	ID       string    `json:"id"`
	Agent    string    `json:"agent,omitempty"`
	Task     string    `json:"task"`
	Result   string    `json:"result,omitempty"` // the state of the task; "": none yet
	Error    string    `json:"error,omitempty"`
	CalledAt time.Time `json:"called_at"`
}

// OfCall shows a call.
func OfCall(c *store.CallRow) Call {
	v := Call{ID: c.ID, Agent: c.Agent, Task: c.Task.String(), Error: c.Error, CalledAt: c.CalledAt.UTC()}
	if c.Result != task.StateUnspecified {
		v.Result = c.Result.String()
	}
	return v
}

// Key is an API key. Only the answer to its creation has the secret.
type Key struct {
	ID         string     `json:"id"`
	Key        string     `json:"key,omitempty"`
	Name       string     `json:"name,omitempty"`
	Tenant     string     `json:"tenant"`
	Subject    string     `json:"subject"`
	Scopes     []string   `json:"scopes"`
	State      string     `json:"state"`
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  *time.Time `json:"expires_at,omitempty"`
	RevokedAt  *time.Time `json:"revoked_at,omitempty"`
	LastUsedAt *time.Time `json:"last_used_at,omitempty"`
}

// OfKey shows an API key as of now.
func OfKey(k *store.APIKey, now time.Time) Key {
	some := func(at time.Time) *time.Time {
		if at.IsZero() {
			return nil
		}
		return &at
	}
	v := Key{
		ID: k.ID, Name: k.Name, Tenant: k.Tenant, Subject: k.Subject, Scopes: append([]string{}, k.Scopes...), State: "valid",
		CreatedAt: k.CreatedAt, ExpiresAt: some(k.ExpiresAt), RevokedAt: some(k.RevokedAt), LastUsedAt: some(k.LastUsedAt),
	}
	switch {
	case v.RevokedAt != nil:
		v.State = "revoked"
	case v.ExpiresAt != nil && !now.Before(k.ExpiresAt):
		v.State = "expired"
	}
	return v
}

// Worker is a process of an agent that connects to replicas.
type Worker struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Version   string    `json:"version"`
	SDK       string    `json:"sdk"`
	Agents    []string  `json:"agents"`
	State     string    `json:"state"`
	Running   int       `json:"running"`
	Replica   string    `json:"replica"`
	FirstSeen time.Time `json:"first_seen"`
	LastSeen  time.Time `json:"last_seen"`
	RetiredAt time.Time `json:"retired_at,omitzero"`
}

// OfWorker shows a worker.
func OfWorker(w *store.RemoteWorker) Worker {
	return Worker{
		ID: w.ID.String(), Name: w.Name, Version: w.Version, SDK: w.SDK, Agents: append([]string{}, w.Agents...), State: w.State(),
		Running: w.Running, Replica: w.Replica, FirstSeen: w.FirstSeen.UTC(), LastSeen: w.LastSeen.UTC(), RetiredAt: w.RetiredAt.UTC(),
	}
}
