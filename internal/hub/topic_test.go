package hub

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPageSizeFollowsEventSize(t *testing.T) {
	t.Parallel()
	const most, aim = 500, 1 << 20
	read := func(rows, bytesEach int) (next int) { return paced(rows, most, rows*bytesEach, aim) }

	rows := firstPage
	for range 10 {
		rows = read(rows, 300)
	}
	require.Equal(t, most, rows, "small events are read in large pages")
	rows = read(rows, 16<<20)
	require.Equal(t, most/4, rows)
	for range 10 {
		rows = read(rows, 16<<20)
	}
	require.Equal(t, 1, rows, "huge events are read one by one")
	require.Equal(t, 16, read(16, aim/32), "a page of the right size stays")
}
