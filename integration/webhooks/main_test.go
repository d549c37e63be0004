// Package webhooks shows that every receiver gets each event in order at least once, whatever it and others do.
package webhooks

import (
	"testing"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/receivertest"
)

type object = a2atest.Object

func TestMain(m *testing.M) {
	receivertest.Main()
	clustertest.Main(m)
}
