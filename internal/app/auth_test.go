package app

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/card"
)

// Users without a tenant would share their tasks with all other callers without one.
func TestUsersFileRequiresTenants(t *testing.T) {
	t.Parallel()
	const hash = "$2a$12$WXUPqV8rXUIuJd5rvlN7hO0UPnm.LY3FIiNuRmbM6r5T8qk5tG1Ya"
	for visibility, users := range map[config.Visibility]string{
		config.VisibleToTenant: "alice:" + hash + ":acme\nbob:" + hash + "\n", config.VisibleToOwner: "bob:" + hash + "\n",
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, "users")
		require.NoError(t, os.WriteFile(file, []byte(users), 0o600))
		yaml := filepath.Join(dir, "holdfast.yaml")
		require.NoError(t, os.WriteFile(yaml, []byte("auth: {visibility: "+string(visibility)+", schemes: [{name: users, kind: basic, basic: {users_file: "+file+"}}]}"), 0o600))
		cfg, err := config.Load(config.Source{File: yaml})
		require.NoError(t, err)
		_, err = buildAuth(cfg, slog.New(slog.DiscardHandler))
		if visibility == config.VisibleToOwner {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, `user "bob" has no tenant, but agent demo shows tasks to whole tenants`)
		require.NoError(t, os.WriteFile(file, []byte("alice:"+hash+":acme\n"), 0o600))
		_, err = buildAuth(cfg, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
	}
}

// Cards tell what the operator says about a scheme. A scheme with a key set of its own has no metadata to link to.
func TestSchemesOnCards(t *testing.T) {
	t.Parallel()
	for want, s := range map[card.Security]config.AuthScheme{
		{Name: "keys", Kind: card.APIKey, Header: "X-API-Key", Description: "Ask us"}: {
			Name: "keys", Kind: config.AuthAPIKey, Description: "Ask us", APIKey: config.APIKeyAuth{Header: "X-API-Key"},
		},
		{Name: "sso", Kind: card.OpenIDConnect, MetadataURL: "https://id.example/.well-known/openid-configuration"}: {
			Name: "sso", Kind: config.AuthJWT, JWT: config.JWTAuth{Issuer: "https://id.example/"},
		},
		{Name: "sso", Kind: card.BearerJWT, Description: "Ours"}: {
			Name: "sso", Kind: config.AuthJWT, Description: "Ours", JWT: config.JWTAuth{Issuer: "https://id.example", JWKSURL: "https://id.example/keys"},
		},
		{Name: "certs", Kind: card.MutualTLS, Description: "Theirs"}: {Name: "certs", Kind: config.AuthMTLS, Description: "Theirs"},
	} {
		require.Equal(t, want, security(&s))
	}
}
