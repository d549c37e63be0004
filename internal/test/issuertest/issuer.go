// Package issuertest is an OpenID Connect issuer of tokens for tests. A test can kill it, and make it misbehave.
package issuertest

import (
	"bufio"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/certtest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/nettest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// Issuer is an issuer in a process of its own, over TLS, with the endpoints of OpenID Connect: metadata, keys, and
// tokens for client credentials. The process runs this test's binary again.
//
// It keeps its state in a folder: it reads state.json for every request, so its keys survive a kill. A test changes
// that file, whether the issuer runs or not.
type Issuer struct {
	t    testing.TB
	dir  string
	URL  string // the iss of its tokens
	http *http.Client

	mu     sync.Mutex
	state  State
	asked  map[string]int // requests, by path
	issued []string       // every token

	cmd   *exec.Cmd
	stdin io.Closer
	ended chan struct{}
}

// State is the content of state.json.
type State struct {
	Address string
	// Keys are private keys. The first one signs tokens of the token endpoint; all are published.
	Keys []jose.JSONWebKey
	// Secret is the secret of every client.
	Secret string
	// User logs in at the authorization endpoint, without a question.
	User User
	// Redirect is the only redirect URI of all clients.
	Redirect string
}

// User is a person at the authorization endpoint.
type User struct {
	Subject string
	Scope   string // granted, whatever the client asks for
	Org     string
	// IDClaims replace claims of the ID token; nil removes one.
	IDClaims map[string]any
	// Other is the subject of the access token, if it is not that of the ID token.
	Other string
	// Refuses makes the user refuse the login.
	Refuses bool
}

// Audience is the default audience of tokens.
const Audience = "https://agents.example.com"

// Start starts an issuer with one key, for RS256, named one.
func Start(t testing.TB) *Issuer {
	t.Helper()
	i := &Issuer{t: t, dir: t.TempDir(), asked: map[string]int{}}
	authority := certtest.New(t, nil, &x509.Certificate{
		Subject: pkix.Name{CommonName: "authority of the issuer"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	own := certtest.New(t, authority, &x509.Certificate{
		Subject: pkix.Name{CommonName: "issuer"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	for name, content := range map[string][]byte{"cert.pem": own.CertPEM, "key.pem": own.KeyPEM, "ca.pem": authority.CertPEM} {
		require.NoError(t, os.WriteFile(filepath.Join(i.dir, name), content, 0o600))
	}
	roots := x509.NewCertPool()
	roots.AddCert(authority.Cert)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	i.http = &http.Client{Transport: transport, Timeout: waittest.Patience}
	t.Cleanup(transport.CloseIdleConnections)
	t.Cleanup(i.Kill)
	i.Change(func(s *State) {
		s.Address, s.Secret = nettest.Reserve(t), "secret-"+rand.Text()
		s.Keys = []jose.JSONWebKey{NewKey(t, "one", jose.RS256)}
	})
	i.Run()
	return i
}

// Change changes the state; later answers depend on it.
func (i *Issuer) Change(how func(s *State)) {
	i.t.Helper()
	i.mu.Lock()
	defer i.mu.Unlock()
	how(&i.state)
	whole := filepath.Join(i.dir, "state.json")
	require.NoError(i.t, os.WriteFile(whole+".new", a2atest.JSON(i.state), 0o600))
	require.NoError(i.t, os.Rename(whole+".new", whole))
}

// Run starts the process, or restarts it after a kill, always at the same address.
func (i *Issuer) Run() {
	i.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), env+"="+i.dir)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(i.t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(i.t, err)
	require.NoError(i.t, cmd.Start())
	address, ended := make(chan string, 1), make(chan struct{})
	i.cmd, i.stdin, i.ended = cmd, stdin, ended
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			if a, ok := strings.CutPrefix(lines.Text(), "serves "); ok {
				address <- a
				continue
			}
			i.mu.Lock()
			i.asked[lines.Text()]++
			i.mu.Unlock()
		}
		_ = cmd.Wait()
	}()
	select {
	case a := <-address:
		i.URL = "https://" + a
	case <-ended:
		require.FailNow(i.t, "the issuer ended instead of serving", cmd.ProcessState.String())
	}
}

// Kill kills the process. Its address refuses connections until it runs again.
func (i *Issuer) Kill() {
	if i.cmd == nil {
		return
	}
	_ = i.cmd.Process.Kill()
	<-i.ended
	_ = i.stdin.Close()
}

// Scheme is the configuration of a scheme for its tokens; more is added to the scheme's jwt.
func (i *Issuer) Scheme(name, more string) string {
	return fmt.Sprintf("{name: %s, kind: jwt, jwt: {issuer: %q, audience: [%q]%s}}", name, i.URL, Audience, more)
}

// Client is an HTTP client that trusts the issuer's certificate and follows no redirects, as a browser does that a test watches.
func (i *Issuer) Client() *http.Client {
	c := *i.http
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &c
}

// Secret is the secret of every client.
func (i *Issuer) Secret() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.state.Secret
}

// Trust is the environment of a server that trusts the issuer's certificate.
func (i *Issuer) Trust() []string { return []string{"SSL_CERT_FILE=" + filepath.Join(i.dir, "ca.pem")} }

// Count is the number of requests for a path, such as "/keys".
func (i *Issuer) Count(path string) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.asked[path]
}

// Rotate adds a key, which signs from now on. The others stay published.
func (i *Issuer) Rotate(kid string, algorithm jose.SignatureAlgorithm) {
	i.t.Helper()
	key := NewKey(i.t, kid, algorithm)
	i.Change(func(s *State) { s.Keys = append([]jose.JSONWebKey{key}, s.Keys...) })
}

// Withdraw removes keys.
func (i *Issuer) Withdraw(kids ...string) {
	i.t.Helper()
	i.Change(func(s *State) {
		s.Keys = slices.DeleteFunc(s.Keys, func(k jose.JSONWebKey) bool { return slices.Contains(kids, k.KeyID) })
	})
}

// Key is one of its private keys; "" means the one that signs.
func (i *Issuer) Key(kid string) jose.JSONWebKey {
	i.t.Helper()
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, k := range i.state.Keys {
		if kid == "" || k.KeyID == kid {
			return k
		}
	}
	require.FailNow(i.t, "the issuer has no key "+kid)
	panic("unreachable")
}

// Token is a token from the token endpoint (client credentials).
func (i *Issuer) Token(client string, scopes ...string) string {
	i.t.Helper()
	form := url.Values{"grant_type": {"client_credentials"}, "audience": {Audience}, "scope": {strings.Join(scopes, " ")}}
	r, err := http.NewRequestWithContext(waittest.Context(i.t), http.MethodPost, i.URL+"/token", strings.NewReader(form.Encode()))
	require.NoError(i.t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	i.mu.Lock()
	r.SetBasicAuth(client, i.state.Secret)
	i.mu.Unlock()
	resp, err := i.http.Do(r)
	require.NoError(i.t, err)
	defer resp.Body.Close()
	require.Equal(i.t, http.StatusOK, resp.StatusCode)
	var answer struct {
		Token string `json:"access_token"`
		Type  string `json:"token_type"`
	}
	require.NoError(i.t, json.NewDecoder(resp.Body).Decode(&answer))
	require.Equal(i.t, "Bearer", answer.Type)
	return i.remember(answer.Token)
}

// Claims are the claims of a valid token. Pairs of a name and a value change them; nil removes one.
func (i *Issuer) Claims(subject string, pairs ...any) a2atest.Object {
	c := usualClaims(i.URL, Audience, subject, "")
	for n := 0; n < len(pairs); n += 2 {
		if name := pairs[n].(string); pairs[n+1] == nil {
			delete(c, name)
		} else {
			c[name] = pairs[n+1]
		}
	}
	return c
}

// Sign makes a token that the endpoint would not issue, with the signing key. Members replace those of its header;
// nil removes one.
func (i *Issuer) Sign(claims a2atest.Object, members ...any) string {
	i.t.Helper()
	return i.SignWith(i.Key(""), claims, members...)
}

// SignWith is Sign with any key.
func (i *Issuer) SignWith(key jose.JSONWebKey, claims a2atest.Object, members ...any) string {
	i.t.Helper()
	token, err := signed(key, claims, members...)
	require.NoError(i.t, err)
	return i.remember(token)
}

// remember records a token for Silent.
func (i *Issuer) remember(token string) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.issued = append(i.issued, token)
	return token
}

// Silent checks that a server's log contains none of its tokens.
func (i *Issuer) Silent(r *clustertest.Replica) {
	i.t.Helper()
	i.mu.Lock()
	defer i.mu.Unlock()
	log := r.Log()
	for _, token := range i.issued {
		for part := range strings.SplitSeq(token, ".") {
			if len(part) > 20 { // shorter parts may match anything
				require.NotContains(i.t, log, part, "no log of %s contains a token", r.Name)
			}
		}
	}
	require.NotContains(i.t, log, i.state.Secret)
}

// NewKey makes a private key.
func NewKey(t testing.TB, kid string, algorithm jose.SignatureAlgorithm) jose.JSONWebKey {
	t.Helper()
	var (
		private crypto.Signer
		err     error
	)
	switch {
	case strings.HasPrefix(string(algorithm), "ES"):
		private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case algorithm == jose.EdDSA:
		_, private, err = ed25519.GenerateKey(rand.Reader)
	default:
		private, err = rsa.GenerateKey(rand.Reader, 2048)
	}
	require.NoError(t, err)
	return jose.JSONWebKey{Key: private, KeyID: kid, Algorithm: string(algorithm), Use: "sig"}
}

func usualClaims(issuer, Audience, subject, scope string) a2atest.Object {
	now := time.Now()
	return a2atest.Object{
		"iss": issuer, "aud": Audience, "sub": subject, "org": "acme", "scope": scope, "jti": "j-" + rand.Text(),
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(time.Hour).Unix(),
	}
}

// signed signs claims with a key. Members replace those of the header; nil removes one.
func signed(key jose.JSONWebKey, claims a2atest.Object, members ...any) (string, error) {
	header := a2atest.Object{"alg": key.Algorithm, "kid": key.KeyID, "typ": "at+jwt"}
	for n := 0; n < len(members); n += 2 {
		header[members[n].(string)] = members[n+1]
	}
	algorithm, _ := header["alg"].(string)
	o := &jose.SignerOptions{}
	for name, v := range header {
		if v != nil && name != "alg" {
			o.WithHeader(jose.HeaderKey(name), v)
		}
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.SignatureAlgorithm(algorithm), Key: key.Key}, o)
	if err != nil {
		return "", err
	}
	s, err := signer.Sign(a2atest.JSON(claims))
	if err != nil {
		return "", err
	}
	return s.CompactSerialize()
}

// env names the variable with the folder of the issuer that this process becomes.
const env = "HOLDFAST_TEST_ISSUER"

// Main turns this process into the issuer, and does not return, if a test has started it as one. Call it from
// TestMain.
func Main() {
	if dir := os.Getenv(env); dir != "" {
		fmt.Fprintln(os.Stderr, "the issuer:", serve(dir))
		os.Exit(1)
	}
}

// serve is the issuer's process. It ends with the test that started it at the latest.
func serve(dir string) error {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	s := &server{dir: dir}
	now, err := s.state()
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", now.Address)
	if err != nil {
		return err
	}
	s.url = "https://" + l.Addr().String()
	_, _ = fmt.Fprintln(os.Stdout, "serves", l.Addr())
	server := &http.Server{Handler: s, ReadHeaderTimeout: waittest.Patience, ErrorLog: log.New(io.Discard, "", 0)}
	return server.ServeTLS(l, filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"))
}

type server struct {
	dir, url string
	codes    sync.Map // of logins, to url.Values of their requests
}

func (s *server) state() (now State, err error) {
	raw, err := os.ReadFile(filepath.Join(s.dir, "state.json"))
	if err != nil {
		return now, err
	}
	return now, json.Unmarshal(raw, &now)
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = fmt.Fprintln(os.Stdout, r.URL.Path)
	now, err := s.state()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	switch r.URL.Path {
	case "/token":
		s.token(w, r, &now)
		return
	case "/authorize":
		s.authorize(w, r, &now)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		_, _ = w.Write(a2atest.JSON(a2atest.Object{
			"issuer": s.url, "jwks_uri": s.url + "/keys", "token_endpoint": s.url + "/token",
			"authorization_endpoint": s.url + "/authorize", "end_session_endpoint": s.url + "/logout",
			"code_challenge_methods_supported": []string{"S256"}, "authorization_response_iss_parameter_supported": true,
			"grant_types_supported": []string{"client_credentials", "authorization_code"}, "response_types_supported": []string{"code", "token"},
			"subject_types_supported": []string{"public"}, "id_token_signing_alg_values_supported": []string{"RS256"},
		}))
	case "/keys":
		set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}
		for _, k := range now.Keys {
			set.Keys = append(set.Keys, k.Public())
		}
		_, _ = w.Write(a2atest.JSON(set))
	default:
		http.NotFound(w, r)
	}
}

// token answers a client's request for a token with any claims, under the client's own name.
func (s *server) token(w http.ResponseWriter, r *http.Request, now *State) {
	client, secret, _ := r.BasicAuth()
	switch {
	case r.Method == http.MethodPost && r.PostFormValue("grant_type") == "authorization_code":
		s.redeem(w, r, now)
	case r.Method != http.MethodPost || r.PostFormValue("grant_type") != "client_credentials":
		http.Error(w, `{"error":"unsupported_grant_type"}`, http.StatusBadRequest)
	case client == "" || subtle.ConstantTimeCompare([]byte(secret), []byte(now.Secret)) == 0:
		http.Error(w, `{"error":"invalid_client"}`, http.StatusUnauthorized)
	case len(now.Keys) == 0:
		http.Error(w, `{"error":"server_error"}`, http.StatusInternalServerError)
	default:
		token, err := signed(now.Keys[0], usualClaims(s.url, r.PostFormValue("audience"), client, r.PostFormValue("scope")))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_, _ = w.Write(a2atest.JSON(a2atest.Object{"access_token": token, "token_type": "Bearer", "expires_in": 3600}))
	}
}
