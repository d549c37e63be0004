package auth

import (
	"crypto/x509"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/store"
)

// BenchmarkAuthenticate measures the authentication of a request whose credential is cached.
func BenchmarkAuthenticate(b *testing.B) {
	d := openDatabase(b)
	key, _ := addKey(b, d, store.APIKey{Subject: "alice"}, 0)
	users, err := NewBasic("users", []User{{Name: "alice", Hash: hashed(b, "x")}})
	require.NoError(b, err)
	i := newIssuer(b)
	people := newAuthority(b, "people")
	_, _, pair := people.issue(func(c *x509.Certificate) { c.DNSNames = []string{"alice"} })
	certified := shows()
	certified.Chain = []*x509.Certificate{must(x509.ParseCertificate(pair.Certificate[0]))}
	for name, c := range map[string]struct {
		scheme Scheme
		r      *Request
	}{
		"api_key": {NewAPIKeys("keys", "X-Api-Key", d), shows("X-Api-Key", key)},
		"basic":   {users, basic("alice", "x")},
		"jwt":     {i.accepting(), bearer(i.token(i.usual()))},
		"mtls":    {NewMTLS(MTLSOptions{Name: "certs", Roots: people.pool}), certified},
	} {
		a := New(Options{Schemes: []Scheme{c.scheme}})
		g := &Gate{Schemes: []string{c.scheme.Name()}}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := a.Admit(a.Authenticate(b.Context(), c.r), g); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/unknown", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				switch s := c.scheme.(type) {
				case *APIKeys:
					s.Forget()
				case *Basic:
					s.users.Load().right.DeleteAll()
				case *JWT:
					s.current.Load().good.DeleteAll()
				case *MTLS:
					s.known.DeleteAll()
				}
				a.Authenticate(b.Context(), c.r)
			}
		})
	}
}
