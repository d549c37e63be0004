package auth

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/certtest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// issue makes a client's certificate; change modifies the default one.
func issue(t *testing.T, by *certtest.Certificate, change func(*x509.Certificate)) *certtest.Certificate {
	t.Helper()
	template := &x509.Certificate{
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	change(template)
	return certtest.New(t, by, template)
}

func pool(of *certtest.Certificate) *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(of.Cert)
	return p
}

// presents is a request over a connection with a certificate.
func presents(c *certtest.Certificate) *Request {
	r := shows()
	r.Chain = []*x509.Certificate{c.Cert}
	return r
}

func forServers(name string) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		c.Subject.CommonName, c.DNSNames = name, []string{"localhost"}
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
}

func TestCertificates(t *testing.T) {
	t.Parallel()
	ours, others := certtest.NewAuthority(t), certtest.NewAuthority(t)
	roots := pool(ours)
	s := NewMTLS(MTLSOptions{Name: "certs", Roots: func() *x509.CertPool { return roots }, TenantFromOrganization: true, SubjectPrefix: "cert:", Scopes: []string{"x"}})
	a := New(Options{Schemes: []Scheme{s}})
	uri := func(s string) *url.URL { return must(url.Parse(s)) }
	org := pkix.Name{Organization: []string{"acme"}, CommonName: "common"}
	for name, c := range map[string]struct {
		from   *certtest.Certificate
		change func(*x509.Certificate)
		want   string
		reason Reason
	}{
		"a URI": {ours, func(c *x509.Certificate) {
			c.Subject, c.URIs, c.DNSNames = org, []*url.URL{uri("spiffe://acme/alice")}, []string{"dns"}
		}, "spiffe://acme/alice", ""},
		"a DNS name":    {ours, func(c *x509.Certificate) { c.Subject, c.DNSNames = org, []string{"a.example.com", "b"} }, "a.example.com", ""},
		"a common name": {ours, func(c *x509.Certificate) { c.Subject = org }, "", Certificate},
		"a DNS name like a URI": {ours, func(c *x509.Certificate) {
			c.Subject, c.DNSNames = org, []string{"spiffe://acme/alice"}
		}, "", Certificate},
		"two URIs":        {ours, func(c *x509.Certificate) { c.Subject, c.URIs = org, []*url.URL{uri("a:b"), uri("a:c")} }, "", Certificate},
		"no name":         {ours, func(c *x509.Certificate) { c.Subject = pkix.Name{Organization: []string{"acme"}} }, "", Certificate},
		"no organization": {ours, func(c *x509.Certificate) { c.Subject, c.DNSNames = pkix.Name{CommonName: "common"}, []string{"dns"} }, "", Certificate},
		"two organizations": {ours, func(c *x509.Certificate) {
			c.Subject, c.DNSNames = pkix.Name{Organization: []string{"a", "b"}}, []string{"dns"}
		}, "", Certificate},
		"of another authority": {others, func(c *x509.Certificate) { c.Subject, c.DNSNames = org, []string{"dns"} }, "", Certificate},
		"one for servers": {ours, func(c *x509.Certificate) {
			c.Subject, c.DNSNames = org, []string{"dns"}
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		}, "", Certificate},
		"expired": {ours, func(c *x509.Certificate) {
			c.Subject, c.DNSNames, c.NotAfter = org, []string{"dns"}, time.Now().Add(-time.Second)
		}, "", Expired},
		"a name with a newline": {ours, func(c *x509.Certificate) { c.Subject, c.DNSNames = org, []string{"a\nb"} }, "", Claims},
	} {
		r := presents(issue(t, c.from, c.change))
		require.Equal(t, c.reason, reasonOf(t, a, r), name)
		if c.want == "" {
			continue
		}
		p := a.Authenticate(t.Context(), r).Caller
		require.Regexp(t, `^certs/[0-9a-f]{16}$`, p.Credential)
		p.Credential = ""
		require.Equal(t, task.Caller{Tenant: "acme", Subject: "cert:" + c.want, Scopes: []string{"x"}, Method: KindMTLS}, p, name)
	}
	// When the server stops trusting an authority, open connections are affected, too.
	r := presents(issue(t, ours, func(c *x509.Certificate) { c.Subject, c.DNSNames = org, []string{"dns"} }))
	require.Empty(t, reasonOf(t, a, r))
	roots = pool(others)
	s.known.DeleteAll() // as after ten seconds
	require.Equal(t, Certificate, reasonOf(t, a, r))
	both := shows("Authorization", "Bearer x")
	both.Chain = r.Chain
	require.Equal(t, Several, reasonOf(t, New(Options{Schemes: []Scheme{s, newIssuer(t).accepting()}}), both))
}

// A subject comes from one place of the certificate, also when that place is empty.
func TestSubjectsOfCertificates(t *testing.T) {
	t.Parallel()
	uris := func(all ...string) (out []*url.URL) {
		for _, s := range all {
			out = append(out, must(url.Parse(s)))
		}
		return out
	}
	full := &x509.Certificate{URIs: uris("spiffe://prod/billing"), DNSNames: []string{"billing.example.com", "b"}, Subject: pkix.Name{CommonName: "common"}}
	forged := &x509.Certificate{Subject: pkix.Name{CommonName: "spiffe://prod/billing"}}
	for from, want := range map[SubjectFrom][2]string{
		"": {"spiffe://prod/billing"}, SubjectFromSAN: {"spiffe://prod/billing"}, SubjectFromURI: {"spiffe://prod/billing"},
		SubjectFromDNS: {"billing.example.com"}, SubjectFromCommonName: {"common", "spiffe://prod/billing"},
	} {
		for n, c := range []*x509.Certificate{full, forged} {
			subject, err := from.in(c)
			require.Equal(t, want[n], subject, "%s %d", from, n)
			require.Equal(t, want[n] == "", err != nil, "%s %d", from, n)
		}
	}
	for _, from := range []SubjectFrom{SubjectFromSAN, SubjectFromURI} {
		_, err := from.in(&x509.Certificate{URIs: uris("a:b", "a:c"), DNSNames: []string{"dns"}})
		require.Error(t, err)
	}
	_, err := SubjectFromURI.in(&x509.Certificate{DNSNames: []string{"dns"}})
	require.Error(t, err)
}

// secured is a server with TLS files, and the means to change these.
type secured struct {
	*httptest.Server
	dir    string
	rounds chan struct{}
	tls    *TLS
}

func (s *secured) write(t *testing.T, name string, content []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, name), content, 0o600))
}

// reloaded waits until the server has checked all files once more.
func (s *secured) reloaded(t *testing.T) {
	t.Helper()
	for range 2 {
		waittest.Within(t, "the server checks the files", s.rounds)
	}
}

func TestTLSFilesAreReloaded(t *testing.T) {
	t.Parallel()
	web, people, newPeople := certtest.NewAuthority(t), certtest.NewAuthority(t), certtest.NewAuthority(t)
	s := &secured{dir: t.TempDir(), rounds: make(chan struct{})}
	first, second := issue(t, web, forServers("first")), issue(t, web, forServers("second"))
	s.write(t, "cert.pem", first.CertPEM)
	s.write(t, "key.pem", first.KeyPEM)
	s.write(t, "ca.pem", people.CertPEM)
	files := NewReloader(time.Millisecond, slog.New(slog.DiscardHandler))
	files.checked = func() {
		select {
		case s.rounds <- struct{}{}:
		case <-t.Context().Done():
		}
	}
	var err error
	s.tls, err = LoadTLS(files, filepath.Join(s.dir, "cert.pem"), filepath.Join(s.dir, "key.pem"), filepath.Join(s.dir, "ca.pem"))
	require.NoError(t, err)
	runs(t, files.Run)
	a := New(Options{Schemes: []Scheme{NewMTLS(MTLSOptions{Name: "certs", Roots: s.tls.Roots})}})
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := a.Authenticate(r.Context(), &Request{Header: r.Header.Values, Chain: r.TLS.PeerCertificates})
		_, _ = io.WriteString(w, id.Subject)
	}))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.TLS = s.tls.Config()
	s.StartTLS()
	t.Cleanup(s.Close)

	// call returns the server's answer to a client with a certificate, and the name in the server's certificate.
	call := func(pairs ...tls.Certificate) (says, server string, err error) {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
			RootCAs: pool(web), ServerName: "localhost",
			// Send it whatever authorities the server asks for.
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				if len(pairs) == 0 {
					return &tls.Certificate{}, nil
				}
				return &pairs[0], nil
			},
		}}}
		defer client.CloseIdleConnections()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, http.NoBody)
		require.NoError(t, err)
		answer, err := client.Do(r)
		if err != nil {
			return "", "", err
		}
		defer answer.Body.Close()
		b, err := io.ReadAll(answer.Body)
		return string(b), answer.TLS.PeerCertificates[0].Subject.CommonName, err
	}
	named := func(by *certtest.Certificate, name string) tls.Certificate {
		return issue(t, by, func(c *x509.Certificate) { c.DNSNames = []string{name} }).Pair
	}
	alice, bob := named(people, "alice"), named(newPeople, "bob")
	says, server, err := call(alice)
	require.NoError(t, err)
	require.Equal(t, []string{"alice", "first"}, []string{says, server})
	says, _, err = call()
	require.NoError(t, err, "a client with another credential needs no certificate")
	require.Empty(t, says)
	_, _, err = call(bob)
	require.Error(t, err)
	_, err = (&tls.Dialer{Config: &tls.Config{RootCAs: pool(web), ServerName: "localhost", MaxVersion: tls.VersionTLS11}}).
		DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	require.Error(t, err)

	// A half-written change is not used; the loaded files stay in use.
	s.write(t, "cert.pem", second.CertPEM)
	s.reloaded(t)
	_, server, err = call(alice)
	require.NoError(t, err)
	require.Equal(t, "first", server)
	s.write(t, "key.pem", second.KeyPEM)
	s.write(t, "ca.pem", newPeople.CertPEM)
	s.reloaded(t)
	says, server, err = call(bob)
	require.NoError(t, err)
	require.Equal(t, []string{"bob", "second"}, []string{says, server})
	_, _, err = call(alice)
	require.Error(t, err)

	s.write(t, "ca.pem", []byte("none"))
	s.reloaded(t)
	_, _, err = call(bob)
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(s.dir, "ca.pem")))
	s.reloaded(t)
	_, _, err = call(bob)
	require.NoError(t, err)
}

func TestInvalidTLSFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	old := issue(t, certtest.NewAuthority(t), func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	name := func(s string) string { return filepath.Join(dir, s) }
	require.NoError(t, os.WriteFile(name("cert.pem"), old.CertPEM, 0o600))
	require.NoError(t, os.WriteFile(name("key.pem"), old.KeyPEM, 0o600))
	files := NewReloader(time.Hour, slog.New(slog.DiscardHandler))
	_, err := LoadTLS(files, name("cert.pem"), name("key.pem"), "")
	require.ErrorContains(t, err, "expired")
	_, err = LoadTLS(files, name("cert.pem"), name("cert.pem"), "")
	require.ErrorContains(t, err, "certificate")
	_, err = LoadTLS(files, name("none"), name("key.pem"), "")
	require.Error(t, err)
}
