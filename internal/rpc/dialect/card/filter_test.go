package card_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/card"
)

func TestFilter(t *testing.T) {
	t.Parallel()
	c := &card.Card{
		Provider:     &card.Provider{Organization: "Acme", URL: "https://acme.example"},
		Capabilities: card.Capabilities{Streaming: true, Extensions: []card.Extension{{URI: "https://ext.example/one"}}},
		InputModes:   []string{"text/plain", "application/json"}, OutputModes: []string{"text/plain;charset=utf-8"},
		Skills: []card.Skill{
			{ID: "translate", Name: "Translation", Tags: []string{"language", "text"}},
			{ID: "speak", Name: "Speech", Tags: []string{"audio", "text"}, OutputModes: []string{"audio/*"}},
			{ID: "any", InputModes: []string{"*/*"}},
		},
	}
	for name, tt := range map[string]struct {
		filter card.Filter
		want   bool
	}{
		"nothing asked":                     {card.Filter{}, true},
		"a skill's id":                      {card.Filter{Skills: []string{"translate"}}, true},
		"its name, in another case":         {card.Filter{Skills: []string{"TRANSLATION"}}, true},
		"both of one skill":                 {card.Filter{Skills: []string{"translate", "Translation"}}, true},
		"two skills":                        {card.Filter{Skills: []string{"translate", "speak"}}, false},
		"part of an id":                     {card.Filter{Skills: []string{"trans"}}, false},
		"a tag":                             {card.Filter{Tags: []string{"Audio"}}, true},
		"tags of one skill":                 {card.Filter{Tags: []string{"audio", "text"}}, true},
		"tags of two":                       {card.Filter{Tags: []string{"audio", "language"}}, false},
		"a skill and a tag of another":      {card.Filter{Skills: []string{"translate"}, Tags: []string{"audio"}}, false},
		"a mode of the agent":               {card.Filter{InputModes: []string{"Application/JSON"}}, true},
		"a range":                           {card.Filter{InputModes: []string{"application/*"}}, true},
		"any mode":                          {card.Filter{OutputModes: []string{"*/*"}}, true},
		"a mode within the skill's range":   {card.Filter{OutputModes: []string{"audio/mpeg"}}, true},
		"the skill's mode replaces":         {card.Filter{Skills: []string{"speak"}, OutputModes: []string{"text/plain"}}, false},
		"the agent's mode has a parameter":  {card.Filter{OutputModes: []string{"text/plain"}}, true},
		"a mode that nothing reads but any": {card.Filter{InputModes: []string{"video/mp4"}}, true},
		"and not this skill":                {card.Filter{Skills: []string{"speak"}, InputModes: []string{"video/mp4"}}, false},
		"a mode that nothing writes":        {card.Filter{OutputModes: []string{"video/mp4"}}, false},
		"the provider":                      {card.Filter{Providers: []string{"ACME"}}, true},
		"its URL":                           {card.Filter{Providers: []string{"https://acme.example"}}, true},
		"another provider":                  {card.Filter{Providers: []string{"acme inc"}, Skills: []string{"speak"}}, false},
		"a capability":                      {card.Filter{Capabilities: []string{"Streaming"}, Tags: []string{"audio"}}, true},
		"a capability that it lacks":        {card.Filter{Capabilities: []string{"streaming", "pushNotifications"}}, false},
		"an extension":                      {card.Filter{Capabilities: []string{"https://ext.example/one"}}, true},
		"in and out of one skill":           {card.Filter{InputModes: []string{"application/json"}, OutputModes: []string{"audio/ogg"}}, true},
	} {
		require.Equal(t, tt.want, tt.filter.Matches(c), name)
	}
	require.True(t, (&card.Filter{InputModes: []string{"text/plain"}}).Matches(&card.Card{Skills: []card.Skill{{ID: "a"}}}), "the default")
	require.False(t, (&card.Filter{Providers: []string{"Acme"}}).Matches(&card.Card{}), "no provider")
	require.True(t, (&card.Filter{}).Matches(&card.Card{}), "an agent without skills is listed")
}
