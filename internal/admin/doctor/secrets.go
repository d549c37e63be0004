package doctor

import (
	"context"
	"fmt"

	"github.com/holdfast-a2a/holdfast/internal/secrets"
)

// sealing returns the keys that may have sealed secrets: first those of the configuration, given in number, then the server's own.
func (d *database) sealing(ctx context.Context) (ring *secrets.Keys, given int, err error) {
	own, err := column[[]byte](ctx, d, "SELECT value FROM holdfast.secrets WHERE name = 'push'")
	if err != nil {
		return nil, 0, err
	}
	keys := d.Config.Push.SealingKeys()
	ring, err = secrets.NewKeys(append(keys, own...)...)
	return ring, len(keys), err
}

// signingKeys checks how the private keys are sealed that sign cards and webhooks.
func (d *database) signingKeys(ctx context.Context) ([]Finding, error) {
	ring, given, err := d.sealing(ctx)
	if err != nil {
		return nil, err
	}
	// Only the heads leave the database: plain keys must not.
	heads, err := column[[]byte](ctx, d, fmt.Sprintf("SELECT substring(private_key FOR %d) FROM holdfast.signing_keys", secrets.HeadSize))
	if err != nil {
		return nil, err
	}
	var plain, older, lost int
	for _, head := range heads {
		switch key := ring.Key(head); {
		case !secrets.Sealed(head):
			plain++
		case key < 0:
			lost++
		case key > 0:
			older++
		}
	}
	var found findings
	if lost > 0 {
		found = append(found, fails("no key of this configuration opens %d of them: a server with it does not start", lost).
			advise("add the key that sealed them to HOLDFAST_SECRET_KEYS; if it is lost, DELETE FROM holdfast.signing_keys lets the next server create another")...)
	}
	if plain > 0 && given == 0 {
		found = append(found, warns("private keys in the database as they are: %d. A reader of a dump can sign cards and webhooks", plain).
			advise("make a key with openssl rand -base64 32, set HOLDFAST_SECRET_KEYS on every replica, and restart them")...)
	} else if plain > 0 {
		found = append(found, warns("%d private keys are not sealed yet", plain).advise("restart a server, or call holdfast reseal")...)
	}
	if older > 0 {
		found = append(found, warns("%d are sealed with an older key", older).advise("call holdfast reseal before you remove that key")...)
	}
	if len(heads) == 0 {
		return found.orOK("none yet"), nil
	}
	return found.orOK("%d, sealed with the first key of HOLDFAST_SECRET_KEYS", len(heads)), nil
}

// webhookSecrets checks which keys have sealed the clients' tokens and credentials.
func (d *database) webhookSecrets(ctx context.Context) ([]Finding, error) {
	const advice = "make a key with openssl rand -base64 32, set HOLDFAST_SECRET_KEYS on every replica, and call holdfast reseal"
	ring, given, err := d.sealing(ctx)
	if err != nil {
		return nil, err
	}
	var head []byte
	var n, sealed, older, besides, lost int
	err = d.forEach(ctx, fmt.Sprintf(`SELECT substring(secrets FOR %d), count(*)::int FROM holdfast.push_configs
		WHERE secrets IS NOT NULL GROUP BY 1`, secrets.HeadSize), []any{&head, &n}, func() {
		sealed += n
		switch key := ring.Key(head); {
		case key < 0:
			lost += n
		case key >= given:
			besides += n
		case key > 0:
			older += n
		}
	})
	if err != nil {
		return nil, err
	}
	var found findings
	if lost > 0 {
		found = append(found, fails("no key of this configuration opens the secrets of %d webhooks: they cannot be delivered", lost).
			advise("add the key that sealed them to HOLDFAST_SECRET_KEYS; if it is lost, their clients must set them again")...)
	}
	switch {
	case besides > 0 && given == 0:
		found = append(found, warns("the key that seals the secrets of %d webhooks is in the same database", besides).
			advise(advice)...)
	case besides > 0:
		found = append(found, warns("the secrets of %d webhooks are still sealed with the key in the database", besides).advise("call holdfast reseal")...)
	}
	if older > 0 {
		found = append(found, warns("the secrets of %d webhooks are sealed with an older key", older).
			advise("call holdfast reseal before you remove that key")...)
	}
	if given == 0 {
		return found.orOK("none yet; HOLDFAST_SECRET_KEYS is not set, so their key would be in the same database"), nil
	}
	return found.orOK("those of %d webhooks are sealed with the first key of HOLDFAST_SECRET_KEYS", sealed), nil
}
