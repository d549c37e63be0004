package config

import "slices"

// Admin is who may have what the admin address serves beside the probes: metrics, profiles, and what is behind readiness.
type Admin struct {
	// Schemes are the names of those that it takes. Where more than this machine reaches it and the key is not given, all.
	Schemes []string `yaml:"schemes"`
	Scope   string   `yaml:"scope"`
	// TLS makes it speak TLS, with the certificate of the public ports.
	TLS bool `yaml:"tls"`
	// Open lets everybody have it, from wherever.
	Open bool `yaml:"open" env:"HOLDFAST_ADMIN_OPEN"`
}

// AdminAccess is how the admin address decides who may have more than the probes.
type AdminAccess string

// The values of AdminAccess.
const (
	AdminAsks   AdminAccess = "asks"   // for a principal with the operators' scope
	AdminLocal  AdminAccess = "local"  // nobody is asked, and only this machine reaches it
	AdminOpen   AdminAccess = "open"   // nobody is asked, because the operator says so
	AdminProbes AdminAccess = "probes" // nobody may
)

// AdminAccess is how the admin address decides.
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

// AdminExposed reports whether more than this machine can reach the admin address.
func (c *Config) AdminExposed() bool { return reachable(c.AdminListen) }

// AdminURL is where the admin address answers that a listener was bound to.
func (c *Config) AdminURL(bound string) string {
	if c.Admin.TLS {
		return "https://" + ReachableAddr(bound)
	}
	return "http://" + ReachableAddr(bound)
}

// admin also fills in what the configuration leaves to auth.
func (l *loader) admin(c *Config) {
	a := &c.Admin
	if a.TLS && !c.TLS.Enabled() {
		l.at("admin.tls", "needs tls.cert_file and tls.key_file")
	}
	given := l.given("admin.schemes")
	if !given && !a.Open && c.AdminExposed() {
		for i := range c.Auth.Schemes {
			// Nobody can show a certificate without TLS.
			if s := &c.Auth.Schemes[i]; s.Kind != AuthMTLS || a.TLS {
				a.Schemes = append(a.Schemes, s.Name)
			}
		}
	}
	if given && len(a.Schemes) > 0 && a.Open {
		l.at("admin.open", "goes without admin.schemes: either everybody may, or who shows one of these")
	}
	for i, name := range a.Schemes {
		at := slices.IndexFunc(c.Auth.Schemes, func(s AuthScheme) bool { return s.Name == name })
		switch {
		case at < 0:
			l.at("admin.schemes", "%q is not among auth.schemes", name)
		case slices.Contains(a.Schemes[:i], name):
			l.at("admin.schemes", "%q is given twice", name)
		case c.Auth.Schemes[at].Kind == AuthMTLS && !a.TLS:
			l.at("admin.schemes", "%q takes certificates, which nobody can show without admin.tls", name)
		}
	}
	// Without one every caller would be an operator.
	l.scopes("admin.scope", []string{a.Scope})
}
