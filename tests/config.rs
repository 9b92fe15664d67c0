//! The files in `config/`, and whole configurations with everything wrong with them, through the public door.
//! Law: every file in `config/` is loaded here; what an operator reads is compared literally.
//! Next: `cli.rs`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use throughline::config::resolved::Config;
use throughline::config::{self, Flags, Problems, Warning};

fn no_variable(_: &str) -> Option<OsString> {
    None
}

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("config").join(name)
}

/// A directory of this test's own, gone when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("throughline-config-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn read(config: Option<PathBuf>, flags: &[(&str, &str)]) -> Result<(Config, Vec<Warning>), Problems> {
    let mut all = Flags {
        config,
        ..Flags::default()
    };
    for (flag, value) in flags {
        let value = (*value).to_owned();
        match *flag {
            "--listen" => all.listen.push(value),
            "--upstream" => all.upstreams.push(value),
            "--admin" => all.admin = Some(value),
            "--secret-file" => all.secret_file = Some(value.into()),
            "--set" => all.set.push(value),
            other => panic!("no flag {other}"),
        }
    }
    config::read_in(&all, &no_variable)
}

#[test]
fn every_file_in_config_is_good() {
    let mut seen = 0;
    for entry in std::fs::read_dir(shipped("")).unwrap() {
        let path = entry.unwrap().path();
        if let Err(problems) = read(Some(path.clone()), &[]) {
            panic!("{}:\n{problems}", path.display());
        }
        seen += 1;
    }
    assert!(seen >= 2, "config/ has {seen} files");
}

#[test]
fn full_says_the_defaults() {
    let (full, _) = read(Some(shipped("full.toml")), &[]).unwrap();
    let (minimal, _) = read(Some(shipped("minimal.toml")), &[]).unwrap();
    // But for where it was read from.
    let plain = |config: Config| {
        let (source, files) = (None, Vec::new());
        format!(
            "{:#?}",
            Config {
                source,
                files,
                ..config
            }
        )
    };
    let full = plain(full);
    assert_eq!(full, plain(minimal));
    let flags = [
        ("--upstream", "http://127.0.0.1:3001/mcp"),
        ("--upstream", "http://127.0.0.1:3002/mcp"),
    ];
    let (flagged, _) = read(None, &flags).unwrap();
    assert_eq!(full, plain(flagged));
}

/// A file, and the whole of what the operator is told, with the file's name as `FILE`.
fn check(name: &str, text: &str, expected: &str) {
    let scratch = Scratch::new(name);
    let path = scratch.file("x.toml", text);
    let said = match read(Some(path.clone()), &[]) {
        Ok((_, warnings)) => warnings.iter().map(ToString::to_string).collect::<String>(),
        Err(problems) => problems.to_string(),
    };
    let said = said
        .replace(&path.display().to_string(), "FILE")
        .replace(&scratch.0.display().to_string(), "DIR");
    assert_eq!(said.trim_end(), expected.trim(), "\n{said}");
}

#[test]
fn an_operator_reads_every_problem_at_once() {
    check(
        "all-at-once",
        r#"[server]
listen = "localhost:8080"
body_bytes_max = "8mb"
[[upstream]]
replicas = ["127.0.0.1:3001"]
[upstream.stream]
keepalve = "15s"
retry = 1000
"#,
        r#"
error: FILE:2:10: server.listen: `localhost:8080` is not an address and a port
    |
  2 | listen = "localhost:8080"
    |          ^^^^^^^^^^^^^^^^
  = write "127.0.0.1:8080" or "[::1]:8080"

error: FILE:3:18: server.body_bytes_max: `mb` is not a unit of size
    |
  3 | body_bytes_max = "8mb"
    |                  ^^^^^
  = write "8MiB"

error: FILE:5:13: upstream[0].replicas: `127.0.0.1:3001` begins with neither http:// nor https://
    |
  5 | replicas = ["127.0.0.1:3001"]
    |             ^^^^^^^^^^^^^^^^
  = write http://HOST:PORT/PATH, e.g. "http://127.0.0.1:3001/mcp"

error: FILE:7:1: upstream[0].stream.keepalve: unknown key
    |
  7 | keepalve = "15s"
    | ^^^^^^^^
  = did you mean `keepalive`?

error: FILE:8:9: upstream[0].stream.retry: `1000` has no unit
    |
  8 | retry = 1000
    |         ^^^^
  = write a number and ms, s, m, h or d, e.g. "30s"

FILE: 5 problems
"#,
    );
}

/// One case: a document, and what is said of it: `Err` = the first problem's key, what and advice hold these parts;
/// `Ok` = the same of a warning, or no warning but that of the missing secret.
type Case<'a> = (&'a str, Result<Option<[&'a str; 2]>, [&'a str; 2]>);

const UPSTREAM: &str = "[[upstream]]\nreplicas = [\"http://127.0.0.1:3001/mcp\"]\n";

fn check_each(name: &str, cases: &[Case<'_>]) {
    let scratch = Scratch::new(name);
    for (text, expected) in cases {
        // A document without an upstream of its own gets one.
        let text = if text.contains("upstream]") {
            (*text).to_owned()
        } else {
            format!("{text}\n{UPSTREAM}")
        };
        let path = scratch.file("x.toml", &text);
        let holds = |said: &str, parts: &[&str; 2]| parts.iter().all(|part| said.contains(part));
        match (read(Some(path), &[]), expected) {
            (Err(problems), Err(parts)) => {
                let said = problems.to_string();
                assert_eq!(problems.remarks().len(), 1, "{text}\n{said}");
                assert!(holds(&said, parts), "{text}\n{said}");
            }
            (Ok((_, warnings)), Ok(wanted)) => {
                let said: Vec<String> = warnings
                    .iter()
                    .filter(|warning| warning.remark().key() != "secret")
                    .map(ToString::to_string)
                    .collect();
                match wanted {
                    Some(parts) => assert!(said.len() == 1 && holds(&said[0], parts), "{text}\n{said:#?}"),
                    None => assert!(said.is_empty(), "{text}\n{said:#?}"),
                }
            }
            (Ok(_), Err(parts)) => panic!("{text}\nis good, and should be refused: {parts:?}"),
            (Err(problems), Ok(_)) => panic!("{text}\n{problems}"),
        }
    }
}

#[test]
fn the_client_side() {
    check_each(
        "server",
        &[
            ("", Ok(None)),
            ("[server]\nlisten = [\"127.0.0.1:0\", \"[::1]:0\"]", Ok(None)),
            (
                "[server]\nlisten = { address = \"127.0.0.1:8080\", tls = \"off\" }",
                Ok(None),
            ),
            (
                "[server]\nlisten = []",
                Err(["server.listen: is empty", "name at least one"]),
            ),
            (
                "[server]\nlisten = 8080",
                Err(["server.listen: is a number, not an address", "ADDRESS:PORT"]),
            ),
            (
                "[server]\nlisten = \"8080\"",
                Err([
                    "`8080` is not an address",
                    "write the address too, e.g. \"127.0.0.1:8080\"",
                ]),
            ),
            (
                "[server]\nlisten = \":8080\"",
                Err(["`:8080` is not an address", "\"0.0.0.0:8080\" for everyone"]),
            ),
            (
                "[server]\nlisten = \"127.0.0.1:99999\"",
                Err(["is not an address", "ADDRESS:PORT"]),
            ),
            (
                "[server]\nlisten = [{ tls = \"off\" }]",
                Err(["server.listen[0].address: is missing", "write {"]),
            ),
            (
                "[server]\nlisten = [{ address = \"127.0.0.1:1\", tsl = \"off\" }]",
                Err(["server.listen[0].tsl: unknown key", "did you mean `tls`?"]),
            ),
            (
                "[server]\nlisten = [\"127.0.0.1:1\", \"127.0.0.1:1\"]",
                Err(["127.0.0.1:1 is there twice", "once"]),
            ),
            (
                "[server]\nlisten = \"0.0.0.0:8080\"",
                Ok(Some([
                    "0.0.0.0:8080 is open to other machines",
                    "add allowed_hosts",
                ])),
            ),
            (
                "[server]\nlisten = \"0.0.0.0:8080\"\nallowed_hosts = [\"a.example\"]",
                Ok(None),
            ),
            ("[server]\nallowed_hosts = \"Tools.example.com:8443\"", Ok(None)),
            (
                "[server]\nallowed_hosts = [\"*\"]",
                Ok(Some(["allows everything", "name what clients use"])),
            ),
            (
                "[server]\nallowed_hosts = [\"*.example.com\"]",
                Err([
                    "server.allowed_hosts: `*.example.com` is not a host",
                    "name each host",
                ]),
            ),
            (
                "[server]\nallowed_hosts = [\"https://a.example/x\"]",
                Err(["is not a host", "write the name alone: \"a.example\""]),
            ),
            (
                "[server]\nallowed_hosts = [\"::1\"]",
                Err(["is not a host", "\"[::1]\""]),
            ),
            ("[server]\nallowed_hosts = [\"[::1]:80\", \"[::1]\"]", Ok(None)),
            (
                "[server]\nallowed_hosts = [\"a:b\"]",
                Err(["is not a host", "tools.example.com"]),
            ),
            (
                "[server]\nallowed_hosts = [\"a:99999\"]",
                Err(["is not a host", "tools.example.com"]),
            ),
            (
                "[server]\nallowed_hosts = [\"\"]",
                Err(["is not a host", "tools.example.com"]),
            ),
            (
                "[server]\nallowed_hosts = [1]",
                Err(["server.allowed_hosts: is a number, not text", "quotes"]),
            ),
            (
                "[server]\nallowed_origins = [\"https://app.example/\", \"null\", \"vscode-webview://x1\"]",
                Ok(None),
            ),
            (
                "[server]\nallowed_origins = [\"app.example\"]",
                Err(["`app.example` is not an origin", "SCHEME://HOST"]),
            ),
            (
                "[server]\nallowed_origins = [\"https://app.example/x\"]",
                Err(["is not an origin", "SCHEME://HOST"]),
            ),
            (
                "[server]\nallowed_origins = [\"https://*.example\"]",
                Err(["is not an origin", "SCHEME://HOST"]),
            ),
            (
                "[server]\nallowed_origins = \"*\"",
                Ok(Some(["server.allowed_origins: allows everything", "name what"])),
            ),
            (
                "[server]\nworkers = -1",
                Err(["server.workers: -1 is out of range", "negative"]),
            ),
            (
                "[server]\nworkers = 5000",
                Err(["5000 is out of range", "between 0 and 1024; the default is 0"]),
            ),
            (
                "[server]\nworkers = \"4\"",
                Err(["is text, not a number", "without quotes"]),
            ),
            (
                "[server]\npeers = \"some\"",
                Err([
                    "server.peers: `some` is none of its words",
                    "one of none, possible",
                ]),
            ),
            (
                "[server]\npeers = \"possible\"",
                Ok(Some(["without a secret no other proxy", "the same secret"])),
            ),
            ("[server]\npeers = \"none\"", Ok(None)),
            ("[server]\nworkers = 1_0", Ok(None)),
            (
                "[server]\nhead_bytes_max = \"1KiB\"",
                Err([
                    "1KiB is out of range",
                    "between 8KiB and 1MiB; the default is 32KiB",
                ]),
            ),
            (
                "[server]\nbody_bytes_max = \"1KiB\"",
                Ok(Some(["a head of 32KiB is allowed", "raise body_bytes_max"])),
            ),
            (
                "[server]\ndrain_max = true",
                Err(["server.drain_max: is true or false", "e.g. \"30s\""]),
            ),
            (
                "[server]\ndrain_max = 1.5",
                Err(["is a number with a fraction", "e.g. \"30s\""]),
            ),
            (
                "server = 1",
                Err(["server: is a number, not a table", "[server]"]),
            ),
            ("[admin]\nlisten = \"off\"", Ok(None)),
            (
                "[admin]\nlisten = \"of\"",
                Err(["`of` is not an address", "ADDRESS:PORT"]),
            ),
            (
                "[admin]\nlisten = \"127.0.0.1:8080\"",
                Err([
                    "admin.listen: 127.0.0.1:8080 is an address of the proxy itself",
                    "their own port",
                ]),
            ),
            (
                "[admin]\nlisten = \"0.0.0.0:8080\"",
                Err(["is an address of the proxy itself", "their own port"]),
            ),
            (
                "[admin]\nlisten = \"0.0.0.0:9464\"",
                Ok(Some(["asks nobody who they are", "127.0.0.1"])),
            ),
            (
                "[log]\nfilter = \"throughline=loud\"",
                Err(["log.filter: `throughline=loud` is not a filter", "target=level"]),
            ),
            (
                "[log]\nformat = \"jsn\"",
                Err([
                    "`jsn` is none of its words",
                    "did you mean \"json\"? (one of auto, human, json)",
                ]),
            ),
            (
                "[log]\nformat = \"xml\"",
                Err(["`xml` is none of its words", "one of auto, human, json"]),
            ),
            (
                "[memory]\nreplay_max = \"0B\"",
                Err(["0B is out of range", "between 1MiB and"]),
            ),
        ],
    );
}

#[test]
fn keys_that_do_not_exist() {
    check_each(
        "keys",
        &[
            (
                "[server]\nkeepalive = \"15s\"",
                Err([
                    "server.keepalive: unknown key",
                    "`keepalive` belongs in [upstream.stream]",
                ]),
            ),
            (
                "[server]\nkeep-alive = \"15s\"",
                Err([
                    "server.keep-alive: unknown key",
                    "did you mean `keepalive` in [upstream.stream]?",
                ]),
            ),
            (
                "[sever]\nlisten = \"127.0.0.1:1\"",
                Err(["sever: unknown key", "did you mean `server`?"]),
            ),
            (
                "listen = \"127.0.0.1:1\"",
                Err(["listen: unknown key", "`listen` belongs in [server]"]),
            ),
            (
                "[memory]\nzzzzzz = 1",
                Err(["memory.zzzzzz: unknown key", "[memory] knows: replay_max"]),
            ),
            (
                "[[upstream]]\nreplicas = [\"http://a/mcp\"]\n[upstream.session]\nidle = \"1m\"",
                Err(["upstream[0].session.idle: unknown key", "`session_idle`"]),
            ),
            (
                "[[upstreams]]\n[[upstream]]\nreplicas = [\"http://a/mcp\"]",
                Err(["upstreams: unknown key", "did you mean `upstream`?"]),
            ),
        ],
    );
}

#[test]
fn upstreams() {
    const MCP: &str = "[[upstream]]\nreplicas = [\"http://a/mcp\"]\n";
    let with = |table: &str| format!("{MCP}{table}");
    let two = |first: &str, second: &str| {
        format!(
            "[[upstream]]\nreplicas = [\"http://a/mcp\"]\n{first}\n[[upstream]]\nreplicas = [\"http://b/mcp\"]\n{second}"
        )
    };
    let replicas = |list: &str| format!("[[upstream]]\nreplicas = {list}");
    let cases = [
        (replicas("\"http://a/mcp\""), Ok(None)),
        (
            replicas("[]"),
            Err(["upstream[0].replicas: names no replica", "replicas = ["]),
        ),
        (
            "[[upstream]]".to_owned(),
            Err(["upstream[0].replicas: is missing", "replicas = ["]),
        ),
        (
            "[upstream]\nreplicas = [\"http://a/mcp\"]".to_owned(),
            Err(["upstream: is one table", "[[upstream]]"]),
        ),
        (
            replicas("[\"http://a/mcp\", \"HTTP://A:80/mcp\"]"),
            Err(["a:80 is there twice", "once"]),
        ),
        (replicas("[\"http://a/mcp\", \"https://a/mcp\"]"), Ok(None)),
        (
            replicas("[\"http://a/one\", \"http://b/two\"]"),
            Err(["no path in common (`/one`, `/two`)", "path = \"/mcp\""]),
        ),
        (
            replicas("[\"http://a/one\", \"http://b/two\"]\npath = \"/mcp\""),
            Ok(None),
        ),
        (
            replicas("[\"http://a\"]"),
            Ok(Some(["the replicas' path is `/`", "/mcp"])),
        ),
        (
            replicas("[{ url = \"http://a/mcp\", drain = true }, \"http://b/mcp\"]"),
            Ok(None),
        ),
        (
            replicas("[{ url = \"http://a/mcp\", drain = true }]"),
            Ok(Some(["every replica is being drained", "drain = true"])),
        ),
        (
            replicas("[{ drain = true }]"),
            Err(["upstream[0].replicas[0].url: is missing", "url = "]),
        ),
        (
            replicas("[{ url = \"http://a/mcp\", drain = \"yes\" }]"),
            Err(["replicas[0].drain: is text", "true or false"]),
        ),
        (
            replicas("[{ url = \"http://a/mcp\", drian = true }]"),
            Err(["unknown key", "did you mean `drain`?"]),
        ),
        (
            replicas("[\"http://a/mcp\", { url = \"http://a/mcp\" }]"),
            Err(["a:80 is there twice", "once"]),
        ),
        (
            replicas("[7]"),
            Err(["upstream[0].replicas: is a number, not text", "quotes"]),
        ),
        (with("path = \"mcp\""), Err(["`mcp` is not a path", "\"/mcp\""])),
        (with("path = \"/mcp?x=1\""), Err(["is not a path", "\"/mcp\""])),
        (with("name = \"a b\""), Err(["`a b` is not a name", "letters"])),
        (
            with("name = 7"),
            Err(["upstream[0].name: is a number, not text", "quotes"]),
        ),
        (
            two("", ""),
            Err(["`/mcp` is the path of upstream `mcp` already", "its own path"]),
        ),
        (
            two("name = \"x\"", "name = \"x\"\npath = \"/y\""),
            Err([
                "upstream.name: `x` is the name of another upstream",
                "its own name",
            ]),
        ),
        (two("", "path = \"/y\""), Ok(None)),
        (
            with("sessions = \"shard\""),
            Err(["`shard` is none of its words", "did you mean \"shared\"?"]),
        ),
        (
            with("balance = \"round-robin\""),
            Err(["`round-robin` is none", "did you mean \"round_robin\"?"]),
        ),
        (with("[upstream.health]\nprobe = \"/healthz\""), Ok(None)),
        (
            with("[upstream.health]\nprobe = \"ping\""),
            Err(["`ping` is no probe", "\"connect\""]),
        ),
        (
            with("[upstream.health]\ntimeout = \"10s\""),
            Err([
                "a probe may take 10s, but one is sent every 5s",
                "at most interval",
            ]),
        ),
        (
            with("[upstream.health]\nprobe = \"off\"\ntimeout = \"10s\""),
            Ok(None),
        ),
        (
            with("[upstream.health]\neject_time = \"3m\""),
            Err(["eject_time: is longer than eject_time_max (2m)", "at most"]),
        ),
        (with("drain_deadline = \"0s\""), Ok(None)),
        (
            with("[upstream.health]\nfall = 0"),
            Err(["0 is out of range", "between 1 and 1000"]),
        ),
        (
            with("[upstream.exchange]\npost_idle_max = \"5s\""),
            Ok(Some([
                "post_idle_max: common servers close an idle connection after 5s",
                "below 5s",
            ])),
        ),
        (
            with("[upstream.exchange]\npost_idle_max = \"4s\"\nidle_timeout = \"2s\""),
            Err(["is longer than idle_timeout (2s)", "at most"]),
        ),
        (
            with("[upstream.exchange]\nidle_timeout = \"1s\""),
            Err(["post_idle_max: is longer than idle_timeout (1s)", "at most"]),
        ),
        (
            with("[upstream.exchange]\nconnect_timeout = \"2m\""),
            Err(["is longer than initialize_max (1m)", "at most"]),
        ),
        (
            with("[upstream.session]\nsession_max = \"1m\""),
            Err(["session_idle: is longer than session_max (1m)", "at most"]),
        ),
        (
            with("[upstream.session]\nsession_idle = \"1m\""),
            Ok(Some([
                "stream.detached_max (5m) is longer than session.session_idle (1m)",
                "the session ends first",
            ])),
        ),
        (
            with("[upstream.session]\nstreams_max = 65"),
            Err(["65 is out of range", "between 1 and 64"]),
        ),
        (
            with("[upstream.session]\ncredential_headers = []"),
            Ok(Some(["whoever knows a session's id", "prove who they are"])),
        ),
        (
            with("[upstream.session]\ncredential_headers = [\"Authorization\"]"),
            Ok(None),
        ),
        (
            with("[upstream.session]\non_session_loss = \"anounce\""),
            Err(["on_session_loss", "announce"]),
        ),
        (
            with("[upstream.session]\ninstance_header = \"a b\""),
            Err(["`a b` is not the name of a header field", "x-instance-id"]),
        ),
        (
            with("[upstream.session]\non_session_loss = \"terminate\"\ninstance_header = \"X-Pod\""),
            Ok(None),
        ),
        (
            with("[upstream.session]\ncredential_headers = [\"a b\"]"),
            Err(["`a b` is not the name of a header", "authorization"]),
        ),
        (
            with("[upstream.stream]\nkeepalive = \"30s\""),
            Err(["keepalive: is not below stall_max (30s)", "less than stall_max"]),
        ),
        (
            with("[upstream.stream]\nevent_bytes_max = \"9MiB\""),
            Err(["is more than replay_bytes_max (8MiB)", "raise"]),
        ),
        (
            with("[upstream.stream]\nreplay_bytes_max = \"1GiB\""),
            Err(["is more than memory.replay_max (256MiB)", "[memory]"]),
        ),
        (
            with("[upstream.stream]\nreplay_age_max = \"1m\""),
            Ok(Some(["is less than detached_max (5m)", "at least"])),
        ),
        (
            with("[upstream.stream]\nearly_cursor = \"on\""),
            Err(["early_cursor: is text", "true or false"]),
        ),
        (with("[upstream.stream]\nearly_cursor = false"), Ok(None)),
        (
            with("[upstream.stream]\nreattach = \"proved\""),
            Err(["reattach: is \"proved\"", "declare event_store = \"per-session\""]),
        ),
        (
            with("isolate_request_ids = true\n[upstream.stream]\nreattach = \"proved\""),
            Ok(None),
        ),
        (
            with("event_store = \"per-session\"\n[upstream.stream]\nreattach = \"proved\""),
            Ok(None),
        ),
        (with("[upstream.stream]\njson_upgrade_after = \"5s\""), Ok(None)),
        (
            with("[upstream.stream]\njson_upgrade_after = \"on\""),
            Err(["json_upgrade_after", "on"]),
        ),
        (
            with("[upstream.stream]\npolling = \"held\""),
            Err(["polling: `held`", "did you mean \"hold\"?"]),
        ),
        (
            with("transport = \"sss\""),
            Err(["transport: `sss`", "did you mean \"sse\"?"]),
        ),
        (
            with("[upstream.tls]\nserver_name = \"x\""),
            Ok(Some(["no replica is https", "take the table out"])),
        ),
    ];
    let cases: Vec<Case<'_>> = cases
        .iter()
        .map(|(text, expected)| (text.as_str(), *expected))
        .collect();
    check_each("upstreams", &cases);
}

#[test]
fn oauth() {
    const BESIDE: &str = "[[upstream]]\nreplicas = [\"http://a/mcp\"]\n[upstream.oauth]\n";
    let one = |table: &str| format!("{BESIDE}{table}");
    let two = |first: &str, second: &str| {
        format!("{BESIDE}{first}\n[[upstream]]\nreplicas = [\"http://b/other\"]\n[upstream.oauth]\n{second}")
    };
    let cases = [
        (
            one("metadata = \"pass\"\npublic_url = \"https://mcp.example.com/x/\"\npaths = [\"/token\"]"),
            Ok(None),
        ),
        (
            one("metadata = \"on\""),
            Err(["upstream[0].oauth.metadata: `on` is none of its words", "pass"]),
        ),
        (
            one("public_url = \"mcp.example.com\""),
            Err([
                "public_url: `mcp.example.com` is not an address",
                "https://mcp.example.com",
            ]),
        ),
        (
            one("public_url = \"https://user@host\""),
            Err(["is not an address", "https://mcp.example.com"]),
        ),
        (
            one("paths = [\"token\"]"),
            Err(["paths: `token` is not a path", "[\"/token\"]"]),
        ),
        (
            one("paths = [\"/a?b\"]"),
            Err(["`/a?b` is not a path", "without query"]),
        ),
        (
            one("paths = [\"/mcp\"]"),
            Err(["`/mcp` is a path of upstream `mcp` already", "once"]),
        ),
        (
            two("paths = [\"/token\"]", "paths = [\"/token\"]"),
            Err(["`/token` is a path of upstream `mcp` already", "once"]),
        ),
        (
            two("metadata = \"pass\"", "metadata = \"pass\""),
            Ok(Some([
                "is asked of upstream `mcp` only, not of `other`",
                "first in the file",
            ])),
        ),
    ];
    let cases: Vec<Case<'_>> = cases
        .iter()
        .map(|(text, expected)| (text.as_str(), *expected))
        .collect();
    check_each("oauth", &cases);
}

#[test]
fn nothing_to_run() {
    let scratch = Scratch::new("nothing");
    for (text, part) in [
        ("", "there is no upstream"),
        ("upstream = []", "there is no upstream"),
    ] {
        let problems = read(Some(scratch.file("x.toml", text)), &[]).unwrap_err();
        assert!(problems.to_string().contains(part), "{problems}");
    }
    for (path, part) in [
        (scratch.0.join("none.toml"), "no such file"),
        (scratch.0.clone(), "is a directory"),
        (PathBuf::from("/dev/zero"), "is not a plain file"),
    ] {
        let problems = read(Some(path), &[]).unwrap_err();
        assert!(problems.to_string().contains(part), "{problems}");
    }
    std::fs::write(scratch.0.join("latin.toml"), b"# \xe9").unwrap();
    let problems = read(Some(scratch.0.join("latin.toml")), &[]).unwrap_err();
    assert!(problems.to_string().contains("is not UTF-8 text"), "{problems}");
}

#[test]
fn credentials_in_a_url_are_not_repeated() {
    let scratch = Scratch::new("credentials");
    let text = "[[upstream]]\nreplicas = [\"http://user:hush-hush@a/mcp\"]";
    let said = read(Some(scratch.file("x.toml", text)), &[])
        .unwrap_err()
        .to_string();
    assert!(
        said.contains("a user name or a password is refused") && !said.contains("hush"),
        "{said}"
    );
    let said = read(None, &[("--upstream", "http://user:hush-hush@a/mcp?x=1")])
        .unwrap_err()
        .to_string();
    assert!(
        said.contains("a user name or a password is refused") && !said.contains("hush"),
        "{said}"
    );
}

#[test]
fn flags() {
    const URL: (&str, &str) = ("--upstream", "http://127.0.0.1:3001/mcp");
    let good = |flags: &[(&str, &str)]| read(None, &[&[URL], flags].concat()).map(|(config, _)| config);
    let config = good(&[
        ("--listen", "127.0.0.1:0"),
        ("--listen", "[::1]:0"),
        ("--admin", "off"),
        ("--set", "upstream.stream.keepalive=10s"),
        ("--set", "upstream.name=7"),
        ("--set", "server.workers=3"),
        ("--set", "server.allowed_hosts=a.example"),
        ("--set", "upstream.session.credential_headers=['x-one','x-two']"),
        ("--set", "log.filter=throughline=debug"),
    ])
    .unwrap();
    assert_eq!(config.listeners.len(), 2);
    assert_eq!(config.admin, None);
    assert_eq!(config.upstreams[0].stream.keepalive.as_secs(), 10);
    assert_eq!(&*config.upstreams[0].name, "7");
    assert_eq!(config.server.workers, 3);
    assert_eq!(config.server.allowed_hosts, ["a.example".into()]);
    assert_eq!(
        config.upstreams[0].session.credential_headers,
        ["x-one".into(), "x-two".into()]
    );
    assert_eq!(&*config.log.filter, "throughline=debug");
    for (flag, value, parts) in [
        (
            "--set",
            "upstream.stream.keepalive=15",
            [
                "error: --set upstream.stream.keepalive=15: upstream[0].stream.keepalive",
                "has no unit",
            ],
        ),
        (
            "--set",
            "upstream.stream.keepalve=15s",
            [
                "error: --set upstream.stream.keepalve=15s: ",
                "did you mean `keepalive`?",
            ],
        ),
        (
            "--set",
            "upstream.keepalive=15s",
            [
                "error: --set upstream.keepalive=15s: ",
                "belongs in [upstream.stream]",
            ],
        ),
        (
            "--set",
            "nonsense",
            ["error: --set nonsense: has no value", "KEY=VALUE"],
        ),
        ("--set", "=1", ["error: --set =1: ", "is not a key"]),
        (
            "--set",
            "secret.value=hush-hush",
            ["error: --set secret.value: ", "never stands in the configuration"],
        ),
        (
            "--set",
            "secret=hush-hush",
            ["error: --set secret: ", "never stands in the configuration"],
        ),
        (
            "--listen",
            "nowhere",
            ["error: --listen nowhere: server.listen", "is not an address"],
        ),
        (
            "--admin",
            "nowhere",
            ["error: --admin nowhere: admin.listen", "is not an address"],
        ),
        (
            "--upstream",
            "http://127.0.0.1:3001/other",
            [
                "error: --upstream http://127.0.0.1:3001/other: ",
                "is there twice",
            ],
        ),
        (
            "--secret-file",
            "/nonexistent/secret",
            [
                "error: --secret-file /nonexistent/secret: secret.file",
                "no such file",
            ],
        ),
    ] {
        let said = good(&[(flag, value)]).unwrap_err().to_string();
        assert!(
            parts.iter().all(|part| said.contains(part)) && !said.contains("hush"),
            "{flag} {value}\n{said}"
        );
    }
}

#[test]
fn flags_go_over_the_file() {
    let scratch = Scratch::new("over");
    let text = format!(
        "[server]\nlisten = \"127.0.0.1:1\"\nworkers = 2\n[admin]\nlisten = \"127.0.0.1:2\"\n{UPSTREAM}"
    );
    let path = scratch.file("x.toml", &text);
    let flags = [
        ("--listen", "127.0.0.1:3"),
        ("--admin", "off"),
        ("--set", "upstream.path=/other"),
    ];
    let (config, _) = read(Some(path), &flags).unwrap();
    assert_eq!(config.listeners[0].address.port(), 3);
    assert_eq!(config.listeners.len(), 1);
    assert_eq!(config.server.workers, 2);
    assert_eq!(config.admin, None);
    assert_eq!(&*config.upstreams[0].path, "/other");
}

/// Secrets: the document, the environment, the kids and secrets that come of it or what is said.
fn check_secrets(
    scratch: &Scratch,
    table: &str,
    environment: &[(&str, &str)],
    expected: Result<&[(char, &str)], &str>,
) {
    let path = scratch.file("x.toml", &format!("{table}\n{UPSTREAM}"));
    let flags = Flags {
        config: Some(path),
        ..Flags::default()
    };
    let variable = |name: &str| {
        environment
            .iter()
            .find(|(other, _)| *other == name)
            .map(|(_, value)| value.into())
    };
    match (config::read_in(&flags, &variable), expected) {
        (Ok((config, warnings)), Ok(expected)) => {
            let secrets: Vec<(char, String)> = config
                .secrets
                .iter()
                .map(|secret| {
                    (
                        secret.kid as char,
                        String::from_utf8(secret.bytes.clone()).unwrap(),
                    )
                })
                .collect();
            let expected: Vec<(char, String)> = expected
                .iter()
                .map(|(kid, text)| (*kid, (*text).to_owned()))
                .collect();
            assert_eq!(secrets, expected, "{table}");
            let none_said = warnings
                .iter()
                .any(|warning| warning.remark().what().contains("there is no secret"));
            assert_eq!(none_said, secrets.is_empty(), "{table}");
            assert!(
                !format!("{config:?}").contains("0123456789"),
                "a secret is printed"
            );
        }
        (Err(problems), Err(part)) => {
            let said = problems.to_string();
            assert!(said.contains(part), "{table}\n{said}");
            assert!(!said.contains("0123456789"), "{table}\n{said}");
        }
        (Ok(_), Err(part)) => panic!("{table}\nis good, and should be refused: {part}"),
        (Err(problems), Ok(_)) => panic!("{table}\n{problems}"),
    }
}

#[test]
fn secrets() {
    let scratch = Scratch::new("secrets");
    let new = "new-0123456789abcdef";
    let old = "old-0123456789abcdef";
    scratch.file("new", &format!("{new}\n"));
    scratch.file("old", old);
    scratch.file("short", "0123456789abcde\n\n");
    scratch.file("long", &"0123456789".repeat(500));
    let ring = "[secret]\nfile = \"new\"\nkid = \"b\"\n[[secret.older]]\nkid = \"a\"\n";
    let check = |table: &str, environment: &[(&str, &str)], expected: Result<&[(char, &str)], &str>| {
        check_secrets(&scratch, table, environment, expected);
    };
    let set = [("THROUGHLINE_SECRET", new)];
    check("", &[], Ok(&[]));
    check("", &[("THROUGHLINE_SECRET", "")], Ok(&[]));
    check("", &set, Ok(&[('a', new)]));
    check("[secret]\nkid = \"z\"", &set, Ok(&[('z', new)]));
    check("[secret]\nenv = \"OTHER\"", &[("OTHER", old)], Ok(&[('a', old)]));
    check("[secret]\nfile = \"new\"", &[], Ok(&[('a', new)]));
    // What the file says goes before the variable that is looked at by default.
    check("[secret]\nfile = \"old\"", &set, Ok(&[('a', old)]));
    check(
        &format!("{ring}file = \"old\""),
        &[],
        Ok(&[('b', new), ('a', old)]),
    );
    check(
        &format!("{ring}env = \"OLD\""),
        &[("OLD", old)],
        Ok(&[('b', new), ('a', old)]),
    );
    check(
        &format!("{ring}file = \"new\""),
        &[],
        Err("two keys have the same secret"),
    );
    check(
        &ring
            .replace("\"b\"", "\"a\"")
            .replace("[[", "\n[[")
            .replace("kid = \"a\"\n\n", "kid = \"a\"\n"),
        &[],
        Err("an older key needs its secret"),
    );
    check(
        &format!("{}file = \"old\"", ring.replace("\"b\"", "\"a\"")),
        &[],
        Err("two keys have the kid `a`"),
    );
    check(
        "[secret]\nfile = \"new\"\n[[secret.older]]\nfile = \"old\"",
        &[],
        Err("an older key needs its kid"),
    );
    check(
        "[[secret.older]]\nkid = \"b\"\nfile = \"old\"",
        &[],
        Err("none in use"),
    );
    check(
        "[secret]\nenv = \"OTHER\"",
        &[],
        Err("the environment has no OTHER"),
    );
    check(
        "[secret]\nenv = \"new-0123456789abcdef\"",
        &[],
        Err("is not the name of an environment variable"),
    );
    check(
        "[secret]\nenv = \"OTHER\"\nfile = \"new\"",
        &set,
        Err("env and file are both said"),
    );
    check("[secret]\nfile = \"none\"", &set, Err("no such file"));
    check(
        "[secret]\nfile = \"short\"",
        &[],
        Err("the secret has 15 bytes, and 16 are the least"),
    );
    check("[secret]\nfile = \"long\"", &[], Err("is longer than 4096 bytes"));
    check(
        "",
        &[("THROUGHLINE_SECRET", "0123456789")],
        Err("THROUGHLINE_SECRET: secret: the secret has 10 bytes"),
    );
    check("[secret]\nkid = \"ab\"", &set, Err("is no kid"));
    check("[secret]\nkid = \"-\"", &set, Err("is no kid"));
    check(
        "[secret]\nvalue = \"new-0123456789abcdef\"",
        &[],
        Err("a secret never stands in the configuration"),
    );
    check(
        "secret = \"new-0123456789abcdef\"",
        &[],
        Err("a secret never stands in the configuration"),
    );
    check("secrets = \"0123456789abcdef\"", &[], Err("secrets: unknown key"));
    check(
        "[server]\npassword = \"0123456789abcdef\"",
        &[],
        Err("server.password: unknown key"),
    );
    check(
        "secret = [\"new-0123456789abcdef\"]",
        &[],
        Err("a secret never stands in the configuration"),
    );
    check(
        &format!("{ring}file = \"old\"\nbytes = \"0123456789\""),
        &[],
        Err("a secret never stands in the configuration"),
    );
}

#[cfg(unix)]
#[test]
fn a_secret_open_to_others_is_warned_of() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new("mode");
    let secret = scratch.file("secret", "0123456789abcdef");
    let path = scratch.file("x.toml", &format!("[secret]\nfile = \"secret\"\n{UPSTREAM}"));
    for (mode, warned) in [(0o600, 0), (0o400, 0), (0o640, 1), (0o604, 1)] {
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(mode)).unwrap();
        let (_, warnings) = read(Some(path.clone()), &[]).unwrap();
        assert_eq!(warnings.len(), warned, "{mode:o}: {warnings:?}");
        assert!(
            warnings
                .iter()
                .all(|warning| warning.to_string().contains(&format!("(mode {mode:03o})")))
        );
    }
}

#[test]
fn certificates() {
    let scratch = Scratch::new("tls");
    let one = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let two = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    scratch.file("one.pem", &one.cert.pem());
    scratch.file("one.key", &one.signing_key.serialize_pem());
    scratch.file("two.key", &two.signing_key.serialize_pem());
    scratch.file("text", "no PEM at all");
    let pair = |certificate: &str, key: &str| {
        format!("[server.tls]\ncertificate = \"{certificate}\"\nkey = \"{key}\"\n{UPSTREAM}")
    };
    let https =
        |table: &str| format!("[[upstream]]\nreplicas = [\"https://a/mcp\"]\n[upstream.tls]\n{table}");
    let check = |text: &str, expected: Result<(), &str>| {
        let path = scratch.file("x.toml", text);
        match (read(Some(path), &[]), expected) {
            (Ok(_), Ok(())) => {}
            (Err(problems), Err(part)) => {
                assert_eq!(problems.remarks().len(), 1, "{text}\n{problems}");
                assert!(problems.to_string().contains(part), "{text}\n{problems}");
            }
            (Ok(_), Err(part)) => panic!("{text}\nis good, and should be refused: {part}"),
            (Err(problems), Ok(())) => panic!("{text}\n{problems}"),
        }
    };
    check(&pair("one.pem", "one.key"), Ok(()));
    check(&pair("one.pem", "two.key"), Err("x.toml:3:7: server.tls.key: "));
    check(
        &pair("text", "one.key"),
        Err("x.toml:2:15: server.tls.certificate: "),
    );
    check(&pair("one.pem", "text"), Err("x.toml:3:7: server.tls.key: "));
    check(
        &pair("none.pem", "one.key"),
        Err("none.pem can't be read: no such file"),
    );
    check(
        &format!("[server.tls]\ncertificate = \"one.pem\"\n{UPSTREAM}"),
        Err("server.tls.key: is missing"),
    );
    check(
        &format!("[server.tls]\nkey = \"one.key\"\n{UPSTREAM}"),
        Err("server.tls.certificate: is missing"),
    );
    let own = format!(
        "[server]\nlisten = [{{ address = \"127.0.0.1:1\", tls = {{ certificate = \"one.pem\", key = \"two.key\" }} }}]\n{UPSTREAM}"
    );
    check(&own, Err("server.listen[0].tls.key: "));
    check(&https("authorities = \"one.pem\""), Ok(()));
    check(
        &https("authorities = \"text\""),
        Err("upstream[0].tls.authorities: "),
    );
    check(
        &https("authorities = \"one.pem\"\nserver_name = \"a b\""),
        Err("upstream[0].tls.server_name: "),
    );
    check(
        &https("authorities = \"one.pem\"\nclient_certificate = \"one.pem\"\nclient_key = \"two.key\""),
        Err("upstream[0].tls.client_key: "),
    );
    check(
        &https("authorities = \"one.pem\"\nclient_certificate = \"one.pem\"\nclient_key = \"one.key\""),
        Ok(()),
    );
}

#[test]
fn no_document_is_a_panic() {
    // Every prefix of the longest document, and the document with each byte in turn made a quote.
    let full = std::fs::read_to_string(shipped("full.toml")).unwrap();
    let full: String = full
        .lines()
        .filter(|line| !line.starts_with('#'))
        .flat_map(|line| [line, "\n"])
        .collect();
    let scratch = Scratch::new("fuzz");
    let mut refused = 0;
    for at in (0..full.len()).step_by(5) {
        let cut = &full[..at];
        let quoted = format!("{cut}\"{}", &full[at + 1..]);
        for text in [cut, &quoted] {
            match read(Some(scratch.file("x.toml", text)), &[]) {
                Ok(_) => {}
                Err(problems) => {
                    assert!(!problems.to_string().is_empty());
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > full.len() / 8);
}
