package auth

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/identity"
)

// KindMTLS is the kind of the scheme that NewMTLS makes.
const KindMTLS = "mtls"

// MTLSOptions configures the scheme of client certificates.
type MTLSOptions struct {
	Name string
	// Roots returns the authorities that are trusted now.
	Roots func() *x509.CertPool
	// Tenant is the tenant of all callers, unless TenantFromOrganization is set.
	Tenant                 string
	TenantFromOrganization bool
	SubjectPrefix          string
	Scopes                 []string
}

// MTLS is a scheme: the client certificate of a TLS connection.
type MTLS struct {
	opt   MTLSOptions
	known *cache[*proof]
}

// certificateFor is how long a certificate is remembered as good. Open connections notice a removed authority after
// that time.
const certificateFor = 10 * time.Second

// NewMTLS makes the scheme.
func NewMTLS(o MTLSOptions) *MTLS {
	return &MTLS{opt: o, known: newCache[*proof](10_000)}
}

// Name implements Scheme.
func (s *MTLS) Name() string { return s.opt.Name }

func (s *MTLS) kind() string { return KindMTLS }

func (s *MTLS) shown(r *Request, _ *authorization) []string {
	if len(r.Chain) == 0 {
		return nil
	}
	return []string{""} // the request has the certificate itself
}

func (s *MTLS) remembered(_ string, r *Request) *proof {
	p, _ := s.known.get(sha256.Sum256(r.Chain[0].Raw))
	return p
}

func (s *MTLS) verify(_ context.Context, _ string, r *Request) (*proof, error) {
	leaf := r.Chain[0]
	digest := sha256.Sum256(leaf.Raw)
	now := time.Now()
	between := x509.NewCertPool()
	for _, c := range r.Chain[1:] {
		between.AddCert(c)
	}
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots: s.opt.Roots(), Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, CurrentTime: now,
	})
	if err != nil {
		if now.After(leaf.NotAfter) {
			return nil, refuse(Expired, nil)
		}
		return nil, refuse(Certificate, err)
	}
	subject, err := nameIn(leaf)
	if err != nil {
		return nil, refuse(Certificate, err)
	}
	p := &proof{until: leaf.NotAfter, Caller: identity.Caller{
		Tenant: s.opt.Tenant, Subject: s.opt.SubjectPrefix + subject, Scopes: s.opt.Scopes,
		Credential: s.opt.Name + "/" + hex.EncodeToString(digest[:8]),
	}}
	if s.opt.TenantFromOrganization {
		if n := len(leaf.Subject.Organization); n != 1 {
			return nil, refuse(Certificate, errors.New("the certificate must name exactly one organization"))
		}
		p.Tenant = leaf.Subject.Organization[0]
	}
	s.known.put(digest, p, min(certificateFor, leaf.NotAfter.Sub(now)))
	return p, nil
}

// nameIn returns the name in a certificate: a URI (as SPIFFE uses), a DNS name or the common name.
func nameIn(c *x509.Certificate) (string, error) {
	switch {
	case len(c.URIs) == 1:
		return c.URIs[0].String(), nil
	case len(c.URIs) > 1:
		return "", errors.New("the certificate has more than one URI")
	case len(c.DNSNames) > 0:
		return c.DNSNames[0], nil
	case c.Subject.CommonName != "":
		return c.Subject.CommonName, nil
	}
	return "", errors.New("the certificate has no URI, DNS name or common name")
}

// challenge only keeps the header from being empty: HTTP defines no scheme that asks for a certificate.
func (s *MTLS) challenge(bool) string { return `MutualTLS ` + realm }
