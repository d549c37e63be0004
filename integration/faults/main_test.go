// Package faults shows that nothing is lost when replicas, connections and the database fail. It compares answers to
// clients with the log, and random operations with a small model of tasks.
package faults

import (
	"testing"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
)

type object = a2atest.Object

func TestMain(m *testing.M) {
	clustertest.Main(m)
}
