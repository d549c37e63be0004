//go:build interop

// Package interop runs A2A clients, as their registries have them, against two replicas of the built
// server. README.md has the contract between the tests and the clients.
package interop

import "slices"

// exception is a case that does not pass, with the reason why the server cannot fix it. An empty binding or scenario
// means all of them. Each entry must be needed: one that matches nothing, or whose scenario passes, fails the test.
type exception struct {
	client, binding, scenario string
	why                       string
}

// unsupported are bindings that a client lacks; it does not run over these.
var unsupported = []exception{
	{client: "go-0.3", binding: "rest", why: "a2a-go v0.3.15: a2aclient has grpc.go and jsonrpc.go, and no transport for HTTP+JSON"},
	{client: "py-0.2", binding: "rest", why: "a2a-sdk 0.2.16: a2a/client has client.py (JSON-RPC) and grpc_client.py, and no client for HTTP+JSON"},
	{client: "js-0.2", binding: "rest", why: "@a2a-js/sdk 0.2.5: A2AClient posts JSON-RPC, and there is no other client"},
	{client: "js-0.2", binding: "grpc", why: "@a2a-js/sdk 0.2.5: A2AClient posts JSON-RPC, and there is no other client"},
	{client: "a2a-ai-provider", binding: "rest", why: onlyJSONRPC},
	{client: "a2a-ai-provider", binding: "grpc", why: onlyJSONRPC},
	{client: "adk-1", binding: "grpc", why: notHTTP},
	{client: "adk-2", binding: "grpc", why: notHTTP},
	{client: "agent-framework", binding: "grpc", why: noGRPC},
	{
		client: "crewai", binding: "grpc",
		why: "each call fails in the client: its interceptor gives gRPC None as metadata (crewai 1.15.30, a2a/utils/delegation.py:694)",
	},
	{client: "langchain4j", binding: "rest", why: "langchain4j-agentic-a2a 1.14.1: DefaultA2AClientBuilder configures JSON-RPC only"},
	{client: "langchain4j", binding: "grpc", why: "langchain4j-agentic-a2a 1.14.1: DefaultA2AClientBuilder configures JSON-RPC only"},
	{client: "langgraph-a2a-client", binding: "rest", why: onlyJSONRPC},
	{client: "langgraph-a2a-client", binding: "grpc", why: onlyJSONRPC},
	{client: "strands", binding: "grpc", why: noGRPC},
	{client: "strands-js", binding: "grpc", why: noGRPC},
	{client: "trpc", binding: "rest", why: "trpc-a2a-go 0.2.5: A2AClient posts JSON-RPC, and there is no other client"},
	{client: "trpc", binding: "grpc", why: "trpc-a2a-go 0.2.5: A2AClient posts JSON-RPC, and there is no other client"},
}

// refusers are clients that refuse a card that announces gRPC as host:port. Their replicas do not announce it.
var refusers = []exception{
	{client: "adk-1", why: notHTTP},
	{client: "adk-2", why: notHTTP},
}

const (
	onlyJSONRPC = "it makes its A2A client itself, for JSON-RPC, and has no option for another binding"
	noGRPC      = "what it installs cannot speak gRPC"
	notHTTP     = "google-adk: each URL of a card must be https, or http on a loopback host in the card's origin"
)

// absences are calls that a client lacks; it must report them as absent.
var absences = slices.Concat([]exception{
	{client: "py-0.2", binding: "grpc", scenario: "extended-card", why: "a2a-sdk 0.2.16: A2AGrpcClient has no call for a card"},
	{client: "py-0.3", scenario: "list", why: "a2a-sdk 0.3.26: a2a/client/client.py has no call for it"},
	{client: "js-0.2", scenario: "list", why: "0.2 has no such method"},
	{client: "js-0.2", scenario: "extended-card", why: "@a2a-js/sdk 0.2.5: A2AClient has no such call"},
	{client: "js-0.2", scenario: "auth-card", why: "@a2a-js/sdk 0.2.5: A2AClient has no such call"},
	{client: "py-0.2", binding: "grpc", scenario: "auth-card", why: "a2a-sdk 0.2.16: A2AGrpcClient has no call for a card"},
	{client: "js-0.3", scenario: "list", why: "@a2a-js/sdk 0.3.14: Client and its transports have no such call"},
},
	lacks("py-0.2", "a2a-sdk 0.2.16: neither A2AClient nor A2AGrpcClient has a call for it", "list", "resubscribe"),
	lacks("a2a-ai-provider", onlySends, otherCalls...),
	lacks("a2a-ai-provider", "a2a-ai-provider 0.5.0-alpha.1: it sends no id of a task, and no metadata", "multi-turn", "metadata"),
	lacks("a2a-cli", "a2a-go v2.4.0: cmd/a2a has no such command", "push-config", "push"),
	lacks("adk-1", onlySends, otherCalls...),
	lacks("adk-2", onlySends, otherCalls...),
	lacks("ag2", "ag2 1.2.1: it follows a task until it ends or asks", "return-immediately"),
	lacks("agent-framework", onlySends, without(otherCalls, "return-immediately", "resubscribe")...),
	lacks("beeai", onlySends, without(otherCalls, "extended-card")...),
	lacks("crewai", onlySends, without(otherCalls, "return-immediately")...),
	lacks("crewai", onlyText, "parts", "metadata"),
	lacks("java-0.3", "Java SDK 0.3.3: Client has no such call", "list"),
	lacks("langchain4j", "langchain4j-agentic-a2a 1.14.1: an agent is a method from text to text, and keeps no task",
		"return-immediately", "stream", "get", "list", "cancel", "multi-turn", "resubscribe", "parts", "metadata",
		"error-not-found", "error-terminal", "push-config", "push", "extended-card"),
	lacks("langgraph-a2a-client", onlySends, without(otherCalls, "push")...),
	lacks("langgraph-a2a-client", "langgraph-a2a-client 0.1.5: its tool sends one text and waits", "stream", "multi-turn", "parts", "metadata"),
	lacks("strands", onlySends, otherCalls...),
	lacks("strands", noTask, "multi-turn"),
	lacks("strands", onlyText, "parts", "metadata"),
	lacks("strands-js", onlySends, otherCalls...),
	lacks("strands-js", noTask, "multi-turn"),
	lacks("strands-js", onlyText, "parts", "metadata"),
	lacks("trpc", "trpc-a2a-go 0.2.5: A2AClient has no such call", "list"),
)

// otherCalls are the scenarios that need more than the call that sends a message and follows its task.
var otherCalls = []string{
	"return-immediately", "get", "list", "cancel", "resubscribe", "error-not-found", "error-terminal", "push-config", "push",
	"extended-card",
}

// The absences of frameworks: the class for remote agents is all that an application uses.
const (
	onlySends = "its class for remote agents sends a message and follows the task, and has no other call"
	onlyText  = "its class for remote agents sends and shows only text"
	noTask    = "its class for remote agents sends no id of a task or a context"
)

func without(list []string, present ...string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(present, s) })
}

// lacks are the absences of a client that has few of the calls.
func lacks(client, why string, scenarios ...string) []exception {
	var list []exception
	for _, s := range scenarios {
		list = append(list, exception{client: client, scenario: s, why: why})
	}
	return list
}

// defects are faults of clients, with evidence; these scenarios must fail.
var defects = []exception{
	{client: "go-2", binding: "jsonrpc", scenario: "auth-card", why: flatScopes},
	{client: "go-2", binding: "rest", scenario: "auth-card", why: flatScopes},
	{
		client: "go-0.3", binding: "jsonrpc", scenario: "list",
		why: "calls tasks/list (a2a-go v0.3.15, internal/jsonrpc/jsonrpc.go:35), which no version has on JSON-RPC: 0.3.0 lists over HTTP+JSON only",
	},
	{
		client: "go-0.3", binding: "grpc", scenario: "parts",
		why: "takes the bytes of a file for base64 text (a2a-go v0.3.15, a2apb/pbconv/from_proto.go:93, to_proto.go:320)",
	},
	{
		client: "py-0.2", binding: "grpc", scenario: "get",
		why: "get_task sends no history_length (a2a-sdk 0.2.16, a2a/client/grpc_client.py:138), and gets all of the history",
	},
	{
		client: "py-0.2", binding: "grpc", scenario: "metadata",
		why: "sends and reads only those members of metadata that are strings (a2a-sdk 0.2.16, a2a/utils/proto_utils.py:43, 449)",
	},
	{
		client: "py-0.2", binding: "grpc", scenario: "parts",
		why: "leaves out a file's media type and name, and takes its bytes for base64 text (a2a-sdk 0.2.16, a2a/utils/proto_utils.py:78, 480)",
	},
	{
		client: "py-0.2", binding: "grpc", scenario: "push-config",
		why: "takes the configuration that it gets for a request, and looks for its parent (a2a-sdk 0.2.16, a2a/utils/proto_utils.py:633); " +
			"what it asks for is tasks/{id}/pushNotification/undefined (a2a/client/grpc_client.py:196)",
	},
	{client: "adk-1", binding: "rest", scenario: "parts", why: doublyEncoded},
	{client: "beeai", binding: "rest", scenario: "parts", why: doublyEncoded},
	{client: "beeai", binding: "grpc", scenario: "parts", why: doublyEncoded},
	{client: "beeai", binding: "rest", scenario: "metadata", why: datedMetadata},
	{client: "beeai", binding: "grpc", scenario: "metadata", why: datedMetadata},
	{client: "ag2", scenario: "resubscribe", why: dropsSnapshot + " (ag2 1.2.1, a2a/client.py:500)"},
	{client: "agent-framework", scenario: "resubscribe", why: dropsSnapshot + " (agent-framework-a2a 1.0.0b261022, _agent.py:982)"},
	{client: "py-0.3", binding: "rest", scenario: "parts", why: doublyEncoded},
	{client: "py-0.3", binding: "grpc", scenario: "parts", why: doublyEncoded},
	{client: "js-0.3", binding: "rest", scenario: "stream", why: neverAppends},
	{client: "strands-js", binding: "rest", scenario: "stream", why: neverAppends},
	{client: "js-0.3", binding: "grpc", scenario: "stream", why: neverAppends},
	{client: "js-0.3", binding: "rest", scenario: "parts", why: unnamedFiles},
	{client: "js-0.3", binding: "grpc", scenario: "parts", why: unnamedFiles},
	{
		client: "js-0.3", binding: "grpc", scenario: "metadata",
		why: "cannot send a null, and reads one as 0 (@a2a-js/sdk 0.3.14, dist/chunk-QQCCX2KH.js:221, 238): " +
			"https://github.com/a2aproject/a2a-js/issues/576",
	},
	{
		client: "java-0.3", binding: "rest", scenario: "get",
		why: "asks for historyLength=%201, which is no URL to its own HTTP client (Java SDK 0.3.3, RestTransport.java:129: %2d)",
	},
	{client: "rust", binding: "jsonrpc", scenario: "parts", why: smallIntegers},
	{client: "rust", binding: "rest", scenario: "parts", why: smallIntegers},
	{client: "java-0.3", binding: "rest", scenario: "error-not-found", why: classNames},
	{client: "java-0.3", binding: "rest", scenario: "error-terminal", why: classNames},
	{client: "java-0.3", binding: "rest", scenario: "push-config", why: classNames},
	{client: "java-0.3", binding: "grpc", scenario: "error-terminal", why: classNames},
	{client: "java-0.3", binding: "rest", scenario: "parts", why: noNulls},
	{client: "java-0.3", binding: "rest", scenario: "metadata", why: noNulls},
	{client: "java-0.3", binding: "grpc", scenario: "parts", why: noNulls},
	{client: "java-0.3", binding: "grpc", scenario: "metadata", why: noNulls},
}

// flatScopes is how a2a-go 2.4 reads the security requirements of a card of 1.0. For the public card, a program can give the
// resolver a parser; for the extended card it cannot.
const flatScopes = "reads the scopes of a scheme as a list, and not as the object with a list of the specification and its proto file " +
	"(a2a-go v2.4.0, a2a/auth.go:80; https://github.com/a2aproject/a2a-go/issues/430)"

// classNames is how the Java SDK 0.3 reads errors of HTTP+JSON and gRPC. Its users get the message and no type.
const classNames = "looks for the names of its own Java classes in an error (Java SDK 0.3.3, RestErrorMapper.java:42, GrpcErrorMapper.java:34)"

// noNulls is its representation of JSON's null in protobuf and ProtoJSON.
const noNulls = "sends a null as a Value without a kind, and cannot read one (Java SDK 0.3.3, ProtoUtils.java:624, 1002, 1021)"

// doublyEncoded is the representation of files in protobuf and ProtoJSON by a2a-sdk 0.3.
const doublyEncoded = "puts base64 text where the bytes of a file belong, and takes what it gets for such text " +
	"(a2a-sdk 0.3.26, a2a/utils/proto_utils.py:185, 661; noted in a2aproject/a2a-python#754, worked around in a2aproject/a2a-go#367)"

// dropsSnapshot is how clients lose chunks that came while they were cut off: they are in the task that begins the new
// stream.
const dropsSnapshot = "shows none of the artifacts in the task that a new stream begins with"

// datedMetadata is what BeeAI adds to the metadata of a message.
const datedMetadata = "puts a datetime into the metadata of a message, which protobuf has no value for " +
	"(beeai-framework 0.1.85, backend/message.py; adapters/a2a/agents/_utils.py, convert_to_a2a_message)"

// neverAppends is the representation of artifact updates in protobuf and ProtoJSON by @a2a-js/sdk 0.3. Its users get
// every chunk as the whole artifact.
const neverAppends = "drops append from artifact updates (@a2a-js/sdk 0.3.14, FromProto.taskArtifactUpdateEvent, dist/chunk-5ONEQMOQ.js:1504)"

// unnamedFiles is its representation of files there. The proto file of 0.3.0 has no name for them.
const unnamedFiles = "neither sends nor reads the name of a file (@a2a-js/sdk 0.3.14, dist/chunk-5ONEQMOQ.js:1927, 1229; " +
	"https://github.com/a2aproject/A2A/issues/984)"

// smallIntegers is what the Rust SDK reads as data in ProtoJSON. Agents that send larger integers should send text.
const smallIntegers = "refuses integers of 2^53 and more in data (pbjson-types 0.9.0, src/value.rs:152, 193; " +
	"https://github.com/influxdata/pbjson/issues/139)"
