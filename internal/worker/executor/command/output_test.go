package command

import (
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSlowConsumerGetsAllOutputOfEndedProcess(t *testing.T) {
	t.Parallel()
	read, write, err := os.Pipe()
	require.NoError(t, err)
	_, err = write.WriteString("last words")
	require.NoError(t, err)

	o := &output{file: read}
	o.expire()
	// As if the consumer had been busy for longer than stdout may be silent.
	require.NoError(t, read.SetReadDeadline(time.Now().Add(-time.Hour)))
	got := make([]byte, 100)
	n, err := o.Read(got)
	require.NoError(t, err)
	require.Equal(t, "last words", string(got[:n]))

	require.NoError(t, write.Close())
	_, err = o.Read(got)
	require.ErrorIs(t, err, io.EOF)
}
