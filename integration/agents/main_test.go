// Package agents runs the agents of examples/ in their own languages, and faulty ones.
package agents

import (
	"testing"

	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/mcptest"
	"github.com/holdfast-a2a/holdfast/internal/receivertest"
)

func TestMain(m *testing.M) {
	mcptest.Main()
	receivertest.Main()
	clustertest.Main(m)
}

// patient are Settings with sends that wait for an hour; steady have leases that outlast any load, so cancels wait for minutes, too.
var (
	patient = clustertest.Replace(clustertest.Settings, "worker: {", "limits: {max_block: 1h}\nworker: {")
	steady  = clustertest.Replace(patient, "lease_ttl: 6s", "lease_ttl: 10m")
)
