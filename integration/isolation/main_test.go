// Package isolation shows that a caller learns nothing of another's tasks over any wire. It compares answers byte by
// byte with those about a task that does not exist.
package isolation

import (
	"testing"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/issuertest"
	"github.com/holdfast-a2a/holdfast/internal/test/receivertest"
)

type object = a2atest.Object

func TestMain(m *testing.M) {
	issuertest.Main()
	receivertest.Main()
	clustertest.Main(m)
}
