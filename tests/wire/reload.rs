//! The configuration is read again while everything runs: by SIGHUP, or since its file changed.
//! Law: no stream is touched; a bad file changes nothing and all its problems are in the log; what needs a restart is
//! named.
//! Next: `by_hand.rs`.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::backend::Backend;
use crate::proxy::Proxy;
use crate::session::{Session, call, failed, message, note, result};
use crate::status::{ask, metric, replica, status};

/// A directory with a configuration; gone with the test.
struct Files {
    dir: PathBuf,
}

impl Files {
    fn new(name: &str) -> Self {
        let dir =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("reload-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory");
        Self { dir }
    }

    fn config(&self) -> PathBuf {
        self.dir.join("throughline.toml")
    }

    /// Puts this configuration there: replicas of the one upstream, and what else is said.
    fn write(&self, replicas: &[&Backend], server: &str, upstream: &str) {
        fs::write(self.config(), text(replicas, server, upstream)).expect("a file");
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn text(replicas: &[&Backend], server: &str, upstream: &str) -> String {
    let replicas: Vec<String> = replicas.iter().map(|one| format!("\"{}\"", one.url())).collect();
    format!(
        "[log]\nformat = \"json\"\nfilter = \"throughline=debug\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [server]\nlisten = \"127.0.0.1:0\"\nworkers = 2\n{server}\n\
         [[upstream]]\nname = \"mcp\"\nreplicas = [{}]\n{upstream}\n",
        replicas.join(", ")
    )
}

fn reloaded(proxy: &Proxy) -> String {
    let line = proxy.logged("configuration was reloaded");
    line["outcome"].as_str().expect("an outcome").to_owned()
}

fn forgotten(proxy: &Proxy) {
    proxy.logged("replica was forgotten");
}

/// A replica comes, settings change; calls and streams that run do not notice.
#[test]
fn streams_live_through_a_reload() {
    let (one, two) = (Backend::start(), Backend::start());
    let files = Files::new("streams");
    files.write(&[&one], "", "");
    let proxy = Proxy::configured(&files.config());
    let operator = proxy.operator();
    let session = Session::open(&proxy, &one);
    let (mut client, mut exchange) = session.streaming_call(&one, "1");
    let (mut listener, mut standing) = session.listening(&one);
    exchange.event(&note(1));
    message(&mut client, &note(1));
    files.write(
        &[&one, &two],
        "head_timeout = \"5s\"\nallowed_hosts = [\"a.example\"]",
        "balance = \"least_sessions\"\n[upstream.stream]\nreplay_events_max = 5\n[upstream.exchange]\nconnect_timeout = \"3s\"\n[memory]\nreplay_max = \"64MiB\"",
    );
    proxy.signal("-HUP");
    let added = proxy.logged("replica was added");
    assert_eq!(
        (&added["upstream"], &added["replica"]),
        (&"mcp".into(), &(*two.address.to_string()).into())
    );
    assert_eq!(reloaded(&proxy), "applied");
    for n in 2..5 {
        exchange.event(&note(n));
        message(&mut client, &note(n));
        standing.event(&note(n));
        message(&mut listener, &note(n));
    }
    exchange.event(&result("1"));
    message(&mut client, &result("1"));
    client.ended();
    exchange.finish();
    session.is_alive(&one);
    // The new replica has the fewest sessions; the new name is welcome.
    let new = Session::open(&proxy, &two);
    new.is_alive(&two);
    let mut named = new.send("POST", &[("host", "a.example")], &call("5"));
    two.next_of("POST").json(&result("5"));
    assert_eq!(named.whole().body, result("5"));
    // A setting of streams holds for the next one: the window is 5.
    let (streamed, mut exchange) = new.streaming_call(&two, "6");
    exchange.event(&result("6"));
    drop(streamed);
    let status = status(operator);
    assert_eq!(status["memory"]["budget"], 64 << 20);
    assert_eq!(status["config"], *files.config().to_str().expect("UTF-8"));
    assert_eq!(
        status["upstreams"][0]["replicas"]
            .as_array()
            .expect("replicas")
            .len(),
        2
    );
    let applied = "throughline_config_reload_total{outcome=\"applied\"}";
    assert_eq!(metric(operator, applied).as_deref(), Some("1"));
}

/// What is wrong with it is in the log, all of it, and everything goes on under the old one.
#[test]
fn a_bad_file_is_refused_and_the_old_one_holds() {
    let backend = Backend::start();
    let files = Files::new("bad");
    files.write(&[&backend], "", "");
    let proxy = Proxy::configured(&files.config());
    let operator = proxy.operator();
    let session = Session::open(&proxy, &backend);
    files.write(&[&backend], "head_timout = \"5s\"", "balance = \"best\"");
    proxy.signal("-HUP");
    let (mut found, message) = (Vec::new(), "configuration was refused; the old one holds");
    for key in ["server.head_timout", "upstream[0].balance"] {
        found.push(proxy.logged_with("key", key));
    }
    assert_eq!(found[0]["message"], "unknown key");
    assert!(
        found[0]["place"]
            .as_str()
            .expect("a place")
            .contains("throughline.toml:9"),
        "{}",
        found[0]
    );
    assert_eq!(proxy.logged(message)["outcome"], "refused");
    let refused = "throughline_config_reload_total{outcome=\"refused\"}";
    assert_eq!(metric(operator, refused).as_deref(), Some("1"));
    session.is_alive(&backend);
    Session::open(&proxy, &backend).is_alive(&backend);
    // Put right, it is taken by itself, without a signal.
    files.write(&[&backend], "head_timeout = \"5s\"", "");
    assert_eq!(reloaded(&proxy), "applied");
    proxy.signal("-HUP");
    assert_eq!(reloaded(&proxy), "unchanged");
}

/// A mounted configuration changes by a link that is turned.
#[test]
#[cfg(unix)]
fn a_link_that_is_turned_is_a_change() {
    use std::os::unix::fs::symlink;
    let (one, two) = (Backend::start(), Backend::start());
    let files = Files::new("link");
    for (name, replicas) in [("v1", vec![&one]), ("v2", vec![&one, &two])] {
        let dir = files.dir.join(name);
        fs::create_dir_all(&dir).expect("a directory");
        fs::write(dir.join("throughline.toml"), text(&replicas, "", "")).expect("a file");
    }
    let turn = |to: &str| {
        let next = files.dir.join("..next");
        symlink(to, &next).expect("a link");
        fs::rename(&next, files.dir.join("..data")).expect("it is turned");
    };
    turn("v1");
    symlink("..data/throughline.toml", files.config()).expect("a link");
    let proxy = Proxy::configured(&files.config());
    let _session = Session::open(&proxy, &one);
    turn("v2");
    assert_eq!(reloaded(&proxy), "applied");
    Session::open(&proxy, &two).is_alive(&two);
}

#[test]
fn what_needs_a_restart_is_named_and_the_rest_holds() {
    let (one, two) = (Backend::start(), Backend::start());
    let files = Files::new("restart");
    files.write(&[&one], "", "");
    let proxy = Proxy::configured(&files.config());
    let session = Session::open(&proxy, &one);
    files.write(&[&one, &two], "", "sessions = \"none\"");
    let changed = fs::read_to_string(files.config()).expect("a file");
    let changed = changed.replace("workers = 2", "workers = 1");
    let changed = changed.replace(
        "[server]\nlisten = \"127.0.0.1:0\"",
        "[server]\nlisten = \"127.0.0.1:1\"",
    );
    fs::write(files.config(), changed).expect("a file");
    proxy.signal("-HUP");
    let keys: Vec<Value> = (0..3)
        .map(|_| proxy.logged("a change needs a restart")["key"].clone())
        .collect();
    assert_eq!(keys, ["server.listen", "server.workers", "upstream.mcp.sessions"]);
    assert_eq!(reloaded(&proxy), "partly");
    session.is_alive(&one);
    Session::open(&proxy, &two).is_alive(&two);
}

/// A replica that is taken out is drained, and comes back as the one that it was.
#[test]
fn a_replica_that_leaves_the_file_is_drained() {
    let (one, two) = (Backend::start(), Backend::start());
    let files = Files::new("leaves");
    files.write(&[&one, &two], "", "");
    let proxy = Proxy::configured(&files.config());
    let operator = proxy.operator();
    let session = Session::open(&proxy, &one);
    let (mut client, mut exchange) = session.streaming_call(&one, "1");
    files.write(&[&two], "", "");
    proxy.signal("-HUP");
    proxy.logged("replica was taken out of the configuration");
    assert_eq!(reloaded(&proxy), "applied");
    assert_eq!(replica(operator, &one)["state"], "draining");
    for _ in 0..3 {
        Session::open(&proxy, &two).is_alive(&two);
    }
    exchange.event(&note(1));
    message(&mut client, &note(1));
    session.is_alive(&one);
    // Back again: the drain is off.
    files.write(&[&one, &two], "", "");
    proxy.signal("-HUP");
    assert_eq!(reloaded(&proxy), "applied");
    assert_eq!(replica(operator, &one)["state"], "healthy");
    Session::open(&proxy, &one).is_alive(&one);
    // Gone for good, with a deadline that has passed at once: each call is told, and the replica is forgotten.
    let upstream = "drain_deadline = \"0s\"\nsession = { on_session_loss = \"terminate\" }";
    files.write(&[&two], "", upstream);
    proxy.signal("-HUP");
    assert_eq!(
        failed(client.event().data(), "1"),
        ("backend_lost".into(), "unknown".into())
    );
    assert_eq!(
        proxy.logged("replica was drained; sessions were lost")["sessions"],
        2
    );
    session.is_gone();
    forgotten(&proxy);
    let seen = ask(operator, "GET", "/status").body;
    assert!(!seen.contains(&one.address.to_string()), "{seen}");
    let metrics = ask(operator, "GET", "/metrics").body;
    assert!(!metrics.contains(&one.address.to_string()));
}

/// One whose drain was over when it left, and one whose probes failed when they were turned off.
#[test]
fn what_was_said_of_a_replica_before_is_not_kept_for_ever() {
    let (one, two) = (Backend::start(), Backend::start());
    let files = Files::new("before");
    let probing =
        "drain_deadline = \"0s\"\n[upstream.health]\nprobe = \"/healthz\"\nfall = 1\ninterval = \"1h\"";
    files.write(&[&one, &two], "", probing);
    let proxy = Proxy::configured(&files.config());
    let operator = proxy.operator();
    one.next_of("GET").answer(200, &[], "");
    two.next_of("GET").answer(500, &[], "");
    proxy.logged("replica became unhealthy");
    let whole = ask(operator, "POST", &format!("/replicas/mcp/{}/drain", one.address));
    assert_eq!(whole.head.status(), 200);
    proxy.logged("replica was drained");
    let probing = probing.replace("/healthz", "off");
    files.write(&[&two], "", &probing);
    proxy.signal("-HUP");
    assert_eq!(reloaded(&proxy), "applied");
    assert_eq!(replica(operator, &two)["state"], "healthy");
    Session::open(&proxy, &two).is_alive(&two);
    let seen = ask(operator, "GET", "/status").body;
    assert!(!seen.contains(&one.address.to_string()), "{seen}");
}

/// A file that is missing when it is named first: it is waited for.
#[test]
fn a_file_that_comes_later_is_seen() {
    let (one, two) = (Backend::start(), Backend::start());
    let files = Files::new("later");
    files.write(&[&one], "[secret]\nenv = \"THROUGHLINE_SECRET\"", "");
    let proxy = Proxy::configured(&files.config());
    files.write(&[&one, &two], "[secret]\nfile = \"late\"", "");
    proxy.signal("-HUP");
    assert_eq!(proxy.logged_with("key", "secret.file")["level"], "ERROR");
    proxy.logged("configuration was refused; the old one holds");
    fs::write(files.dir.join("late"), "a secret that comes late").expect("a file");
    assert_eq!(reloaded(&proxy), "applied");
}

/// The secret is changed without ending a session: the old one is kept as an older one.
#[test]
fn a_secret_is_changed_while_sessions_live() {
    let backend = Backend::start();
    let files = Files::new("secret");
    for (name, secret) in [
        ("old", "an old secret of many bytes"),
        ("new", "a new secret of many bytes"),
    ] {
        fs::write(files.dir.join(name), secret).expect("a file");
    }
    files.write(&[&backend], "[secret]\nfile = \"old\"\nkid = \"x\"", "");
    let proxy = Proxy::configured(&files.config());
    let session = Session::open(&proxy, &backend);
    assert!(session.token.starts_with("t1x."), "{}", session.token);
    let ring = "[secret]\nfile = \"new\"\nkid = \"y\"\n[[secret.older]]\nfile = \"old\"\nkid = \"x\"";
    files.write(&[&backend], ring, "");
    proxy.signal("-HUP");
    assert_eq!(reloaded(&proxy), "applied");
    let new = Session::open(&proxy, &backend);
    assert!(new.token.starts_with("t1y."), "{}", new.token);
    new.is_alive(&backend);
    session.is_alive(&backend);
    // A cursor of before is understood, and so is one of after.
    let (mut client, mut exchange) = session.streaming_call(&backend, "1");
    exchange.event(&note(1));
    let cursor = message(&mut client, &note(1)).id().to_owned();
    client.cut();
    session.client_left(&proxy);
    let mut client = session.resume(&cursor);
    assert_eq!(crate::session::verdict(&client.head()), "resumed 1 0");
}

/// Log lines follow too.
#[test]
fn the_filter_of_log_lines_is_changed() {
    let backend = Backend::start();
    let files = Files::new("filter");
    files.write(&[&backend], "", "");
    let proxy = Proxy::configured(&files.config());
    let loud = fs::read_to_string(files.config()).expect("a file");
    let quiet = loud
        .replace("throughline=debug", "warn")
        .replace("workers = 2", "workers = 1");
    fs::write(files.config(), quiet).expect("a file");
    proxy.signal("-HUP");
    proxy.logged("a change needs a restart");
    // Nothing is said of it but what is worth a warning: not that it was reloaded.
    files.write(&[&backend], "workers_ = 1", "");
    proxy.signal("-HUP");
    proxy.logged("configuration was refused; the old one holds");
    assert!(!proxy.has_logged("configuration was reloaded"));
    files.write(&[&backend], "", "");
    proxy.signal("-HUP");
    assert_eq!(reloaded(&proxy), "applied");
}

/// A server comes, with a path of its own; one goes: its sessions until the deadline, and no new one.
#[test]
fn servers_come_and_go() {
    let (one, two) = (Backend::start(), Backend::start());
    let files = Files::new("servers");
    files.write(&[&one], "", "");
    let proxy = Proxy::configured(&files.config());
    let operator = proxy.operator();
    let session = Session::open(&proxy, &one);
    let (mut client, mut exchange) = session.streaming_call(&one, "1");
    let other = format!(
        "[[upstream]]\nname = \"tools\"\npath = \"/tools\"\nreplicas = [\"{}\"]",
        two.url()
    );
    files.write(&[&one], "", &other);
    proxy.signal("-HUP");
    assert_eq!(reloaded(&proxy), "applied");
    let initialize = crate::session::initialize(crate::session::PRIMING);
    let mut tools = proxy.connect();
    tools.send_to("/tools", "POST", &[], &initialize);
    let fields = [("content-type", "application/json"), ("mcp-session-id", "own")];
    two.next_of("POST").answer(
        200,
        &fields,
        &crate::session::initialized(crate::session::PRIMING),
    );
    let token = tools
        .whole()
        .head
        .get("mcp-session-id")
        .expect("a session")
        .to_owned();
    let opened = "throughline_sessions_opened_total{upstream=\"tools\"}";
    assert_eq!(metric(operator, opened).as_deref(), Some("1"));
    assert_eq!(status(operator)["upstreams"][1]["path"], "/tools");

    // The first one goes, and the second one gets its path.
    let whole = fs::read_to_string(files.config()).expect("a file");
    let (head, _) = whole.split_once("[[upstream]]").expect("an upstream");
    fs::write(
        files.config(),
        format!("{head}{}", other.replace("/tools", "/mcp")),
    )
    .expect("a file");
    proxy.signal("-HUP");
    assert_eq!(proxy.logged("replica is being drained")["upstream"], "mcp");
    assert_eq!(reloaded(&proxy), "applied");
    let mut moved = proxy.connect();
    moved.send("POST", &[("mcp-session-id", &token)], &call("2"));
    two.next_of("POST").json(&result("2"));
    assert_eq!(moved.whole().body, result("2"));
    exchange.event(&note(1));
    message(&mut client, &note(1));
    exchange.event(&result("1"));
    message(&mut client, &result("1"));
    client.ended();
    assert_eq!(replica(operator, &one)["state"], "draining");
    proxy.signal("-HUP");
    assert_eq!(reloaded(&proxy), "unchanged");
}
