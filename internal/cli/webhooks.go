package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-a2a/holdfast/internal/admin/adminclient"
	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
	"github.com/holdfast-a2a/holdfast/internal/push"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/registry"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

func (c *command) webhooks() *cobra.Command {
	return c.operators(&cobra.Command{
		Use: "webhooks", Aliases: []string{"push"}, Short: "Show webhooks and their deliveries, and act on them",
		Long: `See which webhooks (push notification configurations) fail, and redeliver, disable or enable
them. Servers act on a change at once.

A TASK is the id that clients use, or the UUID of the task. A CONFIG is the id of a webhook
within its task. Without a CONFIG a verb acts on all webhooks of the task.`,
		Example: `  holdfast webhooks list --failing
  holdfast webhooks attempts 0199a3c1-5b7e-7c3a-9a51-2f6f0c1d2e3f`,
	}, true, c.pushList(), c.pushAttempts(), c.pushRedeliver(), c.pushDisable(), c.pushEnable(), c.pushTest(), c.pushSecret())
}

// sinceOf returns when the state of a webhook began, and its reason.
func sinceOf(v *shown.Push) (since time.Time, why string) {
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
		Use: "list", Short: "List webhooks, those of the newest tasks first",
		Long: `BEHIND counts the events of the task that a webhook has not passed. STATE is disabled (nothing
is sent until it is enabled), delivering (a replica has claimed it), failing (the server
retries), due (it waits for its turn) or idle. SINCE and WHY say when the state began, and the
reason.`,
		Example: `  holdfast webhooks list --disabled
  holdfast webhooks list --failing --host hooks.example.com:443`,
	}
	flags := cmd.Flags()
	of := flags.String("task", "", "only of this task")
	flags.String("agent", "", "only of this agent's tasks")
	flags.String("owner", "", "only of this owner's tasks")
	flags.String("tenant", "", "only of this tenant's tasks")
	flags.String("host", "", "only to this host and port, such as hooks.example.com:443")
	flags.Bool("disabled", false, "only those that are disabled")
	flags.Bool("failing", false, "only those whose last attempt failed")
	flags.Bool("due", false, "only those that have something to deliver, and are not disabled")
	limit := flags.Int("limit", 50, atMost)
	cmd.RunE = c.operate(func(ctx context.Context, op *operator, _ []string) error {
		q := given(cmd, "agent", "owner", "tenant", "host", "disabled", "failing", "due")
		if *of != "" {
			t, err := op.find(ctx, *of)
			if err != nil {
				return naming(*of, err)
			}
			q.Set("task", t.ID.String())
		}
		rows, err := op.pushes(ctx, "/webhooks", q, *limit)
		if err != nil {
			return err
		}
		return c.printPushes(rows)
	})
	return cmd
}

// pushes returns webhooks, those of the newest tasks first.
func (o *operator) pushes(ctx context.Context, path string, q url.Values, limit int) ([]shown.Push, error) {
	return paged(ctx, o, path, q, limit, func(p *shown.WebhooksPage) ([]shown.Push, string) { return p.Webhooks, p.Next })
}

func (c *command) printPushes(views []shown.Push) error {
	lines := [][]string{{"TASK", "CONFIG", "HOST", "STATE", "BEHIND", "FAILURES", "SINCE", "WHY"}}
	for i := range views {
		v := &views[i]
		since, why := sinceOf(v)
		lines = append(lines, []string{v.TaskID, v.ConfigID, v.Host, v.State, fmt.Sprint(v.Behind), strconv.Itoa(v.Failures), stamp(since), why})
	}
	return c.print(views, lines)
}

func (c *command) pushAttempts() *cobra.Command {
	cmd := &cobra.Command{
		Use: "attempts TASK [CONFIG]", Short: "Show attempts to deliver, and their outcome",
		Long: `List attempts, the newest first. The server keeps them for retention.delivery_attempts. EVENTS
is the range of the log that a delivery covers, TRY the number of the attempt, and CLASS its
outcome: delivered, gone, redirect, throttled, client, server, refused, dns, tls, timeout,
network or internal.`,
		Example: `  holdfast webhooks attempts 0199a3c1-5b7e-7c3a-9a51-2f6f0c1d2e3f
  holdfast webhooks attempts order-7 audit --limit 5 -o json`,
	}
	limit := cmd.Flags().Int("limit", 50, atMost)
	cmd.RunE = c.operate(func(ctx context.Context, op *operator, args []string) error {
		var got shown.Attempts
		q := query("config", strings.Join(args[1:], ""), "limit", strconv.Itoa(*limit))
		if err := op.api.Get(ctx, adminclient.OfTask(args[0], "attempts"), q, &got); err != nil {
			return naming(args[0], err)
		}
		return c.printAttempts(got.Attempts)
	})
	return cmd
}

func (c *command) printAttempts(attempts []store.PushAttempt) error {
	lines := [][]string{{"AT", "CONFIG", "EVENTS", "TRY", "CLASS", "STATUS", "TOOK", "ERROR"}}
	for i := range attempts {
		a := &attempts[i]
		lines = append(lines, []string{
			stamp(a.At), a.ConfigID, fmt.Sprintf("%d-%d", a.From, a.To), strconv.Itoa(a.Attempt), a.Class, statusText(a.Status),
			tookText(a.TookMS), a.Error,
		})
	}
	return c.print(attempts, lines)
}

// tookText writes milliseconds as a duration.
func tookText(ms float64) string {
	return time.Duration(ms * float64(time.Millisecond)).Round(time.Millisecond).String()
}

// statusText is empty if there was no answer.
func statusText(status int) string {
	if status == 0 {
		return ""
	}
	return strconv.Itoa(status)
}

// onPushes acts on one webhook, or on all webhooks of a task, and prints the outcomes.
func (c *command) onPushes(cmd *cobra.Command, args []string, body map[string]any, act string) error {
	return c.withOperator(cmd, func(ctx context.Context, op *operator) error {
		t, err := op.find(ctx, args[0])
		if err != nil {
			return naming(args[0], err)
		}
		configs := args[1:]
		if len(configs) == 0 {
			all, err := op.pushes(ctx, adminclient.OfTask(t.ID.String(), "webhooks"), query(), math.MaxInt)
			if err != nil {
				return err
			}
			if len(all) == 0 {
				return fmt.Errorf("task %s has no webhooks", printable(args[0]))
			}
			for i := range all {
				configs = append(configs, all[i].ConfigID)
			}
		}
		var views []outcome
		for _, id := range configs {
			did, err := op.act(ctx, t.ID.String(), body, "webhooks", id, act)
			if errors.Is(err, task.NotFound) {
				err = errors.New("no such webhook, or no such event")
			}
			v := outcome{ConfigID: id}
			v.of(did, err)
			v.ID, v.TaskID = t.ID, t.TaskID
			views = append(views, v)
		}
		return c.printOutcomes(ctx, views, exitOK, "TASK", "CONFIG", "OUTCOME")
	})
}

func (c *command) pushRedeliver() *cobra.Command {
	cmd := &cobra.Command{
		Use: "redeliver TASK [CONFIG]", Short: "Retry now, or deliver events again",
		Long: `Deliver the undelivered events of a webhook now. With --from, deliver all events from that one
on again (tasks events shows the numbers), after earlier undelivered ones. A repeated delivery
has the same id.

A disabled webhook stays disabled, and gets the events when it is enabled. OUTCOME is due,
nothing (to deliver), disabled or failed.`,
		Example: `  holdfast webhooks redeliver order-7
  holdfast webhooks redeliver order-7 audit --from 1`,
	}
	from := cmd.Flags().Int64("from", 0, "the first event to deliver (default: the first undelivered one)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *from < 0 {
			return usage("--from must not be negative")
		}
		body := map[string]any{}
		if *from > 0 {
			body["from"] = *from
		}
		return c.onPushes(cmd, args, body, "redeliver")
	}
	return cmd
}

func (c *command) pushDisable() *cobra.Command {
	cmd := &cobra.Command{
		Use: "disable TASK [CONFIG]", Short: "Stop deliveries of a webhook",
		Long: `A webhook gets the missed events when it is enabled: by webhooks enable, or by its client,
which sets it again. A delivery under way may still arrive.`,
		Example: `  holdfast webhooks disable order-7 --reason "receiver under repair"
  holdfast webhooks list --host hooks.example.com:443 --limit 10000 -o json |
    jq -r '.[] | @sh "\(.id) \(.config_id)"' | xargs -r -n 2 holdfast webhooks disable`,
	}
	reason := cmd.Flags().String("reason", "by an operator", "the reason to show")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c.reason = *reason // the audit log has it, too
		return c.onPushes(cmd, args, nil, "disable")
	}
	return cmd
}

func (c *command) pushEnable() *cobra.Command {
	cmd := &cobra.Command{
		Use: "enable TASK [CONFIG]", Short: "Resume deliveries of a webhook where they stopped",
		Long: `Deliver from the first undelivered event, or the current task if it is many events behind
(push.coalesce_after). push.give_up_after starts again. OUTCOME is due (deliveries start now),
enabled (there is nothing to deliver) or failed.`,
		Example: `  holdfast webhooks enable order-7`,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return c.onPushes(cmd, args, nil, "enable")
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
		Use: "secret", Short: "Show by what an owner's receivers recognize deliveries",
		Long: `Show the claims iss and owner of an owner's deliveries and, with push.webhook_secrets, the
owner's secrets for Standard Webhooks, for each agent one of each. Give them to the owner
only: a receiver that has them can sign for the owner's other receivers.

--tenant and --owner are as tasks get shows them. Without authentication both are empty.`,
		Example: `  holdfast webhooks secret --owner alice
  holdfast webhooks secret --tenant acme --owner alice --agent demo -o json | jq -r '.secrets[0].secret'`,
	}
	var owner task.Owner
	flags := cmd.Flags()
	flags.StringVar(&owner.Tenant, "tenant", "", "tenant of the owner")
	flags.StringVar(&owner.Subject, "owner", "", "owner of the tasks")
	agent := flags.String("agent", "", "agent of the tasks (default all)")
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
		if c.json() {
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
		Use: "test URL", Short: "Test a receiver with one delivery",
		Long: `Deliver the completion of a task that does not exist, with the rules, headers and signatures
of this configuration. Run it on a machine where servers with the role push run, or let such a
server do it (--server).

--tenant, --owner and --agent say whose task the signatures claim: a receiver that verifies
them refuses others. If it fails, look for says where the reason may be.`,
		Example: `  holdfast webhooks test https://hooks.example.com/a2a
  holdfast webhooks test http://127.0.0.1:9000/ --dialect 0.3 --token-file token.txt`,
	}
	flags := cmd.Flags()
	versions := registry.Versions()
	known := strings.Join(versions[:len(versions)-1], ", ") + " or " + versions[len(versions)-1]
	dialect := flags.String("dialect", versions[len(versions)-1], "A2A version whose body and headers to send: "+known)
	tokenFile := flags.String("token-file", "", `file with the token of the webhook; "-" is standard input`)
	authorizationFile := flags.String("authorization-file", "", `file with the scheme and credentials of the webhook, such as "Bearer xyz"; "-" is standard input`)
	tenant := flags.String("tenant", "", "tenant of the task's owner")
	owner := flags.String("owner", "", "owner of the task")
	agent := flags.String("agent", "", "agent of the task")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !slices.Contains(versions, *dialect) {
			return usage("--dialect %q: want %s", *dialect, known)
		}
		if *tokenFile == "-" && *authorizationFile == "-" {
			return usage("--token-file and --authorization-file cannot both read standard input")
		}
		authorization, err := c.readSecret("authorization-file", *authorizationFile)
		if err != nil {
			return err
		}
		token, err := c.readSecret("token-file", *tokenFile)
		if err != nil {
			return err
		}
		scheme, credentials, ok := strings.Cut(authorization, " ")
		if authorization != "" && !ok {
			return usage("--authorization-file: want a scheme and credentials, separated by a space")
		}
		if c.serverURL() == "" {
			cfg, err := c.load(configFlags(cmd.Flags()))
			if err != nil {
				return err
			}
			if cfg.PublicURL == "" {
				c.note("public_url is not set: other machines cannot reach the issuer.")
			}
		}
		return c.withOperator(cmd, func(ctx context.Context, op *operator) error {
			var t shown.Trial
			err := op.post(ctx, "/webhooks/test", map[string]any{
				"url": args[0], "dialect": *dialect, "token": token, "scheme": scheme, "credentials": credentials,
				"tenant": *tenant, "owner": *owner, "agent": *agent,
			}, &t)
			if err != nil {
				return err
			}
			return c.printTrial(&trialView{t, lookFor(&t)})
		})
	}
	return cmd
}

type trialView struct {
	shown.Trial
	LookFor string `json:"look_for"`
}

func (c *command) printTrial(v *trialView) error {
	var err error
	if c.json() {
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
		out.field("took", tookText(v.TookMS))
		out.field("error", v.Error)
		out.field("look for", v.LookFor)
		err = out.err
	}
	if err == nil && push.Class(v.Class) != push.Delivered {
		err = &exitError{code: exitFailed}
	}
	return err
}

// lookFor returns what the user should check after a trial.
func lookFor(t *shown.Trial) string {
	switch push.Class(t.Class) {
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
		return "push.allow_private, allowed_networks, denied_networks, https_only and validation_challenge of the configuration"
	case push.DNS:
		return "whether this machine can resolve the name"
	case push.TLS:
		return "the receiver's certificate: its name, its dates, and a chain to an authority that this machine trusts"
	case push.Timeout:
		return "a firewall that drops packets, or a receiver that works before it answers (push.timeout)"
	case push.Network:
		return "whether the receiver listens there, and the network in between"
	default:
		return "the error"
	}
}
