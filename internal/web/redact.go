package web

import (
	"cmp"
	"encoding/base64"
	"net/url"
	"slices"
	"strings"
)

// Redactor returns a function that removes secrets from a text: those given, the values of headers, and the passwords and
// queries of addresses. Agents and their gateways repeat credentials in errors, which are logged and stored.
func Redactor(headers map[string]string, addresses []string, secrets ...string) func(string) string {
	for _, value := range headers {
		_, credential, _ := strings.Cut(value, " ") // behind Bearer or Basic
		secrets = append(secrets, value, credential)
	}
	for _, address := range addresses {
		u, err := url.Parse(address)
		if err != nil {
			continue
		}
		if password, ok := u.User.Password(); ok {
			secrets = append(secrets, password, base64.StdEncoding.EncodeToString([]byte(u.User.Username()+":"+password))) // as sent
		}
		secrets = append(secrets, u.RawQuery)
		for _, values := range u.Query() {
			secrets = append(secrets, values...)
		}
	}
	secrets = slices.DeleteFunc(secrets, func(s string) bool { return len(s) < leastSecret })
	// A secret may begin with another one.
	slices.SortFunc(secrets, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	return func(text string) string {
		for _, secret := range secrets {
			text = strings.ReplaceAll(text, secret, redacted)
		}
		for _, secret := range secrets {
			text = redactCut(text, secret)
		}
		return text
	}
}

// redactCut removes the start of a secret where the text was cut: at its end, or at an ellipsis.
func redactCut(text, secret string) string {
	if !strings.Contains(text, secret[:leastSecret]) {
		return text
	}
	for n := len(secret) - 1; n >= leastSecret; n-- {
		text = strings.ReplaceAll(text, secret[:n]+"…", redacted+"…")
		if start, ok := strings.CutSuffix(text, secret[:n]); ok {
			text = start + redacted
		}
	}
	return text
}

const redacted = "[redacted]"

// leastSecret is the length of the shortest secret to redact. Shorter ones would match in every other text.
const leastSecret = 6
