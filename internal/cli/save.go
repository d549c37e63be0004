package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"mime"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// saveArtifacts writes the artifacts that have come to files in a directory. It never overwrites one: the agent chooses the
// names.
func (t *talk) saveArtifacts(dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("--save: %w", err)
	}
	for i := range t.out.seen.Artifacts {
		a := &t.out.seen.Artifacts[i]
		if !t.out.fresh[a.ID] {
			continue
		}
		parts := a.Parts
		if text, ok := wholeText(parts); ok && len(parts) > 1 && parts[0].Filename == "" {
			parts = []task.Part{{Kind: task.PartText, Text: text, MediaType: parts[0].MediaType}}
		}
		for _, p := range parts {
			if p.Kind == task.PartURL {
				t.note("Not saved: %s of artifact %s", shownStored(p), printable(label(a)))
				continue
			}
			name, content := fileOf(a, &p)
			path, err := create(dir, name, content)
			if err != nil {
				return fmt.Errorf("--save: %w", err)
			}
			t.note("Saved %s", path)
		}
	}
	clear(t.out.fresh)
	return nil
}

// fileOf returns the name and the content of a part's file.
func fileOf(a *task.Artifact, p *task.Part) (name string, content []byte) {
	extension := ".txt"
	content = []byte(p.Text)
	switch p.Kind {
	case task.PartRaw:
		extension, content = ".bin", p.Raw
	case task.PartData:
		extension, content = ".json", append(bytes.TrimSpace(p.Data), '\n')
	default:
	}
	if known, err := mime.ExtensionsByType(p.MediaType); err == nil && len(known) > 0 && p.Kind == task.PartRaw {
		extension = known[0]
	}
	if name = plainName(p.Filename); name != "" {
		return name, content
	}
	if name = plainName(label(a)); name == "" {
		name = "artifact"
	}
	if filepath.Ext(name) == "" {
		name += extension
	}
	return name, content
}

// plainName makes the name of a file in its directory of what an agent says.
func plainName(s string) string {
	s = strings.Map(func(r rune) rune {
		if strings.ContainsRune(`/\:`, r) {
			return '-'
		}
		return r
	}, printable(oneLine(s)))
	s = strings.TrimLeft(s, ".-")
	if len(s) > 200 {
		s = strings.ToValidUTF8(s[:200], "")
	}
	return s
}

// create writes a new file. If there is one of this name, it adds a number.
func create(dir, name string, content []byte) (path string, err error) {
	extension := filepath.Ext(name)
	base := strings.TrimSuffix(name, extension)
	for n := 1; ; n++ {
		path = filepath.Join(dir, name)
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			name = fmt.Sprintf("%s-%d%s", base, n+1, extension)
			continue
		}
		if err != nil {
			return "", err
		}
		_, err = f.Write(content)
		return path, errors.Join(err, f.Close())
	}
}
