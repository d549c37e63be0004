package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Source names the inputs of a configuration. Flags override the environment, which overrides the file, which overrides
// the defaults.
type Source struct {
	// File is the path of the YAML file. If it is empty, HOLDFAST_CONFIG names the file. If that is empty too, there is
	// no file.
	File string
	// Env looks up a variable, as os.LookupEnv does. An empty value counts as unset, because compose files pass on
	// unset variables that way.
	Env func(name string) (string, bool)
	// Flags are the values from the command line, by the path of their key.
	Flags map[string]string
	// Programs are the agents that the calling Go program implements. If the file has no agents, the server serves
	// these. In a file they have the executor kind go.
	Programs []string
	// Agent is the agent if the file has none, and there are no Programs. Nil: the demo agent.
	Agent *Agent
	// Serving takes the addresses from the server that uses the data directory, where flags and the environment give none.
	Serving bool
}

// Load reads, completes and checks a configuration. If its content has mistakes, the error is an *Error with all of
// them.
func Load(src Source) (*Config, error) {
	_, c, err := load(src)
	return c, err
}

// load also returns the loader, which has the file's content and where the values come from: a file that is a pipe can be
// read only once.
func load(src Source) (*loader, *Config, error) {
	l := &loader{report: report{origins: map[string]origin{}}, secrets: map[string]*secretField{}, env: src.Env, file: src.path(), programs: src.Programs}
	c := Default()
	root := reflect.ValueOf(c).Elem()
	if l.file != "" {
		if err := l.readFile(root); err != nil {
			return nil, nil, err
		}
	}
	l.readEnvironment("", root)
	l.readFlags(src.Flags, root)
	l.readSecrets()

	if !l.given("agents") {
		c.Agents = nil
		for _, name := range src.Programs {
			a := NewAgent(name)
			a.Executor.Kind = ExecutorGo
			c.Agents = append(c.Agents, *a)
		}
		switch {
		case len(c.Agents) > 0:
		case src.Agent != nil:
			c.Agents = []Agent{*src.Agent}
		default:
			c.Agents = []Agent{demoAgent()}
		}
	}
	if !l.given("grpc_listen") {
		c.GRPCListen = besideListen(c.Listen)
	}
	if src.Serving {
		l.serving(c)
	}
	if !l.given("drain_delay") && len(c.Exposed()) > 0 {
		c.DrainDelay = drainDelay
	}
	if c.servesOthers() {
		c.Push.HTTPSOnly = c.Push.HTTPSOnly || !l.given("push.https_only")
		c.Push.Challenge = c.Push.Challenge || !l.given("push.validation_challenge")
	} else if l.file == "" && c.DatabaseURL == "" {
		c.Push.AllowPrivate = true // a trial on one machine: its receivers are there, too
	}
	l.validate(c)
	if err := l.err(); err != nil {
		return nil, nil, err
	}
	for i := range c.Agents {
		agent := fmt.Sprintf("agents[%d]", i)
		c.Agents[i].complete(l.given(agent+".limits.concurrency"), l.given(agent+".history"))
	}
	if c.DefaultAgent() == nil {
		c.Agents[0].Default = true
	}
	return l, c, nil
}

// path returns the path of the file; "" without one.
func (src *Source) path() string {
	if src.File != "" {
		return src.File
	}
	file, _ := (&loader{env: src.Env}).lookup("HOLDFAST_CONFIG")
	return file
}

type loader struct {
	report
	env  func(string) (string, bool)
	file string
	// programs are the agents that the calling program implements.
	programs []string
	content  *yaml.Node              // of the file
	secrets  map[string]*secretField // those that files and commands give, by the key of the value
}

func (l *loader) lookup(name string) (string, bool) {
	if l.env == nil {
		return "", false
	}
	v, ok := l.env(name)
	return v, ok && v != ""
}

// readFile decodes the file into root. It returns an error for an unreadable file; mistakes in the content go to the
// report.
func (l *loader) readFile(root reflect.Value) error {
	f, err := os.Open(l.file)
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	defer func() { _ = f.Close() }() // nothing was written to it
	docs, err := yaml.NewLoader(f)
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	var doc, second yaml.Node
	if err := docs.Load(&doc); errors.Is(err, io.EOF) {
		return nil // nothing but comments
	} else if err != nil {
		l.syntax(err)
		return nil
	}
	if err := docs.Load(&second); err == nil {
		l.problems = append(l.problems, Problem{
			Where: l.where(&second), line: second.Line, Text: "a second YAML document begins; write one document",
		})
	} else if !errors.Is(err, io.EOF) {
		l.syntax(err)
		return nil
	}
	l.content = doc.Content[0]
	l.decode("", l.content, root)
	return nil
}

// syntax records a mistake that the YAML parser found. The parser stops at the first one.
func (l *loader) syntax(err error) {
	p := Problem{Where: l.file, Text: err.Error()}
	var at *yaml.LoadError
	if errors.As(err, &at) {
		p.Text = at.Message
		if at.ContextMsg != "" {
			p.Text += " (" + at.ContextMsg + ")"
		}
		if at.Mark.Line > 0 {
			p.Where = fmt.Sprintf("%s:%d", l.file, at.Mark.Line)
			p.line = at.Mark.Line
		}
	}
	l.problems = append(l.problems, p)
}

// readEnvironment sets every field that names a variable.
func (l *loader) readEnvironment(path string, section reflect.Value) {
	for i := range section.NumField() {
		field := section.Type().Field(i)
		key := join(path, field.Tag.Get("yaml"))
		if name := field.Tag.Get("env"); name != "" {
			v, ok := l.lookup(name)
			if ok {
				l.override(key, "environment variable "+name, v, section.Field(i))
			}
			if s := secretOf(path, field, section.Field(i)); s != nil {
				l.secretFromEnvironment(s, name+"_FILE", ok)
			}
		}
		if field.Type.Kind() == reflect.Struct {
			l.readEnvironment(key, section.Field(i))
		}
	}
}

func (l *loader) readFlags(flags map[string]string, root reflect.Value) {
	for i := range root.NumField() {
		key := root.Type().Field(i).Tag.Get("yaml")
		if v, ok := flags[key]; ok {
			l.override(key, "flag for "+key, v, root.Field(i))
		}
	}
}

// override sets a value from outside the file.
func (l *loader) override(key, where, text string, v reflect.Value) {
	l.forget(key)
	l.origins[key] = origin{where: where}
	l.setText(key, text, v)
}

// forget drops the file's mistakes with a key, and where its value comes from, because the file's value is not used.
func (l *loader) forget(key string) {
	kept := l.problems[:0]
	for _, p := range l.problems {
		if p.Key != key && p.Key != key+fileSuffix && p.Key != key+commandSuffix && !strings.HasPrefix(p.Key, key+"[") {
			kept = append(kept, p)
		}
	}
	l.problems = kept
	delete(l.secrets, key)
}
