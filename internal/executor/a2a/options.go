package a2a

import (
	"errors"
	"fmt"
	"log/slog"
	"net/textproto"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/executor/wire"
	"github.com/holdfast-a2a/holdfast/internal/outbound"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/client"
)

// Options say which server to front, and how. CardURL or URL is required.
type Options struct {
	CardURL string // of the card, or of the server that has it at a well-known path
	URL     string // of the endpoint; overrides that of the card
	Version string // of A2A; "" or auto: the newest that the card offers
	Binding string // JSONRPC or HTTP+JSON; "" or auto: as the card offers
	Poll    bool   // never stream: send without waiting, and poll

	Headers map[string]string // sent with every call
	Auth    Auth

	ConnectTimeout time.Duration // 0: 10 seconds
	CallTimeout    time.Duration // of calls that do not wait for the agent; 0: 30 seconds
	PollInterval   time.Duration // longest pause between reads of a task; 0: 5 seconds
	CancelTimeout  time.Duration // of the cancel of a task; 0: 5 seconds
	MaxEvent       int           // bytes; 0: 16 MiB. A whole task may have four times as many
	DirectReplies  bool          // bare messages are passed on as such

	OwnExtensions []string // URIs of the extensions that Holdfast serves itself: agents do not get them

	Log *slog.Logger
}

// Auth is the credential of the front. At most one of its kinds is set.
type Auth struct {
	Bearer, BearerFile     string
	Username               string
	Password, PasswordFile string
}

const auto = "auto"

func (o *Options) validate() error {
	var problems []error
	complain := func(option, format string, args ...any) {
		problems = append(problems, fmt.Errorf("a2a: %s: %s", option, fmt.Sprintf(format, args...)))
	}
	checkURL := func(option, value string) {
		if u := outbound.CheckURL(option, value, complain); u != nil && u.User != nil {
			complain(option, "must not contain a password; use auth")
		}
	}
	if o.CardURL == "" && o.URL == "" {
		complain("card_url", "is required, or url")
	}
	if o.CardURL != "" {
		checkURL("card_url", o.CardURL)
	}
	if o.URL != "" {
		checkURL("url", o.URL)
	}
	if client.Find(o.Version, "") == nil {
		complain("version", "%q is not a version that Holdfast speaks; use auto, 0.1, 0.2, 0.3 or 1.0", o.Version)
	} else if client.Find(o.Version, o.Binding) == nil {
		complain("binding", "%q does not exist in this version; use auto, jsonrpc or http+json", o.Binding)
	}
	outbound.CheckHeaders(o.Headers, ours, complain)
	kinds := 0
	for _, set := range []bool{o.Auth.Bearer != "", o.Auth.BearerFile != "", o.Auth.Username != "", hasHeader(o.Headers, "Authorization")} {
		if set {
			kinds++
		}
	}
	switch {
	case kinds > 1:
		complain("auth", "has several credentials; use one of bearer, bearer_file, username and the header Authorization")
	case o.Auth.Username == "" && (o.Auth.Password != "" || o.Auth.PasswordFile != ""):
		complain("auth.username", "is required with a password")
	case o.Auth.Password != "" && o.Auth.PasswordFile != "":
		complain("auth.password", "is given twice; remove password or password_file")
	}
	if _, err := o.Auth.value(); err != nil {
		complain("auth", "%s", err)
	}
	return errors.Join(problems...)
}

func hasHeader(headers map[string]string, name string) bool {
	for n := range headers {
		if textproto.CanonicalMIMEHeaderKey(n) == name {
			return true
		}
	}
	return false
}

func ours(name string) bool {
	switch name {
	case "A2a-Version", "A2a-Extensions", "X-A2a-Extensions", "Traceparent":
		return true
	}
	return false
}

func (o Options) withDefaults() Options {
	def := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	def(&o.ConnectTimeout, 10*time.Second)
	def(&o.CallTimeout, 30*time.Second)
	def(&o.PollInterval, 5*time.Second)
	def(&o.CancelTimeout, 5*time.Second)
	if o.MaxEvent == 0 {
		o.MaxEvent = wire.DefaultMaxEvent
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// value returns the value of the header Authorization, or "". Files are read at each call, because orchestrators replace
// tokens in place.
func (a *Auth) value() (string, error) {
	switch {
	case a.Bearer != "" || a.BearerFile != "":
		token, err := secretOf(a.Bearer, a.BearerFile)
		return "Bearer " + token, err
	case a.Username != "":
		password, err := a.password()
		return basic(a.Username, password), err
	}
	return "", nil
}

func (a *Auth) password() (string, error) { return secretOf(a.Password, a.PasswordFile) }

func secretOf(value, file string) (string, error) {
	if file == "" {
		return value, nil
	}
	text, err := outbound.ReadCredential(file)
	if err != nil {
		return "", fmt.Errorf("read the credential of the agent: %w", err)
	}
	return text, nil
}
