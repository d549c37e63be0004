// A receiver of webhooks that verifies every notification. verify.go checks that the notification comes from the known
// server (a JWT over the body, with the server's published keys), is addressed to this receiver, is about a task of
// the known owner and agent, and belongs to its subscription (the token). This file also checks that it is new. With
// WEBHOOK_SECRET it checks the signature of Standard Webhooks instead of the JWT: the server derives that secret for
// itself, one owner and one agent, so no other deliveries are signed with it. `holdfast webhooks secret` prints OWNER and
// WEBHOOK_SECRET.
//
// ISSUER=https://agents.example.com OWNER=... AGENT=demo TOKEN=... go run . 8000
package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

const (
	maxBody = 16 << 20
	life    = 5 * time.Minute // of a signature
)

// receiver has the data that checks of notifications need.
type receiver struct {
	// The server's public URL, the URL of this receiver exactly as the client set it, and owner and agent of our tasks. Another
	// owner may have a task of the same name, and may have set a webhook to this URL.
	want   claims
	token  string // as the client set it; never empty
	secret []byte // of Standard Webhooks, derived for the server, owner and agent; or nil
	keys   *keySet

	mu   sync.Mutex
	seen map[string]time.Time // ids, and when to forget them
}

// verify returns the id of a genuine notification.
func (r *receiver) verify(h http.Header, body []byte) (id string, err error) {
	if r.secret != nil {
		return r.verifyStandard(h, body)
	}
	c, err := verify(h, body, r.token, &r.want, r.keys.find)
	switch {
	case err != nil:
		return "", err
	case c.ID == "":
		return "", errors.New("the JWT has no jti")
	}
	return c.ID, nil
}

// verifyStandard checks the token, and a signature as the libraries of standardwebhooks.com do.
func (r *receiver) verifyStandard(h http.Header, body []byte) (string, error) {
	if subtle.ConstantTimeCompare([]byte(h.Get("X-A2A-Notification-Token")), []byte(r.token)) != 1 {
		return "", errors.New("another token")
	}
	id, at := h.Get("Webhook-Id"), h.Get("Webhook-Timestamp")
	seconds, err := strconv.ParseInt(at, 10, 64)
	if age := time.Since(time.Unix(seconds, 0)); err != nil || id == "" || age > life || age < -life {
		return "", errors.New("no id, or a timestamp more than 5 minutes off")
	}
	mac := hmac.New(sha256.New, r.secret)
	_, _ = fmt.Fprintf(mac, "%s.%s.", id, at)
	_, _ = mac.Write(body)
	for _, signature := range strings.Fields(h.Get("Webhook-Signature")) {
		version, encoded, _ := strings.Cut(signature, ",")
		given, err := base64.StdEncoding.DecodeString(encoded)
		if version == "v1" && err == nil && hmac.Equal(given, mac.Sum(nil)) {
			return id, nil
		}
	}
	return "", errors.New("no signature matches")
}

// first reports whether an id is new. A repetition is no attack: the server redelivers what it could not record, with
// the same id. A receiver with a database stores the id and handles the notification in one transaction.
func (r *receiver) first(id string) bool {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for old, until := range r.seen {
		if now.After(until) {
			delete(r.seen, old)
		}
	}
	_, known := r.seen[id]
	// Ids outlive signatures, because the server retries for days.
	r.seen[id] = now.Add(48 * time.Hour)
	return !known
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	// The server may check that this URL is a receiver (push.validation_challenge).
	if nonce := q.URL.Query().Get("validationToken"); q.Method == http.MethodGet && nonce != "" {
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = io.WriteString(w, nonce) //nolint:gosec // it is text, and nothing else
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, q.Body, maxBody))
	if err != nil || q.Method != http.MethodPost {
		http.Error(w, "POST a notification", http.StatusBadRequest)
		return
	}
	id, err := r.verify(q.Header, body)
	switch {
	case errors.Is(err, errLater):
		say("put off: " + err.Error())
		http.Error(w, "later, please", http.StatusServiceUnavailable)
		return
	case err != nil:
		say("refused: " + err.Error())
		http.Error(w, "not for us", http.StatusUnauthorized)
		return
	case r.first(id):
		say("accepted " + id)
	default:
		say("repeated " + id)
	}
	w.WriteHeader(http.StatusNoContent)
}

// errLater makes the server retry.
var errLater = errors.New("the keys could not be fetched")

// keySet is the server's public keys. The receiver fetches them from the server that it knows, never from a URL in a
// token.
type keySet struct {
	url string

	mu      sync.Mutex
	keys    jose.JSONWebKeySet
	fetched time.Time
}

func (k *keySet) find(id string) (any, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	found := k.keys.Key(id)
	// Keys change. Look for an unknown key, but not once for every forged request.
	if len(found) == 0 && time.Since(k.fetched) > 10*time.Second {
		k.fetched = time.Now()
		if err := k.fetch(); err != nil {
			return nil, fmt.Errorf("%w: %w", errLater, err)
		}
		found = k.keys.Key(id)
	}
	if len(found) == 0 {
		return nil, errors.New("signed with a key that the server does not publish")
	}
	return &found[0], nil
}

func (k *keySet) fetch() error {
	client := http.Client{Timeout: 10 * time.Second}
	r, err := client.Get(k.url) //nolint:noctx // the client has a timeout
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return errors.New(r.Status)
	}
	return json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&k.keys)
}

func say(line string) { _, _ = fmt.Fprintln(os.Stdout, line) }

// required returns a variable. Without one of them the receiver would accept what it cannot verify.
func required(name string) string {
	value := os.Getenv(name)
	if value == "" {
		log.Fatalf("%s is not set", name)
	}
	return value
}

func main() {
	port := "8000"
	if len(os.Args) > 1 {
		port = os.Args[1]
	}
	l, err := net.Listen("tcp", "127.0.0.1:"+port) //nolint:noctx // it lives as long as the program
	if err != nil {
		log.Fatal(err)
	}
	r := &receiver{token: required("TOKEN"), seen: map[string]time.Time{}}
	url := os.Getenv("WEBHOOK_URL")
	if url == "" {
		url = "http://" + l.Addr().String() + "/hook"
	}
	r.want.Issuer, r.want.Audience = required("ISSUER"), jwt.Audience{url}
	r.keys = &keySet{url: r.want.Issuer + "/.well-known/jwks.json"}
	if secret, ok := strings.CutPrefix(os.Getenv("WEBHOOK_SECRET"), "whsec_"); ok {
		if r.secret, err = base64.StdEncoding.DecodeString(secret); err != nil {
			log.Fatal(err)
		}
	} else {
		r.want.Owner, r.want.Agent = required("OWNER"), required("AGENT")
	}
	say("listening at " + url)
	server := http.Server{Handler: r, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute}
	log.Fatal(server.Serve(l))
}
