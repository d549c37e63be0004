package server

import (
	"encoding/json"
	"mime"
	"net/http"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/server/telemetry"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// purgeRequest is the body of POST /tasks/purge. A task must match all given members.
type purgeRequest struct {
	Task      string  `json:"task"` // its UUID, or the id that the client chose
	Tenant    *string `json:"tenant"`
	Owner     *string `json:"owner"`
	ContextID string  `json:"context_id"`
	Agent     string  `json:"agent"`
	OlderThan string  `json:"older_than"` // a duration such as 720h
}

// purgeReply says what was deleted.
type purgeReply struct {
	Tasks    int `json:"tasks"`
	Held     int `json:"held"`
	Exported int `json:"exported_lines"`
}

// purgeEndpoint deletes tasks for operators, as holdfast tasks purge does.
func purgeEndpoint(e *env, st *store.Store) telemetry.Endpoint {
	r := NewRetention(e.cfg, st, e.log)
	purge := func(w http.ResponseWriter, req *http.Request) error {
		// With admin.open anybody may read metrics, but nobody may delete.
		if e.cfg.AdminAccess() == config.AdminOpen {
			return task.Errorf(task.Forbidden, "admin.open admits everybody, so purges are refused here; use holdfast tasks purge, or set auth.schemes and admin.schemes")
		}
		// A page in a browser on this machine cannot send this type without a preflight request.
		if kind, _, err := mime.ParseMediaType(req.Header.Get("Content-Type")); err != nil || kind != "application/json" {
			return task.Errorf(task.Invalid, "Content-Type: must be application/json")
		}
		var body purgeRequest
		d := json.NewDecoder(http.MaxBytesReader(w, req.Body, 64<<10))
		d.DisallowUnknownFields()
		if err := d.Decode(&body); err != nil {
			return task.Errorf(task.Invalid, "body: %s", err)
		}
		f := &store.PurgeFilter{Tenant: body.Tenant, Owner: body.Owner, ContextID: body.ContextID, Agent: body.Agent}
		if body.OlderThan != "" {
			d, err := time.ParseDuration(body.OlderThan)
			if err != nil || d <= 0 {
				return task.Errorf(task.Invalid, "older_than: %q is not a duration above 0; write 720h", body.OlderThan)
			}
			f.OlderThan = d
		}
		if body.Task != "" {
			t, err := st.Resolve(req.Context(), body.Task)
			if err != nil {
				return err
			}
			f.Task = t.ID
		}
		done, err := r.Purge(req.Context(), f)
		if err != nil {
			return err
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		return json.NewEncoder(w).Encode(purgeReply(done))
	}
	return telemetry.Endpoint{Pattern: "POST /tasks/purge", Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if err := purge(w, req); err != nil {
			telemetry.Refuse(w, err)
		}
	})}
}
