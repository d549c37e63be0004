package registry_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/registry"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

func TestCodecsAreAtTheirIndex(t *testing.T) {
	t.Parallel()
	for i, c := range registry.All() {
		require.EqualValues(t, i, c.ID())
		require.Equal(t, c, registry.ByVersion(c.Version()))
	}
	require.Nil(t, registry.ByVersion("7.0"))
}

func TestPick(t *testing.T) {
	t.Parallel()
	const ambiguous, unknownMethod, unknownVersion = "ambiguous", "method", "version"
	tests := []struct {
		name, method, header, pin string
		want                      string
	}{
		{"a method of 0.1", "tasks/send", "", "", "0.1"},
		{"push methods of 0.1", "tasks/pushNotification/set", "", "", "0.1"},
		{"a method of 0.3", "message/send", "", "", "0.3"},
		{"push methods of 0.3", "tasks/pushNotificationConfig/list", "", "", "0.3"},
		{"the extended card", "agent/getAuthenticatedExtendedCard", "", "", "0.3"},
		{"an unknown method", "tasks/list", "", "", unknownMethod},
		{"a method of 1.0", "SendMessage", "", "", "1.0"},
		{"a method of 1.0 with its header", "SendMessage", "1.0", "", "1.0"},
		{"a method of 1.0 with a patch number", "ListTasks", "1.0.1", "", "1.0"},
		{"a method of 1.0 with header 0.3", "SendMessage", "0.3", "", "1.0"},
		{"a method of 1.0 on its path", "GetTask", "", "1.0", "1.0"},
		{"a method of 1.0 on the path of 0.3", "GetTask", "1.0", "0.3", unknownMethod},
		{"an unknown method comes before an unknown version", "nonsense", "99.0", "", unknownMethod},
		{"method names are case sensitive", "Tasks/Send", "", "", unknownMethod},

		{"header 0.3 with its method", "message/send", "0.3", "", "0.3"},
		{"header 0.3.0 with its method", "message/send", "0.3.0", "", "0.3"},
		{"header 0.2 with its method", "message/stream", "0.2", "", "0.3"},
		{"header 0.2.6 with its method", "message/stream", "0.2.6", "", "0.3"},
		{"header 0.1 with its method", "tasks/send", "0.1", "", "0.1"},
		{"white space around the header", "message/send", " 0.3 ", "", "0.3"},
		{"header 1.0 with an older method", "message/send", "1.0", "", "0.3"},
		{"header 1.0.1 with the oldest method", "tasks/send", "1.0.1", "", "0.1"},
		{"header 0.3 with a method of 0.1", "tasks/send", "0.3", "", "0.1"},
		{"an unknown version", "message/send", "99.0", "", unknownVersion},
		{"a version that was never published", "tasks/get", "0.5", "", unknownVersion},
		{"a word as version", "tasks/send", "latest", "", unknownVersion},

		{"a shared method alone", "tasks/get", "", "", ambiguous},
		{"cancel alone", "tasks/cancel", "", "", ambiguous},
		{"resubscribe alone", "tasks/resubscribe", "", "", ambiguous},
		{"a shared method with header 0.1", "tasks/get", "0.1", "", "0.1"},
		{"a shared method with header 0.2.1", "tasks/get", "0.2.1", "", "0.3"},
		{"a shared method with header 0.3", "tasks/get", "0.3", "", "0.3"},
		{"a shared method with header 1.0", "tasks/get", "1.0", "", ambiguous},
		{"a shared method on the path of 0.1", "tasks/get", "", "0.1", "0.1"},
		{"a shared method on the path of 0.3", "tasks/resubscribe", "", "0.3", "0.3"},
		{"the path is stronger than the header", "tasks/get", "0.3", "0.1", "0.1"},
		{"an unknown version is refused there too", "tasks/get", "99.0", "0.1", unknownVersion},
		{"a path does not have the methods of another version", "message/send", "", "0.1", unknownMethod},
		{"nor does the path of 1.0", "tasks/get", "", "1.0", unknownMethod},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			choice, err := registry.Pick(tt.method, tt.header, tt.pin, false)
			switch tt.want {
			case unknownMethod:
				require.ErrorIs(t, err, registry.ErrMethod)
			case unknownVersion:
				require.ErrorIs(t, err, task.Version)
			case ambiguous:
				require.NoError(t, err)
				require.True(t, choice.Ambiguous)
				require.Equal(t, "0.3", choice.Codec.Version())
			default:
				require.NoError(t, err)
				require.False(t, choice.Ambiguous)
				require.Equal(t, tt.want, choice.Codec.Version())
			}
		})
	}
}

func TestPickStrictly(t *testing.T) {
	t.Parallel()
	const refused = "refused"
	tests := []struct{ method, header, pin, want string }{
		{"SendMessage", "1.0", "", "1.0"},
		{"SendMessage", "1.0.1", "", "1.0"},
		{"SendMessage", "", "", refused},
		{"SendMessage", "", "1.0", "1.0"},
		{"SendMessage", "0.3", "", refused},
		{"SendMessage", "0.3", "1.0", refused},
		{"message/send", "", "", "0.3"},
		{"message/send", "0.3", "", "0.3"},
		{"message/send", "0.2", "", "0.3"},
		{"message/send", "1.0", "", refused},
		{"tasks/send", "", "", "0.1"},
		{"tasks/send", "0.1", "", "0.1"},
		{"tasks/send", "0.3", "", refused},
		{"tasks/get", "", "", "0.3"},
		{"tasks/get", "0.1", "", "0.1"},
		{"tasks/get", "1.0", "", refused},
	}
	for _, tt := range tests {
		choice, err := registry.Pick(tt.method, tt.header, tt.pin, true)
		if tt.want == refused {
			require.ErrorIs(t, err, task.Version, "%+v", tt)
			require.NotNil(t, choice.Codec, "the dialect of the error")
			continue
		}
		require.NoError(t, err, "%+v", tt)
		require.Equal(t, tt.want, choice.Codec.Version(), "%+v", tt)
		require.Equal(t, tt.method == "tasks/get" && tt.header == "", choice.Ambiguous)
	}
}

func TestAdmit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		version, header string
		lenient, strict bool
	}{
		{"1.0", "1.0", true, true},
		{"1.0", "1.0.1", true, true},
		{"1.0", "", true, false},
		{"1.0", "0.3", true, false},
		{"1.0", "99.0", false, false},
		{"0.3", "", true, true},
		{"0.3", "0.2.6", true, true},
		{"0.3", "0.3.0", true, true},
		{"0.3", "1.0", true, false},
		{"0.3", "latest", false, false},
	} {
		for strict, want := range map[bool]bool{false: tt.lenient, true: tt.strict} {
			err := registry.Admit(registry.ByVersion(tt.version), tt.header, "path", strict)
			if want {
				require.NoError(t, err, "%+v", tt)
			} else {
				require.ErrorIs(t, err, task.Version, "%+v", tt)
			}
		}
	}
}
