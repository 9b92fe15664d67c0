//! What the official conformance suite and the matrix of SDKs ask of a server, on the official Rust SDK, inside this process.
//! Law: it answers as the SDK does; what stands still is read from `lab/fixture.json`, like the other languages' servers do.
//! It says the same things as they do, about calls that began, ended and were cancelled.
//! Next: `input.rs`, then `../lab/fixture.mjs`.

// Sampling and logging are deprecated as of 2026-07-28, and still what most clients and servers speak.
#![allow(deprecated)]

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestParams, CompleteResult,
    ErrorData, GetPromptRequestParams, GetPromptResponse, GetPromptResult, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ProgressNotificationParam, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult,
    ResourceUpdatedNotificationParam, ServerCapabilities, ServerConfig, SetLevelRequestParams,
    SubscribeRequestParams, UnsubscribeRequestParams,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{RoleServer, ServerHandler};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use crate::input::{Back, to_ask};

/// Time between two messages of the suite's tools.
const PACE: Duration = Duration::from_millis(50);

/// A request's context.
pub(crate) type Context = RequestContext<RoleServer>;
type Answer = Result<Value, ErrorData>;

/// A running server; it ends when it is dropped.
pub(crate) struct RustServer {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// What it says, as the other servers do on their standard output.
    pub(crate) said: mpsc::UnboundedReceiver<Value>,
    task: JoinHandle<()>,
}

impl Drop for RustServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl RustServer {
    /// Starts it on a free loopback port.
    pub(crate) async fn start() -> Result<Self, String> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .map_err(|error| error.to_string())?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let (say, said) = mpsc::unbounded_channel();
        let service: StreamableHttpService<Fixture, LocalSessionManager> = StreamableHttpService::new(
            move || Ok(Fixture { say: say.clone() }),
            LocalSessionManager::default().into(),
            StreamableHttpServerConfig::default(),
        );
        let router = axum::Router::new().nest_service("/mcp", service);
        let task = tokio::spawn(async move {
            let _ended = axum::serve(listener, router).await;
        });
        Ok(Self { address, said, task })
    }
}

/// What stands still.
pub(crate) fn fixture() -> &'static Value {
    static FIXTURE: std::sync::LazyLock<Value> = std::sync::LazyLock::new(|| {
        serde_json::from_str(include_str!("../lab/fixture.json")).expect("the fixture is JSON")
    });
    &FIXTURE
}

fn text(words: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": words }] })
}

/// Puts arguments into `{name}`, wherever a text has it.
fn filled(value: &Value, values: &Value) -> Value {
    match value {
        Value::String(one) => {
            let mut one = one.clone();
            for (name, given) in values.as_object().into_iter().flatten() {
                one = one.replace(&format!("{{{name}}}"), given.as_str().unwrap_or_default());
            }
            Value::String(one)
        }
        Value::Array(list) => list.iter().map(|one| filled(one, values)).collect(),
        Value::Object(map) => map
            .iter()
            .map(|(key, one)| (key.clone(), filled(one, values)))
            .collect(),
        other => other.clone(),
    }
}

/// The SDK's type of something.
pub(crate) fn typed<T: DeserializeOwned>(answer: Value) -> Result<T, ErrorData> {
    serde_json::from_value(answer).map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

/// The SDK's type of a result. It says that it is whole, as those that the SDK makes do; towards older revisions the SDK
/// takes that out.
fn result<T: DeserializeOwned>(mut answer: Value) -> Result<T, ErrorData> {
    answer["resultType"] = json!("complete");
    typed(answer)
}

/// An error of this server's own.
pub(crate) fn failed(error: impl std::fmt::Display) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}

#[derive(Clone)]
struct Fixture {
    say: mpsc::UnboundedSender<Value>,
}

impl Fixture {
    async fn call(&self, name: &str, given: &Value, context: Context) -> Answer {
        match name {
            "test_tool_with_logging" => {
                for words in [
                    "Tool execution started",
                    "Tool processing data",
                    "Tool execution completed",
                ] {
                    log(&context, json!(words)).await?;
                    pace(PACE).await;
                }
                Ok(text("logged"))
            }
            "test_tool_with_progress" => {
                for step in [0, 50, 100] {
                    progress(&context, f64::from(step), 100.0).await?;
                    pace(PACE).await;
                }
                Ok(text("progressed"))
            }
            "test_reconnection" => Ok(text("reconnected")),
            "test_sampling" => sample(given, &context).await,
            "slow" => self.slow(given, &context).await,
            "emit" => Ok(emit(given, context)),
            "touch" => {
                let uri = given["uri"].as_str().unwrap_or_default();
                let updated = ResourceUpdatedNotificationParam::new(uri);
                context
                    .peer
                    .notify_resource_updated(updated)
                    .await
                    .map_err(failed)?;
                Ok(text("touched"))
            }
            "change_tools" => {
                context.peer.notify_tool_list_changed().await.map_err(failed)?;
                Ok(text("changed"))
            }
            _ => match &fixture()["elicitations"][name] {
                Value::Null => Err(ErrorData::invalid_params(format!("Unknown tool: {name}"), None)),
                question => elicit(given, question, &context).await,
            },
        }
    }

    async fn slow(&self, given: &Value, context: &Context) -> Answer {
        let tag = given["tag"].as_str().unwrap_or_default();
        let (steps, interval_ms) = (
            given["steps"].as_f64().unwrap_or(0.0),
            given["interval_ms"].as_f64().unwrap_or(0.0),
        );
        let say = |ev: &str| {
            let _nobody_listens = self.say.send(json!({ "ev": ev, "tag": tag }));
        };
        say("began");
        let mut step = 1.0;
        while step <= steps {
            tokio::select! {
                biased;
                () = context.ct.cancelled() => {
                    say("cancelled");
                    return Ok(text(&format!("{tag}:cancelled")));
                }
                () = pace(Duration::from_secs_f64(interval_ms / 1000.0)) => {}
            }
            progress(context, step, steps).await?;
            step += 1.0;
        }
        say("ended");
        Ok(text(&format!("{tag}:done")))
    }
}

/// A tool's own pause.
async fn pace(time: Duration) {
    sleep_until(Instant::now() + time).await;
}

async fn log(context: &Context, data: Value) -> Result<(), ErrorData> {
    let message = typed(json!({ "level": "info", "data": data }))?;
    context.peer.notify_logging_message(message).await.map_err(failed)
}

async fn progress(context: &Context, step: f64, total: f64) -> Result<(), ErrorData> {
    if let Some(token) = context.meta.get_progress_token() {
        let step = ProgressNotificationParam::new(token, step).with_total(total);
        let _client_gone = context.peer.notify_progress(step).await;
    }
    Ok(())
}

async fn sample(given: &Value, context: &Context) -> Answer {
    let content = json!({ "type": "text", "text": given["prompt"] });
    let question = json!({ "messages": [{ "role": "user", "content": content }], "maxTokens": 100 });
    let answer = context
        .peer
        .create_message(typed(question)?)
        .await
        .map_err(failed)?;
    let answer = serde_json::to_value(answer).map_err(failed)?;
    let content = &answer["content"];
    let words = content.get(0).unwrap_or(content)["text"]
        .as_str()
        .unwrap_or_default();
    Ok(text(&format!("LLM response: {words}")))
}

async fn elicit(given: &Value, question: &Value, context: &Context) -> Answer {
    let mut asked = question.clone();
    if let Some(message) = given.get("message") {
        asked["message"] = message.clone();
    }
    asked["mode"] = json!("form");
    let answer = context
        .peer
        .create_elicitation(typed(asked)?)
        .await
        .map_err(failed)?;
    let answer = serde_json::to_value(answer).map_err(failed)?;
    let action = answer["action"].as_str().unwrap_or_default();
    Ok(text(&format!(
        "User response: action={action}, content={}",
        answer.get("content").unwrap_or(&json!({}))
    )))
}

fn emit(given: &Value, context: Context) -> Value {
    let tag = given["tag"].as_str().unwrap_or_default().to_owned();
    let n = given["n"].as_f64().unwrap_or(0.0) as u64;
    let interval = Duration::from_secs_f64(given["interval_ms"].as_f64().unwrap_or(0.0) / 1000.0);
    let answer = text(&format!("{tag}:emitting"));
    let peer = context.peer;
    tokio::spawn(async move {
        for seq in 1..=n {
            pace(interval).await;
            if let Ok(message) = typed(json!({ "level": "info", "data": { "tag": tag, "seq": seq } })) {
                let _client_gone = peer.notify_logging_message(message).await;
            }
        }
    });
    answer
}

impl ServerHandler for Fixture {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(
            ServerCapabilities::builder()
                .enable_tools()
                .enable_tool_list_changed()
                .enable_resources()
                .enable_resources_subscribe()
                .enable_resources_list_changed()
                .enable_prompts()
                .enable_logging()
                .enable_completions()
                .build(),
        )
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListToolsResult, ErrorData> {
        result(json!({ "tools": fixture()["tools"] }))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        let given = Value::Object(request.arguments.unwrap_or_default());
        let back = Back {
            responses: request.input_responses,
            state: request.request_state,
        };
        if let Some(answer) = fixture()["asks"][&*request.name]["answer"].as_str() {
            return match to_ask(&request.name, &back, &context)? {
                Some(ask) => Ok(ask.into()),
                None => Ok(result::<CallToolResult>(text(answer))?.into()),
            };
        }
        let answer = match &fixture()["results"][&*request.name] {
            Value::Null => self.call(&request.name, &given, context).await?,
            answer => answer.clone(),
        };
        Ok(result::<CallToolResult>(answer)?.into())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListResourcesResult, ErrorData> {
        result(json!({ "resources": fixture()["resources"] }))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        result(json!({ "resourceTemplates": fixture()["templates"] }))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: Context,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let template = request
            .uri
            .strip_prefix("test://template/")
            .and_then(|rest| rest.strip_suffix("/data"));
        let found = match template {
            Some(id) => filled(&fixture()["template"], &json!({ "id": id })),
            None => fixture()["contents"][&*request.uri].clone(),
        };
        if found.is_null() {
            let data = json!({ "uri": request.uri });
            return Err(ErrorData::invalid_params("Resource not found", Some(data)));
        }
        Ok(result::<ReadResourceResult>(json!({ "contents": [found] }))?.into())
    }

    async fn subscribe(&self, _: SubscribeRequestParams, _: Context) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(&self, _: UnsubscribeRequestParams, _: Context) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListPromptsResult, ErrorData> {
        result(json!({ "prompts": fixture()["prompts"] }))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: Context,
    ) -> Result<GetPromptResponse, ErrorData> {
        let back = Back {
            responses: request.input_responses,
            state: request.request_state,
        };
        if let Some(ask) = to_ask(&request.name, &back, &context)? {
            return Ok(ask.into());
        }
        let given = request.arguments.map_or_else(|| json!({}), |given| json!(given));
        match &fixture()["messages"][&*request.name] {
            Value::Null => Err(ErrorData::invalid_params(
                format!("Unknown prompt: {}", request.name),
                None,
            )),
            messages => {
                Ok(result::<GetPromptResult>(json!({ "messages": filled(messages, &given) }))?.into())
            }
        }
    }

    async fn complete(&self, _: CompleteRequestParams, _: Context) -> Result<CompleteResult, ErrorData> {
        result(
            json!({ "completion": { "values": ["paris", "park", "party"], "total": 3, "hasMore": false } }),
        )
    }

    async fn set_level(&self, _: SetLevelRequestParams, _: Context) -> Result<(), ErrorData> {
        Ok(())
    }
}
