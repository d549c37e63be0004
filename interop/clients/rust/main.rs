//! A client of the official Rust SDK: A2A 1.0 over JSON-RPC, HTTP+JSON and gRPC. interop/README.md has the scenarios.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use a2a::*;
use a2a_client::agent_card::AgentCardResolver;
use a2a_client::{A2AClient, A2AClientFactory, BoxStream, Transport};
use a2a_grpc::GrpcTransportFactory;
use futures::StreamExt;
use futures::future::join_all;
use serde::Deserialize;
use serde_json::{Value, json};

/// The time that a scenario may take.
const LIMIT: Duration = Duration::from_secs(30);

/// The size of the chunks that scenarios ask for.
const CHUNK_SIZE: usize = 64;

const SCENARIOS: [&str; 17] = [
    "card",
    "send",
    "return-immediately",
    "stream",
    "get",
    "list",
    "cancel",
    "multi-turn",
    "resubscribe",
    "parts",
    "metadata",
    "error-not-found",
    "error-terminal",
    "push-config",
    "push",
    "extended-card",
    "concurrent",
];

type Client = A2AClient<Box<dyn Transport>>;
type Failure = Box<dyn std::error::Error + Send + Sync>;
type Outcome = Result<(), Failure>;

#[derive(Deserialize)]
struct Job {
    binding: String,
    a: String,
    b: String,
    through: String,
    cut: String,
    grpc_a: String,
    grpc_b: String,
    grpc_through: String,
    receiver: String,
}

/// A request that the receiver accepted.
#[derive(Deserialize)]
struct Delivery {
    headers: HashMap<String, String>,
    body: String,
}

/// The clients for a scenario: for replica A, for B, and for A through the proxy.
struct Session {
    job: Job,
    card: AgentCard,
    a: Client,
    b: Client,
    through: Client,
}

#[tokio::main]
async fn main() -> Outcome {
    let file = std::env::args().nth(1).ok_or("usage: rust job.json")?;
    let session = Session::connect(serde_json::from_str(&std::fs::read_to_string(file)?)?).await?;
    for scenario in SCENARIOS {
        let (outcome, detail) = match tokio::time::timeout(LIMIT, session.play(scenario)).await {
            Ok(Ok(())) => ("passed", String::new()),
            Ok(Err(e)) => ("failed", e.to_string()),
            Err(_) => ("failed", format!("still running after {LIMIT:?}")),
        };
        println!(
            "{}",
            json!({"scenario": scenario, "outcome": outcome, "detail": detail})
        );
    }
    Ok(())
}

impl Session {
    async fn connect(job: Job) -> Result<Session, Failure> {
        let card = AgentCardResolver::new(None).resolve(&job.a).await?;
        let a = client(&job, &card, &job.a, &job.grpc_a).await?;
        let b = client(&job, &card, &job.b, &job.grpc_b).await?;
        let through = client(&job, &card, &job.through, &job.grpc_through).await?;
        Ok(Session {
            job,
            card,
            a,
            b,
            through,
        })
    }

    async fn play(&self, scenario: &str) -> Outcome {
        match scenario {
            "card" => want("name", self.card.name.as_str(), "demo"),
            "send" => self.send().await,
            "return-immediately" => self.return_immediately().await,
            "stream" => self.stream().await,
            "get" => self.get().await,
            "list" => self.list().await,
            "cancel" => self.cancel().await,
            "multi-turn" => self.multi_turn().await,
            "resubscribe" => self.resubscribe().await,
            "parts" => self.parts().await,
            "metadata" => self.metadata().await,
            "error-not-found" => refused(
                self.a.get_task(&by_id(&new_task_id())).await,
                error_code::TASK_NOT_FOUND,
            ),
            "error-terminal" => self.error_terminal().await,
            "push-config" => self.push_config().await,
            "push" => self.push().await,
            "extended-card" => {
                let card = self
                    .a
                    .get_extended_agent_card(&GetExtendedAgentCardRequest { tenant: None })
                    .await?;
                want("name", card.name.as_str(), "demo")
            }
            "concurrent" => self.concurrent().await,
            _ => Err(format!("no scenario {scenario}").into()),
        }
    }

    async fn send(&self) -> Outcome {
        let task = send_text(&self.a, "echo:hello").await?;
        want("state", &task.status.state, &TaskState::Completed)?;
        want("text", text_of(&task).as_str(), "hello")
    }

    async fn return_immediately(&self) -> Outcome {
        let mut task = send(&self.a, at_once(says("sleep=300ms"))).await?;
        if task.status.state.is_terminal() {
            return Err(format!("the answer is {:?} already", task.status.state).into());
        }
        while !task.status.state.is_terminal() {
            tokio::time::sleep(Duration::from_millis(20)).await;
            task = self.a.get_task(&by_id(&task.id)).await?;
        }
        want("state", &task.status.state, &TaskState::Completed)
    }

    async fn stream(&self) -> Outcome {
        let mut seen = Follower::default();
        let mut events = self
            .a
            .send_streaming_message(&request(says("chunks=20 size=64 delay=5ms")))
            .await?;
        while let Some(event) = events.next().await {
            seen.take(event?);
        }
        want("state", &seen.state, &TaskState::Completed)?;
        in_order(&seen.chunks, 20)
    }

    async fn get(&self) -> Outcome {
        let task = send_text(&self.a, "ask:what?").await?;
        send(&self.a, request(answer(&task, "that"))).await?;
        let whole = self.a.get_task(&by_id(&task.id)).await?;
        let short = self
            .a
            .get_task(&GetTaskRequest {
                history_length: Some(1),
                ..by_id(&task.id)
            })
            .await?;
        let history = whole.history.unwrap_or_default();
        let said: Vec<_> = history.iter().filter_map(|m| m.text()).collect();
        want("history", said, vec!["ask:what?", "what?", "that"])?;
        want("artifacts", whole.artifacts.unwrap_or_default().len(), 1)?;
        let newest = short.history.unwrap_or_default();
        want("messages with history_length 1", newest.len(), 1)?;
        want(
            "the newest message",
            &newest[0].message_id,
            &history[2].message_id,
        )
    }

    async fn list(&self) -> Outcome {
        let context = new_context_id();
        let mut made = BTreeSet::new();
        for i in 0..3 {
            let mut message = says(&format!("echo:{i}"));
            message.context_id = Some(context.clone());
            made.insert(send(&self.a, request(message)).await?.id);
        }
        let first = self.a.list_tasks(&page(&context, None)).await?;
        let second = self
            .a
            .list_tasks(&page(&context, Some(first.next_page_token)))
            .await?;
        want("first page", first.tasks.len(), 2)?;
        want("second page", second.tasks.len(), 1)?;
        want("total", first.total_size, 3)?;
        want(
            "token after the last page",
            second.next_page_token.as_str(),
            "",
        )?;
        let listed: BTreeSet<_> = first
            .tasks
            .into_iter()
            .chain(second.tasks)
            .map(|t| t.id)
            .collect();
        want("tasks", listed, made)
    }

    async fn cancel(&self) -> Outcome {
        let task = send(&self.a, at_once(says("hold"))).await?;
        let canceled = self
            .a
            .cancel_task(&CancelTaskRequest {
                id: task.id,
                metadata: None,
                tenant: None,
            })
            .await?;
        want("state", &canceled.status.state, &TaskState::Canceled)
    }

    async fn multi_turn(&self) -> Outcome {
        let task = send_text(&self.a, "ask:which?").await?;
        want("state", &task.status.state, &TaskState::InputRequired)?;
        want(
            "question",
            task.status.message.as_ref().and_then(|m| m.text()),
            Some("which?"),
        )?;
        let done = send(&self.b, request(answer(&task, "the blue one"))).await?;
        want("task", &done.id, &task.id)?;
        want("state", &done.status.state, &TaskState::Completed)?;
        let said = text_of(&done);
        want("the answer is quoted", said.contains("the blue one"), true)
    }

    async fn resubscribe(&self) -> Outcome {
        const CHUNKS: usize = 60;
        let mut seen = Follower::default();
        let mut cut = false;
        let text = format!("chunks={CHUNKS} size=64 delay=50ms");
        let mut events = self
            .through
            .send_streaming_message(&request(says(&text)))
            .await?;
        while let Some(Ok(event)) = events.next().await {
            seen.take(event);
            if seen.chunks.len() == 5 && !cut {
                want(
                    "status of the cut",
                    reqwest::Client::new()
                        .post(&self.job.cut)
                        .send()
                        .await?
                        .status()
                        .as_u16(),
                    200,
                )?;
                cut = true;
            }
        }
        if !cut || seen.state == TaskState::Completed {
            return Err(format!(
                "not cut in the middle: {} chunks, {:?}",
                seen.chunks.len(),
                seen.state
            )
            .into());
        }
        let mut rest = Follower::default();
        let mut events: BoxStream<_> = self
            .b
            .subscribe_to_task(&SubscribeToTaskRequest {
                id: seen.task.clone(),
                tenant: None,
            })
            .await?;
        while let Some(event) = events.next().await {
            rest.take(event?);
        }
        want("state", &rest.state, &TaskState::Completed)?;
        in_order(&rest.chunks, CHUNKS)?;
        in_order(
            &chunks_of(&self.b.get_task(&by_id(&seen.task)).await?),
            CHUNKS,
        )
    }

    async fn parts(&self) -> Outcome {
        let mut data = Part::data(json!({"n": 1.5, "list": ["x", null, true], "o": {"k": "ü"}}));
        data.metadata = Some(HashMap::from([("of".to_string(), json!("part"))]));
        let sent = vec![
            Part::text("look"),
            Part::raw(b"\x00\x01\xfe\xff bytes".to_vec())
                .with_filename("some.bin")
                .with_media_type("application/octet-stream"),
            data,
        ];
        let task = send(&self.a, request(Message::new(Role::User, sent.clone()))).await?;
        let history = self
            .a
            .get_task(&by_id(&task.id))
            .await?
            .history
            .unwrap_or_default();
        want("messages", history.len(), 1)?;
        want("parts", &history[0].parts, &sent)?;
        let file = Part::raw(b"Hello from Holdfast.\n".to_vec())
            .with_filename("hello.txt")
            .with_media_type("text/plain");
        want(
            "file",
            first_part(send_text(&self.a, "file").await?),
            Some(file),
        )?;
        match first_part(send_text(&self.a, "data").await?).map(|p| p.content) {
            Some(PartContent::Data(d)) => want("data", &d["greeting"], &json!("hello")),
            other => Err(format!("the data is {other:?}").into()),
        }
    }

    async fn metadata(&self) -> Outcome {
        let sent: HashMap<String, Value> = serde_json::from_value(json!({
            "plain": "text", "nested": {"list": [1.5, "two", null, {"deep": true}], "empty": {}},
        }))?;
        let mut message = says("echo:x");
        message.metadata = Some(sent.clone());
        let task = send(&self.a, request(message)).await?;
        let history = self
            .a
            .get_task(&by_id(&task.id))
            .await?
            .history
            .unwrap_or_default();
        want("metadata", history[0].metadata.as_ref(), Some(&sent))
    }

    async fn error_terminal(&self) -> Outcome {
        let task = send_text(&self.a, "echo:done").await?;
        let canceled = self
            .a
            .cancel_task(&CancelTaskRequest {
                id: task.id,
                metadata: None,
                tenant: None,
            })
            .await;
        refused(canceled, error_code::TASK_NOT_CANCELABLE)
    }

    async fn push_config(&self) -> Outcome {
        let task = send_text(&self.a, "ask:which?").await?;
        for id in ["one", "two"] {
            let hook = self.hook(id, &task.id);
            let set = self.a.create_push_config(&hook).await?;
            want(
                "set",
                (&set.id, &set.task_id, &set.url),
                (&hook.id, &hook.task_id, &hook.url),
            )?;
        }
        let one = GetTaskPushNotificationConfigRequest {
            task_id: task.id.clone(),
            id: "one".to_string(),
            tenant: None,
        };
        let got = self.b.get_push_config(&one).await?;
        let hook = self.hook("one", &task.id);
        want(
            "got",
            (got.id, got.task_id, got.url),
            (hook.id, hook.task_id, hook.url),
        )?;
        want(
            "listed",
            self.hooks_of(&task.id).await?,
            BTreeSet::from(["one".to_string(), "two".to_string()]),
        )?;
        for _ in 0..2 {
            // it is gone either way
            self.a
                .delete_push_config(&deletion("one", &task.id))
                .await?;
        }
        want(
            "left",
            self.hooks_of(&task.id).await?,
            BTreeSet::from(["two".to_string()]),
        )?;
        refused(
            self.a.get_push_config(&one).await,
            error_code::TASK_NOT_FOUND,
        )
    }

    async fn hooks_of(&self, task: &str) -> Result<BTreeSet<String>, Failure> {
        let list = ListTaskPushNotificationConfigsRequest {
            task_id: task.to_string(),
            page_size: None,
            page_token: None,
            tenant: None,
        };
        Ok(self
            .b
            .list_push_configs(&list)
            .await?
            .configs
            .into_iter()
            .filter_map(|c| c.id)
            .collect())
    }

    async fn push(&self) -> Outcome {
        let mut inline = at_once(says("chunks=3 size=64 delay=20ms"));
        if let Some(config) = &mut inline.configuration {
            config.task_push_notification_config = Some(self.hook("inline", ""));
        }
        let task = send(&self.a, inline).await?;
        self.delivered(
            "inline",
            &task.id,
            &[TaskState::Working, TaskState::Completed],
        )
        .await?;
        let asked = send_text(&self.a, "ask:which?").await?;
        for id in ["kept", "deleted"] {
            self.a.create_push_config(&self.hook(id, &asked.id)).await?;
        }
        self.b
            .delete_push_config(&deletion("deleted", &asked.id))
            .await?;
        send(&self.b, request(answer(&asked, "the blue one"))).await?;
        self.delivered(
            "kept",
            &asked.id,
            &[
                TaskState::Submitted,
                TaskState::Working,
                TaskState::Completed,
            ],
        )
        .await?;
        self.delivered("deleted", &asked.id, &[]).await
    }

    /// A webhook at a path of the receiver.
    fn hook(&self, id: &str, task: &str) -> TaskPushNotificationConfig {
        TaskPushNotificationConfig {
            url: format!("{}/{id}", self.job.receiver),
            id: Some(id.to_string()),
            task_id: task.to_string(),
            token: Some(format!("token of {id}")),
            authentication: Some(AuthenticationInfo {
                scheme: "Bearer".to_string(),
                credentials: Some(format!("credentials-{id}")),
            }),
            tenant: None,
        }
    }

    /// Holds if a webhook gets these states of a task, each once and in this order.
    async fn delivered(&self, id: &str, task: &str, states: &[TaskState]) -> Outcome {
        let arrived = loop {
            let received =
                reqwest::get(format!("{}/received?path=/{id}", self.job.receiver)).await?;
            let arrived: Vec<Delivery> = received.json().await?;
            if arrived.len() >= states.len() {
                break arrived;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let mut got = Vec::new();
        for delivery in &arrived {
            let StreamResponse::StatusUpdate(update) = serde_json::from_str(&delivery.body)? else {
                return Err(format!("delivered was {}", delivery.body).into());
            };
            want("task", update.task_id.as_str(), task)?;
            for (header, expected) in [
                ("a2a-notification-token", format!("token of {id}")),
                ("authorization", format!("Bearer credentials-{id}")),
                ("content-type", "application/a2a+json".to_string()),
            ] {
                want(header, delivery.headers.get(header), Some(&expected))?;
            }
            got.push(update.status.state);
        }
        want(&format!("states delivered to {id}"), got.as_slice(), states)
    }

    async fn concurrent(&self) -> Outcome {
        let texts: Vec<String> = (0..20).map(|i| format!("echo:{i}")).collect();
        let mut ids = BTreeSet::new();
        for (i, task) in join_all(texts.iter().map(|text| send_text(&self.a, text)))
            .await
            .into_iter()
            .enumerate()
        {
            let task = task?;
            want("state", &task.status.state, &TaskState::Completed)?;
            want("text", text_of(&task), i.to_string())?;
            ids.insert(task.id);
        }
        want("tasks", ids.len(), texts.len())
    }
}

/// Makes a client from the card, with another replica's address instead of A's.
async fn client(job: &Job, card: &AgentCard, http: &str, grpc: &str) -> Result<Client, Failure> {
    let (binding, from, to) = match job.binding.as_str() {
        "jsonrpc" => (TRANSPORT_PROTOCOL_JSONRPC, &job.a, http),
        "rest" => (TRANSPORT_PROTOCOL_HTTP_JSON, &job.a, http),
        _ => (TRANSPORT_PROTOCOL_GRPC, &job.grpc_a, grpc),
    };
    let mut there = card.clone();
    there
        .supported_interfaces
        .retain(|i| i.protocol_binding == binding && i.url.contains(from.as_str()));
    for interface in &mut there.supported_interfaces {
        interface.url = interface.url.replace(from.as_str(), to);
    }
    let factory = A2AClientFactory::builder()
        .register(Arc::new(GrpcTransportFactory::new()))
        .build();
    Ok(factory.create_from_card(&there).await?)
}

fn says(text: &str) -> Message {
    Message::new(Role::User, vec![Part::text(text)])
}

/// A message that continues a task.
fn answer(task: &Task, text: &str) -> Message {
    Message {
        task_id: Some(task.id.clone()),
        context_id: Some(task.context_id.clone()),
        ..says(text)
    }
}

fn request(message: Message) -> SendMessageRequest {
    SendMessageRequest {
        message,
        configuration: None,
        metadata: None,
        tenant: None,
    }
}

/// A request whose answer does not wait for the task.
fn at_once(message: Message) -> SendMessageRequest {
    let configuration = SendMessageConfiguration {
        accepted_output_modes: None,
        task_push_notification_config: None,
        history_length: None,
        return_immediately: Some(true),
    };
    SendMessageRequest {
        configuration: Some(configuration),
        ..request(message)
    }
}

fn by_id(id: &str) -> GetTaskRequest {
    GetTaskRequest {
        id: id.to_string(),
        history_length: None,
        tenant: None,
    }
}

fn page(context: &str, token: Option<String>) -> ListTasksRequest {
    ListTasksRequest {
        context_id: Some(context.to_string()),
        status: None,
        page_size: Some(2),
        page_token: token,
        history_length: None,
        status_timestamp_after: None,
        include_artifacts: None,
        tenant: None,
    }
}

fn deletion(id: &str, task: &str) -> DeleteTaskPushNotificationConfigRequest {
    DeleteTaskPushNotificationConfigRequest {
        task_id: task.to_string(),
        id: id.to_string(),
        tenant: None,
    }
}

async fn send(client: &Client, request: SendMessageRequest) -> Result<Task, Failure> {
    match client.send_message(&request).await? {
        SendMessageResponse::Task(task) => Ok(task),
        other => Err(format!("the answer is {other:?}").into()),
    }
}

async fn send_text(client: &Client, text: &str) -> Result<Task, Failure> {
    send(client, request(says(text))).await
}

/// The text of a task's artifacts.
fn text_of(task: &Task) -> String {
    let parts = task.artifacts.iter().flatten().flat_map(|a| &a.parts);
    parts.filter_map(|p| p.as_text()).collect()
}

/// Takes the text of a task, which a read task has in one part, apart.
fn chunks_of(task: &Task) -> Vec<String> {
    let text = text_of(task);
    let chunks = text.as_bytes().chunks(CHUNK_SIZE);
    chunks
        .map(|c| String::from_utf8_lossy(c).into_owned())
        .collect()
}

fn first_part(task: Task) -> Option<Part> {
    task.artifacts?.into_iter().next()?.parts.into_iter().next()
}

/// Assembles the events of a stream.
#[derive(Default)]
struct Follower {
    task: TaskId,
    state: TaskState,
    chunks: Vec<String>,
}

impl Follower {
    fn take(&mut self, event: StreamResponse) {
        match event {
            StreamResponse::Task(task) => {
                self.chunks = chunks_of(&task);
                self.task = task.id;
                self.state = task.status.state;
            }
            StreamResponse::StatusUpdate(update) => self.state = update.status.state,
            StreamResponse::ArtifactUpdate(update) => {
                self.chunks.extend(
                    update
                        .artifact
                        .parts
                        .iter()
                        .filter_map(|p| p.as_text())
                        .map(String::from),
                );
            }
            StreamResponse::Message(_) => {}
        }
    }
}

/// Holds if there are n chunks, each beginning with its index.
fn in_order(chunks: &[String], n: usize) -> Outcome {
    for (i, chunk) in chunks.iter().enumerate() {
        if !chunk.starts_with(&format!("{i:08} ")) {
            return Err(format!("chunk {i} is {chunk:?}").into());
        }
    }
    want("chunks", chunks.len(), n)
}

fn want<T: PartialEq + Debug>(what: &str, got: T, expected: T) -> Outcome {
    if got == expected {
        Ok(())
    } else {
        Err(format!("{what}: got {got:?}, want {expected:?}").into())
    }
}

fn refused<T: Debug>(result: Result<T, A2AError>, code: i32) -> Outcome {
    match result {
        Err(e) if e.code == code => Ok(()),
        other => Err(format!("got {other:?}, want {code}").into()),
    }
}
