import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.a2a.A2A;
import io.a2a.client.Client;
import io.a2a.client.ClientEvent;
import io.a2a.client.TaskEvent;
import io.a2a.client.TaskUpdateEvent;
import io.a2a.client.config.ClientConfig;
import io.a2a.client.transport.grpc.GrpcTransport;
import io.a2a.client.transport.grpc.GrpcTransportConfig;
import io.a2a.client.transport.jsonrpc.JSONRPCTransport;
import io.a2a.client.transport.jsonrpc.JSONRPCTransportConfig;
import io.a2a.client.transport.rest.RestTransport;
import io.a2a.client.transport.rest.RestTransportConfig;
import io.a2a.spec.A2AClientException;
import io.a2a.spec.AgentCard;
import io.a2a.spec.AgentInterface;
import io.a2a.spec.DataPart;
import io.a2a.spec.DeleteTaskPushNotificationConfigParams;
import io.a2a.spec.FilePart;
import io.a2a.spec.FileWithBytes;
import io.a2a.spec.GetTaskPushNotificationConfigParams;
import io.a2a.spec.ListTaskPushNotificationConfigParams;
import io.a2a.spec.Message;
import io.a2a.spec.Part;
import io.a2a.spec.PushNotificationAuthenticationInfo;
import io.a2a.spec.PushNotificationConfig;
import io.a2a.spec.Task;
import io.a2a.spec.TaskArtifactUpdateEvent;
import io.a2a.spec.TaskIdParams;
import io.a2a.spec.TaskNotCancelableError;
import io.a2a.spec.TaskNotFoundError;
import io.a2a.spec.TaskPushNotificationConfig;
import io.a2a.spec.TaskQueryParams;
import io.a2a.spec.TaskState;
import io.a2a.spec.TextPart;
import io.a2a.util.Utils;
import io.grpc.ManagedChannelBuilder;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.BiConsumer;

/** A client of the Java SDK 0.3: A2A 0.3 over JSON-RPC, HTTP+JSON and gRPC. interop/README.md has the scenarios. */
public final class Main {
    /** The seconds that a scenario may take. */
    private static final int LIMIT = 30;

    /** The size of the chunks that scenarios ask for. */
    private static final int CHUNK_SIZE = 64;

    private static final ObjectMapper JSON = new ObjectMapper();
    private static final HttpClient HTTP = HttpClient.newHttpClient();

    private record Job(String binding, String a, String b, String through, String cut, String grpcA, String grpcB,
            String grpcThrough, String receiver) {}

    private interface Play {
        void run() throws Exception;
    }

    /** Ends a scenario for which the client has no call. */
    private static final class Absent extends Exception {
        Absent(String why) {
            super(why);
        }
    }

    private final Job job;
    private final AgentCard card;
    private final Client a;
    private final Client b;

    public static void main(String[] args) throws Exception {
        JsonNode j = JSON.readTree(Files.readString(Path.of(args[0])));
        Main main = new Main(new Job(j.get("binding").asText(), j.get("a").asText(), j.get("b").asText(),
                j.get("through").asText(), j.get("cut").asText(), j.get("grpc_a").asText(), j.get("grpc_b").asText(),
                j.get("grpc_through").asText(), j.get("receiver").asText()));
        Map<String, Play> scenarios = new LinkedHashMap<>();
        scenarios.put("card", () -> want("name", main.card.name(), "demo"));
        scenarios.put("send", main::send);
        scenarios.put("return-immediately", main::returnImmediately);
        scenarios.put("stream", main::stream);
        scenarios.put("get", main::get);
        scenarios.put("list", () -> { throw new Absent("Client has no such call"); });
        scenarios.put("cancel", main::cancel);
        scenarios.put("multi-turn", main::multiTurn);
        scenarios.put("resubscribe", main::resubscribe);
        scenarios.put("parts", main::parts);
        scenarios.put("metadata", main::metadata);
        scenarios.put("error-not-found", main::errorNotFound);
        scenarios.put("error-terminal", main::errorTerminal);
        scenarios.put("push-config", main::pushConfig);
        scenarios.put("push", main::push);
        scenarios.put("extended-card", () -> want("name", main.a.getAgentCard().name(), "demo"));
        scenarios.put("concurrent", main::concurrent);
        ExecutorService runner = Executors.newCachedThreadPool();
        for (Map.Entry<String, Play> s : scenarios.entrySet()) {
            String outcome = "passed";
            String detail = "";
            Future<?> running = runner.submit(() -> {
                s.getValue().run();
                return null;
            });
            try {
                running.get(LIMIT, TimeUnit.SECONDS);
            } catch (TimeoutException e) {
                running.cancel(true);
                outcome = "failed";
                detail = "still running after " + LIMIT + " seconds";
            } catch (java.util.concurrent.ExecutionException e) {
                outcome = e.getCause() instanceof Absent ? "absent" : "failed";
                detail = e.getCause().toString();
                if (outcome.equals("failed")) {
                    e.getCause().printStackTrace();
                }
            }
            System.out.println(JSON.writeValueAsString(Map.of("scenario", s.getKey(), "outcome", outcome, "detail", detail)));
        }
        System.exit(0); // the client's own threads may live on
    }

    private Main(Job job) throws Exception {
        this.job = job;
        card = A2A.getAgentCard(job.a());
        a = client(job.a(), job.grpcA(), false, false);
        b = client(job.b(), job.grpcB(), false, false);
    }

    private Client client(String http, String grpc, boolean streaming, boolean polling) throws A2AClientException {
        return client(http, grpc, new ClientConfig.Builder().setStreaming(streaming).setPolling(polling).build());
    }

    /** Makes a client from the card, with another replica's address instead of A's. */
    private Client client(String http, String grpc, ClientConfig config) throws A2AClientException {
        String transport = Map.of("jsonrpc", "JSONRPC", "rest", "HTTP+JSON", "grpc", "GRPC").get(job.binding());
        String from = transport.equals("GRPC") ? job.grpcA() : job.a();
        String to = transport.equals("GRPC") ? grpc : http;
        List<AgentInterface> moved = new ArrayList<>();
        for (AgentInterface i : card.additionalInterfaces()) {
            if (i.transport().equals(transport) && i.url().contains(from)) {
                moved.add(new AgentInterface(transport, i.url().replace(from, to)));
            }
        }
        if (moved.isEmpty()) {
            throw new A2AClientException("the card has no interface for " + transport + " at " + from);
        }
        AgentCard there = new AgentCard.Builder(card).preferredTransport(transport).url(moved.get(0).url())
                .additionalInterfaces(moved).build();
        return Client.builder(there)
                .withTransport(JSONRPCTransport.class, new JSONRPCTransportConfig())
                .withTransport(RestTransport.class, new RestTransportConfig())
                .withTransport(GrpcTransport.class,
                        new GrpcTransportConfig(target -> ManagedChannelBuilder.forTarget(target).usePlaintext().build()))
                .clientConfig(config)
                .build();
    }

    private void send() throws Exception {
        Task task = sendTask(a, A2A.toUserMessage("echo:hello"));
        want("state", task.getStatus().state(), TaskState.COMPLETED);
        want("text", textOf(task), "hello");
    }

    private void returnImmediately() throws Exception {
        Task task = sendTask(client(job.a(), job.grpcA(), false, true), A2A.toUserMessage("sleep=300ms"));
        if (task.getStatus().state().isFinal()) {
            throw new Exception("the answer is " + task.getStatus().state() + " already");
        }
        while (!task.getStatus().state().isFinal()) {
            Thread.sleep(20);
            task = a.getTask(new TaskQueryParams(task.getId()));
        }
        want("state", task.getStatus().state(), TaskState.COMPLETED);
    }

    private void stream() throws Exception {
        Follower seen = new Follower(event -> {});
        client(job.a(), job.grpcA(), true, false)
                .sendMessage(A2A.toUserMessage("chunks=20 size=64 delay=5ms"), List.of(seen), seen::fail);
        seen.end();
        want("state", seen.state, TaskState.COMPLETED);
        inOrder(seen.chunks, 20);
    }

    private void get() throws Exception {
        Task task = sendTask(a, A2A.toUserMessage("ask:what?"));
        sendTask(a, answer(task, "that"));
        Task whole = a.getTask(new TaskQueryParams(task.getId(), 10));
        Task brief = a.getTask(new TaskQueryParams(task.getId(), 1));
        List<String> said = new ArrayList<>();
        for (Message m : whole.getHistory()) {
            said.add(text(m.getParts().get(0)));
        }
        want("history", said, List.of("ask:what?", "what?", "that"));
        want("artifacts", whole.getArtifacts().size(), 1);
        want("messages with historyLength 1", brief.getHistory().size(), 1);
        want("the newest message", brief.getHistory().get(0).getMessageId(), whole.getHistory().get(2).getMessageId());
    }

    private void cancel() throws Exception {
        Task task = sendTask(client(job.a(), job.grpcA(), false, true), A2A.toUserMessage("hold"));
        want("state", a.cancelTask(new TaskIdParams(task.getId())).getStatus().state(), TaskState.CANCELED);
    }

    private void multiTurn() throws Exception {
        Task task = sendTask(a, A2A.toUserMessage("ask:which?"));
        want("state", task.getStatus().state(), TaskState.INPUT_REQUIRED);
        want("question", text(task.getStatus().message().getParts().get(0)), "which?");
        Task done = sendTask(b, answer(task, "the blue one"));
        want("task", done.getId(), task.getId());
        want("state", done.getStatus().state(), TaskState.COMPLETED);
        String said = textOf(done);
        if (!said.contains("the blue one")) {
            throw new Exception(said + " does not quote the answer");
        }
    }

    private void resubscribe() throws Exception {
        int chunks = 60;
        CountDownLatch some = new CountDownLatch(5);
        Follower seen = new Follower(event -> {
            if (event instanceof TaskUpdateEvent u && u.getUpdateEvent() instanceof TaskArtifactUpdateEvent) {
                some.countDown();
            }
        });
        client(job.through(), job.grpcThrough(), true, false)
                .sendMessage(A2A.toUserMessage("chunks=" + chunks + " size=64 delay=50ms"), List.of(seen), seen::fail);
        some.await();
        want("status of the cut", HTTP.send(HttpRequest.newBuilder(URI.create(job.cut()))
                .POST(HttpRequest.BodyPublishers.noBody()).build(), HttpResponse.BodyHandlers.discarding()).statusCode(), 200);
        try {
            seen.end();
            throw new IllegalStateException("the cut went unnoticed");
        } catch (IllegalStateException e) {
            throw e;
        } catch (Exception e) {
            // the cut
        }
        Follower rest = new Follower(event -> {});
        client(job.b(), job.grpcB(), true, false).resubscribe(new TaskIdParams(seen.task), List.of(rest), rest::fail);
        rest.end();
        want("state", rest.state, TaskState.COMPLETED);
        inOrder(rest.chunks, chunks);
        inOrder(chunksOf(b.getTask(new TaskQueryParams(seen.task))), chunks);
    }

    private void parts() throws Exception {
        Map<String, Object> object = new HashMap<>();
        object.put("n", 1.5);
        object.put("list", Arrays.asList("x", null, true));
        object.put("o", Map.of("k", "ü"));
        byte[] bytes = {0, 1, (byte) 0xfe, (byte) 0xff, ' ', 'b', 'y', 't', 'e', 's'};
        List<Part<?>> sent = List.of(new TextPart("look"),
                new FilePart(new FileWithBytes("application/octet-stream", "some.bin", Base64.getEncoder().encodeToString(bytes))),
                new DataPart(object, Map.of("of", "part")));
        Task task = sendTask(a, new Message.Builder().role(Message.Role.USER).parts(sent).build());
        Task got = a.getTask(new TaskQueryParams(task.getId(), 10));
        want("messages", got.getHistory().size(), 1);
        Task withFile = sendTask(a, A2A.toUserMessage("file"));
        FileWithBytes file = (FileWithBytes) ((FilePart) withFile.getArtifacts().get(0).parts().get(0)).getFile();
        want("file", new String(Base64.getDecoder().decode(file.bytes()), StandardCharsets.UTF_8), "Hello from Holdfast.\n");
        want("type", file.mimeType(), "text/plain");
        Task withData = sendTask(a, A2A.toUserMessage("data"));
        want("data", ((DataPart) withData.getArtifacts().get(0).parts().get(0)).getData().get("greeting"), "hello");
        want("parts", JSON.valueToTree(got.getHistory().get(0).getParts()), JSON.<JsonNode>valueToTree(sent));
        want("name", file.name(), "hello.txt");
    }

    private void metadata() throws Exception {
        Map<String, Object> sent = Map.of("plain", "text", "nested",
                Map.of("list", Arrays.asList(1.5, "two", null, Map.of("deep", true)), "empty", Map.of()));
        Task task = sendTask(a, new Message.Builder(A2A.toUserMessage("echo:x")).metadata(sent).build());
        Task got = a.getTask(new TaskQueryParams(task.getId(), 10));
        want("metadata", got.getHistory().get(0).getMetadata(), sent);
    }

    private void errorNotFound() throws Exception {
        refused(TaskNotFoundError.class, () -> a.getTask(new TaskQueryParams(UUID.randomUUID().toString())));
    }

    private void errorTerminal() throws Exception {
        Task task = sendTask(a, A2A.toUserMessage("echo:done"));
        refused(TaskNotCancelableError.class, () -> a.cancelTask(new TaskIdParams(task.getId())));
    }

    private void pushConfig() throws Exception {
        Task task = sendTask(a, A2A.toUserMessage("ask:which?"));
        for (String id : List.of("one", "two")) {
            TaskPushNotificationConfig set = a.setTaskPushNotificationConfiguration(
                    new TaskPushNotificationConfig(task.getId(), hook(id)));
            want("task", set.taskId(), task.getId());
            want("id", set.pushNotificationConfig().id(), id);
            want("url", set.pushNotificationConfig().url(), hook(id).url());
        }
        TaskPushNotificationConfig got = b.getTaskPushNotificationConfiguration(
                new GetTaskPushNotificationConfigParams(task.getId(), "one"));
        want("task", got.taskId(), task.getId());
        want("id", got.pushNotificationConfig().id(), "one");
        want("url", got.pushNotificationConfig().url(), hook("one").url());
        want("listed", idsOf(task), Set.of("one", "two"));
        for (int i = 0; i < 2; i++) { // it is gone either way
            a.deleteTaskPushNotificationConfigurations(new DeleteTaskPushNotificationConfigParams(task.getId(), "one"));
        }
        want("left", idsOf(task), Set.of("two"));
        refused(TaskNotFoundError.class, () -> a.getTaskPushNotificationConfiguration(
                new GetTaskPushNotificationConfigParams(task.getId(), "one")));
    }

    private Set<String> idsOf(Task task) throws Exception {
        Set<String> ids = new HashSet<>();
        for (TaskPushNotificationConfig c : b.listTaskPushNotificationConfigurations(
                new ListTaskPushNotificationConfigParams(task.getId()))) {
            ids.add(c.pushNotificationConfig().id());
        }
        return ids;
    }

    private void push() throws Exception {
        Client polling = client(job.a(), job.grpcA(),
                new ClientConfig.Builder().setStreaming(false).setPolling(true).setPushNotificationConfig(hook("inline")).build());
        Task task = sendTask(polling, A2A.toUserMessage("chunks=3 size=64 delay=20ms"));
        delivered("inline", task.getId(), TaskState.WORKING, TaskState.COMPLETED);
        Task asked = sendTask(a, A2A.toUserMessage("ask:which?"));
        for (String id : List.of("kept", "deleted")) {
            a.setTaskPushNotificationConfiguration(new TaskPushNotificationConfig(asked.getId(), hook(id)));
        }
        b.deleteTaskPushNotificationConfigurations(new DeleteTaskPushNotificationConfigParams(asked.getId(), "deleted"));
        sendTask(b, answer(asked, "the blue one"));
        delivered("kept", asked.getId(), TaskState.SUBMITTED, TaskState.WORKING, TaskState.COMPLETED);
        delivered("deleted", asked.getId());
    }

    /** A webhook at a path of the receiver. */
    private PushNotificationConfig hook(String id) {
        return new PushNotificationConfig(job.receiver() + "/" + id, "token of " + id,
                new PushNotificationAuthenticationInfo(List.of("Bearer"), "credentials-" + id), id);
    }

    /** Holds if a webhook gets these states of a task, each once and in this order. */
    private void delivered(String id, String task, TaskState... states) throws Exception {
        JsonNode arrived;
        do {
            Thread.sleep(20);
            arrived = JSON.readTree(HTTP.send(HttpRequest.newBuilder(URI.create(job.receiver() + "/received?path=/" + id)).build(),
                    HttpResponse.BodyHandlers.ofString()).body());
        } while (arrived.size() < states.length);
        List<TaskState> got = new ArrayList<>();
        for (JsonNode d : arrived) {
            Task then = Utils.unmarshalFrom(d.get("body").asText(), Task.TYPE_REFERENCE);
            TaskState state = then.getStatus().state();
            want("task", then.getId(), task);
            want("artifacts at " + state, then.getArtifacts() == null ? 0 : then.getArtifacts().size(),
                    state == TaskState.COMPLETED ? 1 : 0);
            JsonNode headers = d.get("headers");
            want("token", headers.get("x-a2a-notification-token").asText(), "token of " + id);
            want("authorization", headers.get("authorization").asText(), "Bearer credentials-" + id);
            want("content type", headers.get("content-type").asText(), "application/json");
            got.add(state);
        }
        want("states delivered to " + id, got, List.of(states));
    }

    private void concurrent() throws Exception {
        int sends = 20;
        ExecutorService pool = Executors.newFixedThreadPool(sends);
        List<Future<Task>> tasks = new ArrayList<>();
        for (int i = 0; i < sends; i++) {
            String text = "echo:" + i;
            tasks.add(pool.submit(() -> sendTask(a, A2A.toUserMessage(text))));
        }
        Set<String> ids = new HashSet<>();
        for (int i = 0; i < sends; i++) {
            Task task = tasks.get(i).get();
            ids.add(task.getId());
            want("state", task.getStatus().state(), TaskState.COMPLETED);
            want("text", textOf(task), String.valueOf(i));
        }
        want("tasks", ids.size(), sends);
    }

    /** Sends without streaming: the consumer has the answer when the call returns. */
    private static Task sendTask(Client client, Message message) throws Exception {
        AtomicReference<ClientEvent> answer = new AtomicReference<>();
        client.sendMessage(message, List.of((event, card) -> answer.set(event)), error -> {});
        if (answer.get() instanceof TaskEvent task) {
            return task.getTask();
        }
        throw new Exception("the answer is " + answer.get());
    }

    private static Message answer(Task task, String text) {
        return A2A.createUserTextMessage(text, task.getContextId(), task.getId());
    }

    /** Assembles the events of a stream, which the client hands over on threads of its own. */
    private static final class Follower implements BiConsumer<ClientEvent, AgentCard> {
        final List<String> chunks = new ArrayList<>();
        String task;
        TaskState state;
        private final java.util.function.Consumer<ClientEvent> each;
        private final CountDownLatch ended = new CountDownLatch(1);
        private Throwable failure;

        Follower(java.util.function.Consumer<ClientEvent> each) {
            this.each = each;
        }

        @Override
        public synchronized void accept(ClientEvent event, AgentCard card) {
            if (event instanceof TaskEvent t) {
                chunks.clear();
                chunks.addAll(chunksOf(t.getTask()));
                take(t.getTask());
            } else if (event instanceof TaskUpdateEvent u) {
                if (u.getUpdateEvent() instanceof TaskArtifactUpdateEvent artifact) {
                    for (Part<?> p : artifact.getArtifact().parts()) {
                        chunks.add(text(p));
                    }
                }
                take(u.getTask());
            }
            each.accept(event);
        }

        private void take(Task now) {
            task = now.getId();
            state = now.getStatus().state();
            if (state.isFinal()) {
                ended.countDown();
            }
        }

        synchronized void fail(Throwable error) {
            failure = error;
            ended.countDown();
        }

        /** Waits until the task has ended, or the stream is broken. */
        void end() throws Exception {
            ended.await();
            synchronized (this) {
                if (failure != null && (state == null || !state.isFinal())) {
                    throw new Exception("the stream broke", failure);
                }
            }
        }
    }

    /** The text of a task's artifacts. */
    private static String textOf(Task task) {
        StringBuilder text = new StringBuilder();
        if (task.getArtifacts() != null) {
            task.getArtifacts().forEach(artifact -> artifact.parts().forEach(p -> text.append(text(p))));
        }
        return text.toString();
    }

    /** Takes the text of a task, which a read task has in one part, apart. */
    private static List<String> chunksOf(Task task) {
        List<String> chunks = new ArrayList<>();
        String text = textOf(task);
        for (int at = 0; at < text.length(); at += CHUNK_SIZE) {
            chunks.add(text.substring(at, Math.min(at + CHUNK_SIZE, text.length())));
        }
        return chunks;
    }

    private static String text(Part<?> part) {
        return part instanceof TextPart t ? t.getText() : "";
    }

    /** Holds if there are n chunks, each beginning with its index. */
    private static void inOrder(List<String> chunks, int n) throws Exception {
        for (int i = 0; i < chunks.size(); i++) {
            if (!chunks.get(i).startsWith(String.format("%08d ", i))) {
                throw new Exception("chunk " + i + " is " + chunks.get(i));
            }
        }
        want("chunks", chunks.size(), n);
    }

    private static void want(String what, Object got, Object expected) throws Exception {
        if (!Objects.equals(got, expected)) {
            throw new Exception(what + ": got " + got + ", want " + expected);
        }
    }

    /** Holds if a call fails with an error of the SDK. */
    private static void refused(Class<? extends Throwable> expected, Play call) throws Exception {
        try {
            call.run();
        } catch (A2AClientException e) {
            if (expected.isInstance(e.getCause())) {
                return;
            }
            throw new Exception("refused with another error than " + expected.getSimpleName(), e);
        }
        throw new Exception("not refused with " + expected.getSimpleName());
    }
}
