//! The snippets of the README: their YAML is valid by the schemas that check-jsonschema carries, their shell runs in bash
//! with the variables of that CI system, and the hook runs in a repository of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::judges::{self, Judges};

/// The blocks of a language in the README, in order.
fn blocks(language: &str) -> Vec<String> {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let fence = format!("\n```{language}\n");
    readme
        .split(&fence)
        .skip(1)
        .map(|rest| rest.split("\n```").next().unwrap().to_owned() + "\n")
        .collect()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The block of YAML that has these words.
fn yaml(words: &str) -> String {
    blocks("yaml")
        .into_iter()
        .find(|block| block.contains(words))
        .unwrap()
}

/// A repository with the README's gpudoctor.toml, made to fit what lies in it: one program that runs on the target.
fn repository() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    let config = blocks("toml")
        .into_iter()
        .find(|block| block.contains("[preflight]"))
        .unwrap();
    let config = config.replace(
        "\"build/server\", \"dist/*.whl\", ",
        "\"build/libaxpy.a\", ",
    );
    fs::write(place.path().join("gpudoctor.toml"), config).unwrap();
    fs::create_dir(place.path().join("build")).unwrap();
    fs::copy(
        root().join("fixtures/preflight/11.8/libaxpy.a"),
        place.path().join("build/libaxpy.a"),
    )
    .unwrap();
    fs::write(place.path().join("requirements.txt"), "torch==2.6.0\n").unwrap();
    place
}

/// Runs a line of shell as a CI system would, with the program on PATH.
fn bash(folder: &Path, line: &str, variables: &[(&str, &str)]) -> std::process::Output {
    let path = format!("{}:/usr/bin:/bin", bin().display());
    Command::new("bash")
        .args(["-eo", "pipefail", "-c", line])
        .current_dir(folder)
        .env_clear()
        .env("PATH", path)
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

/// The folder that the program lies in.
fn bin() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_gpudoctor"))
        .parent()
        .unwrap()
        .to_owned()
}

/// Holds a snippet against a schema that check-jsonschema carries.
fn valid(judges: &Judges, schema: &str, snippet: &str) {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("snippet.yml");
    fs::write(&file, snippet).unwrap();
    let output = judges
        .python()
        .args(["-m", "check_jsonschema", "--builtin-schema", schema])
        .arg(&file)
        .output()
        .unwrap();
    assert!(output.status.success(), "{schema}: {output:?}");
}

/// The commands of a snippet: `run:` in GitHub's, the list under `script:` in GitLab's, `sh '...'` in Jenkins's.
fn commands(snippet: &str) -> Vec<String> {
    let lines = snippet.lines().map(str::trim);
    lines
        .filter_map(|line| {
            let line = line.strip_prefix("- ").unwrap_or(line);
            let line = line.strip_prefix("run: ").unwrap_or(line);
            let line = line
                .strip_prefix("sh '")
                .and_then(|rest| rest.strip_suffix('\''))
                .unwrap_or(line);
            line.starts_with("gpudoctor ").then(|| line.to_owned())
        })
        .collect()
}

#[test]
fn the_workflow_of_github() {
    let snippet = yaml("runs-on:");
    let place = repository();
    let summary = place.path().join("summary");
    let variables = [
        ("CI", "true"),
        ("GITHUB_ACTIONS", "true"),
        ("GITHUB_STEP_SUMMARY", summary.to_str().unwrap()),
    ];
    let [command] = commands(&snippet).try_into().unwrap();
    let output = bash(place.path(), &command, &variables);
    assert!(output.status.success(), "{output:?}");
    assert!(place.path().join("gpudoctor.sarif").is_file());
    let said = fs::read_to_string(&summary).unwrap();
    assert!(
        said.starts_with("### gpudoctor preflight: passed"),
        "{said}"
    );
    // And where the pin does not run there.
    fs::write(place.path().join("requirements.txt"), "torch==2.12.0\n").unwrap();
    let output = bash(place.path(), &command, &variables);
    let log = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{log}");
    assert!(log.contains("\n::error title=gpudoctor"), "{log}");
    assert!(log.contains("file=requirements.txt"), "{log}");
    let Some(judges) = judges::all() else { return };
    valid(judges, "vendor.github-workflows", &snippet);
}

#[test]
fn the_job_of_gitlab() {
    let snippet = yaml("codequality:");
    let place = repository();
    let [command] = commands(&snippet).try_into().unwrap();
    let output = bash(
        place.path(),
        &command,
        &[("CI", "true"), ("GITLAB_CI", "true")],
    );
    assert!(output.status.success(), "{output:?}");
    for report in ["gpudoctor.xml", "gl-code-quality-report.json"] {
        assert!(place.path().join(report).is_file(), "{report}");
    }
    assert!(!output.stdout.contains(&0x1b), "no colour in a log");
    let Some(judges) = judges::all() else { return };
    valid(judges, "vendor.gitlab-ci", &snippet);
}

#[test]
fn the_pipeline_of_jenkins() {
    let [snippet] = blocks("groovy").try_into().unwrap();
    let place = repository();
    let [command] = commands(&snippet).try_into().unwrap();
    let output = bash(
        place.path(),
        &command,
        &[("JENKINS_URL", "http://jenkins/")],
    );
    assert!(output.status.success(), "{output:?}");
    let junit = fs::read_to_string(place.path().join("gpudoctor.xml")).unwrap();
    assert!(junit.contains("failures=\"0\""), "{junit}");
}

#[test]
fn the_hook_of_pre_commit() {
    let Some(judges) = judges::all() else { return };
    let place = repository();
    let git = |folder: &Path, words: &[&str]| {
        let output = Command::new("git")
            .args(["-c", "user.name=a", "-c", "user.email=a@localhost"])
            .args(["-c", "init.defaultBranch=main"])
            .args(words)
            .current_dir(folder)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    // The hook's own repository, as somebody clones it.
    let own = tempfile::tempdir().unwrap();
    let hooks = own.path().join(".pre-commit-hooks.yaml");
    fs::copy(root().join(".pre-commit-hooks.yaml"), hooks).unwrap();
    for folder in [own.path(), place.path()] {
        git(folder, &["init", "--quiet"]);
        git(folder, &["add", "."]);
        git(folder, &["commit", "--quiet", "-m", "begin"]);
    }
    git(own.path(), &["tag", "v0.1.0"]);
    let snippet = yaml("hooks:").replace("../gpudoctor", own.path().to_str().unwrap());
    fs::write(place.path().join(".pre-commit-config.yaml"), snippet).unwrap();
    git(place.path(), &["add", "."]);
    let hook = || {
        let path = std::env::var("PATH").unwrap();
        judges
            .python()
            .args(["-m", "pre_commit", "run", "--all-files", "--verbose"])
            .current_dir(place.path())
            .env("PATH", format!("{}:{path}", bin().display()))
            .env("PRE_COMMIT_HOME", place.path().join(".git/pre-commit"))
            .output()
            .unwrap()
    };
    let output = hook();
    assert!(output.status.success(), "{output:?}");
    fs::write(place.path().join("requirements.txt"), "torch==2.12.0\n").unwrap();
    let output = hook();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("is too old for torch 2.12.0"), "{said}");
}
