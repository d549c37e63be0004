package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-a2a/holdfast/internal/admin/adminclient"
	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/pg/pgembed"
	"github.com/holdfast-a2a/holdfast/internal/server"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker/develop"
)

// developing has the flags of dev.
type developing struct {
	agent   string
	http    int
	ignore  []string
	grace   time.Duration
	argv    []string // COMMAND; empty: the server alone
	movable []string // the keys of addresses that neither flags nor the environment give
	first   bool     // the start makes a database
	watcher *develop.Watcher
}

func (c *command) dev() *cobra.Command {
	cmd := &cobra.Command{
		Use: "dev [flags] [-- COMMAND [ARG...]]", Short: "Run an agent that you write, with a server and a database",
		Long: `Run the server with a database in ./.holdfast, and COMMAND as the agent. The agent starts
again when it ends, or when a source file below this directory changes. The verb prints events
of tasks and what the agent writes. Ctrl-C stops both. Ports that are in use are replaced by
the next free ones, unless a flag or the environment gives them.

Without COMMAND and flags, the server has the demo agent, and the first start opens the console.

Without --config, the server has one agent, named after the directory. COMMAND connects as its
worker (docs/agents/worker.md). With --http, the server POSTs each message to that port of
this machine instead (docs/agents/http.md). With --config, it serves the agents of the file.

COMMAND gets HOLDFAST_URL, HOLDFAST_AGENT, with --http PORT, and HOLDFAST_API_KEY if the
agents need a key. Hidden files, node_modules, __pycache__ and venv are not watched.`,
		Example: `  holdfast dev
  holdfast dev -- python3 agent.py
  holdfast dev --http 9000 -- python3 agent.py`,
	}
	var d developing
	flags := cmd.Flags()
	flags.StringVar(&d.agent, "agent", "", "name of the agent (default: that of the directory)")
	flags.IntVar(&d.http, "http", 0, "port of this machine where the agent takes messages over HTTP")
	flags.StringArrayVar(&d.ignore, "ignore", nil, "pattern of names or paths whose changes do not restart the agent; may be repeated")
	flags.DurationVar(&d.grace, "grace", 5*time.Second, "how long the agent may take to end after SIGTERM")
	flags.String("listen", "", "address of the API over HTTP (default 127.0.0.1:8080)")
	flags.String("grpc-listen", "", "address of the API over gRPC, or off (default: the port after that of --listen)")
	flags.String("admin-listen", "", "address of metrics and health (default 127.0.0.1:9090)")
	flags.String("database-url", "", "PostgreSQL to use instead of the embedded one")
	cmd.RunE = func(cmd *cobra.Command, argv []string) error {
		if len(argv) > 0 {
			if cmd.ArgsLenAtDash() != 0 {
				return usage("give the command that starts your agent after two dashes: holdfast dev -- python3 agent.py (see --help)")
			}
			if err := develop.Find(argv[0]); err != nil {
				return usage("%s: there is no such program; check the command after the two dashes", argv[0])
			}
		}
		d.argv = argv
		cfg, err := c.devConfig(&d, configFlags(flags))
		if err != nil {
			return err
		}
		return c.develop(cmd.Context(), &d, cfg)
	}
	return cmd
}

// servedAgent is the agent that dev serves without a configuration.
func servedAgent(d *developing) *config.Agent {
	a := config.NewAgent(d.agent)
	a.Executor.Kind = config.ExecutorWorker
	if d.http != 0 {
		a.Executor.Kind = config.ExecutorHTTP
		a.Executor.HTTP.URL = "http://" + localhost + ":" + strconv.Itoa(d.http) + "/"
	}
	return a
}

const localhost = "127.0.0.1"

// devConfig loads the configuration of dev.
func (c *command) devConfig(d *developing, flags map[string]string) (*config.Config, error) {
	demo := len(d.argv) == 0 && d.agent == "" && d.http == 0
	if d.agent == "" {
		d.agent = directoryName()
	}
	if d.http < 0 || d.http > 65535 {
		return nil, usage("--http: %d is not a port", d.http)
	}
	source := config.Source{File: c.configFile, Env: c.Env, Flags: flags, Programs: c.deps.Agents}
	given := c.configFile != "" || c.env("HOLDFAST_CONFIG") != ""
	if given && d.http != 0 {
		return nil, usage("--http and --config both say what the agent is; remove one of them")
	}
	if !given && !demo {
		source.Agent = servedAgent(d)
	}
	cfg, err := config.Load(source)
	if err != nil {
		return nil, err
	}
	if (given || demo) && !slices.ContainsFunc(cfg.Agents, func(a config.Agent) bool { return a.Name == d.agent }) && len(cfg.Agents) == 1 {
		d.agent = cfg.Agents[0].Name
	}
	for _, key := range []string{"listen", "grpc_listen", "admin_listen"} {
		if flags[key] == "" && c.env("HOLDFAST_"+strings.ToUpper(key)) == "" {
			d.movable = append(d.movable, key)
		}
	}
	d.first = cfg.DatabaseURL == "" && !pgembed.Exists(cfg.DataDir)
	return cfg, nil
}

// directoryName makes the name of an agent of that of the current directory.
func directoryName() string {
	dir, err := os.Getwd()
	if err != nil {
		return "agent"
	}
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(filepath.Base(dir)))
	if name = strings.Trim(name, "-"); name == "" {
		return "agent"
	}
	return strings.TrimRight(name[:min(len(name), 63)], "-")
}

// desk prints the lines of dev.
type desk struct {
	mu sync.Mutex
	printer
}

// say prints a line with the time.
func (d *desk) say(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	text := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " ")
	d.line("%s %s", time.Now().Format(time.TimeOnly), text)
}

// plain prints a line as it is.
func (d *desk) plain(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.line("%s", line)
}

// develop runs the server and the agent until ctx ends.
func (c *command) develop(ctx context.Context, d *developing, cfg *config.Config) error {
	if cfg.DatabaseURL == "" {
		used, err := pgembed.InUse(cfg.DataDir)
		if err != nil {
			return fmt.Errorf("database directory: %w", err)
		}
		if used {
			return fmt.Errorf("another holdfast uses the database in %s; stop it, or run this one in another directory", cfg.DataDir)
		}
	}
	desk := &desk{printer: printer{w: c.Out}}
	if len(d.argv) > 0 {
		root, err := os.Getwd()
		if err != nil {
			return err
		}
		if d.watcher, err = develop.Watch(root, d.argv, d.ignore, func(line string) { desk.say("%s", line) }); err != nil {
			return usage("%w", err)
		}
	}
	log := newQuietLogger(c.Err, cfg.Log)
	// The server stops after the agent.
	serving, stopServer := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServer()
	ready, served := make(chan server.Developing, 1), make(chan error, 1)
	if d.first {
		desk.say("starting the server; this first start makes a database in %s", cfg.DataDir)
	} else {
		desk.say("starting the server")
	}
	go func() {
		served <- c.deps.Develop(serving, cfg, log, server.Development{Ready: func(up server.Developing) { ready <- up }, Movable: d.movable})
	}()
	var up server.Developing
	select {
	case up = <-ready:
	case err := <-served:
		return err
	case <-ctx.Done():
		stopServer()
		return <-served
	}
	err := c.beside(ctx, d, cfg, up, desk, log, served)
	desk.say("stopping the server")
	stopServer()
	select {
	case stopped := <-served:
		return errors.Join(err, stopped)
	case <-time.After(stopPatience):
		return errors.Join(err, errors.New("the server did not stop in time"))
	}
}

// stopPatience bounds the stop of the server. It is longer than all of its steps.
const stopPatience = 3 * time.Minute

// beside runs the agent, and shows the tasks, while the server serves.
func (c *command) beside(ctx context.Context, d *developing, cfg *config.Config, up server.Developing, desk *desk, log *slog.Logger, served chan error) error {
	local, err := c.deps.OpenOperator(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer local.Close()
	op := &operator{adminclient.Local(local), "holdfast dev"}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var agent *develop.Agent
	if len(d.argv) > 0 {
		made, revoke, err := c.devAgent(ctx, d, cfg, up, op, desk)
		if err != nil {
			return err
		}
		defer revoke()
		agent = made
	}
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	tasks := newWatch(op, url.Values{})
	_, _ = tasks.next(ctx) // before somebody reads where to send: the first task is shown, too. showTasks says what fails
	all.Go(func() { c.showTasks(ctx, tasks, desk) })
	c.introduce(d, cfg, up, desk)
	ended := make(chan error, 1)
	if agent != nil {
		changes := make(chan string)
		all.Go(func() { d.watcher.Run(ctx, changes) })
		go func() { ended <- agent.Run(ctx, changes) }()
	} else {
		context.AfterFunc(ctx, func() { ended <- nil })
	}
	select {
	case err := <-served:
		served <- nil
		stop()
		return errors.Join(err, <-ended)
	case err := <-ended:
		return err
	}
}

// devAgent makes the agent. revoke ends its key.
func (c *command) devAgent(ctx context.Context, d *developing, cfg *config.Config, up server.Developing, op *operator, desk *desk) (_ *develop.Agent, revoke func(), err error) {
	env := append(c.Environ(), "HOLDFAST_URL="+up.URL, "HOLDFAST_AGENT="+d.agent)
	if d.http != 0 {
		env = append(env, "PORT="+strconv.Itoa(d.http))
	}
	if c.env("PYTHONUNBUFFERED") == "" {
		env = append(env, "PYTHONUNBUFFERED=1") // or its output comes late
	}
	key, revoke, err := c.devKey(ctx, cfg, op, d.agent)
	if err != nil {
		return nil, nil, err
	}
	if key != "" {
		env = append(env, "HOLDFAST_API_KEY="+key)
	}
	agent := &develop.Agent{
		Argv: d.argv, Env: env, Grace: d.grace, Pause: 500 * time.Millisecond, MaxPause: 30 * time.Second,
		Say: func(line string) { desk.say("%s", line) }, Output: func(line string) { desk.plain("agent | " + line) }, Ended: up.Ended,
	}
	killAtSecondSignal(agent)
	return agent, revoke, nil
}

// introduce says what runs where, and what to try.
func (c *command) introduce(d *developing, cfg *config.Config, up server.Developing, desk *desk) {
	for _, text := range up.Moved {
		desk.say("%s", text)
	}
	desk.say("server ready at %s; Ctrl-C stops it, and keeps its data", up.URL)
	lines := []string{"", "  console  " + up.Console, "  try      " + c.sendCommand(up.URL, cfg, d) + "   (in another terminal, in this directory)"}
	if len(d.argv) == 0 {
		lines = append(lines, "  yours    holdfast init python my-agent   (or typescript, go, http)")
	}
	for _, line := range append(lines, "") {
		desk.plain(line)
	}
	if d.first && len(d.argv) == 0 && isTerminal(c.Out) {
		c.browse(up.Console)
	}
}

// sendCommand returns a command that talks to the agent.
func (c *command) sendCommand(url string, cfg *config.Config, d *developing) string {
	words := []string{"holdfast", "send"}
	if a := cfg.DefaultAgent(); a != nil && a.Name != d.agent {
		words = append(words, "--agent", d.agent)
	}
	if cfg.DatabaseURL != "" && url != defaultURL {
		words = append(words, "--url", url)
	}
	return strings.Join(append(words, `"hello"`), " ")
}

// devKey makes an API key for the agent, if the server has a scheme of that kind and the environment has no key. revoke ends it.
func (c *command) devKey(ctx context.Context, cfg *config.Config, op *operator, agent string) (secret string, revoke func(), err error) {
	revoke = func() {}
	if c.env("HOLDFAST_API_KEY") != "" || !slices.ContainsFunc(cfg.Auth.Schemes, func(s config.AuthScheme) bool { return s.Kind == config.AuthAPIKey }) {
		return "", revoke, nil
	}
	made, err := op.createKey(ctx, &store.APIKey{Name: "holdfast dev", Subject: "dev", Scopes: []string{"worker:" + agent}}, devKeyLifetime)
	if err != nil {
		return "", revoke, err
	}
	return made.Key, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelPatience)
		defer cancel()
		if _, err := op.revokeKey(ctx, made.ID); err != nil {
			c.note("holdfast: the key %s of the agent could not be revoked, and ends within a day: %s", made.ID, plain(err))
		}
	}, nil
}

const devKeyLifetime = 24 * time.Hour

// killAtSecondSignal makes a second Ctrl-C end this process at once, without leaving the agent. It listens from the start: between the
// first one and a later Notify, another would end the process before it has killed the agent's children.
func killAtSecondSignal(agent *develop.Agent) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals // which ends the context of the verb
		s := <-signals
		agent.Kill()
		signal.Reset(os.Interrupt, syscall.SIGTERM)
		if number, ok := s.(syscall.Signal); ok {
			_ = syscall.Kill(os.Getpid(), number)
		}
	}()
}

// look is the pause before the tasks are read again.
const look = 300 * time.Millisecond

// showTasks prints each event of each task in a line, until ctx ends.
func (c *command) showTasks(ctx context.Context, w *watch, desk *desk) {
	away := false
	for {
		events, err := w.next(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil && !away {
			desk.say("tasks cannot be read at the moment: %s", plain(err))
		}
		away = err != nil
		for _, e := range events {
			if text := devLine(e.Event); text != "" {
				desk.say("task %s %s", e.task.TaskID, text)
			}
		}
		if away && sleep(ctx, look) != nil {
			return
		}
	}
}

// shownText bounds a text in a line, in characters.
const shownText = 160

// devLine describes an event of a task, or returns "".
func devLine(e *task.Event) string {
	with := func(head string, parts []task.Part) string {
		var texts []string
		for _, p := range parts {
			texts = append(texts, strings.TrimSpace(shownStored(p)))
		}
		text := []rune(oneLine(strings.Join(texts, " ")))
		if len(text) > shownText {
			text = append(text[:shownText], '…')
		}
		if len(text) > 0 && head != "" {
			head += ": "
		}
		return head + string(text)
	}
	said := func() []task.Part {
		if e.Message == nil {
			return nil
		}
		return e.Message.Parts
	}
	switch {
	case e.Kind == task.EventMessage:
		return with(roleName(task.RoleUser), said())
	case e.Kind == task.EventStatus && e.State == task.StateSubmitted:
		return ""
	case e.Kind == task.EventStatus && e.State == task.StateInputRequired:
		return with("asks", said())
	case e.Kind == task.EventStatus:
		return with(e.State.String(), said())
	case e.Artifact != nil:
		return with("artifact "+label(e.Artifact), e.Artifact.Parts)
	case e.Run != nil && e.Run.Error != "":
		return fmt.Sprintf("attempt %d %s: %s", e.Attempt, e.Run.Outcome, e.Run.Error)
	case e.Run != nil:
		if record := e.Run.Recorded(); record != nil && record.Kind == "step" {
			return with("", []task.Part{task.Text(record.String())})
		}
	}
	return ""
}
