//! An agent that obeys the contract of docs/torture.md, on turul-a2a: rust PORT [memory | database].
//!
//! The database is that of DATABASE_URL, such as postgres://user:password@host/name. The name of the caller is the bearer token.

use std::{env, sync::Arc, time::Duration};

use turul_a2a::card_builder::AgentSkillBuilder;
use turul_a2a::middleware::{A2aMiddleware, AuthIdentity, MiddlewareError, RequestContext};
use turul_a2a::prelude::*;
use turul_a2a::server::A2aServerBuilder;
use turul_a2a::storage::InMemoryA2aStorage;
use turul_a2a::storage::postgres::{PostgresA2aStorage, PostgresConfig};
use turul_a2a_proto::AgentCard;
use turul_a2a_types::Role;

/// How long the tasks of a server that died stay its own.
const LEASE: Duration = Duration::from_secs(10);

struct Agent {
    url: String,
}

#[async_trait::async_trait]
impl AgentExecutor for Agent {
    async fn execute(&self, task: &mut Task, message: &Message, ctx: &ExecutionContext) -> Result<(), A2aError> {
        let parts = message.text_parts();
        let said = parts.first().copied().unwrap_or_default();
        let answers = task.history().iter().filter(|m| m.role == turul_a2a_proto::Role::User as i32).count() > 1;
        if answers {
            emit(ctx, message.message_id(), format!("You said: {said}"), false, true).await?;
        }
        if let Some(question) = said.strip_prefix("torture ask ") {
            let question = Message::new(format!("{}-asks", message.message_id()), Role::Agent, vec![Part::text(question)]);
            ctx.events.require_input(Some(question)).await?;
            return Ok(());
        }
        if !answers {
            tokio::select! {
                done = perform(said, ctx) => done?,
                () = ctx.cancellation.cancelled() => {
                    ctx.events.cancelled(None).await?;
                    return Ok(());
                }
            }
        }
        ctx.events.complete(None).await?;
        Ok(())
    }

    fn agent_card(&self) -> AgentCard {
        AgentCardBuilder::new("torture", "1")
            .description("Obeys the contract of docs/torture.md.")
            .url(format!("{}/jsonrpc", self.url), "JSONRPC", "1.0")
            .url(&self.url, "HTTP+JSON", "1.0")
            .streaming(true)
            .push_notifications(true)
            .default_input_modes(vec!["text/plain"])
            .default_output_modes(vec!["text/plain"])
            .skill(AgentSkillBuilder::new("torture", "Torture", "Follows a script.").tags(vec!["test"]).build())
            .build()
            .expect("the card is complete")
    }
}

async fn perform(script: &str, ctx: &ExecutionContext) -> Result<(), A2aError> {
    let mut words = script.splitn(3, ' ').skip(1);
    let (verb, rest) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let numbers = || -> Vec<u64> { rest.split(' ').map(|n| n.parse().unwrap_or_default()).collect() };
    match (verb, numbers().as_slice()) {
        ("echo", _) => emit(ctx, "echo", rest.to_owned(), false, true).await?,
        ("chunks", &[count, size, pause]) => {
            for i in 0..count {
                if i > 0 {
                    tokio::time::sleep(Duration::from_millis(pause)).await;
                }
                let text = format!("{i:08}{}", ".".repeat((size as usize).saturating_sub(8)));
                emit(ctx, "chunks", text, i > 0, i == count - 1).await?;
            }
        }
        ("sleep", &[ms]) => tokio::time::sleep(Duration::from_millis(ms)).await,
        ("hold", _) => std::future::pending().await,
        _ => {}
    }
    Ok(())
}

async fn emit(ctx: &ExecutionContext, id: &str, text: String, append: bool, last: bool) -> Result<(), A2aError> {
    ctx.events.emit_artifact(Artifact::new(id, vec![Part::text(text)]), append, last).await?;
    Ok(())
}

/// Believes the name in a bearer token.
struct Callers;

#[async_trait::async_trait]
impl A2aMiddleware for Callers {
    async fn before_request(&self, ctx: &mut RequestContext) -> Result<(), MiddlewareError> {
        if let Some(owner) = ctx.bearer_token.clone() {
            ctx.identity = AuthIdentity::Authenticated { owner, claims: None };
        }
        Ok(())
    }
}

async fn stored(server: A2aServerBuilder, store: &str) -> Result<A2aServerBuilder, Box<dyn std::error::Error>> {
    if store == "memory" {
        let storage = InMemoryA2aStorage::new().with_push_dispatch_enabled(true);
        return Ok(server.storage(storage.clone()).push_delivery_store(storage));
    }
    let config = PostgresConfig { database_url: env::var("DATABASE_URL")?, ..Default::default() };
    let storage = PostgresA2aStorage::new(config).await?.with_push_dispatch_enabled(true);
    Ok(server.storage(storage.clone()).push_delivery_store(storage).executor_lease(LEASE))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = env::args().collect();
    let port: u16 = args[1].parse()?;
    let server = A2aServer::builder()
        .executor(Agent { url: format!("http://127.0.0.1:{port}") })
        .middleware(Arc::new(Callers))
        .allow_insecure_push_urls(true) // the receiver of the test is on this machine
        .bind(([127, 0, 0, 1], port));
    stored(server, args.get(2).map_or("memory", String::as_str)).await?.build()?.run().await?;
    Ok(())
}
