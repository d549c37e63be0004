package limit

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPlaces(t *testing.T) {
	t.Parallel()
	p := NewPlaces(3, 2)
	take := func(key string) func() {
		leave, ok := p.Take(key)
		require.True(t, ok, key)
		return leave
	}
	refuse := func(key string) {
		_, ok := p.Take(key)
		require.False(t, ok, key)
	}
	first, second := take("a"), take("a")
	refuse("a")
	third := take("b")
	refuse("c") // no place is left
	first()
	fourth := take("c")
	refuse("b")
	second()
	third()
	fourth()
	require.Empty(t, p.by)
	require.Zero(t, p.Taken())
}
