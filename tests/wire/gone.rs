//! "Session gone": how backends say it, how we say it, and what is never taken for it (wire contract, section 2).
//! Law: loss is said in one way, and never for what was executed.
//! Next: `ids.rs`.

use crate::backend::Backend;
use crate::proxy::Proxy;
use crate::session::{Session, another_call, call, failed, says_gone};

/// Here a session ends with its backend's; how it goes on is in `loss.rs`.
const ENDS: &str = "upstream.session.on_session_loss=terminate";

/// What a backend says, and what it means.
struct Case {
    status: u16,
    fields: &'static [(&'static str, &'static str)],
    body: &'static str,
}

const JSON: (&str, &str) = ("content-type", "application/json");

const GONE: [Case; 5] = [
    Case {
        status: 404,
        fields: &[JSON],
        body: r#"{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}"#,
    },
    Case {
        status: 404,
        fields: &[],
        body: "",
    },
    // S7: some answer 400, and leave their clients stuck.
    Case {
        status: 400,
        fields: &[JSON],
        body: r#"{"error":{"message":"Bad Request: No valid session ID provided"}}"#,
    },
    Case {
        status: 400,
        fields: &[JSON],
        body: r#"{"error":{"message":"Bad Request: Server not initialized"}}"#,
    },
    Case {
        status: 401,
        fields: &[],
        body: "Unauthorized: Session not found",
    },
];

const NOT_GONE: [Case; 9] = [
    Case {
        status: 400,
        fields: &[JSON],
        body: r#"{"error":{"message":"Bad Request: Unsupported protocol version"}}"#,
    },
    Case {
        status: 400,
        fields: &[],
        body: "",
    },
    Case {
        status: 400,
        fields: &[],
        body: "no valid session id",
    },
    Case {
        status: 401,
        fields: &[("www-authenticate", "Bearer")],
        body: "Session not found",
    },
    Case {
        status: 401,
        fields: &[],
        body: "token expired",
    },
    Case {
        status: 403,
        fields: &[("www-authenticate", "Bearer scope=\"x\"")],
        body: "Session not found",
    },
    Case {
        status: 410,
        fields: &[],
        body: "Session not found",
    },
    Case {
        status: 500,
        fields: &[],
        body: "Session not found",
    },
    // S8: a server that caps its sessions or is too busy.
    Case {
        status: 503,
        fields: &[("retry-after", "7")],
        body: "No valid session ID",
    },
];

/// S4, S7, S11: loss is whole and said, in the one way that every client understands.
#[test]
fn what_says_that_a_session_is_gone() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[ENDS]);
    for Case { status, fields, body } in GONE {
        let session = Session::open(&proxy, &backend);
        let mut client = session.post(&call("1"));
        backend.next().answer(status, fields, body);
        says_gone(&client.whole());
        session.is_gone();
        assert!(
            backend.is_silent(),
            "after the first 404 nothing of it is ever sent again: {status} {body}"
        );
    }
}

/// Whatever else a backend says is the client's to read, byte for byte, and costs no session.
#[test]
fn what_does_not_say_so_passes_byte_for_byte() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[ENDS]);
    let session = Session::open(&proxy, &backend);
    for Case { status, fields, body } in NOT_GONE {
        let mut client = session.post(&another_call("1"));
        backend.next().answer(status, fields, body);
        let whole = client.whole();
        assert_eq!((whole.head.status(), &*whole.body), (status, body));
        for (name, value) in fields {
            assert_eq!(whole.head.get(name), Some(*value), "{status} {name}");
        }
        session.is_alive(&backend);
    }
}

/// What still runs gets its error, and the standalone stream its end.
#[test]
fn a_session_that_is_gone_takes_its_streams_along() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[ENDS]);
    let session = Session::open(&proxy, &backend);
    let (mut running, mut upstream) = session.streaming_call(&backend, "1");
    let (mut listener, mut standing) = session.listening(&backend);
    let mut client = session.post(&call("2"));
    backend.next().answer(404, &[], "");
    says_gone(&client.whole());
    let error = running.event();
    assert_eq!(
        failed(error.data(), "1"),
        ("backend_lost".into(), "unknown".into())
    );
    assert!(error.id().ends_with('~'));
    running.ended();
    listener.ended();
    upstream.wait_closed();
    standing.wait_closed();
    session.is_gone();
}

/// A 404 on the standalone stream's GET, or on a notification, says it too.
#[test]
fn any_request_of_the_session_may_hear_it() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[ENDS]);
    let session = Session::open(&proxy, &backend);
    let mut client = session.get();
    backend.next_of("GET").answer(404, &[], "");
    says_gone(&client.whole());
    session.is_gone();
    let session = Session::open(&proxy, &backend);
    let mut client = session.post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    backend.next().answer(404, &[], "");
    says_gone(&client.whole());
    session.is_gone();
    let session = Session::open(&proxy, &backend);
    let mut client = session.delete();
    backend.next().answer(404, &[], "");
    says_gone(&client.whole());
    session.is_gone();
    assert!(backend.is_silent());
}

/// A client that does not wait for the answer to its DELETE has ended its session all the same, whatever it left open.
#[test]
fn a_client_that_deletes_and_leaves_ends_its_session() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[ENDS]);
    let session = Session::open(&proxy, &backend);
    let (mut listener, mut standing) = session.listening(&backend);
    let leaving = session.delete();
    let asked = backend.next_of("DELETE");
    leaving.cut();
    session.is_gone();
    asked.answer(200, &[], "");
    listener.ended();
    standing.wait_closed();
    session.is_gone();
}

/// What opens nothing here is answered at once, and tells the backend nothing.
#[test]
fn a_token_that_opens_nothing() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[ENDS]);
    let session = Session::open(&proxy, &backend);
    let changed = {
        let mut bytes = session.token.clone().into_bytes();
        let last = bytes.len() - 10;
        bytes[last] = if bytes[last] == b'A' { b'B' } else { b'A' };
        String::from_utf8(bytes).expect("ASCII")
    };
    let other_kid = session.token.replacen("t1a.", "t1b.", 1);
    let cut = &session.token[..session.token.len() - 4];
    for token in ["nonsense", "t1a.", "backend-session", &changed, &other_kid, cut] {
        for method in ["POST", "GET", "DELETE"] {
            let mut client = proxy.connect();
            let body = if method == "POST" {
                call("1")
            } else {
                String::new()
            };
            client.send(method, &[("mcp-session-id", token)], &body);
            says_gone(&client.whole());
        }
    }
    assert!(backend.is_silent());
    session.is_alive(&backend);
}
