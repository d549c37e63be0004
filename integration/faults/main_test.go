// Package faults shows that nothing is lost when replicas, connections and the database fail. It compares answers to
// clients with the log, and random operations with a small model of tasks.
package faults

import (
	"testing"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
)

type object = a2atest.Object

// patient are settings under which a request that waits for a run waits for its end, on the busiest machine.
const patient = clustertest.Settings + "limits: {max_block: 1h}\n"

// outlasting are patient settings under which no replica loses its lease.
var outlasting = clustertest.Replace(patient, "lease_ttl: 6s", "lease_ttl: 10m")

func TestMain(m *testing.M) {
	clustertest.Main(m)
}
