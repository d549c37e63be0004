package retention

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Retention exports tasks before it deletes them. There is one NDJSON file for each day and agent,
// <directory>/<agent>/2026-11-22.ndjson, with a line for each task that ended on that day (UTC). A
// line is synced to disk before its task is deleted. If the process is killed in between, the task
// is exported again. So a task may have several lines; the last one is valid.

// exportAll exports all tasks of an agent that are deleted with their period.
func (r *Retention) exportAll(ctx context.Context, p *period, agent string, now time.Time) error {
	if r.Export == "" {
		return nil
	}
	job := "export/" + p.name() + "/" + agent
	at, err := r.Store.Progress(ctx, job)
	for err == nil {
		var page []*task.Task
		if page, err = r.Store.EndedBefore(ctx, p.Span, agent, now, at); err != nil || len(page) == 0 {
			break
		}
		if err = r.export(ctx, page); err != nil {
			break
		}
		last := page[len(page)-1]
		at = store.Place{At: last.Status.At, ID: last.ID}
		err = r.Store.SetProgress(ctx, job, at)
	}
	return err
}

// export appends tasks to their files and syncs them.
func (r *Retention) export(ctx context.Context, page []*task.Task) error {
	if r.Export == "" {
		return nil
	}
	files := map[string][]*task.Task{}
	for _, t := range page {
		name := filepath.Join(r.Export, url.PathEscape(t.Agent), t.Status.At.UTC().Format(time.DateOnly)+".ndjson")
		files[name] = append(files[name], t)
	}
	for name, tasks := range files {
		if err := r.appendTo(ctx, name, tasks); err != nil {
			return fmt.Errorf("export: %w", err)
		}
	}
	return nil
}

func (r *Retention) appendTo(ctx context.Context, name string, tasks []*task.Task) (err error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o750); err != nil {
		return err
	}
	unlock, err := lock(name)
	if err != nil {
		return err
	}
	defer unlock()
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	end, err := wholeLines(f)
	if err != nil {
		return err
	}
	if _, err := f.Seek(end, io.SeekStart); err != nil {
		return err
	}
	for _, t := range tasks {
		if err := r.Store.Export(ctx, f, t); err != nil {
			return err
		}
	}
	return f.Sync()
}

// wholeLines truncates a partial last line, which a killed process left, and returns the new end of
// the file.
func wholeLines(f *os.File) (end int64, err error) {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	buf := make([]byte, 64<<10)
	for end = size; end > 0; {
		n := min(int64(len(buf)), end)
		if _, err := f.ReadAt(buf[:n], end-n); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0 {
			end = end - n + int64(i) + 1
			break
		}
		end -= n
	}
	if end == size {
		return end, nil
	}
	return end, f.Truncate(end)
}

// lineHead has the members of an export line that a purge checks.
type lineHead struct {
	Task      string    `json:"task"`
	Agent     string    `json:"agent"`
	Tenant    string    `json:"tenant"`
	Owner     string    `json:"owner"`
	ContextID string    `json:"context_id"`
	State     string    `json:"state"`
	EndedAt   time.Time `json:"ended_at"`
}

// header returns the task of a line.
func (h *lineHead) header() (*task.Task, error) {
	id, err := task.ParseID(h.Task)
	state, _ := task.ParseState(h.State)
	return &task.Task{
		ID: id, Agent: h.Agent, Tenant: h.Tenant, Owner: h.Owner, ContextID: h.ContextID, Status: task.Status{State: state, At: h.EndedAt},
	}, err
}

// PurgeExports removes the lines of tasks that match from all files of the directory, and returns their number. The tasks have what a
// store.AdminFilter selects by.
func (r *Retention) PurgeExports(ctx context.Context, matches func(*task.Task) bool) (lines int, err error) {
	if r.Export == "" {
		return 0, nil
	}
	err = filepath.WalkDir(r.Export, func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && name == r.Export {
			return nil
		}
		if err != nil || d.IsDir() || filepath.Ext(name) != ".ndjson" {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := purgeFile(name, matches)
		lines += n
		return err
	})
	if err != nil {
		return lines, fmt.Errorf("purge exports: %w", err)
	}
	return lines, nil
}

// purgeFile rewrites a file without the lines of tasks that match, and then replaces the old file.
func purgeFile(name string, matches func(*task.Task) bool) (lines int, err error) {
	unlock, err := lock(name)
	if err != nil {
		return 0, err
	}
	defer unlock()
	in, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer func() { _ = in.Close() }()
	out, err := os.CreateTemp(filepath.Dir(name), ".purge-*")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.Remove(out.Name()) }() // does nothing after the rename
	defer func() { _ = out.Close() }()
	w := bufio.NewWriter(out)
	for r := bufio.NewReader(in); ; {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break // a partial line is removed, too
		}
		if err != nil {
			return 0, err
		}
		var h lineHead
		if err := json.Unmarshal(line, &h); err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		t, err := h.header()
		if err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		if matches(t) {
			lines++
			continue
		}
		if _, err := w.Write(line); err != nil {
			return 0, err
		}
	}
	if lines == 0 {
		return 0, nil
	}
	if err := errors.Join(w.Flush(), out.Chmod(0o600), out.Sync()); err != nil {
		return 0, err
	}
	return lines, os.Rename(out.Name(), name)
}
