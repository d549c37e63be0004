package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/secrets"
)

// longFailing is how long a receiver may fail before doctor reports it.
const longFailing = 10 * time.Minute

// webhooks checks the backlog of deliveries, and which replicas deliver.
func (d *database) webhooks(ctx context.Context) ([]Finding, error) {
	if !d.Config.Push.Enabled {
		return oks("push.enabled is false: clients cannot set webhooks, and nothing is delivered"), nil
	}
	var all, live, delivering, due, late, failing, disabled int
	var lateSeconds, failingSeconds float64
	var lateBy, worst, reason *string
	// A claimed configuration is due when its claim ends.
	err := d.pool.QueryRow(ctx, `SELECT count(*)::int, count(due_at)::int,
		count(*) FILTER (WHERE due_at < now() - $1 * interval '1 second')::int,
		coalesce(extract(epoch FROM now() - min(due_at)), 0)::float8,
		(array_agg(host ORDER BY due_at) FILTER (WHERE due_at IS NOT NULL))[1],
		count(*) FILTER (WHERE due_at IS NOT NULL AND failing_since < now() - $2 * interval '1 second')::int,
		coalesce(extract(epoch FROM now() - min(failing_since) FILTER (WHERE due_at IS NOT NULL)), 0)::float8,
		(array_agg(host ORDER BY failing_since) FILTER (WHERE due_at IS NOT NULL AND failing_since IS NOT NULL))[1],
		count(disabled_at)::int, (array_agg(host || ', ' || disabled_for ORDER BY disabled_at DESC) FILTER (WHERE disabled_at IS NOT NULL))[1],
		(SELECT count(*)::int FROM holdfast.workers WHERE lease_until >= now()),
		(SELECT count(*)::int FROM holdfast.workers WHERE lease_until >= now() AND 'push' = ANY(string_to_array(roles, ',')))
		FROM holdfast.push_cursors`, longWait.Seconds(), longFailing.Seconds()).
		Scan(&all, &due, &late, &lateSeconds, &lateBy, &failing, &failingSeconds, &worst, &disabled, &reason, &live, &delivering)
	if err != nil {
		return nil, err
	}
	var found findings
	if live > 0 && delivering == 0 {
		found = append(found, warns("none of %d live processes has the role push: nothing is delivered", live).
			advise("start one with the role push, or set push.enabled to false so that clients do not rely on webhooks")...)
	}
	if late > 0 {
		found = append(found, warns("%d have waited too long for a replica, the first for %s (%s)", late, seconds(lateSeconds), *lateBy).
			advise("no replica delivers, or they are too slow: see workers above, push.concurrency, and holdfast_push_in_flight")...)
	}
	if failing > 0 {
		found = append(found, warns("%d have failed for longer than %s, the first for %s (%s)", failing, longFailing, seconds(failingSeconds), *worst).
			advise("their receivers are down or refuse: see holdfast push list --failing; after push.give_up_after, or earlier if they never accepted one, the server disables them")...)
	}
	if disabled > 0 {
		found = append(found, warns("%d are disabled, the last one %s", disabled, *reason).
			advise("see holdfast push list --disabled; when a receiver is back, resume with holdfast push enable")...)
	}
	return found.orOK("%d, of which %d have something to deliver; %d processes deliver", all, due, delivering), nil
}

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
		found = append(found, warns("%d private keys are in the database as they are: a reader of a dump can sign cards and webhooks", plain).
			advise("make a key with openssl rand -base64 32, set HOLDFAST_SECRET_KEYS on every replica, and restart them")...)
	} else if plain > 0 {
		found = append(found, warns("%d private keys are not sealed yet", plain).advise("restart a server, or call holdfast secret-keys reseal")...)
	}
	if older > 0 {
		found = append(found, warns("%d are sealed with an older key", older).advise("call holdfast secret-keys reseal before you remove that key")...)
	}
	if len(heads) == 0 {
		return found.orOK("none yet"), nil
	}
	return found.orOK("%d, sealed with the first key of HOLDFAST_SECRET_KEYS", len(heads)), nil
}

// webhookSecrets checks which keys have sealed the clients' tokens and credentials.
func (d *database) webhookSecrets(ctx context.Context) ([]Finding, error) {
	const advice = "make a key with openssl rand -base64 32, set HOLDFAST_SECRET_KEYS on every replica, and call holdfast secret-keys reseal"
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
		found = append(found, warns("the secrets of %d webhooks are still sealed with the key in the database", besides).advise("call holdfast secret-keys reseal")...)
	}
	if older > 0 {
		found = append(found, warns("the secrets of %d webhooks are sealed with an older key", older).
			advise("call holdfast secret-keys reseal before you remove that key")...)
	}
	if given == 0 {
		return found.orOK("none yet; HOLDFAST_SECRET_KEYS is not set, so their key would be in the same database"), nil
	}
	return found.orOK("those of %d webhooks are sealed with the first key of HOLDFAST_SECRET_KEYS", sealed), nil
}
