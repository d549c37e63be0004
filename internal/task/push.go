package task

import "time"

// PushConfig is a webhook of a task: A2A's PushNotificationConfig.
type PushConfig struct {
	ID          string    // unique within its task; the public task id for the default one
	URL         string    // absolute, http or https
	Token       string    // secret; sent with each delivery, so that the receiver can verify it
	Schemes     []string  // authentication schemes of the receiver; A2A 1.0 has only the first
	Credentials string    // secret
	Artifacts   bool      // deliver artifact events, too
	Dialect     string    // version of the request that set it; decides bodies and headers
	CreatedAt   time.Time // when the configuration was first set, not its last change
	DisabledAt  time.Time // zero: enabled
	DisabledFor string    // why it was disabled
}

// Triggers reports whether the event must be delivered for the configuration.
func (c *PushConfig) Triggers(e *Event) bool {
	return e.Kind == EventStatus || e.Kind == EventArtifact && c.Artifacts
}

// PushDue is a claimed configuration. One process delivers for it until the claim expires or its
// outcome is recorded.
type PushDue struct {
	Task     ID
	PublicID string // id of the task that the receiver sees
	Agent    string
	Host     string     // host and port of the URL; deliveries per host are bounded
	Caller   int64      // caller who owns the task; deliveries per caller are bounded, too; 0: none
	Config   PushConfig // with its secrets
	Claim    [16]byte   // the fence
	Next     Seq        // first undelivered event
	Upto     Seq        // last event to deliver

	Unreadable error // why the secrets cannot be opened; Config then lacks them. Another process may have the key

	Failures     int // failed attempts since the last success
	FailingSince time.Time

	Ahead *PushAhead // events that were read with the claim; nil: none were read
	Told  *Task      // task as of the last delivery, if deliveries show the whole task
}

// PushAhead holds the data that was read with a claim: the first events to deliver, and the header
// of their task.
type PushAhead struct {
	Header *Task
	Events []*Event
}

// PushBusy lists the hosts and callers at their concurrency limit, in the form of PushDue.
type PushBusy struct {
	Hosts   []string
	Callers []int64
}

// PushOutcome is the result of one delivery attempt.
type PushOutcome struct {
	Task       ID
	ConfigID   string
	Claim      [16]byte
	From, To   Seq    // range of events that the delivery covers
	DeliveryID string // the same for each attempt of one delivery; empty: no delivery was needed, skip the events
	Status     int    // HTTP status; 0: no response
	Error      string
	Class      string // class of the outcome, for metrics
	Took       time.Duration

	Delivered bool
	Keep      bool          // delivered; keep the claim for the next delivery
	RetryIn   time.Duration // not delivered: delay before the next attempt
	Disable   string        // reason to disable the configuration; empty: keep it enabled
}
