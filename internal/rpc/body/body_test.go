package body

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// With ReserveNothing the buffer is about as long as the body that arrived, whatever length is announced.
func TestReserveNothing(t *testing.T) {
	t.Parallel()
	for reserves, least := range map[bool]int{true: 64 << 10, false: 0} {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("short"))
		r.ContentLength = 64 << 10
		content, fault := Limits{ReserveNothing: !reserves}.OrDefaults().Read(httptest.NewRecorder(), r, nil)
		require.Nil(t, fault)
		require.Equal(t, "short", string(content))
		require.GreaterOrEqual(t, cap(content), least)
		if !reserves {
			require.LessOrEqual(t, cap(content), 1024)
		}
	}
}
