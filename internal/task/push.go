package task

import "time"

// PushConfig says where events of a task are delivered to: A2A's PushNotificationConfig.
type PushConfig struct {
	ID          string    // unique within its task; the public task id for the default one
	URL         string    // absolute, http or https
	Token       string    // secret; sent along, so that the receiver knows what it asked for
	Schemes     []string  // of the receiver's authentication; A2A 1.0 knows the first only
	Credentials string    // secret
	Artifacts   bool      // artifact events are delivered, too
	Dialect     string    // version of the request that set it: decides bodies and headers
	CreatedAt   time.Time // of the configuration, not of what it says now
	DisabledAt  time.Time // zero: it is live
	DisabledFor string    // why it was disabled
}

// Triggers reports whether the event is one that the configuration wants delivered.
func (c *PushConfig) Triggers(e *Event) bool {
	return e.Kind == EventStatus || e.Kind == EventArtifact && c.Artifacts
}

// PushDue is a claimed configuration: until the claim runs out or is recorded, one
// process delivers for it.
type PushDue struct {
	Task     ID
	PublicID string // what the receiver knows the task by
	Agent    string
	Host     string     // of the URL, with its port: by it deliveries are bounded
	Caller   int64      // whose task it is, and by that, too; 0: nobody's
	Config   PushConfig // with its secrets
	Claim    [16]byte   // the fence
	Next     Seq        // first event that was not delivered
	Upto     Seq        // newest event that has to be

	Unreadable error // its secrets, which Config is then without: another process may have their key

	Failures     int // since the last success
	FailingSince time.Time

	Ahead *PushAhead // nil: it was not read
	Told  *Task      // as the last delivery showed it, where deliveries show the whole task
}

// PushAhead is what was read with a claim of what it has to deliver: the first events, and the header of their task.
type PushAhead struct {
	Header *Task
	Events []*Event
}

// PushBusy is what has as much under way as it may, as PushDue tells it.
type PushBusy struct {
	Hosts   []string
	Callers []int64
}

// PushOutcome is what came of one attempt to deliver.
type PushOutcome struct {
	Task       ID
	ConfigID   string
	Claim      [16]byte
	From, To   Seq    // the events that it stood for
	DeliveryID string // the same for each attempt of one delivery; empty: none was needed, and the events are passed over
	Status     int    // of HTTP; 0: there was no answer
	Error      string
	Class      string // of the outcome, for metrics
	Took       time.Duration

	Delivered bool
	Keep      bool          // delivered, and the claim is kept for what follows
	RetryIn   time.Duration // not delivered: when to try again
	Disable   string        // the reason to disable the configuration; empty: it stays
}
