// Package webhook renders the requests that webhooks receive, in the shape of the version that set
// them.
package webhook

import (
	"fmt"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/registry"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Encoder holds the choices that the A2A documents leave open.
type Encoder dialect.Notify

// Whole reports whether the bodies of a version show the whole task.
func (n Encoder) Whole(version string) bool {
	codec := registry.ByVersion(version)
	if codec == nil {
		return true
	}
	return codec.Traits().WholeTasks
}

// Headers returns the headers in which a version sends a webhook its token, and whether API keys
// also go into Authorization.
func Headers(version string) (token []string, authorizesKeys bool) {
	codec := registry.ByVersion(version)
	if codec == nil {
		return nil, false
	}
	return codec.Traits().TokenHeaders, codec.Traits().AuthorizesKeys
}

// Body renders an event of the task t, as Codec.Notification of the version does.
func (n Encoder) Body(c *task.PushConfig, t *task.Task, e *task.Event) (body []byte, contentType string, err error) {
	codec := registry.ByVersion(c.Dialect)
	if codec == nil {
		return nil, "", fmt.Errorf("this server does not serve A2A %s, in which the webhook was set", c.Dialect)
	}
	return codec.Notification(t, e, dialect.Notify(n))
}
