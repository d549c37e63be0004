package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast-a2a/holdfast/internal/secrets"
	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// SetPush adds a configuration to a task or replaces the one with the same id. A new one gets the
// events from now on. A replaced one keeps its place in the log, and is enabled if it was disabled.
// most is the maximum number of configurations of a task; one more is task.Invalid.
func (v View) SetPush(ctx context.Context, id task.ID, c *task.PushConfig, most int) error {
	sealed, err := v.s.sealSecrets(ctx, id, c)
	if err != nil {
		return err
	}
	leave, err := v.enter(ctx, id)
	if err != nil {
		return err
	}
	defer leave()
	var row dbsqlc.PushConfigSetRow
	err = v.again(ctx, "push_set", func() error {
		return pgx.BeginFunc(ctx, v.writes(), func(tx pgx.Tx) (err error) {
			if row, err = v.s.setPush(ctx, tx, id, c, sealed, most); err != nil {
				return err
			}
			return v.note(ctx, tx, v.audited(auditPushSet, id, "", c.ID))
		})
	})
	if err != nil {
		return translate("set push", err)
	}
	c.CreatedAt, c.DisabledAt, c.DisabledFor = row.CreatedAt, time.Time{}, ""
	if row.Due {
		v.s.marked(1)
	}
	return nil
}

// setPush locks the task, so that the configuration misses no event that is written meanwhile.
func (s *Store) setPush(
	ctx context.Context, tx pgx.Tx, id task.ID, c *task.PushConfig, sealed []byte, most int,
) (dbsqlc.PushConfigSetRow, error) {
	last, err := s.q.PushTaskLock(ctx, tx, uuid.UUID(id))
	if err != nil {
		return dbsqlc.PushConfigSetRow{}, err
	}
	row, err := s.q.PushConfigSet(ctx, tx, dbsqlc.PushConfigSetParams{
		Task: uuid.UUID(id), ConfigID: c.ID, Dialect: c.Dialect, Url: c.URL, Host: c.Host,
		Schemes: encodeSchemes(c.Schemes), Secrets: sealed, Artifacts: c.Artifacts, NextSeq: last + 1, Most: int32(most),
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return row, task.Errorf(task.Invalid, "the task has %d push notification configurations already, and may not have more", most)
	}
	return row, err
}

// Pushes lists the configurations of a task without their secrets, the oldest first.
func (v View) Pushes(ctx context.Context, id task.ID) ([]task.PushConfig, error) {
	rows, err := v.s.q.PushConfigs(ctx, v.db, uuid.UUID(id))
	if err != nil {
		return nil, translate("list pushes", err)
	}
	out := make([]task.PushConfig, len(rows))
	for i := range rows {
		r := &rows[i]
		if out[i], err = pushConfig(&r.PushConfig, r.Host, r.Artifacts); err != nil {
			return nil, err
		}
		out[i].DisabledAt, out[i].DisabledFor = r.DisabledAt.Time, r.DisabledFor.String
	}
	return out, nil
}

// DeletePush removes a configuration and reports whether there was one. A delivery in flight may
// still arrive; no new one begins.
func (v View) DeletePush(ctx context.Context, id task.ID, configID string) (bool, error) {
	leave, err := v.enter(ctx, id)
	if err != nil {
		return false, err
	}
	defer leave()
	var n int64
	err = v.again(ctx, "push_delete", func() error {
		return pgx.BeginFunc(ctx, v.writes(), func(tx pgx.Tx) error {
			_, err := v.s.q.PushTaskLock(ctx, tx, uuid.UUID(id))
			if err == nil {
				n, err = v.s.q.PushConfigDelete(ctx, tx, uuid.UUID(id), cleanName(configID))
			}
			if err != nil || n == 0 {
				return err
			}
			return v.note(ctx, tx, v.audited(auditPushDeleted, id, "", configID))
		})
	})
	return n > 0, translate("delete push", err)
}

// again retries an idempotent write, or a read that the server needs to start, for a short time while
// the database is unavailable or the task changes.
func (s *Store) again(ctx context.Context, kind string, do func() error) error {
	return s.retry(ctx, kind, do, func(err error) bool { return unavailable(err) || errors.Is(err, errChanged) }, s.patience.blocked)
}

// rolledBack retries a statement that PostgreSQL has rolled back for a temporary reason, most often
// because its task ended at the same moment.
func (s *Store) rolledBack(ctx context.Context, kind string, do func() error) error {
	return s.retry(ctx, kind, do, passing, 0)
}

// unlocked is rolledBack for a statement that waits for no lock, or only for blockedAfter. It retries while another session
// holds a lock.
func (s *Store) unlocked(ctx context.Context, kind string, do func() error) error {
	return s.retry(ctx, kind, do, passing, s.patience.blocked)
}

// blockedFor bounds the retries of a statement that a lock blocks.
const blockedFor = 10 * time.Second

// retry calls do again while its error is one that may pass, up to five times, and while a lock blocks it, for so long. It
// holds no connection while it pauses.
func (s *Store) retry(ctx context.Context, kind string, do func() error, may func(error) bool, blocked time.Duration) error {
	began := time.Now()
	for try, waits := 0, 0; ; {
		err := do()
		most := time.Second
		switch {
		case err == nil:
			return nil
		case lockedOut(err):
			if time.Since(began) >= blocked {
				return err
			}
			waits++
			most = maxBlockedPause
		case !may(err) || try == 5:
			return err
		default:
			try++
		}
		s.retried(ctx, kind, err, try+waits-1)
		if pauseUpTo(ctx, max(try, waits)-1, most) != nil {
			return err
		}
	}
}

// again retries a write of the view: see Store.again.
func (v View) again(ctx context.Context, kind string, do func() error) error {
	return v.s.again(ctx, kind, v.few(ctx, do))
}

// few returns do for the retries of a request. Few requests of a replica at a time try again what a lock has blocked, so that
// they leave the pool to others, however many tasks are locked.
func (v View) few(ctx context.Context, do func() error) func() error {
	locked := false
	return func() error {
		if locked {
			select {
			case v.s.retries <- struct{}{}:
				defer func() { <-v.s.retries }()
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		err := do()
		if locked = err != nil && lockedOut(err); locked && v.once {
			return ErrBlocked
		}
		return err
	}
}

// enter waits for the turn of a write to a task.
func (v View) enter(ctx context.Context, id task.ID) (leave func(), err error) {
	if v.once {
		if leave, entered := v.s.turns.try(id); entered {
			return leave, nil
		}
		return nil, ErrBlocked
	}
	return v.s.turns.enter(ctx, id)
}

// marked announces that a commit gave n webhooks something to deliver.
func (s *Store) marked(n int32) {
	if n > 0 && s.listener != nil {
		s.listener.PushesDue()
	}
}

// pushConfig returns a configuration without its secrets. Host and artifacts are columns of its cursor.
func pushConfig(r *dbsqlc.PushConfig, host string, artifacts bool) (task.PushConfig, error) {
	c := task.PushConfig{ID: r.ConfigID, URL: r.Url, Host: host, Artifacts: artifacts, Dialect: r.Dialect, CreatedAt: r.CreatedAt}
	if err := json.Unmarshal(r.Schemes, &c.Schemes); err != nil {
		return c, translate("read push", fmt.Errorf("schemes of %s: %w", r.ConfigID, err))
	}
	return c, nil
}

func encodeSchemes(schemes []string) string {
	if len(schemes) == 0 {
		return "[]"
	}
	text, _ := json.Marshal(schemes) // strings only, so it cannot fail
	return string(text)
}

// pushSecrets holds the sealed members of a configuration.
type pushSecrets struct {
	Token       string `json:"token,omitempty"`
	Credentials string `json:"credentials,omitempty"`
}

// place returns the context that binds sealed secrets to their configuration: they cannot be opened
// in another row.
func place(id uuid.UUID, configID string) string { return id.String() + " " + configID }

func (s *Store) sealSecrets(ctx context.Context, id task.ID, c *task.PushConfig) ([]byte, error) {
	if c.Token == "" && c.Credentials == "" {
		return nil, nil
	}
	ring, err := s.sealing(ctx)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(pushSecrets{c.Token, c.Credentials})
	if err != nil {
		return nil, translate("seal", err)
	}
	return ring.Seal(text, place(uuid.UUID(id), c.ID)), nil
}

func (s *Store) openSecrets(ctx context.Context, id uuid.UUID, c *task.PushConfig, sealed []byte) error {
	if sealed == nil {
		return nil
	}
	ring, err := s.sealing(ctx)
	if err != nil {
		return err
	}
	text, err := ring.Open(sealed, place(id, c.ID))
	if err != nil {
		return translate("open secrets", err)
	}
	var open pushSecrets
	if err := json.Unmarshal(text, &open); err != nil {
		return translate("open secrets", errors.New("they are not as we write them")) // do not show them
	}
	c.Token, c.Credentials = open.Token, open.Credentials
	return nil
}

// secretPush names the key that seals when the environment has none. Secrets sealed with it can
// still be opened when the environment has one.
const secretPush = "push"

func (s *Store) sealing(ctx context.Context) (*secrets.Keys, error) {
	s.ringMu.Lock()
	defer s.ringMu.Unlock()
	if s.ring != nil {
		return s.ring, nil
	}
	value, err := s.Secret(ctx, secretPush)
	if err != nil {
		return nil, err
	}
	ring, err := secrets.NewKeys(append(s.secretKeys[:len(s.secretKeys):len(s.secretKeys)], value)...)
	if err != nil {
		return nil, translate("sealing", err)
	}
	s.ring = ring
	return ring, nil
}

// Derive returns keys for another purpose, made of the keys that seal secrets: the first one is to be used, the others were
// used before.
func (s *Store) Derive(ctx context.Context, purpose string) ([][]byte, error) {
	ring, err := s.sealing(ctx)
	if err != nil {
		return nil, err
	}
	keys, err := ring.Derive(purpose)
	return keys, translate("derive keys", err)
}

// reseal replaces secrets, and writes their number to the audit log. It locks configurations in the
// order of their keys, without their tasks. A reopen locks them in another order, so one of the two
// may have to retry.
func (v View) reseal(ctx context.Context, fresh []dbsqlc.PushResealParams) (sealed int, err error) {
	if len(fresh) == 0 {
		return 0, nil
	}
	err = v.s.again(ctx, "reseal", func() error {
		return pgx.BeginFunc(ctx, v.s.api, func(tx pgx.Tx) error {
			sealed = 0
			for i := range fresh {
				n, err := v.s.q.PushReseal(ctx, tx, fresh[i])
				if err != nil {
					return err
				}
				sealed += int(n)
			}
			if sealed == 0 {
				return nil
			}
			return v.note(ctx, tx, v.audited(auditPushRekeyed, task.ID{}, "", strconv.Itoa(sealed)))
		})
	})
	if err != nil {
		return 0, err
	}
	return sealed, nil
}
