package admin

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/web"
)

// The database cannot compare with NUL: such a job would fail in each of its steps and never end.
func TestFiltersOfJobsAreRefused(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1025)
	for _, member := range []string{"agent", "tenant", "owner", "context"} {
		for _, value := range []string{`a\u0000b`, long} {
			var f jobFilter
			require.NoError(t, json.Unmarshal([]byte(`{"`+member+`":["`+value+`"]}`), &f))
			_, err := f.filter()
			var p *web.Problem
			require.ErrorAs(t, err, &p)
			require.Equal(t, "filter."+member, p.Field)
		}
		var f jobFilter
		require.NoError(t, json.Unmarshal([]byte(`{"`+member+`":["`+long[1:]+`"]}`), &f))
		_, err := f.filter()
		require.NoError(t, err)
	}
}
