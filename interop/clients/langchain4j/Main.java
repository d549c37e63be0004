import com.fasterxml.jackson.databind.ObjectMapper;
import dev.langchain4j.agentic.Agent;
import dev.langchain4j.agentic.AgenticServices;
import dev.langchain4j.agentic.UntypedAgent;
import dev.langchain4j.agentic.a2a.A2AClientInstance;
import dev.langchain4j.service.V;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * A client of LangChain4j's agents: A2A 0.3 over JSON-RPC. A remote agent is a method that takes text and returns text, so
 * there is no task to get, cancel or continue. interop/README.md has the scenarios.
 */
public final class Main {
    /** The seconds that a scenario may take. */
    private static final int LIMIT = 30;

    private static final ObjectMapper JSON = new ObjectMapper();

    /** The remote agent, as LangChain4j's users declare it. */
    public interface Demo {
        @Agent
        String ask(@V("text") String text);
    }

    public static void main(String[] args) throws Exception {
        String url = JSON.readTree(Files.readString(Path.of(args[0]))).get("a").asText();
        Demo demo = AgenticServices.a2aBuilder(url, Demo.class).outputKey("answer").build();
        ExecutorService runner = Executors.newCachedThreadPool();
        Map<String, Callable<Void>> scenarios = new LinkedHashMap<>();
        scenarios.put("card", () -> want("name", ((A2AClientInstance) demo).agentCard().name(), "demo"));
        scenarios.put("send", () -> {
            want("text", demo.ask("echo:hello"), "hello");
            UntypedAgent sequence = AgenticServices.sequenceBuilder().subAgents(demo).outputKey("answer").build();
            return want("text in a sequence", sequence.invoke(Map.of("text", "echo:hello")), "hello");
        });
        for (String absent : List.of("return-immediately", "stream", "get", "list", "cancel", "multi-turn", "resubscribe",
                "parts", "metadata", "error-not-found", "error-terminal", "push-config", "push", "extended-card")) {
            scenarios.put(absent, null);
        }
        scenarios.put("concurrent", () -> {
            List<Future<String>> answers = new ArrayList<>();
            for (int i = 0; i < 20; i++) {
                String text = "echo:" + i;
                answers.add(runner.submit(() -> demo.ask(text)));
            }
            for (int i = 0; i < answers.size(); i++) {
                want("text", answers.get(i).get(), String.valueOf(i));
            }
            return null;
        });
        for (Map.Entry<String, Callable<Void>> s : scenarios.entrySet()) {
            String outcome = "passed";
            String detail = "";
            if (s.getValue() == null) {
                outcome = "absent";
                detail = "an agent is a method from text to text";
            } else {
                Future<Void> running = runner.submit(s.getValue());
                try {
                    running.get(LIMIT, TimeUnit.SECONDS);
                } catch (TimeoutException e) {
                    running.cancel(true);
                    outcome = "failed";
                    detail = "still running after " + LIMIT + " seconds";
                } catch (ExecutionException e) {
                    outcome = "failed";
                    detail = e.getCause().toString();
                    e.getCause().printStackTrace();
                }
            }
            System.out.println(JSON.writeValueAsString(Map.of("scenario", s.getKey(), "outcome", outcome, "detail", detail)));
        }
        System.exit(0); // the client's own threads may live on
    }

    private static Void want(String what, Object got, Object expected) throws Exception {
        if (!expected.equals(got)) {
            throw new Exception(what + ": got " + got + ", want " + expected);
        }
        return null;
    }
}
