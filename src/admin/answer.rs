//! What each path of the admin listener answers.
//! Law: no answer waits for anything, and none is cached. Only a POST changes something, and only where it is judged.
//! Next: `accept_task.rs`.

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};

use super::{Admin, Obeyed, Order, Readiness};
use crate::telemetry::instruments;

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

const PATHS: &str = "\
/healthz      200 while the process runs
/readyz       200 when new clients may come, else 503 and the reason
/metrics      OpenMetrics text
/status       how everything stands, for people
/status.json  the same, for programs
/replicas/UPSTREAM/HOST:PORT/drain    POST: no new sessions; the old ones until drain_deadline
/replicas/UPSTREAM/HOST:PORT/undrain  POST: takes that back
";

impl Admin {
    /// Answers one request. Its body, if any, says nothing.
    pub(super) fn answer<B>(&self, request: &Request<B>) -> Response<Bytes> {
        let path = request.uri().path();
        if let Some(order) = ordered(path) {
            return self.obey(order, request);
        }
        let (status, kind, body) = match path {
            "/healthz" => (StatusCode::OK, TEXT, "ok\n".into()),
            "/readyz" => self.readyz(),
            "/metrics" => (
                StatusCode::OK,
                instruments::CONTENT_TYPE,
                self.instruments.encode(),
            ),
            "/status" => (StatusCode::OK, TEXT, (self.desk.status)().text()),
            "/status.json" => (StatusCode::OK, JSON, (self.desk.status)().json()),
            "/" => (StatusCode::OK, TEXT, PATHS.into()),
            _ => (
                StatusCode::NOT_FOUND,
                TEXT,
                format!("Nothing is served here. There is:\n{PATHS}"),
            ),
        };
        if !matches!(*request.method(), Method::GET | Method::HEAD) && status != StatusCode::NOT_FOUND {
            return allows("GET, HEAD", "Only GET and HEAD are served here.\n");
        }
        response(status, kind, body)
    }

    fn readyz(&self) -> (StatusCode, &'static str, String) {
        let state = (self.desk.status)();
        let readiness = state.readiness();
        let status = match readiness {
            Readiness::Ready => StatusCode::OK,
            Readiness::Starting | Readiness::Draining | Readiness::NoHealthyReplica => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        };
        (
            status,
            TEXT,
            format!("{}\n{}", readiness.as_str(), state.wanting()),
        )
    }

    fn obey<B>(&self, order: Order<'_>, request: &Request<B>) -> Response<Bytes> {
        if *request.method() != Method::POST {
            return allows("POST", "Only POST is served here.\n");
        }
        if let Err(status) = (self.desk.judge)(request.version(), request.uri(), request.headers()) {
            let why = "Host or Origin is none of those that may give orders (server.allowed_hosts).\n";
            return response(status, TEXT, why.into());
        }
        match (self.desk.order)(order) {
            Obeyed::Done(what) => response(StatusCode::OK, TEXT, what + "\n"),
            Obeyed::NoSuchReplica(replicas) => {
                let there = replicas.join("\n");
                let why = format!("There is no such replica. There is:\n{there}\n");
                response(StatusCode::NOT_FOUND, TEXT, why)
            }
        }
    }
}

/// The order that a path stands for.
fn ordered(path: &str) -> Option<Order<'_>> {
    let (upstream, rest) = path.strip_prefix("/replicas/")?.split_once('/')?;
    let (replica, what) = rest.split_once('/')?;
    match what {
        "drain" => Some(Order::Drain { upstream, replica }),
        "undrain" => Some(Order::Undrain { upstream, replica }),
        _ => None,
    }
}

fn allows(methods: &'static str, why: &str) -> Response<Bytes> {
    let mut response = response(StatusCode::METHOD_NOT_ALLOWED, TEXT, why.into());
    response
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static(methods));
    response
}

fn response(status: StatusCode, kind: &'static str, body: String) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
        .headers_mut()
        .insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::status::State;

    fn check(state: State, request: (&str, &str), status: u16, part: &str) {
        let admin = Admin::for_tests(&[state], &["mcp"]);
        let (method, path) = request;
        let (path, host) = path.split_once(" from ").unwrap_or((path, "x"));
        let sent = Request::builder().method(method).uri(path).header("host", host);
        let response = admin.answer(&sent.body(()).unwrap());
        let body = String::from_utf8(response.body().to_vec()).unwrap();
        assert_eq!(response.status().as_u16(), status, "{request:?}: {body}");
        assert!(body.contains(part), "{request:?}: {body}");
        assert_eq!(response.headers()[CACHE_CONTROL], "no-store");
        assert_eq!(response.headers().contains_key(ALLOW), status == 405);
    }

    #[test]
    fn paths() {
        let well = State::Healthy;
        check(well, ("GET", "/healthz"), 200, "ok");
        check(State::Unhealthy, ("GET", "/healthz"), 200, "ok");
        check(well, ("GET", "/readyz"), 200, "ready\n");
        check(State::Unproved, ("GET", "/readyz"), 503, "starting\n");
        check(
            State::Unhealthy,
            ("GET", "/readyz"),
            503,
            "no_healthy_replica\nupstream mcp: 127.0.0.1:3001 unhealthy\n",
        );
        check(
            well,
            ("GET", "/metrics"),
            200,
            "throughline_sessions_live{upstream=\"mcp\"} 0",
        );
        check(well, ("HEAD", "/metrics"), 200, "# EOF");
        check(well, ("GET", "/status"), 200, "127.0.0.1:3001 healthy");
        check(well, ("GET", "/status.json"), 200, "\"state\":\"healthy\"");
        check(well, ("GET", "/"), 200, "/readyz");
        check(well, ("GET", "/metrics/"), 404, "/metrics ");
        check(well, ("POST", "/nothing"), 404, "/metrics ");
        check(well, ("POST", "/metrics"), 405, "GET and HEAD");
        check(well, ("DELETE", "/"), 405, "GET and HEAD");
    }

    #[test]
    fn orders_are_posts_from_where_orders_may_come() {
        let check = |request, status, part| check(State::Healthy, request, status, part);
        let drain = "/replicas/mcp/127.0.0.1:3001/drain";
        check(("POST", drain), 200, "Drain");
        check(("POST", "/replicas/mcp/127.0.0.1:3001/undrain"), 200, "Undrain");
        check(("GET", drain), 405, "Only POST");
        check(
            ("POST", "/replicas/mcp/127.0.0.1:3001/drain from evil.example"),
            421,
            "Host",
        );
        check(
            ("POST", "/replicas/mcp/127.0.0.1:9/drain"),
            404,
            "mcp/127.0.0.1:3001",
        );
        check(
            ("POST", "/replicas/other/127.0.0.1:3001/drain"),
            404,
            "no such replica",
        );
        for none in [
            "/replicas",
            "/replicas/mcp/x",
            "/replicas/mcp/x/drain/now",
            "/replicas/mcp/x/kill",
        ] {
            check(("POST", none), 404, "Nothing is served here");
        }
    }
}
