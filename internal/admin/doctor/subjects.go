package doctor

import (
	"context"
	"os"
	"strings"

	"github.com/holdfast-a2a/holdfast/internal/auth"
	"github.com/holdfast-a2a/holdfast/internal/config"
)

// subjects checks whose tasks API keys and users reach. It finds API keys without a tenant for agents that show tasks
// to the whole tenant. It also finds subjects that another authority may name.
func (d *database) subjects(ctx context.Context) ([]Finding, error) {
	var tenant, subject string
	var named, homeless int
	var keys bool
	var shared []string
	outside := map[string]*config.Authority{}
	for i := range d.Config.Auth.Schemes {
		s := &d.Config.Auth.Schemes[i]
		if s.Kind == config.AuthAPIKey {
			keys, shared = true, d.Config.TenantVisible(s.Name)
		}
		if a := s.Authority(); a != nil {
			outside[s.Name] = a
		}
	}
	coincide, example := map[string]int{}, map[string]string{}
	look := func(tenant, subject string) {
		named++
		for name, a := range outside {
			if a.MaySpeakOf(tenant, subject) {
				coincide[name]++
				example[name] = strings.TrimSuffix(subject+" of "+tenant, " of ")
			}
		}
	}
	var found findings
	for i := range d.Config.Auth.Schemes {
		basic := &d.Config.Auth.Schemes[i].Basic
		if basic.UsersFile == "" {
			continue
		}
		users, err := usersIn(basic.UsersFile)
		if err != nil {
			found = append(found, warns("users of the scheme %s could not be read: %v", d.Config.Auth.Schemes[i].Name, err).
				advise("run this as a user who may read auth.schemes[].basic.users_file")...)
		}
		for _, u := range users {
			look(u.Tenant, u.Name)
		}
	}
	if keys {
		err := d.forEach(ctx, `SELECT DISTINCT tenant, subject FROM holdfast.api_keys
			WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now()) ORDER BY 1, 2 LIMIT 10000`,
			[]any{&tenant, &subject}, func() {
				if tenant == "" {
					homeless++
				}
				look(tenant, subject)
			})
		if err != nil {
			return nil, err
		}
	}
	if homeless > 0 && len(shared) > 0 {
		found = append(found, warns("%d subjects of API keys have no tenant, but %s shows tasks to whole tenants: each such subject sees only its own tasks",
			homeless, strings.Join(shared, ", ")).advise("create keys with --tenant for them and revoke the old ones")...)
	}
	for i := range d.Config.Auth.Schemes {
		if name := d.Config.Auth.Schemes[i].Name; coincide[name] > 0 {
			found = append(found, warns("%d subjects of keys or users, such as %s, may also come from the scheme %s; both kinds of callers then share their tasks",
				coincide[name], example[name], name).
				advise("if they are not the same people, give the scheme a subject_prefix or its own tenant")...)
		}
	}
	return found.orOK("%d of keys and users; no other scheme can name them", named), nil
}

func usersIn(file string) ([]auth.User, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return auth.ParseUsers(content)
}
