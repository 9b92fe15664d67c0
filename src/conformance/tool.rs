//! Which tool makes the server speak: one that says progress, one that says more than a server keeps, and one that
//! speaks on the standalone stream.
//! Law: what the user names is taken as it is; without a name only tools are called that are known to do no harm.
//! Absent on purpose: any other guess. A tool that is not known might send a mail.
//! Next: `bench.rs`.

use crate::conformance::account::{Tagged, Token};
use crate::pure::rpc;

/// What stands for the tag of a call in its arguments.
const TAG: &str = "{tag}";

/// A tool, and what it is called with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// Its arguments, a JSON object; `{tag}` in it stands for a text that each call has for itself.
    pub(super) template: String,
    /// Whether its result names the tag.
    pub(super) tagged: Tagged,
}

impl Tool {
    /// A tool with these arguments, which are a JSON object.
    ///
    /// # Errors
    /// They are none.
    pub fn new(name: &str, arguments: &str) -> Result<Self, NotAnObject> {
        match rpc::members(arguments.as_bytes()) {
            Some(_) => Ok(Self::known(name, arguments)),
            None => Err(NotAnObject),
        }
    }

    fn known(name: &str, arguments: &str) -> Self {
        Self {
            name: name.to_owned(),
            template: arguments.to_owned(),
            tagged: Tagged::No,
        }
    }

    /// The arguments of the call with this token.
    pub(super) fn arguments(&self, token: &Token) -> String {
        self.template.replace(TAG, token.as_str())
    }
}

/// Arguments that are no JSON object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotAnObject;

impl std::fmt::Display for NotAnObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the arguments are no JSON object")
    }
}

impl std::error::Error for NotAnObject {}

/// The tools of a run.
#[derive(Clone, Debug, Default)]
pub struct Tools {
    /// Says progress for a second or so, then answers.
    pub progress: Option<Tool>,
    /// Says more messages than a server keeps, fast.
    pub flood: Option<Tool>,
    /// Answers at once, then speaks on the standalone stream for a second or so.
    pub notify: Option<Tool>,
}

/// Tools that are known: the example servers of the official SDKs, and the lab's.
const PROGRESS: [(&str, &str, &str); 4] = [
    (
        "slow",
        r#"{"tag":"{tag}","steps":6,"interval_ms":150}"#,
        r#"{"tag":"{tag}","steps":1500,"interval_ms":0}"#,
    ),
    (
        "trigger-long-running-operation",
        r#"{"duration":1,"steps":6}"#,
        r#"{"duration":1,"steps":1500}"#,
    ),
    (
        "longRunningOperation",
        r#"{"duration":1,"steps":6}"#,
        r#"{"duration":1,"steps":1500}"#,
    ),
    ("test_tool_with_progress", "{}", ""),
];

const NOTIFY: [(&str, &str); 1] = [("emit", r#"{"tag":"{tag}","n":6,"interval_ms":120}"#)];

impl Tools {
    /// What the user did not name, from the tools that the server has.
    pub(super) fn or_known(self, has: &[String]) -> Self {
        let has = |name: &str| has.iter().any(|tool| tool == name);
        let known = PROGRESS.iter().find(|(name, ..)| has(name));
        let found = |arguments: Option<&str>, name: &str| {
            arguments
                .filter(|arguments| !arguments.is_empty())
                .map(|arguments| Tool::known(name, arguments))
        };
        let progress = known.and_then(|(name, usual, _)| found(Some(usual), name));
        let flood = known.and_then(|(name, _, many)| found(Some(many), name));
        let notify = NOTIFY
            .iter()
            .find(|(name, _)| has(name))
            .and_then(|(name, arguments)| found(Some(arguments), name));
        let named = self.progress.is_some();
        Self {
            progress: self.progress.or(progress),
            flood: self.flood.or(if named { None } else { flood }),
            notify: self.notify.or(notify),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_tools_are_called_unasked() {
        fn check(given: Tools, has: &[&str], expected: [Option<&str>; 3]) {
            let has: Vec<String> = has.iter().map(|name| (*name).to_owned()).collect();
            let tools = given.or_known(&has);
            let name = |tool: &Option<Tool>| tool.as_ref().map(|tool| tool.name.clone());
            let found = [name(&tools.progress), name(&tools.flood), name(&tools.notify)];
            assert_eq!(found, expected.map(|name| name.map(str::to_owned)), "{has:?}");
        }
        let named = || Tools {
            progress: Some(Tool::new("mine", "{}").unwrap()),
            ..Tools::default()
        };
        check(Tools::default(), &["send_mail", "delete_all"], [None; 3]);
        check(
            Tools::default(),
            &["emit", "slow"],
            [Some("slow"), Some("slow"), Some("emit")],
        );
        check(
            Tools::default(),
            &["test_tool_with_progress"],
            [Some("test_tool_with_progress"), None, None],
        );
        check(named(), &["slow"], [Some("mine"), None, None]);
    }

    #[test]
    fn each_call_has_a_tag_of_its_own() {
        let tool = Tool::new("t", r#"{"a":"{tag}","b":["{tag}"]}"#).unwrap();
        let arguments = tool.arguments(&Token::new("r", 1));
        assert_eq!(arguments, r#"{"a":"tlsuite-r-1-","b":["tlsuite-r-1-"]}"#);
        assert_eq!(Tool::new("t", "[1]"), Err(NotAnObject));
        assert_eq!(Tool::new("t", "{"), Err(NotAnObject));
    }
}
