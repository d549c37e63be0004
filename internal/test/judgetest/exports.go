package judgetest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/judge"
)

// readExports reads the logs of tasks that retention has deleted and exported (docs/retention.md): an acknowledged
// event is in the tables, or in a file with its whole task. Tasks that are in logs already stay as the tables have
// them.
func (d Database) readExports(logs map[string]*judge.Log) error {
	files, err := filepath.Glob(filepath.Join(d.Exports, "*", "*.ndjson"))
	if err != nil {
		return err
	}
	stored := make(map[string]bool, len(logs))
	for id := range logs {
		stored[id] = true
	}
	for _, name := range files {
		if err := d.readExport(name, stored, logs); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// exported is a line of a file; the last line of a task counts.
type exported struct {
	Task   string
	TaskID string `json:"task_id"`
	Events []struct {
		Seq        int64
		Kind       string
		State      string
		At         time.Time
		ArtifactID string `json:"artifact_id"`
		Append     bool
		Last       bool
		Payload    struct {
			Parts         []part
			Message       struct{ Parts []part }
			Outcome       string
			Until         time.Time
			Interruptible bool
		}
	}
}

type part struct{ Text string }

func (d Database) readExport(name string, stored map[string]bool, logs map[string]*judge.Log) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return nil // the end, or a line that is being written: then its task is in the tables
		}
		var x exported
		if err := json.Unmarshal(line, &x); err != nil {
			return err
		}
		id, err := task.ParseID(x.Task)
		if err != nil {
			return err
		}
		if stored[x.TaskID] || !d.within(id) {
			continue
		}
		l := &judge.Log{}
		for i := range x.Events {
			e := &x.Events[i]
			r := judge.Row{Shown: e.Kind == "status" || e.Kind == "artifact"}
			r.Seq, r.State, r.Artifact, r.Append, r.Last, r.At = e.Seq, e.State, e.ArtifactID, e.Append, e.Last, e.At
			switch e.Kind {
			case "message":
				if n := len(e.Payload.Parts); n > 0 {
					r.Mark = e.Payload.Parts[n-1].Text
				}
			case "status":
				r.Text = text(e.Payload.Message.Parts)
			case "artifact":
				r.Text = text(e.Payload.Parts)
			case "run":
				r.Until, r.Early, r.Resume = e.Payload.Until, e.Payload.Interruptible, e.Payload.Outcome == "resume"
			}
			l.Events = append(l.Events, r)
		}
		logs[x.TaskID] = l
	}
}

func text(parts []part) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	return b.String()
}
