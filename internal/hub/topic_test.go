package hub

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPagesFollowTheSizeOfEvents(t *testing.T) {
	t.Parallel()
	const most, aim = 500, 1 << 20
	read := func(rows, bytesEach int) (next int) { return paced(rows, most, rows*bytesEach, aim) }

	rows := firstPage
	for range 10 {
		rows = read(rows, 300)
	}
	require.Equal(t, most, rows, "small events come in large pages")
	rows = read(rows, 16<<20)
	require.Equal(t, most/4, rows)
	for range 10 {
		rows = read(rows, 16<<20)
	}
	require.Equal(t, 1, rows, "huge ones come one by one, and still come")
	require.Equal(t, 16, read(16, aim/32), "what fits is left alone")
}
