package v01_test

import (
	"testing"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/dialecttest"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v01"
)

var suite = dialecttest.Suite{
	Codec:    v01.Codec{},
	Examples: "v0.1",
	Schemas:  []string{"0.1.0"},
	Send:     func(message []byte) []byte { return []byte(`{"id":"t-1","message":` + string(message) + `}`) },
}

func TestCodec(t *testing.T)      { t.Parallel(); suite.Exercise(t) }
func FuzzDecode(f *testing.F)     { suite.FuzzDecode(f) }
func BenchmarkCodec(b *testing.B) { suite.Benchmark(b) }
