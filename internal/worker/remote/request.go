package remote

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/holdfast-a2a/holdfast/internal/rawjson"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/web"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/wire"
)

// Limits of a request. docs/worker-api.yaml has them, too.
const (
	maxAgents    = 100
	maxSlots     = 1000
	maxRuns      = 10_000
	maxName      = 255
	maxClaimWait = time.Minute
	claimWait    = 30 * time.Second
	maxBeatWait  = 30 * time.Second
	maxBody      = 2 << 20
)

// decode reads a body. Members that are not known are ignored.
func decode(raw []byte, depth int, into any) *web.Problem {
	if err := rawjson.Check(raw, depth); err != nil {
		return web.Invalid("", "the body is not valid JSON: "+err.Error())
	}
	if bad := wire.Unmarshal(raw, into); bad != nil {
		return web.Invalid(bad.Member, bad.Problem)
	}
	return nil
}

// readWorker reads who sends the request.
func readWorker(d *wire.WorkerDocument) (w store.RemoteWorker, p *web.Problem) {
	if d == nil {
		return w, web.Invalid("worker", "is missing")
	}
	id, err := uuid.Parse(d.ID)
	if err != nil || id == uuid.Nil || id == uuid.Max {
		return w, web.Invalid("worker.id", "must be a UUID, new with each start of the worker")
	}
	for _, of := range [][2]string{{"worker.name", d.Name}, {"worker.version", d.Version}, {"worker.sdk", d.SDK}} {
		if p := checkText(of[0], of[1]); p != nil {
			return w, p
		}
	}
	return store.RemoteWorker{ID: task.ID(id), Name: d.Name, Version: d.Version, SDK: d.SDK}, nil
}

func checkText(field, text string) *web.Problem {
	switch {
	case utf8.RuneCountInString(text) > maxName:
		return web.Invalid(field, fmt.Sprintf("must have at most %d characters", maxName))
	case strings.ContainsFunc(text, unicode.IsControl):
		return web.Invalid(field, "must have no control characters")
	}
	return nil
}

// readRuns reads the ids of runs. A repeated one counts once.
func readRuns(field string, ids []string) ([]store.LentRun, *web.Problem) {
	if len(ids) > maxRuns {
		return nil, web.Invalid(field, fmt.Sprintf("must have at most %d entries, not %d", maxRuns, len(ids)))
	}
	out := make([]store.LentRun, 0, len(ids))
	seen := make(map[store.LentRun]bool, len(ids))
	for i, text := range ids {
		run, ok := parseRun(text)
		if !ok {
			return nil, web.Invalid(fmt.Sprintf("%s[%d]", field, i), "is not the id of a run")
		}
		if !seen[run] {
			seen[run] = true
			out = append(out, run)
		}
	}
	return out, nil
}

func readWait(seconds *float64, fallback, most time.Duration) (time.Duration, *web.Problem) {
	switch {
	case seconds == nil:
		return fallback, nil
	case *seconds < 0 || *seconds > most.Seconds():
		return 0, web.Invalid("wait", fmt.Sprintf("must be a number of seconds from 0 to %v", most.Seconds()))
	}
	return time.Duration(*seconds * float64(time.Second)), nil
}

// readOf reads who sends a request about runs, and the runs.
func readOf(worker *wire.WorkerDocument, ids []string) (w store.RemoteWorker, runs []store.LentRun, p *web.Problem) {
	if w, p = readWorker(worker); p != nil {
		return w, nil, p
	}
	if ids == nil {
		return w, nil, web.Invalid("runs", "is missing")
	}
	runs, p = readRuns("runs", ids)
	return w, runs, p
}

// runID is the name of a run in this API. It is no secret: each statement also asks for the worker and its agents.
func runID(r store.LentRun) string {
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint64(r.Task[:], uint64(r.ClaimedAt)))
}

func parseRun(text string) (r store.LentRun, ok bool) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) != len(r.Task)+8 || raw[len(r.Task)]&0x80 != 0 {
		return r, false
	}
	copy(r.Task[:], raw)
	// Later times would not fit into a timestamp of the database.
	at := int64(binary.BigEndian.Uint64(raw[len(r.Task):]))
	r.ClaimedAt = at
	return r, at < 1<<53
}

// claimRequest is the body of a claim.
type claimRequest struct {
	worker  store.RemoteWorker
	slots   map[string]int
	running []store.LentRun
	wait    time.Duration
}

func readClaim(raw []byte, depth int) (r claimRequest, p *web.Problem) {
	var in wire.ClaimRequest
	if p = decode(raw, depth, &in); p != nil {
		return r, p
	}
	if r.worker, p = readWorker(in.Worker); p != nil {
		return r, p
	}
	switch n := len(in.Agents); {
	case in.Agents == nil:
		return r, web.Invalid("agents", "is missing")
	case n == 0 || n > maxAgents:
		return r, web.Invalid("agents", fmt.Sprintf("must have 1 to %d entries, not %d", maxAgents, n))
	}
	r.slots = map[string]int{}
	for i, a := range in.Agents {
		field := fmt.Sprintf("agents[%d].", i)
		_, twice := r.slots[a.Name]
		switch {
		case a.Name == "":
			return r, web.Invalid(field+"name", "is missing")
		case twice:
			return r, web.Invalid(field+"name", "names an agent a second time")
		case a.Slots == nil:
			return r, web.Invalid(field+"slots", "is missing")
		case *a.Slots < 0 || *a.Slots > maxSlots:
			return r, web.Invalid(field+"slots", fmt.Sprintf("must be a whole number from 0 to %d", maxSlots))
		}
		if p = checkText(field+"name", a.Name); p != nil {
			return r, p
		}
		r.slots[a.Name] = *a.Slots
		r.worker.Agents = append(r.worker.Agents, a.Name)
	}
	if r.running, p = readRuns("running", in.Running); p != nil {
		return r, p
	}
	r.wait, p = readWait(in.Wait, claimWait, maxClaimWait)
	return r, p
}

// beatRequest is the body of a heartbeat.
type beatRequest struct {
	worker   store.RemoteWorker
	runs     []store.LentRun
	stopping map[store.LentRun]bool
	wait     time.Duration
}

func readBeat(raw []byte, depth int) (r beatRequest, p *web.Problem) {
	var in wire.HeartbeatRequest
	if p = decode(raw, depth, &in); p != nil {
		return r, p
	}
	if r.worker, r.runs, p = readOf(in.Worker, in.Runs); p != nil {
		return r, p
	}
	stopping, p := readRuns("stopping", in.Stopping)
	if p != nil {
		return r, p
	}
	r.stopping = map[store.LentRun]bool{}
	for _, run := range stopping {
		r.stopping[run] = true
	}
	r.wait, p = readWait(in.Wait, 0, maxBeatWait)
	return r, p
}
