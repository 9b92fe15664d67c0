//! The suite's server mode: it is the client, and asks a server directly and through the proxy.
//! Law: the same server answers both, one after the other.
//! Next: `client.rs`.

use crate::backend::Backend;
use crate::compare::{Both, Known, Report, settle};
use crate::lab::{Keeps, Proxy, Sdk, Serves, Speaks};
use crate::published::Language;
use crate::suite::Subject;
use crate::tape::Tape;

/// A server, and the revision whose scenarios it is asked.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    backend: Backend,
    revision: &'static str,
}

impl Case {
    /// Its name.
    pub(crate) fn name(self) -> String {
        format!("server {} asked for {}", self.backend.name(), self.revision)
    }
}

/// Every server that can answer the suite, at every revision that both have.
pub(crate) fn cases() -> Vec<Case> {
    let case = |backend, revision| Case { backend, revision };
    let fixture = |sdk, keeps, speaks| Backend::Lab(Serves::Fixture(sdk, keeps, speaks));
    let mut cases = vec![case(Backend::Rust, "2025-11-25")];
    for sdk in Sdk::ALL {
        for keeps in [Keeps::Events, Keeps::Sessions] {
            cases.push(case(fixture(sdk, keeps, Speaks::Newest), "2025-11-25"));
        }
    }
    // One is enough: what asks the client for something waits for its time limit there.
    cases.push(case(
        fixture(Sdk::Py2, Keeps::Nothing, Speaks::Newest),
        "2025-11-25",
    ));
    // The suite offers the newest revision of the session era whatever it asks for, so it is the server who is older.
    for sdk in [Sdk::Ts1, Sdk::Ts2] {
        for revision in ["2025-06-18", "2025-03-26"] {
            cases.push(case(
                fixture(sdk, Keeps::Events, Speaks::Only(revision)),
                "2025-06-18",
            ));
        }
    }
    cases.push(case(
        fixture(Sdk::Ts1, Keeps::Events, Speaks::Only("2025-03-26")),
        "2025-03-26",
    ));
    cases.push(case(Backend::Lab(Serves::Everything), "2025-11-25"));
    // One server of each SDK serves both eras.
    for backend in [
        fixture(Sdk::Ts2, Keeps::Events, Speaks::Newest),
        fixture(Sdk::Py2, Keeps::Events, Speaks::Newest),
        Backend::Rust,
    ] {
        cases.push(case(backend, "2026-07-28"));
    }
    // They have none of the suite's tools; what they say of sessions, streams, headers and revisions is theirs all the same.
    for language in Language::ALL {
        let backend = Backend::Published(language);
        if !language.is_installed() {
            eprintln!(
                "skipped: server {}: there is none for this machine",
                backend.name()
            );
            continue;
        }
        for revision in ["2025-06-18", "2025-11-25", "2026-07-28"] {
            cases.push(case(backend, revision));
        }
    }
    cases
}

/// Runs a case.
pub(crate) async fn run(case: Case) -> Report {
    compare(case).await.unwrap_or_else(Report::broken)
}

async fn compare(case: Case) -> Result<Report, String> {
    let server = case.backend.start().await?;
    let upstream = Tape::start(server.address).await.map_err(said)?;
    let path = case.backend.path();
    let url = |address| format!("http://{address}{path}");
    let settings = ["upstream.isolate_request_ids=false"];
    let proxy = Proxy::start_at(&[url(upstream.address())], &settings).await?;
    let downstream = Tape::start(proxy.address).await.map_err(said)?;
    let at = |address| Subject::Server(url(address));
    let mut report = settle(&Both {
        direct: at(server.address),
        through: at(downstream.address()),
        revision: case.revision,
        known: Known::ByItsUrl,
    })
    .await?;
    let (client_side, server_side) = (downstream.messages(), upstream.messages());
    report.compared(client_side.count(), client_side.differences_of_many(&server_side));
    match proxy.drain().await? {
        0 => Ok(report),
        code => Err(format!("the proxy ended with {code}")),
    }
}

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}
