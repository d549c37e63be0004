// Package isolation shows that a caller learns nothing of another's tasks, whatever it asks over every wire: answers are
// compared byte by byte with those about a task that never was.
package isolation

import (
	"testing"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/issuertest"
	"github.com/holdfast-a2a/holdfast/internal/receivertest"
)

type object = a2atest.Object

func TestMain(m *testing.M) {
	issuertest.Main()
	receivertest.Main()
	clustertest.Main(m)
}
