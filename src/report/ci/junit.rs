//! JUnit XML, as Jenkins, GitLab and GitHub's test reporters read it: a suite a target, a case an artifact or layer.
//! Valid by `junit-10.xsd` of the Jenkins xUnit plug-in (MIT), which the tests hold it against.

use std::fmt::Write as _;

use super::{Case, Results, Told, in_full};
use crate::report::escape::{xml_attribute, xml_text};

/// The document.
pub fn render(results: &Results<'_>) -> String {
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let all: Vec<&Case<'_>> = results.suites.iter().flat_map(|s| &s.cases).collect();
    let _ = writeln!(
        out,
        "<testsuites name=\"gpudoctor {}\" tests=\"{}\" failures=\"{}\" errors=\"{}\">",
        xml_attribute(results.command),
        all.len(),
        count(&all, failed),
        count(&all, could_not_tell),
    );
    for suite in &results.suites {
        let cases: Vec<&Case<'_>> = suite.cases.iter().collect();
        let _ = writeln!(
            out,
            "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" timestamp=\"{}\">",
            xml_attribute(&suite.name),
            cases.len(),
            count(&cases, failed),
            count(&cases, could_not_tell),
            count(&cases, skipped),
            xml_attribute(results.taken_at.trim_end_matches('Z')),
        );
        for case in cases {
            self::case(&mut out, &suite.name, case);
        }
        out.push_str("  </testsuite>\n");
    }
    out.push_str("</testsuites>\n");
    out
}

fn count(cases: &[&Case<'_>], which: fn(&Case<'_>) -> bool) -> usize {
    cases.iter().filter(|case| which(case)).count()
}

fn failed(case: &Case<'_>) -> bool {
    case.findings.iter().any(|told| told.fails)
}

/// What could not be told is no failure of the artifact but an error of the run, where it counts at all.
fn could_not_tell(case: &Case<'_>) -> bool {
    !failed(case) && case.unknown.as_ref().is_some_and(|unknown| unknown.fails)
}

fn skipped(case: &Case<'_>) -> bool {
    !failed(case) && case.unknown.as_ref().is_some_and(|unknown| !unknown.fails)
}

fn case(out: &mut String, suite: &str, case: &Case<'_>) {
    // Readers show classes as a tree, parted at full stops.
    let class: String = suite
        .chars()
        .map(|c| if c.is_alphanumeric() { c } else { '_' })
        .collect();
    let _ = write!(
        out,
        "    <testcase classname=\"gpudoctor.{}\" name=\"{}\"",
        xml_attribute(class.trim_matches('_')),
        xml_attribute(&case.name)
    );
    let (fails, rest): (Vec<Told<'_>>, Vec<Told<'_>>) =
        case.findings.iter().copied().partition(|told| told.fails);
    let mut inside = String::new();
    // One element a case: several readers take the first and drop the others.
    if let Some(first) = fails.first() {
        let others = match fails.len() - 1 {
            0 => String::new(),
            n => format!(" (and {n} more)"),
        };
        let text: String = fails.iter().map(|told| in_full(told.finding)).collect();
        let _ = writeln!(
            inside,
            "      <failure type=\"{}\" message=\"{}\">{}</failure>",
            xml_attribute(&first.finding.id),
            xml_attribute(&format!("{}{others}", first.finding.title)),
            xml_text(&text)
        );
    } else if let Some(unknown) = &case.unknown {
        let element = if unknown.fails { "error" } else { "skipped" };
        let _ = writeln!(
            inside,
            "      <{element} type=\"unknown\" message=\"{}\"/>",
            xml_attribute(&format!("could not tell: {}", unknown.reason)),
        );
    }
    let mut said = String::new();
    if !case.tells.is_empty() {
        let _ = writeln!(said, "{}", case.tells);
    }
    for told in rest {
        if told.ignored {
            let _ = writeln!(said, "ignored on request: {}", told.finding.title);
        } else {
            said.push_str(&in_full(told.finding));
        }
    }
    if !said.is_empty() {
        let _ = writeln!(
            inside,
            "      <system-out>{}</system-out>",
            xml_text(said.trim_end())
        );
    }
    if inside.is_empty() {
        out.push_str("/>\n");
    } else {
        let _ = write!(out, ">\n{inside}    </testcase>\n");
    }
}
