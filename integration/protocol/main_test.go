// Package protocol shows that a task is the same in every version over every binding: a task created by one client
// can be continued, read and streamed by another, on any replica. It also plays the published examples, and tests
// every switch.
package protocol

import (
	"testing"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
)

type object = a2atest.Object

func TestMain(m *testing.M) {
	clustertest.Main(m)
}
