package cli

import (
	"io"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/admin/adminclient"
	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// After a resync no event is lost of a task that has ended meanwhile, and is in no list that the watch reads. If that fails, it is
// repeated. The watch handles all events of a stream before its end.
func TestWatchAfterMissedChanges(t *testing.T) {
	t.Parallel()
	api, away := newFake(), true
	var continued []string
	lists := 0
	api.routes["GET /tasks"] = func(*http.Request) (any, error) {
		if lists++; lists > 1 {
			return shown.TasksPage{}, nil
		}
		return shown.TasksPage{Tasks: []shown.Task{shownTask(2, task.StateWorking)}}, nil
	}
	api.routes["GET /tasks/{id}"] = func(*http.Request) (any, error) {
		if away {
			away = false
			return nil, task.Errorf(task.Unavailable, "away")
		}
		return shown.TaskDetail{Task: shownTask(5, task.StateCompleted)}, nil
	}
	mux := http.NewServeMux()
	mux.Handle("/", api)
	mux.HandleFunc("GET /admin/v1/tasks/stream", func(w http.ResponseWriter, r *http.Request) {
		continued = append(continued, r.URL.Query().Get("last_event_id"))
		_, _ = io.WriteString(w, "event: ready\nid: 7\ndata: {}\n\nevent: resync\nid: 8\ndata: {}\n\n")
	})
	w := newWatch(&operator{api: adminclient.Local(mux)}, url.Values{})
	var seqs []task.Seq
	ends := 0
	for len(seqs) < 3 {
		evs, err := w.next(t.Context())
		if err != nil {
			require.ErrorIs(t, err, task.Unavailable)
			ends++
		}
		for _, e := range evs {
			seqs = append(seqs, e.Seq)
		}
		require.Less(t, ends, 5)
	}
	require.Equal(t, []task.Seq{3, 4, 5}, seqs)
	require.Equal(t, []string{"", "7"}, continued, "the resync that failed is repeated")
}
