package cli

import (
	"context"
	"math"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
	"github.com/holdfast-a2a/holdfast/internal/store"
)

func (c *command) apiKeys() *cobra.Command {
	return c.operators(&cobra.Command{
		Use: "api-keys", Short: "Create, list and revoke API keys",
		Long: `API keys are credentials of clients, workers and operators. The database has a hash of each.`,
		Example: `  holdfast api-keys create --subject alice --scope weather:use
  holdfast api-keys list`,
	}, true, c.apiKeysCreate(), c.apiKeysList(), c.apiKeysRevoke())
}

// createKey makes an API key that is valid for its lifetime (0: until it is revoked).
func (o *operator) createKey(ctx context.Context, k *store.APIKey, lifetime time.Duration) (made *shown.Key, err error) {
	made = &shown.Key{}
	return made, o.post(ctx, "/keys", map[string]any{
		"name": k.Name, "tenant": k.Tenant, "subject": k.Subject, "scopes": append([]string{}, k.Scopes...),
		"expires_in_seconds": int64(math.Ceil(lifetime.Seconds())),
	}, made)
}

// revokeKey revokes a key. task.NotFound: no key has this id.
func (o *operator) revokeKey(ctx context.Context, id string) (*shown.Key, error) {
	k := &shown.Key{}
	return k, o.post(ctx, "/keys/"+url.PathEscape(id)+"/revoke", nil, k)
}

// keys returns the newest keys first.
func (o *operator) keys(ctx context.Context) ([]shown.Key, error) {
	return paged(ctx, o, "/keys", query(), math.MaxInt, func(p *shown.KeysPage) ([]shown.Key, string) { return p.Keys, p.Next })
}

func (c *command) apiKeysCreate() *cobra.Command {
	cmd := &cobra.Command{
		Use: "create --subject NAME", Short: "Create an API key and print it once",
		Long: `Print a new API key once: the database keeps only a hash. Callers with the key act as this
subject of this tenant, and own its tasks.`,
		Example: `  holdfast api-keys create --subject alice
  holdfast api-keys create --subject ci --tenant acme --scope weather:use --scope weather:admin --expires-in 2160h --name "build server"`,
	}
	var k store.APIKey
	cmd.Flags().StringVar(&k.Subject, "subject", "", "subject that the key stands for (required)")
	cmd.Flags().StringVar(&k.Tenant, "tenant", "", "tenant of the subject")
	cmd.Flags().StringArrayVar(&k.Scopes, "scope", nil, "scope of the key; may be repeated")
	cmd.Flags().StringVar(&k.Name, "name", "", "name of the key, for people")
	lifetime := cmd.Flags().Duration("expires-in", 0, "how long the key is valid (default: until revoked)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if k.Subject == "" {
			return usage("--subject is missing; name the caller that the key stands for")
		}
		if *lifetime < 0 {
			return usage("--expires-in must not be negative")
		}
		return c.withOperator(cmd, func(ctx context.Context, op *operator) error {
			made, err := op.createKey(ctx, &k, *lifetime)
			if err != nil {
				return err
			}
			if !c.json() {
				c.note("holdfast: created key %s of %s; store it now, because it is not shown again:", made.ID, made.Subject)
			}
			return c.print(made, [][]string{{made.Key}})
		})
	}
	return cmd
}

func (c *command) apiKeysList() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List API keys, newest first",
		Example: `  holdfast api-keys list -o json | jq -r '.[] | select(.state == "valid") | .id'`,
		Long:    `USED is accurate to five minutes.`,
	}
	tenant := cmd.Flags().String("tenant", "", "only API keys of this tenant")
	cmd.RunE = c.operate(func(ctx context.Context, op *operator, _ []string) error {
		keys, err := op.keys(ctx)
		if err != nil {
			return err
		}
		if cmd.Flags().Changed("tenant") {
			keys = slices.DeleteFunc(keys, func(k shown.Key) bool { return k.Tenant != *tenant })
		}
		return c.printKeys(keys)
	})
	return cmd
}

func (c *command) apiKeysRevoke() *cobra.Command {
	return &cobra.Command{
		Use: "revoke ID...", Short: "Revoke API keys",
		Long: `Revoke API keys by the id that api-keys list shows: the part of a key between hfk_ and the
next underscore. Servers refuse them at once, or within ten seconds without notifications, and
end the streams that they opened.`,
		Example: `  holdfast api-keys revoke mzxw6ytboi5dkmrq`,
		RunE: c.operate(func(ctx context.Context, op *operator, ids []string) error {
			revoked := []shown.Key{}
			code := exitOK
			for _, id := range ids {
				k, err := op.revokeKey(ctx, id)
				if err != nil {
					c.note("holdfast: key %s: %s", id, plain(err))
					code = exitFailed
					continue
				}
				revoked = append(revoked, *k)
			}
			if err := c.printKeys(revoked); err != nil {
				return err
			}
			if code != exitOK {
				return &exitError{code: code}
			}
			return nil
		}),
	}
}

func (c *command) printKeys(keys []shown.Key) error {
	rows := [][]string{{"ID", "SUBJECT", "TENANT", "SCOPES", "STATE", "CREATED", "EXPIRES", "USED", "NAME"}}
	for i := range keys {
		v := &keys[i]
		rows = append(rows, []string{
			v.ID, v.Subject, v.Tenant, strings.Join(v.Scopes, " "), v.State, minute(v.CreatedAt), minute(v.ExpiresAt), minute(v.LastUsedAt), v.Name,
		})
	}
	return c.print(keys, rows)
}
