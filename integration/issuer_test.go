package integration

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
)

// issuer is an authority for tokens that is a process of its own, over TLS, as OpenID Connect has it: metadata, keys, and
// an endpoint where clients get tokens for their credentials. It is this test's binary once more.
//
// Its folder is what it lives on: it looks into state.json for every request, and so keeps its keys when it is killed. A
// test changes that file, whether the issuer runs or not.
type issuer struct {
	t    testing.TB
	dir  string
	url  string // which is the iss of its tokens
	http *http.Client

	mu     sync.Mutex
	state  issuerState
	asked  map[string]int // requests, by path
	issued []string       // every token

	cmd   *exec.Cmd
	stdin io.Closer
	ended chan struct{}
}

// issuerState is what an issuer knows.
type issuerState struct {
	Address string
	// Keys are the private ones. The first signs what the token endpoint gives out; all are published.
	Keys []jose.JSONWebKey
	// Mood is what comes of requests for metadata and keys.
	Mood mood
	// Secret is that of every client.
	Secret string
}

// mood is how an issuer answers.
type mood string

const (
	well      mood = ""
	slow      mood = "slow"      // never
	broken    mood = "broken"    // 500
	nonsense  mood = "nonsense"  // no JSON
	imposter  mood = "imposter"  // the metadata are of another issuer
	elsewhere mood = "elsewhere" // the keys are behind a redirect
	huge      mood = "huge"      // keys, and blanks without end
	keyless   mood = "keyless"   // JSON that is no set of keys
)

// moods are those in which nobody gets keys.
var moods = []mood{slow, broken, nonsense, imposter, elsewhere, huge, keyless}

// audience is whom tokens are usually meant for.
const audience = "https://agents.example.com"

// startIssuer starts one, with a key for RS256 named one.
func startIssuer(t testing.TB) *issuer {
	t.Helper()
	i := &issuer{t: t, dir: t.TempDir(), asked: map[string]int{}}
	authority := newCertificate(t, nil, &x509.Certificate{
		Subject: pkix.Name{CommonName: "authority of the issuer"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	own := newCertificate(t, authority, &x509.Certificate{
		Subject: pkix.Name{CommonName: "issuer"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	for name, content := range map[string][]byte{"cert.pem": own.certPEM, "key.pem": own.keyPEM, "ca.pem": authority.certPEM} {
		require.NoError(t, os.WriteFile(filepath.Join(i.dir, name), content, 0o600))
	}
	roots := x509.NewCertPool()
	roots.AddCert(authority.cert)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	i.http = &http.Client{Transport: transport, Timeout: patience}
	t.Cleanup(transport.CloseIdleConnections)
	t.Cleanup(i.kill)
	i.change(func(s *issuerState) {
		s.Address, s.Secret = reserve(t), "secret-"+rand.Text()
		s.Keys = []jose.JSONWebKey{newKey(t, "one", jose.RS256)}
	})
	i.run()
	return i
}

// change tells the issuer something. What it answers from then on follows that.
func (i *issuer) change(how func(s *issuerState)) {
	i.t.Helper()
	i.mu.Lock()
	defer i.mu.Unlock()
	how(&i.state)
	whole := filepath.Join(i.dir, "state.json")
	require.NoError(i.t, os.WriteFile(whole+".new", mustMarshal(i.state), 0o600))
	require.NoError(i.t, os.Rename(whole+".new", whole))
}

// run starts the process, again if it was killed, and at the address that it had.
func (i *issuer) run() {
	i.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asIssuer+"="+i.dir)
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
		i.url = "https://" + a
	case <-ended:
		require.FailNow(i.t, "the issuer ended instead of serving", cmd.ProcessState.String())
	}
}

// kill ends the process at once. Nobody answers at its address until it runs again.
func (i *issuer) kill() {
	if i.cmd == nil {
		return
	}
	_ = i.cmd.Process.Kill()
	<-i.ended
	_ = i.stdin.Close()
}

// scheme is the configuration of a scheme that takes its tokens; more goes into its jwt.
func (i *issuer) scheme(name, more string) string {
	return fmt.Sprintf("{name: %s, kind: jwt, jwt: {issuer: %q, audience: [%q], algorithms: [RS256, ES256, EdDSA]%s}}", name, i.url, audience, more)
}

// trust is the environment of a server that believes the issuer's certificate.
func (i *issuer) trust() []string { return []string{"SSL_CERT_FILE=" + filepath.Join(i.dir, "ca.pem")} }

// count is how often something was asked for, such as "/keys".
func (i *issuer) count(path string) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.asked[path]
}

// be changes its mood.
func (i *issuer) be(m mood) {
	i.t.Helper()
	i.change(func(s *issuerState) { s.Mood = m })
}

// rotate makes a key, which signs from now on. The others stay published.
func (i *issuer) rotate(kid string, algorithm jose.SignatureAlgorithm) {
	i.t.Helper()
	key := newKey(i.t, kid, algorithm)
	i.change(func(s *issuerState) { s.Keys = append([]jose.JSONWebKey{key}, s.Keys...) })
}

// withdraw forgets keys.
func (i *issuer) withdraw(kids ...string) {
	i.t.Helper()
	i.change(func(s *issuerState) {
		s.Keys = slices.DeleteFunc(s.Keys, func(k jose.JSONWebKey) bool { return slices.Contains(kids, k.KeyID) })
	})
}

// key is one of its private keys; "" for the one that signs.
func (i *issuer) key(kid string) jose.JSONWebKey {
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

// token is what a client gets from the token endpoint (client credentials).
func (i *issuer) token(client string, scopes ...string) string {
	i.t.Helper()
	form := url.Values{"grant_type": {"client_credentials"}, "audience": {audience}, "scope": {strings.Join(scopes, " ")}}
	r, err := http.NewRequestWithContext(short(i.t, patience), http.MethodPost, i.url+"/token", strings.NewReader(form.Encode()))
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

// claims are those of a good token. Pairs of a name and a value change them; nil takes one away.
func (i *issuer) claims(subject string, pairs ...any) object {
	c := usualClaims(i.url, audience, subject, "")
	for n := 0; n < len(pairs); n += 2 {
		if name := pairs[n].(string); pairs[n+1] == nil {
			delete(c, name)
		} else {
			c[name] = pairs[n+1]
		}
	}
	return c
}

// sign makes a token that the endpoint would not give out, by the key that signs. Members replace those of its header; nil
// takes one away.
func (i *issuer) sign(claims object, members ...any) string {
	i.t.Helper()
	return i.signWith(i.key(""), claims, members...)
}

// signWith is sign by any key.
func (i *issuer) signWith(key jose.JSONWebKey, claims object, members ...any) string {
	i.t.Helper()
	token, err := signed(key, claims, members...)
	require.NoError(i.t, err)
	return i.remember(token)
}

// remember is for silent.
func (i *issuer) remember(token string) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.issued = append(i.issued, token)
	return token
}

// silent checks that the log of a server has nothing of its tokens.
func (i *issuer) silent(r *replica) {
	i.t.Helper()
	i.mu.Lock()
	defer i.mu.Unlock()
	log := string(r.logs.all())
	for _, token := range i.issued {
		for part := range strings.SplitSeq(token, ".") {
			if len(part) > 20 { // else it would be anything
				require.NotContains(i.t, log, part, "no log of %s has a token", r.name)
			}
		}
	}
	require.NotContains(i.t, log, i.state.Secret)
}

// newKey makes a private key.
func newKey(t testing.TB, kid string, algorithm jose.SignatureAlgorithm) jose.JSONWebKey {
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

func usualClaims(issuer, audience, subject, scope string) object {
	now := time.Now()
	return object{
		"iss": issuer, "aud": audience, "sub": subject, "org": "acme", "scope": scope, "jti": "j-" + rand.Text(),
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(time.Hour).Unix(),
	}
}

// signed signs claims as a key says. Members replace those of the header; nil takes one away.
func signed(key jose.JSONWebKey, claims object, members ...any) (string, error) {
	header := object{"alg": key.Algorithm, "kid": key.KeyID, "typ": "at+jwt"}
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
	s, err := signer.Sign(mustMarshal(claims))
	if err != nil {
		return "", err
	}
	return s.CompactSerialize()
}

// asIssuer has the folder of the issuer that this binary is to be.
const asIssuer = "HOLDFAST_TEST_ISSUER"

// serveIssuer is the issuer's process. It ends with the test that started it, if nothing else ends it.
func serveIssuer(dir string) error {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	s := &issuerServer{dir: dir}
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
	server := &http.Server{Handler: s, ReadHeaderTimeout: patience, ErrorLog: log.New(io.Discard, "", 0)}
	return server.ServeTLS(l, filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"))
}

type issuerServer struct{ dir, url string }

func (s *issuerServer) state() (now issuerState, err error) {
	raw, err := os.ReadFile(filepath.Join(s.dir, "state.json"))
	if err != nil {
		return now, err
	}
	return now, json.Unmarshal(raw, &now)
}

func (s *issuerServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = fmt.Fprintln(os.Stdout, r.URL.Path)
	now, err := s.state()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if r.URL.Path == "/token" {
		s.token(w, r, &now)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch now.Mood {
	case slow:
		<-r.Context().Done()
		return
	case broken:
		http.Error(w, "out of order", http.StatusInternalServerError)
		return
	case nonsense:
		_, _ = io.WriteString(w, "<html>")
		return
	case well, imposter, elsewhere, huge, keyless:
	}
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		who := s.url
		if now.Mood == imposter {
			who = "https://id.example.com"
		}
		_, _ = w.Write(mustMarshal(object{
			"issuer": who, "jwks_uri": s.url + "/keys", "token_endpoint": s.url + "/token",
			"grant_types_supported": []string{"client_credentials"}, "response_types_supported": []string{"token"},
			"subject_types_supported": []string{"public"}, "id_token_signing_alg_values_supported": []string{"RS256"},
		}))
	case "/keys", "/moved":
		if now.Mood == elsewhere && r.URL.Path == "/keys" {
			http.Redirect(w, r, "/moved", http.StatusFound)
			return
		}
		if now.Mood == keyless {
			_, _ = io.WriteString(w, `{"error":"none today"}`)
			return
		}
		set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}
		for _, k := range now.Keys {
			set.Keys = append(set.Keys, k.Public())
		}
		_, _ = w.Write(mustMarshal(set))
		for now.Mood == huge && err == nil && r.Context().Err() == nil {
			_, err = w.Write([]byte(strings.Repeat(" ", 64<<10)))
		}
	default:
		http.NotFound(w, r)
	}
}

// token gives a client what it may have: anything that it asks for, under its own name.
func (s *issuerServer) token(w http.ResponseWriter, r *http.Request, now *issuerState) {
	client, secret, _ := r.BasicAuth()
	switch {
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
		_, _ = w.Write(mustMarshal(object{"access_token": token, "token_type": "Bearer", "expires_in": 3600}))
	}
}
