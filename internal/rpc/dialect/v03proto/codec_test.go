package v03proto_test

import (
	"testing"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/dialecttest"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v03proto"
)

var suite = dialecttest.Suite{
	Codec:    v03proto.Codec{},
	Examples: "v0.3.0",
	Proto:    "0.3.0",
	Later:    map[string]map[string]string{"Part": {"metadata": "google.protobuf.Struct"}},
	Nameless: true,
	Send:     func(message []byte) []byte { return []byte(`{"message":` + string(message) + `}`) },
	History:  map[string]int{`null`: 3, `0`: 0, `2`: 2, `10`: 3},
}

func TestCodec(t *testing.T)      { t.Parallel(); suite.Exercise(t) }
func FuzzDecode(f *testing.F)     { suite.FuzzDecode(f) }
func BenchmarkCodec(b *testing.B) { suite.Benchmark(b) }
