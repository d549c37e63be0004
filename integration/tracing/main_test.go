// Package tracing shows that the spans of all replicas, agents and webhooks of a task are one trace, and that tracing that is
// off adds nothing to any request.
package tracing

import (
	"testing"

	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/receivertest"
)

func TestMain(m *testing.M) {
	receivertest.Main()
	clustertest.Main(m)
}
