// Package operators tests what operators use: the verbs of the command line, the pages of the admin address, the
// embedded database.
package operators

import (
	"testing"

	"github.com/holdfast-a2a/holdfast/internal/clustertest"
)

func TestMain(m *testing.M) {
	clustertest.Main(m)
}
