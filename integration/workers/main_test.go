// Package workers shows that agents whose workers connect to the server survive what happens to workers, connections and
// replicas: kills, freezes, cuts, stops and retirements.
package workers

import (
	"testing"

	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
)

func TestMain(m *testing.M) { clustertest.Main(m) }
