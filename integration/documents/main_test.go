// Package documents shows that the README and other documents are true: their commands run as written, and their
// names exist.
package documents

import (
	"testing"

	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
)

func TestMain(m *testing.M) {
	clustertest.Main(m)
}
