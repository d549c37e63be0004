// Package agents runs the agents of examples/ in their own languages, and faulty ones.
package agents

import (
	"testing"

	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/receivertest"
)

func TestMain(m *testing.M) {
	receivertest.Main()
	clustertest.Main(m)
}
