package v10_test

import (
	"testing"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/dialecttest"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v10"
)

var suite = dialecttest.Suite{
	Codec:    v10.Codec{},
	Examples: "v1.0",
	Proto:    "1.0.1",
	Send:     func(message []byte) []byte { return []byte(`{"message":` + string(message) + `}`) },
	History:  map[string]int{`null`: 3, `0`: 0, `2`: 2, `10`: 3},
	Live:     true,
}

func TestCodec(t *testing.T)      { t.Parallel(); suite.Exercise(t) }
func FuzzDecode(f *testing.F)     { suite.FuzzDecode(f) }
func BenchmarkCodec(b *testing.B) { suite.Benchmark(b) }
