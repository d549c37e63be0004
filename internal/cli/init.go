package cli

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-a2a/holdfast/internal/config"
)

// templates has a folder for each language, and all: the files of every language that has none of this name. They are whole files,
// of an agent named templateName. The suffix .in hides files from the Go tool.
//
//go:embed all:init
var templates embed.FS

const templateName = "my-agent"

// languages are the folders of templates.
var languages = []string{"python", "typescript", "go", "http"}

func (c *command) initialize() *cobra.Command {
	cmd := &cobra.Command{
		Use: "init python|typescript|go|http [DIR]", Short: "Write the files of a new agent",
		Long: `Write a small project into DIR, by default the current directory, whose name becomes that of the
agent: the agent, its test, the configuration of the server, a Dockerfile and a compose file.
The agent is a worker in Python, TypeScript or Go, or an endpoint over HTTP with Python's
library alone. The verb overwrites no file, and prints the commands that install, run and test.`,
		Example: `  holdfast init python greeter`,
	}
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if !slices.Contains(languages, args[0]) {
			return usage("%q is not a language; use %s", args[0], either(languages))
		}
		dir := "."
		if len(args) > 1 {
			dir = args[1]
		}
		p, err := newProject(args[0], dir)
		if err == nil {
			err = p.write(dir)
		}
		if err != nil {
			return err
		}
		return c.showProject(p, dir)
	}
	return cmd
}

// project is what init writes.
type project struct {
	Agent string   `json:"agent"`
	Files []string `json:"files"` // names, sorted
	Next  []string `json:"next"`  // commands for a shell

	content map[string][]byte // by name
}

// newProject makes the files of a language for an agent that is named after a directory.
func newProject(language, dir string) (*project, error) {
	whole, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	p := &project{Agent: filepath.Base(whole), content: map[string][]byte{}}
	if err := checkName(p.Agent); err != nil {
		return nil, err
	}
	for _, folder := range []string{"all", language} {
		entries, err := templates.ReadDir(path.Join("init", folder))
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			raw, err := templates.ReadFile(path.Join("init", folder, e.Name()))
			if err != nil {
				return nil, err
			}
			name := strings.TrimSuffix(e.Name(), ".in")
			if p.content[name] == nil {
				p.Files = append(p.Files, name)
			}
			p.content[name] = bytes.ReplaceAll(raw, []byte(templateName), []byte(p.Agent))
		}
	}
	slices.Sort(p.Files)
	// The page for readers has the commands.
	_, commands, _ := strings.Cut(string(p.content["README.md"]), "```sh\n")
	commands, _, _ = strings.Cut(commands, "\n```")
	p.Next = strings.Split(commands, "\n")
	if dir != "." {
		p.Next = slices.Insert(p.Next, 0, "cd "+word(dir))
	}
	return p, nil
}

// checkName reports a name that an agent cannot have, as the configuration would.
func checkName(name string) error {
	a := config.NewAgent(name)
	a.Executor.Kind = config.ExecutorWorker
	_, err := config.Load(config.Source{Agent: a, Env: func(string) (string, bool) { return "", false }})
	if mistakes, is := errors.AsType[*config.Error](err); is {
		return usage("the agent gets the name of its directory: %s", mistakes.Problems[0].Text)
	}
	return err
}

// word writes a text as one word of a shell.
func word(text string) string {
	if strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-") == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// write writes all files, or none.
func (p *project) write(dir string) (err error) {
	var present []string
	for _, name := range p.Files {
		switch _, err := os.Lstat(filepath.Join(dir, name)); {
		case err == nil:
			present = append(present, name)
		case !errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("no file is written: %w", err)
		}
	}
	if len(present) > 0 {
		return usage("%s has %s already; nothing is written. Move them, or use another directory", dir, strings.Join(present, ", "))
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // sources are readable
		return fmt.Errorf("no file is written: %w", err)
	}
	var written []string
	for _, name := range p.Files {
		file := filepath.Join(dir, name)
		f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // the container's user reads the configuration
		if err == nil {
			written = append(written, file)
			_, err = f.Write(p.content[name])
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			for _, file := range written {
				err = errors.Join(err, os.Remove(file))
			}
			return fmt.Errorf("no file is written: %w", err)
		}
	}
	return nil
}

// showProject prints what was written, and what comes next.
func (c *command) showProject(p *project, dir string) error {
	if c.json() {
		return printJSON(c.Out, p)
	}
	out := &printer{w: c.Out}
	out.line("Wrote %s into %s. Next:", strings.Join(p.Files, ", "), dir)
	for _, command := range p.Next {
		out.line("  %s", command)
	}
	return out.err
}
