package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
	"github.com/holdfast-a2a/holdfast/internal/push"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/registry"
	"github.com/holdfast-a2a/holdfast/internal/server"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// PushOperator reads and changes webhooks, as Operator does with tasks.
type PushOperator interface {
	// ListPushes returns the webhooks of the newest tasks first.
	ListPushes(ctx context.Context, f store.PushFilter) ([]store.PushRow, error)
	// PushAttempts returns the newest attempts first. An empty configID means all webhooks of the task.
	PushAttempts(ctx context.Context, id task.ID, configID string, limit int) ([]store.PushAttempt, error)
	// Redeliver, EnablePush and DisablePush fail with task.NotFound if the configuration does not exist. due says that
	// there is something to deliver. Redeliver starts at the event from, or, if from is 0, at the first undelivered
	// event.
	Redeliver(ctx context.Context, id task.ID, configID string, from task.Seq) (due, disabled bool, err error)
	EnablePush(ctx context.Context, id task.ID, configID string) (due bool, err error)
	DisablePush(ctx context.Context, id task.ID, configID, reason string) error
	// TryPush makes one delivery without a task.
	TryPush(ctx context.Context, p *task.PushConfig, of server.TrialOf) (*server.Trial, error)
	// Reseal seals the secrets with the first key that were sealed with another key. It returns their number.
	Reseal(ctx context.Context) (sealed int, err error)
}

func (c *command) push() *cobra.Command {
	return c.operators(&cobra.Command{
		Use:   "push",
		Short: "Show webhooks and their deliveries, and act on them",
		Long: `See which webhooks (push notification configurations) fail, and redeliver, disable or enable
them, for every owner. Servers may run meanwhile; they act on a change at once.

A TASK is the id that clients use, or the UUID of the task. A CONFIG is the id of a webhook
within its task. Without a CONFIG a verb acts on all webhooks of the task.`,
		Example: `  holdfast push list --failing
  holdfast push attempts 0199a3c1-5b7e-7c3a-9a51-2f6f0c1d2e3f
  holdfast push test https://hooks.example.com/a2a`,
	}, true, c.pushList(), c.pushAttempts(), c.pushRedeliver(), c.pushDisable(), c.pushEnable(), c.pushTest(), c.pushSecret())
}

type (
	pushView    = shown.Push
	attemptView = shown.Attempt
)

// sinceOf returns when the state of a webhook began, and its reason.
func sinceOf(v *pushView) (since time.Time, why string) {
	switch {
	case !v.DisabledAt.IsZero():
		return v.DisabledAt, v.DisabledFor
	case v.Failures > 0:
		return v.FailingSince, v.LastError
	}
	return v.DueSince, ""
}

func (c *command) pushList() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List webhooks, those of the newest tasks first",
		Long: `List webhooks. BEHIND is the number of events in the task's log that a webhook has not
passed. STATE is disabled (nothing is sent until it is enabled), delivering (a replica has
claimed it), failing (the server retries, see push attempts), due (it waits for its turn)
or idle. SINCE and WHY say when the state began, and the reason.`,
		Example: `  holdfast push list --disabled
  holdfast push list --failing --host hooks.example.com:443
  holdfast push list --due -o json | jq -r '.[].due_since'`,
		Args: argCount(0, 0),
	}
	var f store.PushFilter
	flags := cmd.Flags()
	of := flags.String("task", "", "only of this task")
	flags.StringVar(&f.Agent, "agent", "", "only of this agent's tasks")
	flags.StringVar(&f.Owner, "owner", "", "only of this owner's tasks")
	tenant := tenantFlag(cmd, "only of this tenant's tasks")
	flags.StringVar(&f.Host, "host", "", "only to this host and port, such as hooks.example.com:443")
	flags.BoolVar(&f.Disabled, "disabled", false, "only those that are disabled")
	flags.BoolVar(&f.Failing, "failing", false, "only those whose last attempt failed")
	flags.BoolVar(&f.Due, "due", false, "only those that have something to deliver, and are not disabled")
	flags.IntVar(&f.Limit, "limit", 50, "at most this many")
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if f.Limit < 1 {
			return usage("--limit must be at least 1")
		}
		f.Tenant = tenant()
		return c.withOperator(cmd, func(ctx context.Context, op Operator) error {
			if *of != "" {
				t, err := op.FindTask(ctx, *of)
				if err != nil {
					return naming(*of, err)
				}
				f.Task = t.ID
			}
			rows, err := op.ListPushes(ctx, f)
			if err != nil {
				return err
			}
			return c.printPushes(rows, *format)
		})
	}
	return cmd
}

func (c *command) printPushes(rows []store.PushRow, format output) error {
	views := make([]pushView, len(rows))
	for i := range rows {
		views[i] = shown.OfPush(&rows[i])
	}
	if format == outputJSON {
		return printJSON(c.Out, views)
	}
	lines := [][]string{{"TASK", "CONFIG", "HOST", "STATE", "BEHIND", "FAILURES", "SINCE", "WHY"}}
	for i := range views {
		v := &views[i]
		since, why := sinceOf(v)
		lines = append(lines, []string{v.TaskID, v.ConfigID, v.Host, v.State, fmt.Sprint(v.Behind), strconv.Itoa(v.Failures), stamp(since), why})
	}
	return table(c.Out, lines)
}

func (c *command) pushAttempts() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "attempts TASK [CONFIG]",
		Short: "Show attempts to deliver, and their outcome",
		Long: `Show the attempts to deliver events of a task, the newest first. The server keeps them for
retention.delivery_attempts. EVENTS is the range of the log that a delivery covers, TRY the
number of the attempt, and CLASS its outcome: delivered, gone, redirect, throttled, client,
server, refused, dns, tls, timeout, network or internal.`,
		Example: `  holdfast push attempts 0199a3c1-5b7e-7c3a-9a51-2f6f0c1d2e3f
  holdfast push attempts order-7 audit --limit 5 -o json`,
		Args: argCount(1, 2),
	}
	limit := cmd.Flags().Int("limit", 50, "at most this many")
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *limit < 1 {
			return usage("--limit must be at least 1")
		}
		return c.withOperator(cmd, func(ctx context.Context, op Operator) error {
			t, err := op.FindTask(ctx, args[0])
			if err != nil {
				return naming(args[0], err)
			}
			attempts, err := op.PushAttempts(ctx, t.ID, configOf(args), *limit)
			if err != nil {
				return err
			}
			return c.printAttempts(attempts, *format)
		})
	}
	return cmd
}

// configOf returns the second argument, or "" for all.
func configOf(args []string) string {
	if len(args) < 2 {
		return ""
	}
	return args[1]
}

func (c *command) printAttempts(attempts []store.PushAttempt, format output) error {
	views := make([]attemptView, len(attempts))
	lines := [][]string{{"AT", "CONFIG", "EVENTS", "TRY", "CLASS", "STATUS", "TOOK", "ERROR"}}
	for i := range attempts {
		a := &attempts[i]
		views[i] = shown.OfAttempt(a)
		lines = append(lines, []string{
			stamp(a.At), a.ConfigID, fmt.Sprintf("%d-%d", a.From, a.To), strconv.Itoa(a.Attempt), a.Class, statusText(a.Status),
			a.Took.Round(time.Millisecond).String(), a.Error,
		})
	}
	if format == outputJSON {
		return printJSON(c.Out, views)
	}
	return table(c.Out, lines)
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// statusText is empty if there was no answer.
func statusText(status int) string {
	if status == 0 {
		return ""
	}
	return strconv.Itoa(status)
}

type pushActionView struct {
	ID       string `json:"id,omitempty"`
	TaskID   string `json:"task_id"`
	ConfigID string `json:"config_id,omitempty"`
	Outcome  string `json:"outcome"`
	Error    string `json:"error,omitempty"`
}

// onPushes applies do to one webhook, or to all webhooks of a task, and prints the outcomes.
func (c *command) onPushes(cmd *cobra.Command, args []string, format output, do func(context.Context, Operator, task.ID, string) (string, error)) error {
	return c.withOperator(cmd, func(ctx context.Context, op Operator) error {
		t, err := op.FindTask(ctx, args[0])
		if err != nil {
			return naming(args[0], err)
		}
		configs := args[1:]
		if len(configs) == 0 {
			// The limit is more than a task may have.
			all, err := op.ListPushes(ctx, store.PushFilter{Task: t.ID, Limit: 10_000})
			if err != nil {
				return err
			}
			if len(all) == 0 {
				return fmt.Errorf("task %s has no webhooks", printable(args[0]))
			}
			for i := range all {
				configs = append(configs, all[i].Config.ID)
			}
		}
		rows := [][]string{{"TASK", "CONFIG", "OUTCOME"}}
		var views []pushActionView
		code := exitOK
		for _, id := range configs {
			v := pushActionView{ID: t.ID.String(), TaskID: t.PublicID, ConfigID: id}
			if v.Outcome, err = do(ctx, op, t.ID, id); err != nil {
				v.Outcome, v.Error = outcomeFailed, err.Error()
				if errors.Is(err, task.NotFound) {
					v.Error = "no such webhook, or no such event"
				}
				c.note("holdfast: webhook %s of task %s: %s", id, t.PublicID, v.Error)
				code = exitFailed
			}
			views = append(views, v)
			rows = append(rows, []string{v.TaskID, v.ConfigID, v.Outcome})
		}
		return c.printOutcomes(ctx, views, rows, format, code)
	})
}

func (c *command) pushRedeliver() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "redeliver TASK [CONFIG]",
		Short: "Retry now, or deliver events again",
		Long: `Deliver the undelivered events of a webhook at once, without waiting for its next attempt.
With --from the webhook gets all events from that one on, also those that it has already
(tasks events shows the numbers). A repeated delivery has the same id, so receivers can
recognize it. No event is skipped: earlier undelivered events come first.

A disabled webhook remains disabled, and gets the events when it is enabled. OUTCOME is due,
nothing (to deliver), disabled or failed.`,
		Example: `  holdfast push redeliver order-7
  holdfast push redeliver order-7 audit --from 1`,
		Args: argCount(1, 2),
	}
	from := cmd.Flags().Int64("from", 0, "the first event to deliver (default: the first undelivered one)")
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *from < 0 {
			return usage("--from must not be negative")
		}
		return c.onPushes(cmd, args, *format, func(ctx context.Context, op Operator, id task.ID, config string) (string, error) {
			due, disabled, err := op.Redeliver(ctx, id, config, task.Seq(*from))
			return shown.Redelivered(due, disabled), err
		})
	}
	return cmd
}

func (c *command) pushDisable() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "disable TASK [CONFIG]",
		Short: "Stop deliveries of a webhook",
		Long: `Stop deliveries of a webhook. It keeps its place in the log, and gets the missed events when
it is enabled: by push enable, or by its client, which sets it again. A delivery under way
may still arrive. A webhook that is disabled already keeps its reason.`,
		Example: `  holdfast push disable order-7 --reason "receiver under repair"
  holdfast push list --host hooks.example.com:443 --limit 10000 -o json |
    jq -r '.[] | @sh "\(.id) \(.config_id)"' | xargs -r -n 2 holdfast push disable`,
		Args: argCount(1, 2),
	}
	reason := cmd.Flags().String("reason", "by an operator", "the reason to show")
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c.reason = *reason // the audit log has it, too
		return c.onPushes(cmd, args, *format, func(ctx context.Context, op Operator, id task.ID, config string) (string, error) {
			return shown.Disabled, op.DisablePush(ctx, id, config, *reason)
		})
	}
	return cmd
}

func (c *command) pushEnable() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "enable TASK [CONFIG]",
		Short: "Resume deliveries of a webhook where they stopped",
		Long: `Resume deliveries of a webhook with the first undelivered event, at once. This also ends the
pause before the next attempt of an enabled webhook. A webhook that is many events behind
gets the current task instead of them (push.coalesce_after). Its failures are reset:
push.give_up_after starts again.

OUTCOME is due (deliveries start now), enabled (there is nothing to deliver) or failed.`,
		Example: `  holdfast push enable order-7
  holdfast push list --disabled --host hooks.example.com:443 --limit 10000 -o json |
    jq -r '.[] | @sh "\(.id) \(.config_id)"' | xargs -r -n 2 holdfast push enable`,
		Args: argCount(1, 2),
	}
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return c.onPushes(cmd, args, *format, func(ctx context.Context, op Operator, id task.ID, config string) (string, error) {
			due, err := op.EnablePush(ctx, id, config)
			if due {
				return shown.Due, err
			}
			return shown.Enabled, err
		})
	}
	return cmd
}

type secretView struct {
	Tenant  string        `json:"tenant"`
	Owner   string        `json:"owner"`
	Claim   string        `json:"owner_claim"`
	Issuer  string        `json:"issuer"`
	Secrets []agentSecret `json:"secrets"`
}

type agentSecret struct {
	Agent  string `json:"agent"`
	Secret string `json:"secret"`
}

func (c *command) pushSecret() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "secret",
		Short: "Show by what an owner's receivers recognize deliveries",
		Long: `Show the claims iss and owner of an owner's deliveries. If the server has
push.webhook_secrets, also show the owner's secrets for Standard Webhooks: for each agent
one of each secret. They are derived from the server's secrets, its public_url, the owner
and the agent, so a signature proves all three. Give them to the owner only: a receiver
that has them can sign for the owner's other receivers.

--tenant and --owner are as tasks get shows them. Without authentication both are empty.
Without --agent, the verb shows the secrets of all agents.`,
		Example: `  holdfast push secret --owner alice
  holdfast push secret --tenant acme --owner alice --agent demo -o json | jq -r '.secrets[0].secret'`,
		Args: argCount(0, 0),
	}
	var owner task.Owner
	flags := cmd.Flags()
	flags.StringVar(&owner.Tenant, "tenant", "", "tenant of the owner")
	flags.StringVar(&owner.Subject, "owner", "", "owner of the tasks")
	agent := flags.String("agent", "", "agent of the tasks (default all)")
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := c.loadForOperator(configFlags(cmd.Flags()))
		if err != nil {
			return err
		}
		var agents []string
		if len(cfg.Agents) == 0 {
			if *agent == "" {
				return usage("without the servers' configuration the agents are unknown; add --config, or --agent")
			}
			agents = append(agents, *agent)
		}
		for i := range cfg.Agents {
			if name := cfg.Agents[i].Name; *agent == "" || *agent == name {
				agents = append(agents, name)
			}
		}
		if len(agents) == 0 {
			return usage("the configuration has no agent %q", *agent)
		}
		v := secretView{
			Tenant: owner.Tenant, Owner: owner.Subject, Claim: push.OwnerClaim(owner), Issuer: cfg.BaseURL(cfg.Listen), Secrets: []agentSecret{},
		}
		for _, text := range cfg.Push.WebhookSecrets {
			s, err := push.ParseSecret(text)
			if err != nil {
				return err
			}
			for _, name := range agents {
				v.Secrets = append(v.Secrets, agentSecret{name, s.For(push.Origin{Issuer: v.Issuer, Owner: owner, Agent: name}).Text()})
			}
		}
		if *format == outputJSON {
			return printJSON(c.Out, v)
		}
		p := &printer{w: c.Out}
		p.field("claim iss", v.Issuer)
		p.field("claim owner", v.Claim)
		for _, s := range v.Secrets {
			p.field("secret", s.Agent+" "+s.Secret)
		}
		return p.err
	}
	return cmd
}

func (c *command) pushTest() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "test URL",
		Short: "Test a receiver with one delivery",
		Long: `Make one delivery to a receiver, with the rules, headers and signatures of this
configuration. The body is the completion of a task that does not exist, and says so.
Nothing is stored, except new signing keys if the database has none. Run it on a machine
where servers with the role push run.

--token-file and --authorization-file name files with the token and the authentication that
a client would set; "-" is standard input. --tenant, --owner and --agent say whose task the
signatures claim: a receiver that verifies them refuses others. The verb needs the
database.

Exit codes: 0 delivered; 1 not delivered, and look for says where the reason may be.`,
		Example: `  holdfast push test https://hooks.example.com/a2a
  holdfast push test http://127.0.0.1:9000/ --dialect 0.3 --token-file token.txt
  echo "Bearer $HOOK_TOKEN" | holdfast push test https://hooks.example.com/a2a --authorization-file -`,
		Args: argCount(1, 1),
	}
	var p task.PushConfig
	flags := cmd.Flags()
	versions := registry.Versions()
	known := strings.Join(versions[:len(versions)-1], ", ") + " or " + versions[len(versions)-1]
	flags.StringVar(&p.Dialect, "dialect", versions[len(versions)-1], "A2A version whose body and headers to send: "+known)
	tokenFile := flags.String("token-file", "", `file with the token of the webhook; "-" is standard input`)
	authorizationFile := flags.String("authorization-file", "", `file with the scheme and credentials of the webhook, such as "Bearer xyz"; "-" is standard input`)
	var of server.TrialOf
	flags.StringVar(&of.Owner.Tenant, "tenant", "", "tenant of the task's owner")
	flags.StringVar(&of.Owner.Subject, "owner", "", "owner of the task")
	flags.StringVar(&of.Agent, "agent", "", "agent of the task")
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !slices.Contains(versions, p.Dialect) {
			return usage("--dialect %q: want %s", p.Dialect, known)
		}
		if *tokenFile == "-" && *authorizationFile == "-" {
			return usage("--token-file and --authorization-file cannot both read standard input")
		}
		authorization, err := c.readSecret("authorization-file", *authorizationFile)
		if err != nil {
			return err
		}
		if p.Token, err = c.readSecret("token-file", *tokenFile); err != nil {
			return err
		}
		if authorization != "" {
			scheme, credentials, ok := strings.Cut(authorization, " ")
			if !ok {
				return usage("--authorization-file: want a scheme and credentials, separated by a space")
			}
			p.Schemes, p.Credentials = []string{scheme}, credentials
		}
		cfg, err := c.load(configFlags(cmd.Flags()))
		if err != nil {
			return err
		}
		p.ID, p.URL, p.CreatedAt = "test", args[0], time.Now()
		return c.withOperator(cmd, func(ctx context.Context, op Operator) error {
			if cfg.PublicURL == "" {
				c.note("public_url is not set: other machines cannot reach the issuer.")
			}
			t, err := op.TryPush(ctx, &p, of)
			if err != nil {
				return err
			}
			return c.printTrial(&p, t, *format)
		})
	}
	return cmd
}

type trialView struct {
	URL         string  `json:"url"`
	Dialect     string  `json:"dialect"`
	ContentType string  `json:"content_type"`
	TaskID      string  `json:"task_id"`
	DeliveryID  string  `json:"delivery_id"`
	Issuer      string  `json:"issuer"`
	Class       string  `json:"class"`
	Status      int     `json:"status,omitempty"`
	Error       string  `json:"error,omitempty"`
	TookMS      float64 `json:"took_ms"`
	LookFor     string  `json:"look_for"`
}

func (c *command) printTrial(p *task.PushConfig, t *server.Trial, format output) error {
	v := trialView{
		URL: p.URL, Dialect: p.Dialect, ContentType: t.ContentType, TaskID: t.TaskID, DeliveryID: t.DeliveryID, Issuer: t.Issuer,
		Class: string(t.Class), Status: t.Status, Error: t.Error, TookMS: milliseconds(t.Took), LookFor: lookFor(t),
	}
	var err error
	if format == outputJSON {
		err = printJSON(c.Out, v)
	} else {
		out := &printer{w: c.Out}
		out.field("url", v.URL)
		out.field("task", v.TaskID)
		out.field("delivery", v.DeliveryID)
		out.field("issuer", v.Issuer)
		out.field("body", "A2A "+v.Dialect+", "+v.ContentType)
		out.field("class", v.Class)
		out.field("status", statusText(v.Status))
		out.field("took", t.Took.Round(time.Millisecond).String())
		out.field("error", v.Error)
		out.field("look for", v.LookFor)
		err = out.err
	}
	if err == nil && t.Class != push.Delivered {
		err = &exitError{code: exitFailed}
	}
	return err
}

// lookFor returns what the user should check after a trial.
func lookFor(t *server.Trial) string {
	switch t.Class {
	case push.Delivered:
		return "the receiver must have verified the JWT in X-A2A-Signature, with the keys at " + t.Issuer + "/.well-known/jwks.json"
	case push.Gone:
		return "whether the receiver knows this URL: after 410 the server disables a webhook at once"
	case push.Redirect:
		return "the target of the redirect: set the webhook to that URL"
	case push.Throttled:
		return "whether the receiver is overloaded; the server retries, at its Retry-After if there is one"
	case push.Client:
		if t.Status == http.StatusUnauthorized || t.Status == http.StatusForbidden {
			return "the credentials that the receiver expects (--token-file, --authorization-file), and whether it has the keys at " + t.Issuer + "/.well-known/jwks.json"
		}
		return "whether the path is right, and the receiver accepts a POST of " + t.ContentType
	case push.Server:
		return "the receiver's log"
	case push.Refused:
		return "push.allow_private, allowed_networks, denied_networks, allowed_ports, https_only and validation_challenge of the configuration"
	case push.DNS:
		return "whether this machine can resolve the name"
	case push.TLS:
		return "the receiver's certificate: its name, its dates, and a chain to an authority that this machine trusts"
	case push.Timeout:
		return "a firewall that drops packets, or a receiver that works before it answers (push.timeout, push.connect_timeout)"
	case push.Network:
		return "whether the receiver listens there, and the network in between"
	default:
		return "the error"
	}
}
