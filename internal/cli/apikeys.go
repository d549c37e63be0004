package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
	"github.com/holdfast-a2a/holdfast/internal/store"
)

// Key is an API key without its secret.
type Key struct {
	ID, Name, Tenant, Subject string
	Scopes                    []string
	CreatedAt                 time.Time
	ExpiresAt, RevokedAt      time.Time // zero: no expiry, not revoked
	LastUsedAt                time.Time // zero: not used yet
}

func (c *command) apiKeys() *cobra.Command {
	return c.operators(&cobra.Command{
		Use:   "api-keys",
		Short: "Create, list and revoke API keys",
		Long: `API keys are credentials of clients, workers and operators, for schemes of kind api_key. The
database has a hash of each. Servers refuse a revoked key at once.`,
		Example: `  holdfast api-keys create --subject alice --scope weather:use
  holdfast api-keys list
  holdfast api-keys revoke mzxw6ytboi5dkmrq`,
	}, true, c.apiKeysCreate(), c.apiKeysList(), c.apiKeysRevoke())
}

type keyView = shown.Key

func viewKey(k *Key, now time.Time) keyView {
	return shown.OfKey(&store.APIKey{
		ID: k.ID, Name: k.Name, Tenant: k.Tenant, Subject: k.Subject, Scopes: k.Scopes,
		CreatedAt: k.CreatedAt, ExpiresAt: k.ExpiresAt, RevokedAt: k.RevokedAt, LastUsedAt: k.LastUsedAt,
	}, now)
}

func (c *command) apiKeysCreate() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create --subject NAME",
		Short: "Create an API key and print it once",
		Long: `Create an API key and print it. Store it now: the database keeps only a hash of it. Callers
with the key act as this subject of this tenant, and own its tasks.`,
		Example: `  holdfast api-keys create --subject alice
  holdfast api-keys create --subject ci --tenant acme --scope weather:use --scope weather:admin --expires-in 2160h --name "build server"`,
		Args: argCount(0, 0),
	}
	var k Key
	cmd.Flags().StringVar(&k.Subject, "subject", "", "subject that the key stands for (required)")
	cmd.Flags().StringVar(&k.Tenant, "tenant", "", "tenant of the subject")
	cmd.Flags().StringArrayVar(&k.Scopes, "scope", nil, "scope of the key; may be repeated")
	cmd.Flags().StringVar(&k.Name, "name", "", "name of the key, for people")
	lifetime := cmd.Flags().Duration("expires-in", 0, "how long the key is valid (default: until revoked)")
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if k.Subject == "" {
			return usage("--subject is missing; name the caller that the key stands for")
		}
		if *lifetime < 0 {
			return usage("--expires-in must not be negative")
		}
		return c.withOperator(cmd, func(ctx context.Context, op Operator) error {
			secret, made, err := op.CreateKey(ctx, &k, *lifetime)
			if err != nil {
				return err
			}
			if *format == outputJSON {
				v := viewKey(made, time.Now())
				v.Key = secret
				return printJSON(c.Out, v)
			}
			c.note("holdfast: created key %s of %s; store it now, because it is not shown again:", made.ID, made.Subject)
			p := &printer{w: c.Out}
			p.line("%s", secret)
			return p.err
		})
	}
	return cmd
}

func (c *command) apiKeysList() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List API keys, newest first",
		Example: `  holdfast api-keys list
  holdfast api-keys list -o json | jq -r '.[] | select(.state == "valid") | .id'`,
		Long: `List API keys, without their secrets. USED is accurate to five minutes.`,
		Args: argCount(0, 0),
	}
	tenant := tenantFlag(cmd, "only API keys of this tenant")
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return c.withOperator(cmd, func(ctx context.Context, op Operator) error {
			keys, err := op.Keys(ctx)
			if err != nil {
				return err
			}
			if of := tenant(); of != nil {
				keys = slices.DeleteFunc(keys, func(k *Key) bool { return k.Tenant != *of })
			}
			return c.printKeys(keys, *format)
		})
	}
	return cmd
}

func (c *command) apiKeysRevoke() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "revoke ID...",
		Short: "Revoke API keys",
		Long: `Revoke API keys by id. An id is the part of a key between hfk_ and the next underscore;
holdfast api-keys list shows it. Servers refuse revoked keys at once if notifications arrive,
else within ten seconds. They also end the streams that such a key opened.`,
		Example: `  holdfast api-keys revoke mzxw6ytboi5dkmrq`,
		Args:    atLeastOne,
	}
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, ids []string) error {
		return c.withOperator(cmd, func(ctx context.Context, op Operator) error {
			var revoked []*Key
			code := exitOK
			for _, id := range ids {
				k, err := op.RevokeKey(ctx, id)
				if err != nil {
					c.note("holdfast: key %s: %s", id, err)
					code = exitFailed
					continue
				}
				revoked = append(revoked, k)
			}
			if err := c.printKeys(revoked, *format); err != nil {
				return err
			}
			if code != exitOK {
				return &exitError{code: code}
			}
			return nil
		})
	}
	return cmd
}

func (c *command) printKeys(keys []*Key, format output) error {
	views := []keyView{}
	rows := [][]string{{"ID", "SUBJECT", "TENANT", "SCOPES", "STATE", "CREATED", "EXPIRES", "USED", "NAME"}}
	day := func(at *time.Time) string {
		if at == nil {
			return "-"
		}
		return at.UTC().Format("2006-01-02 15:04")
	}
	for _, k := range keys {
		v := viewKey(k, time.Now())
		views = append(views, v)
		rows = append(rows, []string{
			v.ID, v.Subject, v.Tenant, strings.Join(v.Scopes, " "), v.State, day(&v.CreatedAt), day(v.ExpiresAt), day(v.LastUsedAt), v.Name,
		})
	}
	if format == outputJSON {
		return printJSON(c.Out, views)
	}
	return table(c.Out, rows)
}
