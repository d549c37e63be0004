package task

import "time"

// PushConfig is a webhook of a task: A2A's PushNotificationConfig.
type PushConfig struct {
	ID          string    // unique within its task; the public task id for the default one
	URL         string    // absolute, http or https
	Host        string    // host and port of the URL in canonical form; the check of the URL sets it
	Token       string    // secret; sent with each delivery, so that the receiver can verify it
	Schemes     []string  // authentication schemes of the receiver; A2A 1.0 has only the first
	Credentials string    // secret
	Artifacts   bool      // deliver artifact events, too
	Dialect     string    // version of the request that set it; decides bodies and headers
	CreatedAt   time.Time // when the configuration was first set, not its last change
	DisabledAt  time.Time // zero: enabled
	DisabledFor string    // why it was disabled
}
