package store

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/google/uuid"

	"github.com/holdfast-a2a/holdfast/internal/secrets"
	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Reseal seals everything that is sealed and still of use with the key that is now first, and returns how many values it
// changed: secrets of webhooks, private signing keys, and of the turns that have not ended the forwarded headers and what came by
// resume URLs. It leaves values that no key opens as they are, and reports them in the error, which has a task.Error only if the
// database failed.
func (v View) Reseal(ctx context.Context) (sealed int, err error) {
	ring, err := v.s.sealing(ctx)
	if err != nil {
		return 0, err
	}
	sealed, err = v.resealPushes(ctx, ring)
	signing, lostSigning := v.resealSigningKeys(ctx, ring)
	turns, lostTurns := v.resealTurns(ctx, ring)
	return sealed + signing + turns, errors.Join(err, lostSigning, lostTurns)
}

func (v View) resealSigningKeys(ctx context.Context, ring *secrets.Keys) (sealed int, err error) {
	if len(v.s.secretKeys) == 0 {
		return 0, nil // they stay as they are
	}
	rows, err := v.s.q.SigningKeys(ctx, v.s.api)
	if err != nil {
		return 0, translate("reseal", err)
	}
	var lost []error
	for _, r := range rows {
		n, err := v.s.resealSigningKey(ctx, ring, r.KeyID, r.PrivateKey)
		if err != nil {
			lost = append(lost, fmt.Errorf("signing key %s: %w", r.KeyID, err))
		}
		sealed += int(n)
	}
	if sealed > 0 {
		lost = append(lost, translate("reseal", v.s.again(ctx, "reseal", func() error {
			return v.note(ctx, v.s.api, v.audited(auditPushRekeyed, task.ID{}, "", strconv.Itoa(sealed)))
		})))
	}
	return sealed, errors.Join(lost...)
}

func (v View) resealPushes(ctx context.Context, ring *secrets.Keys) (sealed int, err error) {
	var lost []error
	const page = 500
	var afterTask uuid.UUID
	afterID := ""
	for {
		rows, err := v.s.q.PushSecrets(ctx, v.s.api, afterTask, afterID, page)
		if err != nil {
			return sealed, translate("reseal", err)
		}
		var fresh []dbsqlc.PushResealParams
		for _, r := range rows {
			afterTask, afterID = r.Task, r.ConfigID
			if ring.Fresh(r.Secrets) {
				continue
			}
			at := place(r.Task, r.ConfigID)
			value, err := ring.Open(r.Secrets, at)
			if err != nil {
				lost = append(lost, fmt.Errorf("configuration %s of task %s: %w", r.ConfigID, r.Task, err))
				continue
			}
			fresh = append(fresh, dbsqlc.PushResealParams{Task: r.Task, ConfigID: r.ConfigID, Old: r.Secrets, Fresh: ring.Seal(value, at)})
		}
		n, err := v.reseal(ctx, fresh)
		if err != nil {
			return sealed, translate("reseal", err)
		}
		sealed += n
		if len(rows) < page {
			return sealed, errors.Join(lost...)
		}
	}
}

// resealTurns seals what the turns need that have not ended. It does so value by value: a turn may end meanwhile, and what
// replicas seal meanwhile has the first key.
func (v View) resealTurns(ctx context.Context, ring *secrets.Keys) (sealed int, err error) {
	var lost []error
	const page = 50
	var after uuid.UUID
	for {
		var rows []dbsqlc.TurnsSealedRow
		rows, err = v.s.q.TurnsSealed(ctx, v.s.api, after, page)
		if err != nil {
			break
		}
		for i := range rows {
			after = rows[i].ID
			n, bad := v.s.resealTurn(ctx, ring, &rows[i])
			sealed += n
			if bad != nil {
				lost = append(lost, fmt.Errorf("task %s: %w", rows[i].ID, bad))
			}
		}
		if len(rows) < page {
			break
		}
	}
	if sealed > 0 {
		err = errors.Join(err, v.s.again(ctx, "reseal", func() error {
			return v.note(ctx, v.s.api, v.audited(auditPushRekeyed, task.ID{}, "", strconv.Itoa(sealed)))
		}))
	}
	return sealed, errors.Join(append(lost, translate("reseal", err))...)
}

func (s *Store) resealTurn(ctx context.Context, ring *secrets.Keys, r *dbsqlc.TurnsSealedRow) (sealed int, err error) {
	id := task.ID(r.ID)
	var forwarded map[string]string
	if err := json.Unmarshal(r.Forwarded, &forwarded); err != nil {
		return 0, errors.New("the forwarded headers are not as we write them") // do not show them
	}
	var lost []error
	count := func(change func() (int64, error)) error {
		return s.again(ctx, "reseal", func() error {
			n, err := change()
			sealed += int(n)
			return err
		})
	}
	for message, old := range forwarded {
		raw, err := base64.StdEncoding.DecodeString(old)
		var fresh []byte
		if err == nil {
			fresh, err = resealed(ring, raw, forwardPlace(&task.Task{ID: id, Agent: r.Agent}))
		}
		if err != nil {
			lost = append(lost, fmt.Errorf("the forwarded headers: %w", err))
		}
		if fresh == nil {
			continue
		}
		err = count(func() (int64, error) {
			return s.q.ForwardedReseal(ctx, s.api, dbsqlc.ForwardedResealParams{
				ID: r.ID, Message: message, Old: old, Fresh: base64.StdEncoding.EncodeToString(fresh),
			})
		})
		if err != nil {
			return sealed, translate("reseal", err)
		}
	}
	for _, n := range []struct {
		seq     int64
		turn    int // whose URL it came by
		payload []byte
	}{{r.InputSeq, int(r.Turn) - 1, r.Input}, {r.ResumedSeq, int(r.Asking), r.Resumed}} {
		e := &task.Event{Task: id, Seq: task.Seq(n.seq), Kind: task.EventRun}
		if err := decodePayload(e, n.payload, &task.Task{ID: id, Agent: r.Agent}); err != nil {
			lost = append(lost, err)
			continue
		}
		if e.Run == nil || len(e.Run.Sealed) == 0 {
			continue
		}
		fresh, err := resealed(ring, e.Run.Sealed, resumePlace(id, n.turn))
		if err != nil {
			lost = append(lost, fmt.Errorf("what came by the resume URL: %w", err))
		}
		if fresh == nil {
			continue
		}
		e.Run.Sealed = fresh
		err = count(func() (int64, error) {
			return s.q.NoteReseal(ctx, s.api, dbsqlc.NoteResealParams{Task: uuid.UUID(id), Seq: n.seq, Old: string(n.payload), Fresh: EncodePayload(e)})
		})
		if err != nil {
			return sealed, translate("reseal", err)
		}
	}
	return sealed, errors.Join(lost...)
}

// resealed seals a value with the first key, or returns nil if it is sealed with that.
func resealed(ring *secrets.Keys, value []byte, place string) ([]byte, error) {
	if ring.Fresh(value) {
		return nil, nil
	}
	text, err := ring.Open(value, place)
	if err != nil {
		return nil, err
	}
	return ring.Seal(text, place), nil
}
