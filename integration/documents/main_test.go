// Package documents shows that the README and other documents are true: commands run as they stand, and names exist.
package documents

import (
	"testing"

	"github.com/holdfast-a2a/holdfast/internal/clustertest"
)

func TestMain(m *testing.M) {
	clustertest.Main(m)
}
