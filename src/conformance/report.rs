//! The report: as text for people, as JSON, and as JUnit XML for build servers.
//! Law: the four words (pass, fail, silent, skipped) are the same in all of them; evidence stands with whatever is no
//! pass; what a server said is escaped, so that no answer of it can forge a report.
//! Next: `mod.rs`.

use std::fmt::Write as _;
use std::time::Duration;

use crate::conformance::outcome::{Finding, Outcome};
use crate::pure::rpc::quoted;

/// In which form a report is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// For people.
    Text,
    /// One JSON object.
    Json,
    /// JUnit XML: *silent* and *fail* are failures of these types.
    Junit,
}

/// One case that was tried.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The case's name.
    pub name: &'static str,
    /// What it came to.
    pub finding: Finding,
    /// What was said, line by line.
    pub evidence: Vec<String>,
    /// How long it took.
    pub took: Duration,
}

/// What a run found.
#[derive(Clone, Debug)]
pub struct Report {
    /// The URL that was tried.
    pub url: String,
    /// Name and version of the server, as it says.
    pub server: String,
    /// The revision that was spoken.
    pub revision: String,
    /// The tools that were called: `none` where there is none.
    pub tools: [(&'static str, String); 3],
    /// The cases, in the order of the table.
    pub entries: Vec<Entry>,
}

/// Whether a server may be relied on, by this report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Every case that could be tried passed, and at least one was tried.
    Honest,
    /// At least one failed, or was silent.
    Dishonest,
    /// None could be tried.
    Untried,
}

impl Report {
    /// What it comes to.
    pub fn verdict(&self) -> Verdict {
        let worst = self.entries.iter().map(|entry| entry.finding.outcome).max();
        match worst {
            Some(Outcome::Silent | Outcome::Fail) => Verdict::Dishonest,
            Some(Outcome::Pass(_)) => Verdict::Honest,
            Some(Outcome::Skipped) | None => Verdict::Untried,
        }
    }

    /// The report in this form.
    pub fn print(&self, format: Format) -> String {
        match format {
            Format::Text => self.text(),
            Format::Json => self.json(),
            Format::Junit => self.junit(),
        }
    }

    fn count(&self, word: &str) -> usize {
        let entries = self.entries.iter();
        entries
            .filter(|entry| entry.finding.outcome.as_str() == word)
            .count()
    }

    fn text(&self) -> String {
        let mut out = format!(
            "{}\n  server    {}\n  revision  {}\n",
            clean(&self.url),
            clean(&self.server),
            self.revision
        );
        for (what, tool) in &self.tools {
            let _ = writeln!(out, "  {what:<9} {}", clean(tool));
        }
        out.push('\n');
        for entry in &self.entries {
            let Finding { outcome, why } = &entry.finding;
            let word = match outcome {
                Outcome::Silent => "SILENT",
                Outcome::Pass(_) | Outcome::Fail | Outcome::Skipped => outcome.as_str(),
            };
            let _ = writeln!(out, "{word:<8} {:<26} {}", entry.name, clean(why));
        }
        for entry in self
            .entries
            .iter()
            .filter(|entry| needs_evidence(entry.finding.outcome))
        {
            let Finding { outcome, why } = &entry.finding;
            let _ = writeln!(out, "\n== {} {}: {}", outcome.as_str(), entry.name, clean(why));
            for line in &entry.evidence {
                let _ = writeln!(out, "   {line}");
            }
        }
        let _ = writeln!(
            out,
            "\n{} pass, {} fail, {} silent, {} skipped",
            self.count("pass"),
            self.count("fail"),
            self.count("silent"),
            self.count("skipped")
        );
        out
    }

    fn json(&self) -> String {
        let list = |items: Vec<String>| items.join(",");
        let tools = self
            .tools
            .iter()
            .map(|(what, tool)| format!("{}:{}", quoted(what), quoted(tool)));
        let cases = self.entries.iter().map(|entry| {
            let Finding { outcome, why } = &entry.finding;
            let how = match outcome {
                Outcome::Pass(_) => format!(r#""how":{},"#, quoted(outcome.word())),
                Outcome::Fail | Outcome::Silent | Outcome::Skipped => String::new(),
            };
            format!(
                "\n{{\"name\":{},\"outcome\":{},{how}\"why\":{},\"seconds\":{:.3},\"evidence\":[{}]}}",
                quoted(entry.name),
                quoted(outcome.as_str()),
                quoted(why),
                entry.took.as_secs_f64(),
                list(entry.evidence.iter().map(|line| quoted(line)).collect()),
            )
        });
        format!(
            "{{\"url\":{},\"server\":{},\"revision\":{},\"tools\":{{{}}},\"pass\":{},\"fail\":{},\"silent\":{},\"skipped\":{},\"cases\":[{}\n]}}\n",
            quoted(&self.url),
            quoted(&self.server),
            quoted(&self.revision),
            list(tools.collect()),
            self.count("pass"),
            self.count("fail"),
            self.count("silent"),
            self.count("skipped"),
            list(cases.collect()),
        )
    }

    fn junit(&self) -> String {
        let mut out = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n<testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\">\n",
            escaped(&self.url),
            self.entries.len(),
            self.count("fail") + self.count("silent"),
            self.count("skipped"),
        );
        for entry in &self.entries {
            let Finding { outcome, why } = &entry.finding;
            let _ = writeln!(
                out,
                "<testcase classname=\"throughline.conformance\" name=\"{}\" time=\"{:.3}\">",
                escaped(entry.name),
                entry.took.as_secs_f64()
            );
            let why = escaped(why);
            match outcome {
                Outcome::Skipped => {
                    let _ = writeln!(out, "<skipped message=\"{why}\"/>");
                }
                Outcome::Fail | Outcome::Silent => {
                    let evidence = escaped(&entry.evidence.join("\n"));
                    let word = outcome.as_str();
                    let _ = writeln!(
                        out,
                        "<failure type=\"{word}\" message=\"{why}\">{evidence}</failure>"
                    );
                }
                Outcome::Pass(_) => {
                    let _ = writeln!(out, "<system-out>{why}</system-out>");
                }
            }
            out.push_str("</testcase>\n");
        }
        out.push_str("</testsuite>\n</testsuites>\n");
        out
    }
}

const fn needs_evidence(outcome: Outcome) -> bool {
    match outcome {
        Outcome::Fail | Outcome::Silent => true,
        Outcome::Pass(_) | Outcome::Skipped => false,
    }
}

/// A text for a terminal: what a server said moves no cursor and starts no line.
fn clean(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

/// A text in XML, inside an attribute or an element. What XML 1.0 can't hold is replaced.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() || c == '\u{fffe}' || c == '\u{ffff}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::rpc;

    fn report(findings: &[Finding]) -> Report {
        let entries = findings.iter().map(|finding| Entry {
            name: "post/cut",
            finding: finding.clone(),
            evidence: vec!["< data: \"<a>\u{1b}&\"".to_owned()],
            took: Duration::from_millis(1500),
        });
        Report {
            url: "http://a/mcp?x=\"<".to_owned(),
            server: "s\u{1b}[2J 1".to_owned(),
            revision: "r".to_owned(),
            tools: [
                ("tool", "t".to_owned()),
                ("flood", "none".to_owned()),
                ("notify", "none".to_owned()),
            ],
            entries: entries.collect(),
        }
    }

    fn all() -> Report {
        report(&[
            Finding::whole("w"),
            Finding::told("t"),
            Finding::fail("f <&\">"),
            Finding::silent("lost \"it\""),
            Finding::skipped("no"),
        ])
    }

    #[test]
    fn the_verdict_is_that_of_the_gravest() {
        for (findings, verdict) in [
            (vec![], Verdict::Untried),
            (vec![Finding::skipped("")], Verdict::Untried),
            (vec![Finding::skipped(""), Finding::told("")], Verdict::Honest),
            (vec![Finding::fail(""), Finding::whole("")], Verdict::Dishonest),
            (vec![Finding::silent(""), Finding::whole("")], Verdict::Dishonest),
        ] {
            assert_eq!(report(&findings).verdict(), verdict, "{findings:?}");
        }
    }

    #[test]
    fn text_shows_the_evidence_of_what_is_no_pass() {
        let text = all().print(Format::Text);
        assert!(
            text.contains("\nSILENT   post/cut                   lost \"it\"\n"),
            "{text}"
        );
        assert!(text.contains("\n2 pass, 1 fail, 1 silent, 1 skipped\n"), "{text}");
        assert_eq!(text.matches("\n== ").count(), 2);
        assert_eq!(text.matches("< data:").count(), 2);
        assert!(text.contains("s?[2J 1"), "{text}");
    }

    #[test]
    fn json_reads_back() {
        let json = all().print(Format::Json);
        let raw = |path: &[&str]| rpc::lookup(json.as_bytes(), path);
        assert_eq!(raw(&["silent"]), Some(&b"1"[..]), "{json}");
        let cases = raw(&["cases"]).and_then(rpc::elements).expect("a list");
        assert_eq!(cases.len(), 5);
        let text = |at: usize, name: &str| {
            rpc::lookup(cases[at], &[name])
                .and_then(rpc::text)
                .map(|text| text.into_owned())
        };
        assert_eq!(text(1, "how").as_deref(), Some("told"));
        assert_eq!(text(3, "outcome").as_deref(), Some("silent"));
        assert_eq!(text(3, "why").as_deref(), Some("lost \"it\""));
        assert_eq!(text(4, "how"), None);
    }

    #[test]
    fn junit_is_escaped() {
        let xml = all().print(Format::Junit);
        assert!(xml.contains(
            "name=\"http://a/mcp?x=&quot;&lt;\" tests=\"5\" failures=\"2\" errors=\"0\" skipped=\"1\""
        ));
        assert!(xml.contains("<failure type=\"silent\" message=\"lost &quot;it&quot;\">&lt; data: &quot;&lt;a&gt;\u{fffd}&amp;&quot;</failure>"), "{xml}");
        assert!(xml.contains("<skipped message=\"no\"/>"));
        assert_eq!(
            xml.matches("<testcase ").count(),
            xml.matches("</testcase>").count()
        );
    }
}
