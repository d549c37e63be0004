package auth

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// KindMTLS is the kind of the scheme that NewMTLS makes.
const KindMTLS = "mtls"

// SubjectFrom says where a certificate has the subject. There is no other place if that one is empty: an authority that
// checks one kind of name may let its clients choose the others.
type SubjectFrom string

// The values of SubjectFrom. "" means SubjectFromSAN.
const (
	SubjectFromSAN        SubjectFrom = "san" // the only URI (as SPIFFE uses), without a URI the first DNS name
	SubjectFromURI        SubjectFrom = "uri"
	SubjectFromDNS        SubjectFrom = "dns" // the first one
	SubjectFromCommonName SubjectFrom = "common_name"
)

// MTLSOptions configures the scheme of client certificates.
type MTLSOptions struct {
	Name string
	// Roots returns the authorities that are trusted now.
	Roots func() *x509.CertPool
	// Tenant is the tenant of all callers, unless TenantFromOrganization is set.
	Tenant                 string
	TenantFromOrganization bool
	SubjectFrom            SubjectFrom
	SubjectPrefix          string
	Scopes                 []string
}

// MTLS is a scheme: the client certificate of a TLS connection.
type MTLS struct {
	named
	opt   MTLSOptions
	known *cache[*proof]
}

// certificateFor is how long a certificate is remembered as good. Open connections notice a removed authority after
// that time.
const certificateFor = 10 * time.Second

// NewMTLS makes the scheme.
func NewMTLS(o MTLSOptions) *MTLS {
	return &MTLS{named: named{o.Name, KindMTLS}, opt: o, known: newCache[*proof](10_000)}
}

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
	subject, err := s.opt.SubjectFrom.in(leaf)
	if err != nil {
		return nil, refuse(Certificate, err)
	}
	p := &proof{until: leaf.NotAfter, Caller: task.Caller{
		Tenant: s.opt.Tenant, Subject: s.opt.SubjectPrefix + subject, Scopes: s.opt.Scopes,
		Credential: s.name + "/" + hex.EncodeToString(digest[:8]),
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

// in returns the subject in a certificate.
func (f SubjectFrom) in(c *x509.Certificate) (string, error) {
	switch {
	case f == SubjectFromCommonName && c.Subject.CommonName != "":
		return c.Subject.CommonName, nil
	case f == SubjectFromCommonName:
		return "", errors.New("the certificate has no common name")
	case f != SubjectFromDNS && len(c.URIs) == 1:
		return c.URIs[0].String(), nil
	case f != SubjectFromDNS && len(c.URIs) > 1:
		return "", errors.New("the certificate has more than one URI")
	case f == SubjectFromURI:
		return "", errors.New("the certificate has no URI")
	case len(c.DNSNames) == 0:
		return "", errors.New("the certificate has no DNS name, nor another name that mtls.subject_from allows")
	case strings.ContainsAny(c.DNSNames[0], ":/"):
		return "", errors.New("the DNS name in the certificate looks like a URI")
	}
	return c.DNSNames[0], nil
}

// challenge only keeps the header from being empty: HTTP defines no scheme that asks for a certificate.
func (s *MTLS) challenge(bool) string { return `MutualTLS ` + realm }
