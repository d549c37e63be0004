package store

import (
	"context"
	"slices"
)

// FireTimers makes the turns due whose timer has fired, at most so many. more says that there may be further ones.
func (s *Store) FireTimers(ctx context.Context) (more bool, err error) {
	const most = 500
	agents, err := s.q.TimersFire(ctx, s.hot, most)
	if err != nil {
		return false, translate("fire timers", err)
	}
	fired := len(agents)
	slices.Sort(agents)
	for _, agent := range slices.Compact(agents) {
		if s.listener != nil {
			s.listener.Ready(agent)
		}
	}
	return fired == most, nil
}
