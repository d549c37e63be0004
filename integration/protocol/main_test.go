// Package protocol shows that a task is the same task in every version over every binding: what one client makes, another
// continues, reads and streams, on any replica. It also plays the published examples, and turns every switch.
package protocol

import (
	"testing"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
)

type object = a2atest.Object

func TestMain(m *testing.M) {
	clustertest.Main(m)
}
