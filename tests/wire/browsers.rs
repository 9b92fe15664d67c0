//! What browsers must be told, and what of a server's OAuth passes beside its endpoint (wire contract, section 9).
//! Law: whoever is let in may read every answer, also those that the proxy makes itself; nothing is said twice.
//! Next: `../browser.rs`, where a real one speaks.

use crate::backend::Backend;
use crate::client::Client;
use crate::peer::Head;
use crate::proxy::Proxy;
use crate::session::{PRIMING, Session, call, initialize, initialized, note, result, verdict};

const APP: &str = "https://app.example";
const SETTINGS: [&str; 1] = ["server.allowed_origins=https://app.example"];
const ORIGIN: (&str, &str) = ("origin", APP);
const EXPOSED: &str =
    "Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate, Throughline-Continuity, Retry-After";

/// How often a field stands in a head, and what it says.
fn all<'a>(head: &'a Head, name: &str) -> Vec<&'a str> {
    let named = head.fields.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name));
    named.map(|(_, value)| value.as_str()).collect()
}

/// A page of the application's may read this answer.
#[track_caller]
fn readable(head: &Head) {
    assert_eq!(all(head, "access-control-allow-origin"), [APP], "{head:?}");
    let [exposed] = all(head, "access-control-expose-headers")[..] else {
        panic!("once: {head:?}")
    };
    assert!(exposed.starts_with(EXPOSED), "{exposed}");
    let vary = all(head, "vary").join(",");
    assert_eq!(vary.to_ascii_lowercase().matches("origin").count(), 1, "{vary}");
    assert!(all(head, "access-control-allow-credentials").is_empty());
}

fn ask(proxy: &Proxy, target: &str, method: &str, fields: &[(&str, &str)]) -> Client {
    let mut client = proxy.connect();
    client.send_to(target, method, fields, "");
    client
}

/// A preflight is answered here, for every path that is served, and reaches no backend; whoever is not let in hears nothing.
#[test]
fn preflights_are_answered_here() {
    let backend = Backend::start();
    let settings = [
        SETTINGS[0],
        "upstream.oauth.metadata=pass",
        "upstream.oauth.paths=/token",
    ];
    let proxy = Proxy::start(&[&backend.url()], &settings);
    let asked = [
        ORIGIN,
        ("access-control-request-method", "POST"),
        (
            "access-control-request-headers",
            "authorization,content-type,mcp-session-id,mcp-param-x",
        ),
    ];
    for target in ["/mcp", "/token", "/.well-known/oauth-protected-resource/mcp"] {
        let whole = ask(&proxy, target, "OPTIONS", &asked).whole();
        assert_eq!((whole.head.status(), &*whole.body), (204, ""), "{target}");
        readable(&whole.head);
        assert_eq!(
            all(&whole.head, "access-control-allow-methods"),
            ["GET, POST, DELETE"]
        );
        assert_eq!(
            all(&whole.head, "access-control-allow-headers"),
            ["authorization,content-type,mcp-session-id,mcp-param-x"]
        );
        assert_eq!(all(&whole.head, "access-control-max-age"), ["7200"]);
    }
    let foreign = [("origin", "https://evil.example"), asked[1]];
    let whole = ask(&proxy, "/mcp", "OPTIONS", &foreign).whole();
    assert_eq!(whole.head.status(), 403);
    assert!(all(&whole.head, "access-control-allow-origin").is_empty());
    let whole = ask(&proxy, "/nothing", "OPTIONS", &asked).whole();
    assert_eq!(whole.head.status(), 404);
    assert!(backend.is_silent());
    // One that asks for nothing is the backend's.
    let mut client = ask(&proxy, "/mcp", "OPTIONS", &[ORIGIN]);
    backend
        .next()
        .answer(200, &[("access-control-allow-origin", "*")], "");
    readable(&client.whole().head);
}

/// Every kind of answer, of the backend's and of the proxy's own.
#[test]
fn every_answer_can_be_read() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &SETTINGS);
    let mut client = proxy.connect();
    client.send("POST", &[ORIGIN], &initialize(PRIMING));
    // What the backend says of it itself is replaced, not repeated.
    let fields = [
        ("content-type", "application/json"),
        ("mcp-session-id", "b"),
        ("access-control-allow-origin", "*"),
        ("access-control-expose-headers", "mcp-session-id, X-Own"),
        ("access-control-allow-credentials", "true"),
        ("vary", "Origin"),
    ];
    backend.next().answer(200, &fields, &initialized(PRIMING));
    let whole = client.whole();
    readable(&whole.head);
    assert!(all(&whole.head, "access-control-expose-headers")[0].ends_with("X-Own"));
    let token = whole.head.get("mcp-session-id").expect("a session").to_owned();
    let of_session = |proxy: &Proxy, method: &str, more: &[(&str, &str)], body: &str| {
        let mut client = proxy.connect();
        let mut fields = vec![
            ORIGIN,
            ("mcp-session-id", &*token),
            ("mcp-protocol-version", PRIMING),
        ];
        fields.extend(more);
        client.send(method, &fields, body);
        client
    };
    // A stream, and its resume.
    let mut client = of_session(&proxy, "POST", &[], &call("1"));
    let mut exchange = backend.next_of("POST").stream();
    let head = client.head();
    readable(&head);
    assert_eq!(verdict(&head), "live");
    client.event();
    exchange.event(&note(1));
    let cursor = client.event().id().to_owned();
    client.cut();
    let mut client = of_session(&proxy, "GET", &[("last-event-id", &cursor)], "");
    readable(&client.head());
    // JSON, a refusal of the backend's, a challenge.
    for (status, fields) in [
        (200, &[][..]),
        (400, &[]),
        (401, &[("www-authenticate", "Bearer")]),
    ] {
        let mut client = of_session(&proxy, "POST", &[], &call(&format!("{status}")));
        backend.next_of("POST").answer(status, fields, &result("1"));
        let whole = client.whole();
        assert_eq!(whole.head.status(), status);
        readable(&whole.head);
    }
    // What the proxy says by itself: 404 for a session and a path, 405, an error of ours.
    let mut client = proxy.connect();
    client.send("POST", &[ORIGIN, ("mcp-session-id", "gone")], &call("1"));
    readable(&client.whole().head);
    for (target, method) in [("/nothing", "GET"), ("/mcp", "TRACE")] {
        readable(&ask(&proxy, target, method, &[ORIGIN]).whole().head);
    }
    let mut client = proxy.connect();
    client.send(
        "POST",
        &[ORIGIN, ("mcp-protocol-version", "2026-07-28")],
        &call("9"),
    );
    backend.next_of("POST").cut();
    let whole = client.whole();
    assert_eq!(whole.head.status(), 502);
    readable(&whole.head);
    // A stream without a session.
    let mut client = proxy.connect();
    client.send(
        "POST",
        &[ORIGIN, ("mcp-protocol-version", "2026-07-28")],
        &call("10"),
    );
    let _stream = backend.next_of("POST").stream();
    readable(&client.head());
}

/// Nothing of OAuth passes unless it is said; what passes, passes byte for byte, to the same path.
#[test]
fn what_of_oauth_passes() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    for target in ["/.well-known/oauth-protected-resource", "/token"] {
        assert_eq!(ask(&proxy, target, "GET", &[]).whole().head.status(), 404);
    }
    assert!(backend.is_silent());
    drop(proxy);
    let settings = ["upstream.oauth.metadata=pass", "upstream.oauth.paths=/token"];
    let proxy = Proxy::start(&[&backend.url()], &settings);
    let document = format!(r#"{{"resource":"http://{}/mcp"}}"#, backend.address);
    for target in [
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-protected-resource/mcp",
        "/.well-known/oauth-authorization-server",
        "/.well-known/oauth-authorization-server/issuer?a=1",
        "/.well-known/openid-configuration",
        "/mcp/.well-known/openid-configuration",
    ] {
        let mut client = ask(&proxy, target, "GET", &[("authorization", "Bearer x")]);
        let exchange = backend.next();
        assert_eq!(
            (exchange.head.target(), exchange.head.get("authorization")),
            (target, Some("Bearer x"))
        );
        exchange.answer(
            200,
            &[("content-type", "application/json"), ("etag", "\"1\"")],
            &document,
        );
        let whole = client.whole();
        assert_eq!(
            (&*whole.body, whole.head.get("etag")),
            (&*document, Some("\"1\""))
        );
    }
    // A form, even if it looks like a message, is nothing but a form.
    let mut client = proxy.connect();
    client.send_to(
        "/token",
        "POST",
        &[("mcp-protocol-version", "2026-07-28")],
        &initialize(PRIMING),
    );
    let exchange = backend.next();
    assert_eq!(
        (exchange.head.target(), &*exchange.body),
        ("/token", &*initialize(PRIMING))
    );
    exchange.answer(
        302,
        &[
            ("location", "https://app.example/cb?code=1"),
            ("mcp-session-id", "b"),
        ],
        "",
    );
    let whole = client.whole();
    assert_eq!(
        (
            whole.head.status(),
            whole.head.get("location"),
            whole.head.get("mcp-session-id")
        ),
        (302, Some("https://app.example/cb?code=1"), None)
    );
    // Host and Origin first, here too.
    let whole = ask(&proxy, "/token", "GET", &[("host", "evil.example")]).whole();
    assert_eq!(whole.head.status(), 421);
    assert!(backend.is_silent());
}

/// With a public address, the server's own is nowhere to be seen: in metadata, and in the challenge that leads there.
#[test]
fn the_public_address_stands_for_the_servers_own() {
    let backend = Backend::start();
    let own = format!("http://{}", backend.address);
    let settings = [
        "upstream.oauth.metadata=pass",
        "upstream.oauth.public_url=https://mcp.example.com/",
        "upstream.path=/tools/mcp",
        "upstream.oauth.paths=/register",
    ];
    let proxy = Proxy::start(&[&backend.url()], &settings);
    let mut client = ask(
        &proxy,
        "/.well-known/oauth-protected-resource/tools/mcp",
        "GET",
        &[],
    );
    let exchange = backend.next();
    assert_eq!(
        exchange.head.target(),
        "/.well-known/oauth-protected-resource/mcp"
    );
    let document = format!(
        r#"{{ "resource":"{own}/mcp", "authorization_servers":["{own}","https://auth.example"],"scopes_supported":["a"] }}"#
    );
    exchange.answer(
        200,
        &[("content-type", "application/json"), ("etag", "\"1\"")],
        &document,
    );
    let whole = client.whole();
    assert_eq!(
        whole.body,
        r#"{ "resource":"https://mcp.example.com/tools/mcp", "authorization_servers":["https://mcp.example.com","https://auth.example"],"scopes_supported":["a"] }"#
    );
    assert_eq!(whole.head.get("etag"), None);
    let challenge = format!(
        r#"Bearer error="invalid_token", resource_metadata="{own}/.well-known/oauth-protected-resource/mcp""#
    );
    let published = r#"Bearer error="invalid_token", resource_metadata="https://mcp.example.com/.well-known/oauth-protected-resource/tools/mcp""#;
    for (version, body) in [("2026-07-28", call("1")), (PRIMING, initialize(PRIMING))] {
        let mut client = proxy.connect();
        client.send_to("/tools/mcp", "POST", &[("mcp-protocol-version", version)], &body);
        let exchange = backend.next();
        assert_eq!(exchange.head.target(), "/mcp");
        exchange.answer(401, &[("www-authenticate", &challenge)], "{}");
        let whole = client.whole();
        assert_eq!(
            (whole.head.status(), whole.head.get("www-authenticate")),
            (401, Some(published)),
            "{version}"
        );
    }
    // What is no metadata passes as it is.
    let mut client = proxy.connect();
    client.send_to("/register", "POST", &[], r#"{"redirect_uris":[]}"#);
    let registered = format!(r#"{{"registration_client_uri":"{own}/register/1"}}"#);
    backend.next().json(&registered);
    assert_eq!(client.whole().body, registered);
}

/// Without one they pass untouched.
#[test]
fn without_a_public_address_nothing_is_changed() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.oauth.metadata=pass"]);
    let challenge = format!(r#"Bearer resource_metadata="http://{}/x""#, backend.address);
    let session = Session::open(&proxy, &backend);
    let mut client = session.post(&call("1"));
    backend
        .next_of("POST")
        .answer(401, &[("www-authenticate", &challenge)], "");
    assert_eq!(client.whole().head.get("www-authenticate"), Some(&*challenge));
}
