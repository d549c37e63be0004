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
	History:  map[string]int{`null`: 0, `0`: 0, `2`: 2, `2.0`: 2, `10`: 3, `1e400`: 3},
}

func TestCodec(t *testing.T)      { t.Parallel(); suite.Exercise(t) }
func FuzzDecode(f *testing.F)     { suite.FuzzDecode(f) }
func BenchmarkCodec(b *testing.B) { suite.Benchmark(b) }
