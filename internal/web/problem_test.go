package web_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/web"
)

func TestProblemOf(t *testing.T) {
	t.Parallel()
	slow := &task.Error{Kind: task.Unavailable, Msg: "the look-up timed out", RetryAfter: 2 * time.Second, Cause: context.DeadlineExceeded}
	refused := web.Refuse(http.StatusConflict, "ordinal", "from", "events are missing")
	for name, c := range map[string]struct {
		err            error
		status         int
		reason, detail string
	}{
		"its own kind before its cause": {slow, 503, "unavailable", "the look-up timed out"},
		"a deadline alone":              {fmt.Errorf("read: %w", context.DeadlineExceeded), 503, "unavailable", "the database did not answer in time"},
		"given up":                      {context.Canceled, 503, "unavailable", "the server gave the request up"},
		"a fault inside":                {errors.New("relation does not exist"), 500, "internal", ""},
		"a kind":                        {task.Forbidden, 403, "forbidden", task.Forbidden.Error()},
		"a problem":                     {fmt.Errorf("upload: %w", refused), 409, "ordinal", "from: events are missing"},
		"a body":                        {&web.BodyFault{Status: 413, Msg: "the limit is 3 bytes"}, 413, "too_large", "the body is too large: the limit is 3 bytes"},
		"no memory for a body":          {&web.BodyFault{Err: slow}, 503, "unavailable", "the look-up timed out"},
	} {
		p := web.ProblemOf(c.err)
		require.Equal(t, c.status, p.Status, name)
		require.Equal(t, []string{c.reason, c.detail}, []string{p.Reason, p.Detail}, name)
	}
	require.Equal(t, 2*time.Second, web.ProblemOf(slow).After)
}
