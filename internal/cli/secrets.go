package cli

import (
	"io"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-a2a/holdfast/internal/rpc/client"
)

// maxSecret bounds a secret in a file, in bytes.
const maxSecret = 1 << 20

// readSecret reads the file of a flag, or standard input if its name is "-". "" reads nothing. Command lines have no secrets:
// other users of the machine see them.
func (c *command) readSecret(flag, file string) (string, error) {
	var raw []byte
	var err error
	switch file {
	case "":
		return "", nil
	case "-":
		raw, err = io.ReadAll(io.LimitReader(c.In, maxSecret))
	default:
		raw, err = os.ReadFile(file)
	}
	text := strings.TrimSpace(string(raw))
	switch {
	case err != nil:
		return "", usage("--%s: %w", flag, err)
	case text == "":
		return "", usage("--%s: %s is empty", flag, file)
	case strings.ContainsAny(text, "\r\n"): // it may be a secret: do not show it
		return "", usage("--%s: %s has more than one line", flag, file)
	}
	return text, nil
}

// warnOfSecrets notes the credentials on the command line. Servers say nothing, because their logs are for machines.
func (c *command) warnOfSecrets(cmd *cobra.Command) {
	if f := cmd.Flags().Lookup("header"); f != nil {
		client.WarnOfSecrets(f.Name, f.Value.(pflag.SliceValue).GetSlice(), c.note)
	}
	if f := cmd.Flags().Lookup("database-url"); f != nil && hasPassword(f.Value.String()) && cmd.Flags().Lookup("listen") == nil {
		c.note("Other users of this machine see the password of --database-url in the list of processes; use HOLDFAST_DATABASE_URL.")
	}
}

// hasPassword reports whether a connection string of PostgreSQL has a password.
func hasPassword(database string) bool {
	if u, err := url.Parse(database); err == nil && u.Scheme != "" {
		_, has := u.User.Password()
		return has || u.Query().Has("password")
	}
	return slices.ContainsFunc(strings.Fields(database), func(word string) bool { return strings.HasPrefix(word, "password=") })
}
