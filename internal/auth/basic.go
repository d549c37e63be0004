package auth

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/bcrypt"
	"golang.org/x/sync/singleflight"

	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// KindBasic is the kind of the scheme that NewBasic makes.
const KindBasic = "basic"

// User is a user with a password.
type User struct {
	Name   string
	Hash   string // bcrypt
	Tenant string
	Scopes []string
}

// Basic is a scheme: a name and a password. The operator lists the users.
type Basic struct {
	named
	users atomic.Pointer[userList]
	// checks bounds how many passwords are compared at a time; ofName and from bound how many wait for that, and leave room
	// for other users and addresses. A comparison is slow by design, and any client can cause one.
	checks       chan struct{}
	ofName, from *limit.Places[string]
	flights      singleflight.Group
	compare      func(hash, password []byte) error
}

// userList is a version of the users, with the passwords that were found right for them.
type userList struct {
	byName map[string]*User
	decoy  []byte // compared with the password of an unknown user
	key    [32]byte
	right  *cache[*proof]
}

const (
	// passwordFor is how long an unused password is remembered as right.
	passwordFor   = 5 * time.Minute
	passwordsKept = 10_000
	// maxWaiting bounds the passwords that wait for a comparison: in all, of one user (maxWaitingOfName) and from one
	// address (maxWaitingFrom). maxPassword is how much of a password bcrypt reads, in bytes.
	maxWaiting       = 64
	maxWaitingOfName = 4
	maxWaitingFrom   = 16
	maxPassword      = 72
)

// NewBasic makes the scheme.
func NewBasic(name string, users []User) (*Basic, error) {
	s := &Basic{
		named: named{name, KindBasic}, checks: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)), compare: bcrypt.CompareHashAndPassword,
		ofName: limit.NewPlaces[string](maxWaiting, maxWaitingOfName), from: limit.NewPlaces[string](maxWaiting, maxWaitingFrom),
	}
	return s, s.SetUsers(users)
}

// SetUsers replaces the users. On an error it keeps the previous ones.
func (s *Basic) SetUsers(users []User) error {
	l := &userList{byName: map[string]*User{}, right: newCache[*proof](passwordsKept)}
	cost := 0
	for i := range users {
		u := &users[i]
		c, err := HashCost(u.Hash)
		switch {
		case err != nil:
			return fmt.Errorf("user %q: %w", u.Name, err)
		case l.byName[u.Name] != nil:
			return fmt.Errorf("user %q is listed twice", u.Name)
		case cost != 0 && c != cost:
			// With another cost, the duration of a check would reveal which names are users.
			return fmt.Errorf("user %q: the hash has cost %d, but earlier users have cost %d; use one cost for all users", u.Name, c, cost)
		}
		cost = c
		l.byName[u.Name] = u
	}
	if cost == 0 {
		return errors.New("there are no users; add at least one")
	}
	_, _ = rand.Read(l.key[:])
	var err error
	if l.decoy, err = bcrypt.GenerateFromPassword(l.key[:], cost); err != nil {
		return fmt.Errorf("make a decoy hash: %w", err)
	}
	s.users.Store(l)
	return nil
}

// The accepted costs of a hash. Below, guessing is cheap; above, checking is expensive.
const (
	MinCost = 10
	MaxCost = 14
)

// weakest is MinCost. Tests hash cheaper: under the race detector a comparison of that cost takes a second.
var weakest = MinCost

// HashCost checks a bcrypt hash and returns its cost.
func HashCost(hash string) (int, error) {
	cost, err := bcrypt.Cost([]byte(hash))
	if err != nil {
		return 0, errors.New("the hash is not a bcrypt hash; make one with htpasswd -nbB -C 12")
	}
	if cost < weakest || cost > MaxCost {
		return 0, fmt.Errorf("the hash has cost %d; use a cost from %d to %d", cost, weakest, MaxCost)
	}
	return cost, nil
}

func (s *Basic) shown(_ *Request, a *authorization) []string {
	return a.take("basic", func(string) bool { return true })
}

func (s *Basic) remembered(credential string, _ *Request) *proof {
	decoded, err := base64.StdEncoding.Strict().DecodeString(credential)
	if err != nil {
		return nil
	}
	l := s.users.Load()
	digest := l.digest(decoded)
	l.right.Touch(digest)
	p, _ := l.right.get(digest)
	return p
}

func (s *Basic) verify(ctx context.Context, credential string, r *Request) (*proof, error) {
	decoded, err := base64.StdEncoding.Strict().DecodeString(credential)
	if err != nil {
		return nil, refuse(Malformed, nil)
	}
	name, password, ok := strings.Cut(string(decoded), ":")
	if !ok || len(password) > maxPassword || strings.Contains(password, "\x00") {
		return nil, refuse(Malformed, nil)
	}
	l := s.users.Load()
	digest := l.digest(decoded)
	user := l.byName[name]
	// One comparison serves all requests that show the same password at the same time.
	found := s.flights.DoChan(string(digest[:]), func() (any, error) {
		// Another comparison may have remembered it since this request looked.
		if p, ok := l.right.get(digest); ok {
			return p, nil
		}
		// The work is the same for unknown users.
		hash := l.decoy
		if user != nil {
			hash = []byte(user.Hash)
		}
		wrong, err := s.check(hash, []byte(password), name, r)
		switch {
		case err != nil:
			return nil, err
		case wrong || user == nil:
			return nil, refuse(Unknown, nil)
		}
		p := &proof{Caller: task.Caller{Tenant: user.Tenant, Subject: user.Name, Scopes: user.Scopes, Credential: s.name + "/" + user.Name}}
		l.right.put(digest, p, passwordFor)
		return p, nil
	})
	select {
	case f := <-found:
		p, _ := f.Val.(*proof)
		return p, f.Err
	case <-ctx.Done():
		return nil, unavailable("the password check timed out", context.Cause(ctx))
	}
}

// digest identifies a password in memory. It is not a password that could be tried elsewhere.
func (l *userList) digest(credential []byte) (d [sha256.Size]byte) {
	mac := hmac.New(sha256.New, l.key[:])
	_, _ = mac.Write(credential)
	mac.Sum(d[:0])
	return d
}

// check waits for its turn and compares a password. A password that was right before may always wait.
func (s *Basic) check(hash, password []byte, name string, r *Request) (wrong bool, err error) {
	if !r.before {
		leave, ok := s.ofName.Take(name)
		if ok {
			defer leave()
			leave, ok = s.from.Take(limit.Sender(r.Address))
		}
		if !ok {
			return false, &task.Error{Kind: task.RateLimited, Msg: "too many password checks are running", RetryAfter: time.Second}
		}
		defer leave()
	}
	s.checks <- struct{}{}
	defer func() { <-s.checks }()
	return s.compare(hash, password) != nil, nil
}

func (s *Basic) challenge(bool) string { return `Basic ` + realm + `, charset="UTF-8"` }
