// Package limits shows that no client harms others: limits, malformed and slow requests, slow readers.
package limits

import (
	"testing"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/receivertest"
)

type object = a2atest.Object

func TestMain(m *testing.M) {
	receivertest.Main()
	clustertest.Main(m)
}
