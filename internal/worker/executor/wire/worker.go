package wire

import "encoding/json"

// The documents of the worker API (docs/worker-api.yaml), besides the run document.

// WorkerDocument is the worker that sends a request.
type WorkerDocument struct {
	ID      string `json:"id"`
	Name    string `json:"name,omitempty"`
	Version string `json:"version,omitempty"`
	SDK     string `json:"sdk,omitempty"`
}

// SlotsDocument says how many runs of an agent a worker takes.
type SlotsDocument struct {
	Name  string `json:"name"`
	Slots *int   `json:"slots"`
}

// ClaimRequest asks for runs.
type ClaimRequest struct {
	Worker  *WorkerDocument `json:"worker"`
	Agents  []SlotsDocument `json:"agents"`
	Running []string        `json:"running"`
	Wait    *float64        `json:"wait"` // seconds
}

// ClaimAnswer has the runs that the worker gets.
type ClaimAnswer struct {
	Runs  []ClaimedRun `json:"runs"`
	Drain string       `json:"drain,omitempty"`
}

// ClaimedRun is a run with its lease in seconds.
type ClaimedRun struct {
	ID    string          `json:"id"`
	Run   json.RawMessage `json:"run"`
	Lease float64         `json:"lease"`
}

// HeartbeatRequest renews the leases of runs.
type HeartbeatRequest struct {
	Worker   *WorkerDocument `json:"worker"`
	Runs     []string        `json:"runs"`
	Stopping []string        `json:"stopping"`
	Wait     *float64        `json:"wait"` // seconds
}

// HeartbeatAnswer has the runs that the worker must stop, and the shortest lease in seconds.
type HeartbeatAnswer struct {
	Lease float64      `json:"lease,omitempty"`
	Runs  []StoppedRun `json:"runs"`
	Drain string       `json:"drain,omitempty"`
}

// StoppedRun says why to stop a run.
type StoppedRun struct {
	ID       string          `json:"id"`
	Stop     string          `json:"stop"`
	Metadata json.RawMessage `json:"metadata,omitempty"` // of the cancel
}

// Why to stop a run.
const (
	StopCanceled = "canceled"
	StopLost     = "lost"
	StopOver     = "over"
)

// ReleaseRequest gives runs back.
type ReleaseRequest struct {
	Worker *WorkerDocument `json:"worker"`
	Runs   []string        `json:"runs"`
	Leaves bool            `json:"leaves,omitempty"` // the worker stops: this is its last request
}

// The values of Drain: the replica stops, or the worker is retired.
const (
	DrainReplica = "replica"
	DrainWorker  = "worker"
)
