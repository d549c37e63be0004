package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"syscall"

	"github.com/holdfast-a2a/holdfast/internal/web"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/wire"
)

// exitTempFail is EX_TEMPFAIL of sysexits.h: "try again later".
const exitTempFail = 75

type program struct {
	path string
	env  []string
	opts Options
}

// New makes an executor that starts opts.Argv for each run. From then on, other processes of this user cannot read the
// memory and the environment of this process (on Linux).
func New(opts Options) (executor.Executor, error) {
	p, err := newProgram(opts)
	if err != nil {
		return nil, err
	}
	return p, nil
}

func newProgram(opts Options) (*program, error) {
	path, err := opts.resolve()
	if err != nil {
		return nil, err
	}
	if err := protect(); err != nil {
		return nil, fmt.Errorf("command: protect the server's memory: %w", err)
	}
	opts = opts.withDefaults()
	return &program{path: path, env: opts.environment(), opts: opts}, nil
}

// Execute implements executor.Executor.
func (p *program) Execute(ctx context.Context, run *executor.Run, out executor.Emitter) error {
	doc, err := wire.EncodeRun(ctx, run, p.opts.History)
	if err != nil {
		return err
	}
	log := p.opts.Log.With(slog.String("task_id", run.TaskID), slog.Int("attempt", int(run.Attempt)))
	stderr := newErrorLog(log)
	child, err := p.start(bytes.NewReader(doc), stderr, append(runAPI(run), run.Trace().Variables()...)...)
	if err != nil {
		return &executor.Unavailable{Err: fmt.Errorf("start the agent's command: %w", err)}
	}
	run.Began()
	unwatch := context.AfterFunc(ctx, child.stop)
	defer unwatch()

	player := wire.NewPlayer(run, out)
	err = p.play(ctx, player, child)
	switch {
	case err != nil:
		child.stop()
	case player.Settled():
		child.stopAfterGrace()
	}
	child.stdout.discard()
	v := verdict{played: err, settled: player.Settled(), exit: child.wait()}
	stderr.flush()
	return p.outcome(ctx, v, stderr)
}

// runAPI returns the variables with the address of the run API and its token, which the run document has, too.
func runAPI(run *executor.Run) []string {
	if run.API == nil {
		return nil
	}
	return []string{"HOLDFAST_RUN_URL=" + run.API.URL, "HOLDFAST_RUN_TOKEN=" + run.API.Token}
}

// play returns at the end of stdout, at the event that settles the run, or with the reason why the run cannot continue.
func (p *program) play(ctx context.Context, player *wire.Player, child *process) error {
	return player.PlayStream(ctx, web.Lines(child.stdout, p.opts.MaxEvent), func() error {
		// A last line without an end is an event only if its process succeeded. Otherwise a dying process wrote it.
		// Stdout has ended, so this wait is short.
		if exit := child.wait(); !exit.Success() {
			return errInterrupted
		}
		return nil
	})
}

// verdict is the outcome of a run and of its process.
type verdict struct {
	played  error
	settled bool
	exit    *os.ProcessState
}

// errInterrupted stops the playing of events; the exit status says the rest.
var errInterrupted = errors.New("the agent's process ended inside an event")

func (p *program) outcome(ctx context.Context, v verdict, stderr *errorLog) error {
	switch {
	case v.settled:
		// The run has its result; the exit status only goes to the log.
		if !v.exit.Success() {
			stderr.report("agent process failed after it settled its run", v.exit.String())
		}
		return nil
	case ctx.Err() != nil:
		if said := stderr.cause(); said != nil {
			return fmt.Errorf("%w: %w", context.Cause(ctx), said)
		}
		return context.Cause(ctx)
	case v.played != nil && !errors.Is(v.played, errInterrupted):
		stderr.report("agent run ended early", v.played.Error())
		return v.played
	case v.exit.Success():
		return nil
	}
	stderr.report("agent process failed", v.exit.String())
	failure := &executor.Failure{Msg: "the agent's process ended with " + v.exit.String(), Cause: stderr.cause()}
	status, ok := v.exit.Sys().(syscall.WaitStatus)
	if v.exit.ExitCode() == exitTempFail || ok && status.Signaled() {
		// A signal (often from the kernel when memory is short) is a crash of the process and not the agent's answer.
		// So is a broken connection.
		return executor.Retryable(failure, 0)
	}
	return failure
}
