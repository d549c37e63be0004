package a2a

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/textproto"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/client"
	"github.com/holdfast-a2a/holdfast/internal/secrets"
	"github.com/holdfast-a2a/holdfast/internal/web"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/wire"
)

// Options say which server to front, and how. CardURL or URL is required.
type Options struct {
	CardURL string // of the card, or of the server that has it at a well-known path
	URL     string // of the endpoint; overrides that of the card
	Version string // of A2A; "" or auto: the newest that the card offers
	Binding string // JSONRPC, HTTP+JSON or GRPC; "" or auto: as the card offers
	Poll    bool   // never stream: send without waiting, and poll

	// CardKeys are the public keys that may sign the card: a JSON Web Key Set or PEM. Without them, and CardKeysFile, signatures
	// are not looked at.
	CardKeys     string
	CardKeysFile string // has the same, and is read with each card

	Headers map[string]string // sent with every call
	Auth    Auth
	Forward []string // names of the headers of clients that the agent gets with the calls of their runs

	ConnectTimeout time.Duration // 0: 10 seconds
	CallTimeout    time.Duration // of calls that do not wait for the agent; 0: 30 seconds
	CardInterval   time.Duration // between reads of the card; 0: 5 minutes
	PollInterval   time.Duration // longest pause between reads of a task; 0: 5 seconds
	PushInterval   time.Duration // the same, where notifications of the agent arrive; 0: 1 minute
	CancelTimeout  time.Duration // of the cancel of a task; 0: 5 seconds
	MaxEvent       int           // bytes; 0: 16 MiB. A whole task may have four times as many
	DirectReplies  bool          // bare messages are passed on as such

	OwnExtensions []string // URIs of the extensions that Holdfast serves itself: agents do not get them

	Observe web.Observer // of each request; nil: nobody

	Log *slog.Logger
}

// Auth is the credential of the front. At most one of its kinds is set.
type Auth struct {
	Bearer   *secrets.Source
	Username string
	Password *secrets.Source
}

const auto = "auto"

func (o *Options) validate() error {
	var problems []error
	complain := func(option, format string, args ...any) {
		problems = append(problems, fmt.Errorf("a2a: %s: %s", option, fmt.Sprintf(format, args...)))
	}
	checkURL := func(option, value string) {
		if u := web.CheckURL(option, value, complain); u != nil && u.User != nil {
			complain(option, "must not contain a password; use auth")
		}
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
		complain("binding", "%q does not exist in this version; use auto, jsonrpc, http+json or grpc", o.Binding)
	}
	if o.URL != "" && strings.EqualFold(o.Binding, client.GRPC) {
		if !pathless(o.URL) {
			complain("url", "%s", strings.TrimPrefix(errPath.Error(), "a2a.url "))
		}
		if o.CardURL == "" && o.Version == "" {
			complain("version", "is required with url and binding grpc, or card_url: a port of gRPC has no card")
		}
	}
	if o.CardKeys != "" && o.CardKeysFile != "" {
		complain("card_keys", "is given twice; remove card_keys or card_keys_file")
	} else if _, err := o.cardKeys(); err != nil {
		complain("card_keys", "%s", err)
	}
	web.CheckHeaders(o.Headers, ours, complain)
	web.CheckForward("forward.headers", o.Forward, ours, complain)
	for i, name := range o.Forward {
		if hasHeader(o.Headers, textproto.CanonicalMIMEHeaderKey(name)) {
			complain(fmt.Sprintf("forward.headers[%d]", i), "%s is in headers, too; remove it from one of them", name)
		}
	}
	kinds := 0
	for _, set := range []bool{o.Auth.Bearer != nil, o.Auth.Username != "", hasHeader(o.Headers, "Authorization")} {
		if set {
			kinds++
		}
	}
	switch {
	case o.Auth != Auth{} && slices.ContainsFunc(o.Forward, func(name string) bool { return strings.EqualFold(name, "Authorization") }):
		complain("auth", "sets the header Authorization, which forward.headers forwards; remove one of them")
	case kinds > 1:
		complain("auth", "has several credentials; use one of bearer, username and the header Authorization")
	case o.Auth.Username == "" && o.Auth.Password != nil:
		complain("auth.username", "is required with a password")
	}
	if _, err := o.Auth.value(context.Background()); err != nil {
		complain("auth", "%s", err)
	}
	return errors.Join(problems...)
}

// cardKeys returns the keys that may sign the card, or nil if it need not be signed.
func (o *Options) cardKeys() (client.Keys, error) {
	if o.CardKeys != "" {
		return client.ParseKeys([]byte(o.CardKeys))
	}
	if o.CardKeysFile == "" {
		return nil, nil
	}
	text, err := os.ReadFile(o.CardKeysFile)
	if err != nil {
		return nil, err
	}
	keys, err := client.ParseKeys(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.CardKeysFile, err)
	}
	return keys, nil
}

// hasCredential reports whether calls may carry one.
func (o *Options) hasCredential() bool { return o.Auth != Auth{} || len(o.Headers) > 0 }

// agent returns the value of the header User-Agent.
func (o *Options) agent() string {
	for name, value := range o.Headers {
		if textproto.CanonicalMIMEHeaderKey(name) == "User-Agent" && value != "" {
			return value
		}
	}
	return "Holdfast"
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
	case "A2a-Version", "A2a-Extensions", "X-A2a-Extensions", "Traceparent", "Tracestate":
		return true
	}
	return false
}

func (o Options) withDefaults() Options {
	o.ConnectTimeout = cmp.Or(o.ConnectTimeout, 10*time.Second)
	o.CallTimeout = cmp.Or(o.CallTimeout, 30*time.Second)
	o.CardInterval = cmp.Or(o.CardInterval, 5*time.Minute)
	o.PollInterval = cmp.Or(o.PollInterval, 5*time.Second)
	o.PushInterval = cmp.Or(o.PushInterval, time.Minute)
	o.CancelTimeout = cmp.Or(o.CancelTimeout, 5*time.Second)
	o.MaxEvent = cmp.Or(o.MaxEvent, wire.DefaultMaxEvent)
	o.Forward = slices.Clone(o.Forward)
	for i, name := range o.Forward {
		o.Forward[i] = textproto.CanonicalMIMEHeaderKey(name)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// value returns the value of the header Authorization, or "". It is read for each call, because orchestrators and commands
// replace tokens.
func (a *Auth) value(ctx context.Context) (string, error) {
	from := a.Bearer
	if from == nil {
		from = a.Password
	}
	text, err := web.Credential(ctx, from)
	switch {
	case err != nil:
		return "", fmt.Errorf("read the credential of the agent: %w", err)
	case a.Bearer != nil:
		return "Bearer " + text, nil
	case a.Username != "":
		return basic(a.Username, text), nil
	}
	return "", nil
}

// used returns what calls had lately as credentials, in all forms.
func (a *Auth) used() []string {
	all := a.Bearer.Used()
	for _, password := range a.Password.Used() {
		credential := basic(a.Username, strings.TrimSpace(password))
		_, token, _ := strings.Cut(credential, " ")
		all = append(all, password, credential, token)
	}
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
	}
	return all
}
