package v03_test

import (
	"testing"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/dialecttest"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v03"
)

var suite = dialecttest.Suite{
	Codec:      v03.Codec{},
	Examples:   "v0.2",
	Schemas:    []string{"0.2.1", "0.2.5", "0.3.0"},
	Send:       func(message []byte) []byte { return []byte(`{"message":` + string(message) + `}`) },
	History:    map[string]int{`null`: 3, `0`: 0, `2`: 2, `10`: 3},
	ShowsEmpty: true,
}

func TestCodec(t *testing.T)      { t.Parallel(); suite.Exercise(t) }
func FuzzDecode(f *testing.F)     { suite.FuzzDecode(f) }
func BenchmarkCodec(b *testing.B) { suite.Benchmark(b) }
