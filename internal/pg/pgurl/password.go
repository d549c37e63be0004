package pgurl

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-a2a/holdfast/internal/secrets"
)

// marker separates a URL from the source of its password. The marker is not a part of PostgreSQL's URLs: it makes URLs complete
// within this program, and any other reader refuses them.
const marker = "\x00password="

// WithPassword returns a URL whose connections read their passwords from a source, each when it is opened. Only this package
// reads such URLs.
func WithPassword(url string, from *secrets.Source) string {
	raw, err := json.Marshal(from)
	if err != nil {
		panic(err) // texts have a form in JSON
	}
	return url + marker + string(raw)
}

// split returns the URL that PostgreSQL's drivers read, and what reads the password of a new connection. The drivers read a
// password file once, when they parse the URL: a rotated password would lock out a running process.
func split(url string) (string, Before, error) {
	plain, raw, found := strings.Cut(url, marker)
	from := new(secrets.Source)
	if found {
		if err := json.Unmarshal([]byte(raw), from); err != nil {
			return "", nil, fmt.Errorf("database url: the source of the password: %w", err)
		}
	}
	return plain, func(ctx context.Context, cfg *pgx.ConnConfig) error {
		if !found {
			// A file that is just being written keeps the last password.
			if now, err := pgx.ParseConfig(plain); err == nil && now.Password != "" {
				cfg.Password = now.Password
			}
			return nil
		}
		password, err := from.Read(ctx)
		if err != nil {
			return fmt.Errorf("database_password: %w", err)
		}
		cfg.Password = password
		return nil
	}, nil
}

var passwordWord = regexp.MustCompile(`(?i)(^|[\s?&])password\s*=`)

// HasPassword reports whether a URL, or a list such as host=db user=holdfast, has a password.
func HasPassword(text string) bool {
	if u, err := url.Parse(text); err == nil && u.Scheme != "" {
		_, has := u.User.Password()
		return has || u.Query().Has("password")
	}
	return passwordWord.MatchString(text)
}
