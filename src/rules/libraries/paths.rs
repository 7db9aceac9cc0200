//! How to take what a variable puts first out of the way: `LD_LIBRARY_PATH`, `LD_PRELOAD`, `PYTHONPATH`.

use super::got;
use crate::facts::{Layer, Link, ReachedBy};
use crate::finding::{Fix, shell_list};
use crate::rules::Ctx;
use crate::sysroot::{file_name, parent};

/// How to take the copy that a link leads to out of the way.
pub(super) fn out_of_the_way(ctx: &Ctx<'_>, link: &Link) -> Option<Fix> {
    let path = link.got.as_deref()?;
    let folder = parent(path);
    match link.by.as_str() {
        "LD_LIBRARY_PATH" => Some(out_of_library_path(ctx, link, folder)),
        "LD_PRELOAD" => {
            let fix = Fix::at(Layer::Application, format!("take {path} out of LD_PRELOAD"));
            let set = ctx.env("LD_PRELOAD").unwrap_or_default();
            let entries = set.split([' ', ':']).filter(|entry| !entry.is_empty());
            let (out, rest): (Vec<&str>, Vec<&str>) =
                entries.partition(|entry| is_preloaded_as(path, entry));
            Some(if out.is_empty() {
                fix
            } else {
                fix.line(set_or_unset("LD_PRELOAD", &rest))
            })
        }
        _ if pythonpath_of(ctx, path).is_some() => without_pythonpath(ctx, path),
        "ld.so.cache" | "default folder" => Some(Fix::at(
            Layer::Libraries,
            format!(
                "remove the other {} in {folder}, or bring both to one version",
                file_name(path)
            ),
        )),
        _ => None,
    }
}

/// Whether an entry of `LD_PRELOAD` is the one that led to a path: by the path, else by its file name alone.
fn is_preloaded_as(path: &str, entry: &str) -> bool {
    entry == path || file_name(entry) == file_name(path)
}

/// `export NAME=...`, or `unset NAME` where nothing is left.
fn set_or_unset(name: &str, rest: &[&str]) -> String {
    if rest.is_empty() {
        format!("unset {name}")
    } else {
        format!("export {name}={}", shell_list(rest, ":"))
    }
}

fn out_of_library_path(ctx: &Ctx<'_>, link: &Link, folder: &str) -> Fix {
    let fix = Fix::at(
        Layer::Application,
        format!("take {folder} out of LD_LIBRARY_PATH for this program"),
    );
    // The same folder may be written in several ways: as it was searched, by a link, or relative to where one stands.
    let mut names = vec![folder];
    if let Some(copy) = got(ctx, link) {
        names.extend([parent(&copy.path), parent(&copy.real_path)]);
        names.extend(copy.reached_by.iter().filter_map(|by| match by {
            ReachedBy::LdLibraryPath(dir) => Some(dir.as_str()),
            _ => None,
        }));
    }
    let set = ctx.env("LD_LIBRARY_PATH").unwrap_or_default();
    let (out, rest): (Vec<&str>, Vec<&str>) =
        set.split([':', ';']).partition(|dir| leads_to(dir, &names));
    // What names no folder that is known may be a link to it: no command is better than one that changes nothing.
    if out.is_empty() {
        return fix;
    }
    let rest: Vec<&str> = rest.into_iter().filter(|dir| !dir.is_empty()).collect();
    fix.line(set_or_unset("LD_LIBRARY_PATH", &rest))
}

/// Whether an entry of `LD_LIBRARY_PATH` may be one of these folders. Of a relative one only its end is known.
fn leads_to(entry: &str, names: &[&str]) -> bool {
    let plain = |dir: &str| -> String {
        let parts = dir
            .split('/')
            .filter(|part| !part.is_empty() && *part != ".");
        parts.collect::<Vec<_>>().join("/")
    };
    let is_absolute = entry.starts_with(['/', '~']);
    let entry = plain(entry);
    names.iter().any(|name| {
        let name = plain(name);
        if is_absolute {
            return name == entry;
        }
        // An empty entry and `.` are the working folder, which is not recorded.
        entry.is_empty() || name == entry || name.ends_with(&format!("/{entry}"))
    })
}

/// The folder of `PYTHONPATH` that a path lies in, as it is written there; those of the environment itself are none.
pub(in crate::rules) fn pythonpath_of<'a>(ctx: &'a Ctx<'_>, path: &str) -> Option<&'a str> {
    let is_in = |dir: &str, path: &str| {
        let dir = dir.trim_end_matches('/');
        !dir.is_empty()
            && path
                .strip_prefix(dir)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let own = ctx.facts.consumer.prefix.value();
    ctx.env("PYTHONPATH")?
        .split(':')
        .filter(|dir| own.is_none_or(|own| !is_in(own, dir)))
        .find(|dir| is_in(dir, path))
}

/// How to take the folder of `PYTHONPATH` that a path lies in out of it; `None` where it lies in none.
pub(in crate::rules) fn without_pythonpath(ctx: &Ctx<'_>, path: &str) -> Option<Fix> {
    let folder = pythonpath_of(ctx, path)?;
    let rest: Vec<&str> = ctx
        .env("PYTHONPATH")?
        .split(':')
        .filter(|dir| !dir.is_empty() && dir.trim_end_matches('/') != folder.trim_end_matches('/'))
        .collect();
    let fix = Fix::at(
        Layer::Application,
        format!("take {folder} out of PYTHONPATH, which comes before what the environment has"),
    );
    Some(fix.line(set_or_unset("PYTHONPATH", &rest)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Facts, Reading};
    use crate::matrix::Matrix;

    /// The command of the fix for a copy at `got`, with one variable set.
    fn command(by: &str, got: &str, name: &str, value: &str) -> Option<String> {
        let variables = [(name.to_owned(), value.to_owned())].into();
        let facts = Facts {
            environment: Reading::present(variables, "test"),
            ..Facts::default()
        };
        let ctx = Ctx {
            facts: &facts,
            matrix: &Matrix::bundled(),
            expect_gpu: false,
        };
        let link = Link {
            got: Some(got.to_owned()),
            by: by.to_owned(),
            ..Link::default()
        };
        out_of_the_way(&ctx, &link)?.commands.first().cloned()
    }

    #[test]
    fn what_a_variable_is_set_to_without_a_copy() {
        let (path, preload, python) = ("LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH");
        for (by, got, name, value, wants) in [
            (
                preload,
                "/o/l.so",
                preload,
                "/o/l.so",
                Some("unset LD_PRELOAD"),
            ),
            (
                preload,
                "/o/l.so",
                preload,
                "l.so /a.so",
                Some("export LD_PRELOAD=/a.so"),
            ),
            (path, "/o/l.so", path, "/o/", Some("unset LD_LIBRARY_PATH")),
            (
                path,
                "/w/o/l.so",
                path,
                "o:/b",
                Some("export LD_LIBRARY_PATH=/b"),
            ),
            (
                path,
                "/o/l.so",
                path,
                "/o:~/a b",
                Some("export LD_LIBRARY_PATH=\"$HOME\"/'a b'"),
            ),
            // A link that leads there, and nothing says so: no command that changes nothing.
            (path, "/o/l.so", path, "/link", None),
            (
                "RUNPATH",
                "/o/n/l.so",
                python,
                "/o:/b",
                Some("export PYTHONPATH=/b"),
            ),
            ("RUNPATH", "/x/l.so", python, "/o:/b", None),
        ] {
            assert_eq!(
                command(by, got, name, value).as_deref(),
                wants,
                "{by} {value}"
            );
        }
    }

    #[test]
    fn entries_of_a_library_path() {
        let names = ["/w/o/lib", "/real/lib"];
        for entry in [
            "/w/o/lib/",
            "/w//o/./lib",
            "lib",
            "./o/lib",
            ".",
            "",
            "/real/lib",
        ] {
            assert!(leads_to(entry, &names), "{entry}");
        }
        for entry in ["/w/o", "/o/lib", "b", "lib64", "x/lib"] {
            assert!(!leads_to(entry, &names), "{entry}");
        }
        assert!(leads_to("~/a b", &["~/a b"]));
    }
}
