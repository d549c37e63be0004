package develop

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// ignored are the directories whose files are no sources.
var ignored = []string{"node_modules", "__pycache__", "venv"}

// sources are the extensions of files that people write for a program. A program and its users write others.
var sources = []string{
	".py", ".pyi", ".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx", ".go", ".rs", ".java", ".kt", ".scala", ".cs", ".rb", ".php",
	".ex", ".exs", ".lua", ".sh", ".c", ".h", ".cc", ".cpp", ".hpp", ".swift", ".toml", ".yaml", ".yml", ".md", ".jinja", ".j2", ".prompt",
}

const (
	// quiet is how long no file may have changed before a change counts: editors and branches change several at once.
	quiet = 200 * time.Millisecond
	// atLast is how long changes may go on before one of them counts all the same.
	atLast = 2 * time.Second
	// A file that changes rapid times in a row, each within soon after the one before, is written by the agent itself.
	rapid = 5
	soon  = atLast + time.Second
	// Changes of such a file count again when it has not changed for calm: an editor that saves by itself pauses, too.
	calm = 10 * time.Second
	// maxDirs bounds how many directories are watched. Each costs memory of the kernel.
	maxDirs = 8192
)

// Watcher reports changes of files below a directory.
type Watcher struct {
	root   string
	ignore []string
	also   []string
	events *fsnotify.Watcher
	dirs   int
	full   bool
	muted  map[string]time.Time // paths that the agent writes, with their last change
	say    func(line string)
}

// Watch begins to watch the sources below root and the files that argv names, except in hidden directories, in those that package
// managers make, and where a pattern of ignore matches a name or a path below root. say gets what the author should know.
func Watch(root string, argv, ignore []string, say func(line string)) (*Watcher, error) {
	for _, pattern := range ignore {
		if _, err := filepath.Match(pattern, ""); err != nil {
			return nil, fmt.Errorf("%q is not a pattern", pattern)
		}
	}
	events, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch files: %w", err)
	}
	var also []string
	for _, arg := range argv {
		if path, err := filepath.Abs(arg); err == nil {
			also = append(also, path)
		}
	}
	w := &Watcher{root: root, ignore: ignore, also: also, events: events, muted: map[string]time.Time{}, say: say}
	if err := w.add(root); err != nil {
		return nil, errors.Join(fmt.Errorf("watch %s: %w", root, err), events.Close())
	}
	return w, nil
}

// add watches a directory and those below it.
func (w *Watcher) add(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil && path == w.root:
			return err
		case err != nil:
			return nil //nolint:nilerr // it was removed meanwhile, or belongs to somebody else
		case !entry.IsDir():
			return nil
		case path != w.root && w.skips(path):
			return filepath.SkipDir
		case w.dirs >= maxDirs:
			w.tooMany()
			return filepath.SkipAll
		}
		if err := w.events.Add(path); err != nil {
			if path == w.root {
				return err
			}
			w.tooMany()
			return filepath.SkipAll
		}
		w.dirs++
		return nil
	})
}

func (w *Watcher) tooMany() {
	if !w.full {
		w.full = true
		w.say(fmt.Sprintf("too many directories: changes in all but %d of them do not restart the agent; leave some out with --ignore", w.dirs))
	}
}

// isSource reports whether the file of a path that counts is a source, or the program.
func (w *Watcher) isSource(path string) bool {
	return slices.Contains(sources, strings.ToLower(filepath.Ext(path))) || slices.Contains(w.also, path)
}

// skips reports whether a path does not count, as it belongs to no source.
func (w *Watcher) skips(path string) bool {
	name := filepath.Base(path)
	if strings.HasPrefix(name, ".") || strings.HasSuffix(name, "~") || slices.Contains(ignored, name) {
		return true
	}
	relative, err := filepath.Rel(w.root, path)
	if err != nil {
		return true
	}
	return slices.ContainsFunc(w.ignore, func(pattern string) bool {
		byName, _ := filepath.Match(pattern, name) // Watch has checked it
		byPath, _ := filepath.Match(pattern, relative)
		return byName || byPath
	})
}

// Run sends the path of a changed file to changes, once for changes that come together, until ctx ends. Then it ends the watch.
func (w *Watcher) Run(ctx context.Context, changes chan<- string) {
	defer func() { _ = w.events.Close() }()
	w.report(ctx, w.events.Events, w.events.Errors, changes)
}

func (w *Watcher) report(ctx context.Context, events <-chan fsnotify.Event, errs <-chan error, changes chan<- string) {
	pending, since := "", time.Time{} // the change that is to be reported, and when the first of them came
	last, lastAt, times := "", time.Time{}, 0
	timer := time.NewTimer(quiet)
	timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case e, open := <-events:
			if !open {
				return
			}
			if path := w.changed(e); path != "" {
				if pending == "" {
					since = time.Now()
				}
				pending = path
				timer.Reset(min(quiet, max(0, atLast-time.Since(since))))
			}
		case err, open := <-errs:
			if !open {
				return
			}
			w.say(fmt.Sprintf("watch files: %v", err))
		case <-timer.C:
			if pending != last || time.Since(lastAt) > soon {
				times = 0
			}
			last, lastAt = pending, time.Now()
			pending = ""
			if times++; times > rapid {
				w.muted[filepath.Join(w.root, last)] = lastAt
				w.say(last + " changes with every start, so the agent writes it; its changes do not restart the agent until it has not changed for 10 seconds")
				continue
			}
			select {
			case changes <- last:
			case <-ctx.Done():
				return
			}
		}
	}
}

// changed returns the path of the source that an event has changed, or "".
func (w *Watcher) changed(e fsnotify.Event) string {
	if e.Op == fsnotify.Chmod || w.skips(e.Name) || w.quiets(e.Name, time.Now()) {
		return ""
	}
	info, err := os.Stat(e.Name)
	switch {
	case err != nil || !info.IsDir():
		if !w.isSource(e.Name) {
			return ""
		}
	default:
		if !e.Has(fsnotify.Create) {
			return ""
		}
		_ = w.add(e.Name) // an error concerns only the root
		if e.Name = w.source(e.Name); e.Name == "" {
			return ""
		}
	}
	relative, err := filepath.Rel(w.root, e.Name)
	if err != nil {
		return ""
	}
	return relative
}

// quiets reports whether a change of a path does not count because the agent writes it.
func (w *Watcher) quiets(path string, now time.Time) bool {
	before, muted := w.muted[path]
	if muted {
		w.muted[path] = now
	}
	return muted && now.Sub(before) < calm
}

// source returns a file of a new directory, or "". It may have been there before the watch of the directory.
func (w *Watcher) source(dir string) (found string) {
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil //nolint:nilerr // it was removed meanwhile
		case w.skips(path) && entry.IsDir():
			return filepath.SkipDir
		case !entry.IsDir() && w.isSource(path) && !w.skips(path):
			found = path
			return filepath.SkipAll
		}
		return nil
	})
	return found
}
