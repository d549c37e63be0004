package wire

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"unicode/utf8"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// RecordDocument is the record of a durable run, as its event has it but for the type, and as it is stored.
type RecordDocument struct {
	Kind    string           `json:"kind"`
	Name    string           `json:"name"`
	Nth     int              `json:"nth"`
	Data    jsontext.Value   `json:"data,omitzero"`
	Error   *Error           `json:"error,omitzero"`
	Emitted map[string]int64 `json:"emitted,omitempty"`
	Open    []string         `json:"open,omitempty"`
	Tries   int              `json:"tries,omitzero"`
	Took    float64          `json:"took,omitzero"` // seconds
}

// The bounds of the members kind and name, in characters.
const (
	maxKind = 20
	maxName = 200
)

func readRecord(in *eventDocument) (*Event, *Malformed) {
	switch {
	case in.Kind == "":
		return nil, malformed("kind", "is missing")
	case utf8.RuneCountInString(in.Kind) > maxKind:
		return nil, malformed("kind", "must have at most %d characters", maxKind)
	case in.Name == "":
		return nil, malformed("name", "is missing")
	case utf8.RuneCountInString(in.Name) > maxName:
		return nil, malformed("name", "must have at most %d characters", maxName)
	case in.Nth < 1:
		return nil, malformed("nth", "must be a number from 1")
	case in.Data == nil && in.Error == nil:
		return nil, malformed("data", "is missing; a record has one of data, error")
	case in.Data != nil && in.Error != nil:
		return nil, malformed("error", "must not come with data")
	case in.Tries < 0:
		return nil, malformed("tries", "must not be negative")
	case in.Took < 0 || in.Took > math.MaxInt32:
		return nil, malformed("took", "must be a number of seconds that is not negative")
	}
	for key, n := range in.Emitted {
		if n < 0 {
			return nil, malformed("emitted", "%s must not be negative", quote(key))
		}
	}
	raw, err := jsonv2.Marshal(&RecordDocument{
		in.Kind, in.Name, in.Nth, jsontext.Value(compact(in.Data)), in.Error, in.Emitted, in.Open, in.Tries, in.Took,
	}, jsontext.PreserveRawStrings(true), jsonv2.Deterministic(true))
	if err != nil {
		return nil, explain(err)
	}
	return &Event{Action: Record, Checkpoint: raw}, nil
}

// RecordList is a part of what durable runs of the task have recorded, oldest first.
type RecordList struct {
	Records []json.RawMessage `json:"records"`
	Next    task.Seq          `json:"next,omitzero"` // the place after which others follow; 0: none do
}

// recordBytes bounds the records of a run document, and of a page of them.
const recordBytes = 1 << 20

// Records reads what durable runs of the task have recorded after a place.
func Records(ctx context.Context, run *executor.Run, after task.Seq) (*RecordList, error) {
	records, next, err := run.Memory.Records(ctx, after, recordBytes)
	if err != nil {
		return nil, fmt.Errorf("read the records: %w", err)
	}
	if records == nil {
		records = []json.RawMessage{} // in JSON a list without entries
	}
	return &RecordList{records, next}, nil
}
