package cli

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"os"
	"strings"

	"github.com/holdfast-a2a/holdfast/internal/admin/adminclient"
	"github.com/holdfast-a2a/holdfast/internal/secrets"
)

// source is what the verbs of operators use: a server, or the database.
func (c *command) source() string {
	if c.serverURL() != "" {
		return "server"
	}
	return "database"
}

// serverURL is the admin address of --server, of the profile, or of HOLDFAST_SERVER.
func (c *command) serverURL() string {
	return cmp.Or(c.server, c.profile.Server, c.env("HOLDFAST_SERVER"))
}

// openServer returns a client of the admin API of a server; nil: none is given.
func (c *command) openServer(ctx context.Context, database string) (*adminclient.Client, error) {
	server := c.serverURL()
	switch {
	case c.server == "" && c.profileErr != nil:
		return nil, c.profileErr
	case server == "":
		return nil, nil //nolint:nilnil // the verb uses the database
	case !isURL(server):
		return nil, usage("%q is not a URL; write the admin address of a server, such as http://127.0.0.1:9090", server)
	case database != "":
		return nil, usage("--database-url and a server (--server, --profile, HOLDFAST_SERVER) exclude each other; remove one")
	}
	credential, err := c.serverCredential(ctx, server)
	if err != nil {
		return nil, err
	}
	api := adminclient.New(server, credential)
	if c.profile.CAFile != "" && server == c.profile.Server {
		pem, err := os.ReadFile(c.profile.CAFile)
		authorities := x509.NewCertPool()
		if err == nil && !authorities.AppendCertsFromPEM(pem) {
			err = fmt.Errorf("%s has no certificate in PEM", c.profile.CAFile)
		}
		if err != nil {
			return nil, usage("ca_file of the profile: %w", err)
		}
		api.Trust(authorities)
	}
	return api, nil
}

// serverCredential returns the API key or token for a server, or "". That of a profile goes to the profile's server only.
func (c *command) serverCredential(ctx context.Context, server string) (string, error) {
	from, name := secrets.Text(c.env("HOLDFAST_SERVER_CREDENTIAL")), "HOLDFAST_SERVER_CREDENTIAL"
	if file := c.env("HOLDFAST_SERVER_CREDENTIAL_FILE"); file != "" {
		if from != nil {
			return "", usage("HOLDFAST_SERVER_CREDENTIAL and HOLDFAST_SERVER_CREDENTIAL_FILE exclude each other; remove one")
		}
		from, name = secrets.File(file), "HOLDFAST_SERVER_CREDENTIAL_FILE"
	}
	if server == c.profile.Server {
		from, name = c.profile.credential()
	}
	text, err := from.Read(ctx)
	if err != nil {
		return "", usage("%s: %w", name, err)
	}
	return strings.TrimSpace(text), nil
}
