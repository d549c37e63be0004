package config

import "slices"

// Admin says who may use the admin address beyond the probes: metrics, profiles and the details of readiness.
type Admin struct {
	// Schemes are the names of the accepted schemes. If the key is missing and other machines can reach the address,
	// all schemes are accepted.
	Schemes []string `yaml:"schemes"`
	// Scope is the scope of operators who may do everything.
	Scope string `yaml:"scope"`
	// ViewScope, ActScope and AdministerScope are the scopes for parts of the admin API; each includes those before it.
	ViewScope       string `yaml:"view_scope"`
	ActScope        string `yaml:"act_scope"`
	AdministerScope string `yaml:"administer_scope"`
	// AllTenantsScope is the scope of operators who see all tenants. An operator without it sees only its own tenant. Empty: all
	// operators see all tenants.
	AllTenantsScope string `yaml:"all_tenants_scope"`
	// TLS turns on TLS, with the certificate of the public ports.
	TLS bool `yaml:"tls"`
	// Open lets everybody use it, from any machine.
	Open bool `yaml:"open" env:"HOLDFAST_ADMIN_OPEN"`
}

// AdminAccess says how the admin address decides who may use more than the probes.
type AdminAccess string

// The values of AdminAccess.
const (
	AdminAsks   AdminAccess = "asks"   // callers with the operators' scope
	AdminLocal  AdminAccess = "local"  // no credential needed; only this machine can reach it
	AdminOpen   AdminAccess = "open"   // no credential needed, because the operator said so
	AdminProbes AdminAccess = "probes" // nobody
)

// AdminAccess returns how the admin address decides.
func (c *Config) AdminAccess() AdminAccess {
	switch {
	case len(c.Admin.Schemes) > 0:
		return AdminAsks
	case c.Admin.Open:
		return AdminOpen
	case !c.AdminExposed():
		return AdminLocal
	}
	return AdminProbes
}

// AdminExposed reports whether other machines can reach the admin address.
func (c *Config) AdminExposed() bool { return reachable(c.AdminListen) }

// AdminURL returns the URL of the admin address, for a listener that was bound to the given address.
func (c *Config) AdminURL(bound string) string {
	if c.Admin.TLS {
		return "https://" + ReachableAddr(bound)
	}
	return "http://" + ReachableAddr(bound)
}

// admin also fills in the settings that the configuration takes from auth.
func (l *loader) admin(c *Config) {
	a := &c.Admin
	if a.TLS && !c.TLS.Enabled() {
		l.at("admin.tls", "needs tls.cert_file and tls.key_file")
	}
	given := l.given("admin.schemes")
	if !given && !a.Open && c.AdminExposed() {
		for i := range c.Auth.Schemes {
			// Without TLS a client cannot show a certificate.
			if s := &c.Auth.Schemes[i]; s.Kind != AuthMTLS || a.TLS {
				a.Schemes = append(a.Schemes, s.Name)
			}
		}
	}
	if given && len(a.Schemes) > 0 && a.Open {
		l.at("admin.open", "cannot be combined with admin.schemes: admit everybody, or only callers with one of those schemes")
	}
	for i, name := range a.Schemes {
		at := slices.IndexFunc(c.Auth.Schemes, func(s AuthScheme) bool { return s.Name == name })
		switch {
		case at < 0:
			l.at("admin.schemes", "%q is not a name in auth.schemes", name)
		case slices.Contains(a.Schemes[:i], name):
			l.at("admin.schemes", "%q is given twice; remove one", name)
		case c.Auth.Schemes[at].Kind == AuthMTLS && !a.TLS:
			l.at("admin.schemes", "%q needs client certificates, which need admin.tls: true", name)
		}
	}
	// Without a scope every caller would be an operator.
	l.scopes("admin.scope", []string{a.Scope})
	l.scopes("admin.view_scope", []string{a.ViewScope})
	l.scopes("admin.act_scope", []string{a.ActScope})
	l.scopes("admin.administer_scope", []string{a.AdministerScope})
	if a.AllTenantsScope != "" {
		l.scopes("admin.all_tenants_scope", []string{a.AllTenantsScope})
	}
}
