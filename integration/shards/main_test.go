// Package shards shows the server past one database: several installations behind one balancer. It needs HAProxy and Python.
package shards

import (
	"testing"

	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
)

func TestMain(m *testing.M) {
	clustertest.Main(m)
}
