package app

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/client"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
)

// A card of another server has passed no check of the configuration.
func TestAdoptsWhatACardMayHave(t *testing.T) {
	t.Parallel()
	theirs, err := client.ReadCard([]byte(`{"name":"n","description":"d","version":"7","url":"https://h",
		"defaultInputModes":["text","text/plain","image/png","nonsense"],"defaultOutputModes":["nonsense"],
		"documentationUrl":"javascript:alert(1)","iconUrl":"https://h/i.png","provider":{"organization":"o","url":"data:text/html,x"},
		"capabilities":{"extensions":[{"uri":"`+dispatch.ResumeURI+`","required":true},{"uri":"https://x/e"},{"uri":"a, b"},{"uri":"https://x/e"}]},
		"skills":[{"id":"a","name":"A","inputModes":["text"]},{"id":""},{"id":"a","name":"again"}]}`), 50)
	require.NoError(t, err)
	c := config.DefaultCard()
	adopt(&c, theirs)
	require.Equal(t, "n", c.Name)
	require.Equal(t, "7", c.Version)
	require.Empty(t, c.DocumentationURL, "a script is no page")
	require.Equal(t, "https://h/i.png", c.IconURL)
	require.Equal(t, config.Provider{Organization: "o"}, c.Provider)
	require.Equal(t, []string{"text/plain", "image/png"}, c.DefaultInputModes)
	require.Equal(t, config.DefaultCard().DefaultOutputModes, c.DefaultOutputModes)
	require.Equal(t, []config.Skill{{ID: "a", Name: "A", InputModes: []string{"text/plain"}}}, c.Skills)
	require.Equal(t, []config.Extension{{URI: "https://x/e"}}, c.Extensions)

	mine := config.Card{Name: "mine", Description: "md", Version: "2", DefaultInputModes: []string{"a/b"}, Skills: []config.Skill{{ID: "m"}}}
	adopt(&mine, theirs)
	require.Equal(t, "mine", mine.Name)
	require.Equal(t, "2", mine.Version)
	require.Equal(t, []string{"a/b"}, mine.DefaultInputModes)
	require.Equal(t, []config.Skill{{ID: "m"}}, mine.Skills)
}
