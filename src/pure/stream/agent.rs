//! What a client can bear, as far as its `User-Agent` tells.
//! Law: a client that does not say what it is gets only what every known one survives.
//! Why: some parse every event's data as JSON-RPC whatever its type, one breaks on `retry` (wire contract, 4 and 7).
//! Absent on purpose: `clientInfo`. A proxy without memory sees headers only, and must decide alike.
//! Next: `marks.rs`.

use crate::pure::revision::Priming;

/// A kind of client.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Agent {
    /// The JDK's HTTP client, under the Java SDK.
    Java,
    /// .NET, under the C# SDK, where it says so.
    CSharp,
    /// Go's HTTP client, under the Go SDKs.
    Go,
    /// It does not say: the C# SDK among others.
    Unnamed,
    /// Any other.
    Other,
}

/// How those begin that say what they are, lower case.
const STARTS: [(&[u8], Agent); 7] = [
    (b"java-http-client", Agent::Java),
    (b"go-http-client", Agent::Go),
    (b"mcp-go", Agent::Go),
    (b"dotnet", Agent::CSharp),
    (b".net", Agent::CSharp),
    (b"modelcontextprotocol.", Agent::CSharp),
    (b"mcp-csharp", Agent::CSharp),
];

impl Agent {
    /// The kind of client that sends this `User-Agent`; empty if it sends none.
    pub fn of(user_agent: &[u8]) -> Self {
        let name = user_agent.trim_ascii();
        if name.is_empty() {
            return Self::Unnamed;
        }
        STARTS
            .iter()
            .find(|(start, _)| {
                name.get(..start.len())
                    .is_some_and(|own| own.eq_ignore_ascii_case(start))
            })
            .map_or(Self::Other, |(_, agent)| *agent)
    }

    /// Whether it may be told a `retry`.
    pub const fn bears_retry(self) -> bool {
        match self {
            Self::Java => false,
            Self::CSharp | Self::Go | Self::Unnamed | Self::Other => true,
        }
    }

    /// Whether it may get events of other types than `message`, with data.
    pub const fn bears_other_types(self) -> bool {
        match self {
            Self::Java => false,
            Self::CSharp | Self::Go | Self::Unnamed | Self::Other => true,
        }
    }

    /// Whether it may get a `ping` event whose data is no JSON-RPC.
    pub const fn bears_early_cursor(self) -> bool {
        match self {
            Self::Java | Self::CSharp | Self::Go | Self::Unnamed => false,
            Self::Other => true,
        }
    }
}

/// Whether the operator wants early cursors (`early_cursor`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Early {
    /// Where the client bears one.
    Wanted,
    /// Never.
    Off,
}

/// What a connection is told before anything of the log: something at once, and a cursor where one is understood.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Greeting {
    /// A priming event with the base `retry`.
    Prime,
    /// A priming event without `retry`.
    PrimeWithoutRetry,
    /// An id on an `event: ping` with `data: {}`.
    EarlyCursor,
    /// A comment.
    Comment,
}

impl Greeting {
    /// The greeting for a client whose session's revision says this of priming (wire contract, section 4).
    pub const fn of(priming: Priming, early: Early, agent: Agent) -> Self {
        match (priming, early) {
            (Priming::Yes, Early::Wanted | Early::Off) if agent.bears_retry() => Self::Prime,
            (Priming::Yes, Early::Wanted | Early::Off) => Self::PrimeWithoutRetry,
            (Priming::No, Early::Wanted) if agent.bears_early_cursor() => Self::EarlyCursor,
            (Priming::No, Early::Wanted | Early::Off) => Self::Comment,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_are_known_by_their_first_word() {
        for (user_agent, expected) in [
            ("Java-http-client/21.0.2", Agent::Java),
            ("java-HTTP-client", Agent::Java),
            (" Java-http-client/17", Agent::Java),
            ("Go-http-client/2.0", Agent::Go),
            ("mcp-go/0.41", Agent::Go),
            ("dotnet/9.0", Agent::CSharp),
            (".NET/9", Agent::CSharp),
            ("", Agent::Unnamed),
            ("  ", Agent::Unnamed),
            ("node", Agent::Other),
            ("python-httpx/0.28.1", Agent::Other),
            ("My Java-http-client", Agent::Other),
            ("Java", Agent::Other),
            ("ü", Agent::Other),
        ] {
            assert_eq!(Agent::of(user_agent.as_bytes()), expected, "{user_agent:?}");
        }
    }

    #[test]
    fn greetings_are_what_the_client_bears() {
        for (priming, early, agent, expected) in [
            (Priming::Yes, Early::Wanted, Agent::Other, Greeting::Prime),
            (Priming::Yes, Early::Off, Agent::Other, Greeting::Prime),
            (Priming::Yes, Early::Wanted, Agent::Unnamed, Greeting::Prime),
            (
                Priming::Yes,
                Early::Wanted,
                Agent::Java,
                Greeting::PrimeWithoutRetry,
            ),
            (Priming::No, Early::Wanted, Agent::Other, Greeting::EarlyCursor),
            (Priming::No, Early::Off, Agent::Other, Greeting::Comment),
            (Priming::No, Early::Wanted, Agent::Java, Greeting::Comment),
            (Priming::No, Early::Wanted, Agent::CSharp, Greeting::Comment),
            (Priming::No, Early::Wanted, Agent::Go, Greeting::Comment),
            (Priming::No, Early::Wanted, Agent::Unnamed, Greeting::Comment),
        ] {
            assert_eq!(
                Greeting::of(priming, early, agent),
                expected,
                "{priming:?} {early:?} {agent:?}"
            );
        }
    }
}
