package rest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/rpc/rest"
)

func TestMatch(t *testing.T) {
	t.Parallel()
	for _, path := range []string{
		"", "/", "/v1", "/v1/", "/v1.0", "/v0.3/", "/agents/demo", "/.well-known/agent-card.json", "/Tasks", "/a/b/tasks",
		"/task/x", "/extendedagentcard", "/messages:send", "/a%2Ftasks/x", "/demo/v1/tasks",
		// The first segments of other paths are not tenants. (An agent may have such a name; its path is
		// /agents/{name}.)
		"/agents/tasks", "/agents/message:send", "/.well-known/tasks", "/v1.0/tasks", "/v0.3/message:send", "/v0.1/tasks/x", "/v2/tasks",
	} {
		require.Nil(t, rest.Match(path), path)
	}
	for _, path := range []string{
		"/message:send", "message:stream", "/tasks", "/tasks/", "//tasks", "/tasks/x", "/tasks/x:cancel", "/demo/tasks/x:subscribe",
		"/tasks/x/pushNotificationConfigs/y", "/extendedAgentCard", "/demo/extendedAgentCard", "/tenant%2Fodd/tasks",
		"/v1/message:send", "/v1/v1/message:send", "//v1/tasks", "/v1/card",
		// Unknown paths get an answer in the format of their version.
		"/message:sing", "/tasks/x/y", "/tasks//pushNotificationConfigs", "/tasks/:cancel", "/v1/nothing", "/v1/v1", "/v1/v1/v1/tasks",
		"/tasks/x/pushNotificationConfigs/y/z",
	} {
		require.NotNil(t, rest.Match(path), path)
	}
}
