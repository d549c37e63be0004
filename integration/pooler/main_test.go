// Package pooler runs replicas behind a real PgBouncer in transaction mode.
package pooler

import (
	"testing"

	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
)

func TestMain(m *testing.M) {
	clustertest.Main(m)
}
