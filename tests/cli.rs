//! The program as a person or a script runs it: what it prints, where, and the number it ends with.
//! Law: exit codes are promised, so they stand here as numbers.
//! Next: `../src/cli.rs`.

#[path = "interop/port.rs"]
mod port;

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::Duration;

use throughline::cli::Exit;
use throughline::pure::epoch::{Epoch, Seq};
use throughline::pure::event_id::{IdPrefix, StreamName, Uid};
use throughline::pure::keys::{KeyId, KeyRing};
use throughline::pure::revision::Revision;
use throughline::pure::session_token::{self, Flags, ReplicaKey, Sealed, Transport};

use crate::port::Held;

fn run(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_throughline"))
        .args(arguments)
        .env_remove("THROUGHLINE_SECRET")
        .envs(environment.iter().copied())
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .output()
        .unwrap()
}

/// Arguments, the number, and parts of what standard output and standard error hold.
fn check(arguments: &[&str], code: i32, out: &[&str], err: &[&str]) {
    check_in(arguments, &[], code, out, err);
}

fn check_in(arguments: &[&str], environment: &[(&str, &str)], code: i32, out: &[&str], err: &[&str]) {
    let output = run(arguments, environment);
    let said = String::from_utf8(output.stdout).unwrap();
    let complained = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        output.status.code(),
        Some(code),
        "{arguments:?}\n{said}\n{complained}"
    );
    for part in out {
        assert!(said.contains(part), "{arguments:?}: no `{part}` in\n{said}");
    }
    for part in err {
        assert!(
            complained.contains(part),
            "{arguments:?}: no `{part}` in\n{complained}"
        );
    }
    assert!(
        out.is_empty() == said.is_empty(),
        "{arguments:?}: standard output\n{said}"
    );
    assert!(
        err.is_empty() == complained.is_empty(),
        "{arguments:?}: standard error\n{complained}"
    );
}

#[test]
fn exit_codes_are_promised() {
    assert_eq!(Exit::ALL.map(Exit::code), [0, 1, 2, 3, 4, 5]);
    let help = String::from_utf8(run(&["--help"], &[]).stdout).unwrap();
    for exit in Exit::ALL {
        assert!(help.contains(&format!("\n  {}  ", exit.code())), "{exit:?}");
    }
}

#[test]
fn help_and_usage() {
    check(
        &["--help"],
        0,
        &[
            "Usage: throughline <COMMAND>",
            "Examples:",
            "Exit codes:",
            "config/full.toml",
        ],
        &[],
    );
    check(
        &["-h"],
        0,
        &["Usage: throughline <COMMAND>", "throughline --help"],
        &[],
    );
    check(
        &["--version"],
        0,
        &[concat!("throughline ", env!("CARGO_PKG_VERSION"))],
        &[],
    );
    check(
        &["run", "--help"],
        0,
        &["--upstream <URL>", "--set <KEY=VALUE>", "THROUGHLINE_SECRET"],
        &[],
    );
    check(&["check", "--help"], 0, &["<FILE>", "--set <KEY=VALUE>"], &[]);
    check(
        &["decode", "--help"],
        0,
        &["<EVENT-ID|TOKEN>", "--session <TOKEN>"],
        &[],
    );
    check(
        &["conformance", "--help"],
        0,
        &[
            "[URL]",
            "--tool <NAME>",
            "--restart <COMMAND>",
            "--header-from-env <FIELD=VARIABLE>",
            "Exit codes:",
        ],
        &[],
    );
    check(&[], 2, &[], &["Usage: throughline <COMMAND>"]);
    check(&["run"], 2, &[], &["--config <FILE>|--upstream <URL>"]);
    check(
        &["run", "--config", "x", "--upstream", "http://a/mcp"],
        2,
        &[],
        &["cannot be used with"],
    );
    check(&["chek", "x"], 2, &[], &["a similar subcommand exists: 'check'"]);
    check(
        &["run", "--secret", "x"],
        2,
        &[],
        &["unexpected argument '--secret'"],
    );
}

/// The continuity suite: what it says before it tries anything, and when it can't.
#[test]
fn conformance_says_why_nothing_could_be_tried() {
    let nobody = Held::any().unwrap();
    let nobody = nobody.url();
    check(
        &["conformance", "--list"],
        0,
        &["post/cut\n", "silent: ", "40 cases in all"],
        &[],
    );
    check(&["conformance"], 2, &[], &["<URL>"]);
    for (arguments, complaint) in [
        (&["--timeout", "1"][..], "the connection was refused"),
        (&["--only", "nonsense"], "no case has such a name"),
        (
            &["--tool", "t", "--arguments", "[]"],
            "`t`: the arguments are no JSON object",
        ),
        (&["--tool", "t"], "--arguments <JSON>"),
        (
            &["--revision", "2020-01-01"],
            "is no revision; there are 2024-11-05,",
        ),
        (&["--revision", "2026-07-28"], "has no sessions to try"),
        (&["--header-from-env", "A=NOT_SET_ANYWHERE"], "`NOT_SET_ANYWHERE`"),
        (&["--header-from-file", "A"], "write FIELD="),
        (&["--authorities", "not/there.pem"], "refused"),
    ] {
        let mut all = vec!["conformance", &nobody];
        all.extend(arguments);
        check(&all, 2, &[], &[complaint]);
    }
    check(
        &["conformance", "ftp://a/mcp"],
        2,
        &[],
        &["neither http:// nor https://"],
    );
    check(
        &["conformance", "https://a/mcp", "--authorities", "not/there.pem"],
        2,
        &[],
        &["not/there.pem"],
    );
}

#[test]
fn check_says_what_a_file_means() {
    check(
        &["check", "config/minimal.toml"],
        0,
        &[
            "config/minimal.toml: good\n",
            "http://127.0.0.1:8080/mcp -> mcp: http://127.0.0.1:3001/mcp, http://127.0.0.1:3002/mcp\n",
            "http://127.0.0.1:9464/ -> health",
        ],
        &["warning: config/minimal.toml: secret: there is no secret"],
    );
    let secret = [("THROUGHLINE_SECRET", "0123456789abcdef")];
    check_in(
        &["check", "config/full.toml"],
        &secret,
        0,
        &["config/full.toml: good"],
        &[],
    );
    check(
        &["check", "nowhere.toml"],
        3,
        &[],
        &["error: nowhere.toml: can't be read: no such file"],
    );
    let short = [("THROUGHLINE_SECRET", "hush")];
    check_in(
        &["check", "config/full.toml"],
        &short,
        3,
        &[],
        &["the secret has 4 bytes", "1 problem"],
    );
    check(
        &["run", "--upstream", "a:1", "--listen", "b"],
        3,
        &[],
        &["--upstream a:1", "--listen b", "2 problems"],
    );
}

const SECRET: &str = "a secret of more than 16 bytes";

/// An event id and the token of its session, made with [`SECRET`] under the kid `k`.
fn made(upstream: &str, uid: [u8; 16]) -> (String, String) {
    let ring = KeyRing::new((KeyId::new(b'k').unwrap(), SECRET.as_bytes()), []).unwrap();
    let facts = Sealed {
        uid: Uid::new(uid),
        issued: 1_700_000_000,
        instance: 1,
        flags: Flags::default(),
        replica: ReplicaKey::of(upstream, "127.0.0.1:3001"),
        revision: Revision::V2025_11_25,
        transport: Transport::Streamable,
        backend_id: None,
    };
    let token = session_token::seal(ring.current(), upstream, &facts, [7; 24]).unwrap();
    let stream = StreamName::parse("pi7").unwrap();
    let prefix = IdPrefix::new(ring.current(), &facts.uid, Epoch::from_random(42), &stream);
    let mut id = Vec::new();
    prefix.event(Seq::new(3), &mut id);
    (String::from_utf8(id).unwrap(), token)
}

#[test]
fn decode_says_what_an_id_means() {
    let (id, token) = made("mcp", [1; 16]);
    let (_, other) = made("mcp", [2; 16]);
    let (_, elsewhere) = made("tools", [1; 16]);
    let secret = [("THROUGHLINE_SECRET", SECRET)];
    let wrong = [("THROUGHLINE_SECRET", "another secret, long enough")];
    check(
        &["decode", &id],
        0,
        &[
            "key         k\n",
            "epoch       AAAAAAAAACo\n",
            "the answer to request 7\n",
            "position    3: ",
            "not checked: give --session",
        ],
        &[],
    );
    let with = ["decode", &id, "--session", &token];
    check_in(
        &with,
        &secret,
        0,
        &["belongs to  session 01010101 of upstream mcp (revision 2025-11-25, issued 2023-11-14T22:13:20Z)"],
        &[],
    );
    check_in(
        &with,
        &wrong,
        1,
        &["does not open with this secret for the upstream mcp"],
        &[],
    );
    check(&with, 2, &["not checked: there is no secret"], &[]);
    check_in(
        &["decode", &id, "--session", &other],
        &secret,
        1,
        &["NOT session 02020202", "cursor_foreign"],
        &[],
    );
    check_in(
        &["decode", &id, "--session", &elsewhere],
        &secret,
        1,
        &["for the upstream mcp"],
        &[],
    );
    let named = [
        "decode",
        &id,
        "--session",
        &elsewhere,
        "--upstream",
        "mcp",
        "--upstream",
        "tools",
    ];
    check_in(&named, &secret, 0, &["of upstream tools"], &[]);
    check_in(
        &["decode", &id, "--session", "x"],
        &secret,
        1,
        &["this is no session token"],
        &[],
    );
    check(
        &["decode", "x"],
        1,
        &[],
        &["this is no event id", "cursor_unknown"],
    );
    check(
        &["decode", &format!("{id}~")],
        0,
        &["the last event of its stream"],
        &[],
    );
    check(
        &["decode", "kAAAAAAAAACo.g.AAECAwQFBgcICQoL.0-x7"],
        0,
        &["GET stream", "a priming id (connection x7)"],
        &[],
    );
    let config = [
        "decode",
        &id,
        "--session",
        &token,
        "--config",
        "config/full.toml",
        "--secret-file",
        "x",
    ];
    check(&config, 2, &[], &["cannot be used with"]);
    check_in(
        &config[..6],
        &secret,
        1,
        &["made with the key k, which is not at hand"],
        &[],
    );
}

#[test]
fn decode_says_what_a_token_means() {
    let (_, token) = made("mcp", [1; 16]);
    let secret = [("THROUGHLINE_SECRET", SECRET)];
    check_in(
        &["decode", &token],
        &secret,
        0,
        &[
            "key         k\n",
            "session     01010101\n",
            "upstream    mcp\n",
            "transport   streamable\n",
            "revision    2025-11-25\n",
            "issued      2023-11-14T22:13:20Z\n",
            "ends by     2023-11-15T22:13:20Z (if session_max is 24 h)\n",
            "(give --config to see which one)",
            "any replica takes it",
        ],
        &[],
    );
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("decode-{}.toml", std::process::id()));
    let text = |replica: &str| {
        format!(
            "[secret]\nkid = 'k'\n[[upstream]]\nname = 'mcp'\nreplicas = ['http://{replica}/mcp']\n[upstream.session]\nsession_max = '2h'\n"
        )
    };
    for (replica, says) in [
        ("127.0.0.1:3001", ", 127.0.0.1:3001\n"),
        ("127.0.0.1:9", "none of those configured"),
    ] {
        std::fs::write(&file, text(replica)).unwrap();
        let with = ["decode", &token, "--config", file.to_str().unwrap()];
        check_in(
            &with,
            &secret,
            0,
            &["ends by     2023-11-15T00:13:20Z\n", says],
            &[],
        );
    }
    std::fs::remove_file(&file).unwrap();
    check(&["decode", &token], 2, &[], &["error: there is no secret"]);
    let wrong = [("THROUGHLINE_SECRET", "another secret, long enough")];
    check_in(
        &["decode", &token],
        &wrong,
        1,
        &[],
        &["does not open with this secret for the upstream mcp"],
    );
    check_in(
        &["decode", "t1k.x"],
        &secret,
        1,
        &[],
        &["this is no session token"],
    );
}

/// Settings from the command line are checked with the file, and what is doubtful is said beside what is wrong.
#[test]
fn check_takes_settings_and_warns_beside_problems() {
    check(
        &[
            "check",
            "config/minimal.toml",
            "--set",
            "upstream.balance=best",
            "--set",
            "server.allowed_hosts=*",
        ],
        3,
        &[],
        &[
            "warning: --set server.allowed_hosts=*: server.allowed_hosts: allows everything",
            "warning: config/minimal.toml: secret: there is no secret",
            "error: --set upstream.balance=best: ",
            "1 problem",
        ],
    );
    check(
        &["check", "config/minimal.toml", "--set", "log.filter=inof"],
        3,
        &[],
        &["log.filter: `inof` is no level"],
    );
    let secret = [("THROUGHLINE_SECRET", SECRET)];
    check_in(
        &[
            "check",
            "config/minimal.toml",
            "--set",
            "upstream.mcp.path=/other",
        ],
        &secret,
        0,
        &["http://127.0.0.1:8080/other -> other"],
        &[],
    );
}

/// A proxy that runs, and what it writes to standard error.
struct Running {
    process: Child,
    lines: Lines<BufReader<ChildStderr>>,
}

impl Running {
    fn start(arguments: &[&str]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_throughline"))
            .args(arguments)
            .env("THROUGHLINE_SECRET", SECRET)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stderr.take().unwrap()).lines();
        Self { process, lines }
    }

    /// The `address` of the next line with this message.
    fn address(&mut self, message: &str) -> String {
        self.said(message, "address")
    }

    /// This field of the next line with this message.
    fn said(&mut self, message: &str, field: &str) -> String {
        self.line(message)[field].as_str().unwrap().to_owned()
    }

    /// The next line with this message; every line until then is a JSON object.
    fn line(&mut self, message: &str) -> serde_json::Value {
        for line in self.lines.by_ref() {
            let line: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
            if line["message"] == message {
                return line;
            }
        }
        panic!("it ended without saying `{message}`");
    }

    fn signal(&self, name: &str) {
        let id = self.process.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-s", name, &id])
                .status()
                .unwrap()
                .success()
        );
    }

    /// Waits for its end, reading what it still says.
    fn end(mut self) -> Option<i32> {
        self.lines.by_ref().for_each(drop);
        self.process.wait().unwrap().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended already unless a test failed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The same, of somebody who does not wait for ever.
fn get_in_time(address: &str, path: &str) -> String {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    get_by(socket, address, path)
}

fn get(address: &str, path: &str) -> String {
    get_by(TcpStream::connect(address).unwrap(), address, path)
}

fn get_by(mut socket: TcpStream, address: &str, path: &str) -> String {
    write!(
        socket,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

#[cfg(unix)]
#[test]
fn a_run_ends_in_order() {
    for signal in ["TERM", "INT"] {
        let flags = [
            "run",
            "--upstream",
            "http://127.0.0.1:9/mcp",
            "--listen",
            "127.0.0.1:0",
            "--admin",
            "127.0.0.1:0",
        ];
        let mut running = Running::start(&flags);
        let clients = running.address("listening");
        let admin = running.address("listening for the operator");
        assert!(get(&admin, "/healthz").starts_with("HTTP/1.1 200 "));
        assert!(get(&admin, "/metrics").contains("throughline_sessions_live{upstream=\"mcp\"} 0\n"));
        assert!(get(&clients, "/elsewhere").starts_with("HTTP/1.1 404 "));
        assert!(get(&admin, "/metrics").contains("throughline_refused_total{why=\"no_such_path\"} 1\n"));
        running.signal(signal);
        assert_eq!(running.end(), Some(0), "{signal}");
    }
}

/// Whoever is not let in for want of file descriptors waits until there are some, and the log says why.
#[cfg(unix)]
#[test]
fn the_log_says_that_descriptors_are_missing() {
    let mut process = Command::new("sh")
        .args([
            "-c",
            "ulimit -n 48; exec \"$0\" \"$@\"",
            env!("CARGO_BIN_EXE_throughline"),
        ])
        .args([
            "run",
            "--upstream",
            "http://127.0.0.1:9/mcp",
            "--listen",
            "127.0.0.1:0",
            "--admin",
            "off",
        ])
        .env("THROUGHLINE_SECRET", SECRET)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(process.stderr.take().unwrap()).lines();
    let mut running = Running { process, lines };
    let address = running.address("listening");
    let crowd: Vec<TcpStream> = (0..96).map(|_| TcpStream::connect(&address).unwrap()).collect();
    let error = running.said("client connections can't be accepted", "error");
    assert!(error.contains("open files"), "{error}");
    drop(crowd);
    assert!(get(&address, "/elsewhere").starts_with("HTTP/1.1 404 "));
    running.signal("TERM");
    assert_eq!(running.end(), Some(0));
}

/// Whoever reads the log has gone away: whatever is logged from then on is lost, and nothing else is.
#[cfg(unix)]
#[test]
fn a_log_that_nobody_takes_stops_nothing() {
    let mut process = Command::new(env!("CARGO_BIN_EXE_throughline"))
        .args([
            "run",
            "--upstream",
            "http://127.0.0.1:9/mcp",
            "--listen",
            "127.0.0.1:0",
        ])
        .args(["--admin", "127.0.0.1:0", "--set", "log.filter=trace"])
        .env("THROUGHLINE_SECRET", SECRET)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
    let mut address = |message: &str| {
        let mut said = lines
            .by_ref()
            .map(|line| serde_json::from_str(&line.unwrap()).unwrap());
        let line: serde_json::Value = said
            .find(|line: &serde_json::Value| line["message"] == message)
            .unwrap();
        line["address"].as_str().unwrap().to_owned()
    };
    let (other, one) = (address("listening"), address("listening for the operator"));
    drop(lines);
    for _ in 0..3 {
        assert!(get(&one, "/healthz").starts_with("HTTP/1.1 200 "));
        assert!(get(&other, "/elsewhere").starts_with("HTTP/1.1 404 "));
    }
    // Its drain is logged too.
    let told = Command::new("kill").arg(process.id().to_string()).status();
    assert!(told.unwrap().success());
    assert_eq!(process.wait().unwrap().code(), Some(0));
}

/// Whoever reads the log stops reading: clients are answered all the same, what was lost is counted, and said when it can
/// be; and the process ends in time.
#[cfg(unix)]
#[test]
fn a_log_that_nobody_reads_holds_nobody_up() {
    for then in [Then::Reads, Then::NeverReads] {
        let mut running = Running::start(&[
            "run",
            "--upstream",
            "http://127.0.0.1:9/mcp",
            "--listen",
            "127.0.0.1:0",
            "--admin",
            "127.0.0.1:0",
            "--set",
            "log.filter=trace",
        ]);
        let clients = running.address("listening");
        let admin = running.address("listening for the operator");
        let lost = || {
            let metrics = get_in_time(&admin, "/metrics");
            let line = metrics
                .lines()
                .find_map(|line| line.strip_prefix("throughline_log_lines_lost_total "));
            line.unwrap().parse::<u64>().unwrap()
        };
        assert_eq!(lost(), 0);
        // The pipe fills, then the room for lines that wait.
        let mut socket = TcpStream::connect(&clients).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let asked = format!("GET /elsewhere HTTP/1.1\r\nHost: {clients}\r\n\r\n");
        while lost() == 0 {
            for _ in 0..50 {
                socket.write_all(asked.repeat(20).as_bytes()).unwrap();
                for _ in 0..20 {
                    read_404(&mut socket);
                }
            }
        }
        drop(socket);
        match then {
            Then::Reads => {
                let line =
                    running.line("log lines were lost: they could not be written fast enough, or not at all");
                assert!(line["lines"].as_u64().unwrap() > 0, "{line}");
                running.signal("TERM");
                assert_eq!(running.end(), Some(0));
            }
            Then::NeverReads => {
                running.signal("TERM");
                assert_eq!(running.process.wait().unwrap().code(), Some(0));
            }
        }
    }
}

#[cfg(unix)]
fn read_404(socket: &mut TcpStream) {
    let mut answer = Vec::new();
    let mut byte = [0];
    while !answer.ends_with(b"\r\n\r\n") {
        socket.read_exact(&mut byte).unwrap();
        answer.push(byte[0]);
    }
    let head = String::from_utf8(answer).unwrap();
    assert!(head.starts_with("HTTP/1.1 404 "), "{head}");
    let length = head.lines().find_map(|line| {
        line.to_ascii_lowercase()
            .strip_prefix("content-length: ")?
            .parse()
            .ok()
    });
    let mut body = vec![0; length.unwrap_or(0)];
    socket.read_exact(&mut body).unwrap();
}

#[cfg(unix)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Then {
    Reads,
    NeverReads,
}

#[test]
fn an_address_in_use() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let upstream = ["run", "--upstream", "http://127.0.0.1:9/mcp"];
    check(
        &[&upstream[..], &["--admin", "off", "--listen", &address]].concat(),
        4,
        &[],
        &[&address],
    );
    check(
        &[&upstream[..], &["--listen", "127.0.0.1:0", "--admin", &address]].concat(),
        4,
        &[],
        &[&address],
    );
}
