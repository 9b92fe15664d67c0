//! What each path of the admin listener answers.
//! Law: no answer waits for anything, and none is cached.
//! Next: `accept_task.rs`.

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Method, Response, StatusCode};

use super::{Admin, Readiness};
use crate::telemetry::instruments;

const TEXT: &str = "text/plain; charset=utf-8";

const PATHS: &str = "\
/healthz  200 while the process runs
/readyz   200 when new clients may come, else 503 and the reason
/metrics  OpenMetrics text
";

impl Admin {
    /// Answers one request.
    pub(super) fn answer(&self, method: &Method, path: &str) -> Response<Bytes> {
        let (status, kind, body) = match path {
            "/healthz" => (StatusCode::OK, TEXT, "ok\n".into()),
            "/readyz" => self.readyz(),
            "/metrics" => (
                StatusCode::OK,
                instruments::CONTENT_TYPE,
                self.instruments.encode(),
            ),
            "/" => (StatusCode::OK, TEXT, PATHS.into()),
            _ => (
                StatusCode::NOT_FOUND,
                TEXT,
                format!("Nothing is served here. There is:\n{PATHS}"),
            ),
        };
        if !matches!(*method, Method::GET | Method::HEAD) && status != StatusCode::NOT_FOUND {
            let mut response = response(
                StatusCode::METHOD_NOT_ALLOWED,
                TEXT,
                "Only GET and HEAD are served here.\n".into(),
            );
            response
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        response(status, kind, body)
    }

    fn readyz(&self) -> (StatusCode, &'static str, String) {
        let readiness = (self.readiness)();
        let status = match readiness {
            Readiness::Ready => StatusCode::OK,
            Readiness::Draining | Readiness::NoHealthyReplica => StatusCode::SERVICE_UNAVAILABLE,
        };
        (status, TEXT, format!("{}\n", readiness.as_str()))
    }
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
    use std::sync::Arc;

    use super::*;
    use crate::telemetry::instruments::{Instruments, Labelled};

    fn check(readiness: Readiness, request: (&str, &str), status: u16, part: &str) {
        let upstream = Labelled {
            name: "mcp",
            replicas: Vec::new(),
        };
        let admin = Admin::new(Arc::new(Instruments::new(&[upstream])), move || readiness.clone());
        let (method, path) = request;
        let response = admin.answer(&method.parse().unwrap(), path);
        let body = String::from_utf8(response.body().to_vec()).unwrap();
        assert_eq!(response.status().as_u16(), status, "{request:?}: {body}");
        assert!(body.contains(part), "{request:?}: {body}");
        assert_eq!(response.headers()[CACHE_CONTROL], "no-store");
        assert_eq!(response.headers().contains_key(ALLOW), status == 405);
    }

    #[test]
    fn paths() {
        check(Readiness::Ready, ("GET", "/healthz"), 200, "ok");
        check(Readiness::Draining, ("GET", "/healthz"), 200, "ok");
        check(Readiness::Ready, ("GET", "/readyz"), 200, "ready");
        check(Readiness::Draining, ("GET", "/readyz"), 503, "draining");
        check(
            Readiness::NoHealthyReplica,
            ("GET", "/readyz"),
            503,
            "no_healthy_replica",
        );
        check(
            Readiness::Ready,
            ("GET", "/metrics"),
            200,
            "throughline_sessions_live{upstream=\"mcp\"} 0",
        );
        check(Readiness::Ready, ("HEAD", "/metrics"), 200, "# EOF");
        check(Readiness::Ready, ("GET", "/"), 200, "/readyz");
        check(Readiness::Ready, ("GET", "/metrics/"), 404, "/metrics ");
        check(Readiness::Ready, ("POST", "/nothing"), 404, "/metrics ");
        check(Readiness::Ready, ("POST", "/metrics"), 405, "GET and HEAD");
        check(Readiness::Ready, ("DELETE", "/"), 405, "GET and HEAD");
    }
}
