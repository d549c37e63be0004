package task

import (
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// filled sets every text, every list of bytes and every element of lists in a value, and returns how many bytes they have.
func filled(v reflect.Value) (n int64) {
	const size = 100_000 // more than all that is counted beside
	switch v.Kind() {
	case reflect.String:
		v.SetString(string(slices.Repeat([]byte{'x'}, size)))
		return size
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return filled(v.Elem())
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes(slices.Repeat([]byte{'x'}, size))
			return size
		}
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		return filled(v.Index(0)) + filled(v.Index(1))
	case reflect.Struct:
		for i := range v.NumField() {
			// Quoted is set in kept tasks only, which count it themselves.
			if f := v.Type().Field(i); f.IsExported() && f.Name != "Quoted" {
				n += filled(v.Field(i))
			}
		}
	default:
	}
	return n
}

// Caches bound events and tasks by these sizes, so whatever a client or an agent makes large must count.
func TestSizesInMemoryCountEverything(t *testing.T) {
	t.Parallel()
	var e Event
	n := filled(reflect.ValueOf(&e).Elem())
	require.Greater(t, n, int64(4_000_000))
	require.GreaterOrEqual(t, e.Memory(), n)

	var m Message
	n = filled(reflect.ValueOf(&m).Elem())
	require.GreaterOrEqual(t, m.Size(), n)

	var a Artifact
	n = filled(reflect.ValueOf(&a).Elem())
	require.GreaterOrEqual(t, a.Memory(), n)
}
