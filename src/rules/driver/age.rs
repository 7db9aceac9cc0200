//! What the matrix itself cannot know: a driver that came out after it, and that it has grown old. Notes, both; the
//! verdict rests on rules that hold for newer versions too.

use jiff::civil::Date;

use crate::facts::Layer;
use crate::finding::{Finding, Fix, Severity};
use crate::rules::{Ctx, Outcome};
use crate::version::Version;

/// A driver branch comes out every month or two; after this many days some are sure to be missing.
const OLD_AFTER_DAYS: i64 = 90;

/// The driver is newer than the newest branch in the matrix: by its number, else by the CUDA version that it answers
/// (the only way in WSL and on a Jetson, whose numbers are another line).
pub(super) fn matrix_newer_driver(ctx: &Ctx<'_>) -> Outcome {
    let (version, level) = (ctx.driver_version(), ctx.driver_level());
    // On a host without a driver the table is not even parsed.
    if version.is_none() && level.is_none() {
        return Outcome::Clean;
    }
    let Some(newest) = ctx.matrix.newest_branch() else {
        return Outcome::Clean;
    };
    let by_number = version
        .filter(|(version, _)| ctx.plain_linux() && version.major() > newest.branch)
        .map(|(version, source)| (format!("driver {version}"), version.to_string(), source));
    let by_level = || {
        let (level, source) = level?;
        let cuda = format!("CUDA {}", Version::from_cuda_level(level));
        (level > newest.level).then(|| (format!("the driver ({cuda})"), cuda, source))
    };
    let Some((driver, value, source)) = by_number.or_else(by_level) else {
        return Outcome::Clean;
    };
    let finding = Finding::new(
        "matrix-newer-driver",
        Layer::Driver,
        Severity::Note,
        format!(
            "{driver} is newer than the compatibility matrix of {}, which ends with branch {}: judged by the general rules",
            ctx.matrix.as_of(),
            newest.branch
        ),
    )
    .detail("A newer driver runs every CUDA runtime that an older one runs. What is new in it, and which GPUs it no longer drives, the matrix does not know.")
    .evidence("driver", value, source)
    .evidence(
        "newest branch of the matrix",
        format!("{} (CUDA {})", newest.branch, Version::from_cuda_level(newest.level)),
        newest.source.clone(),
    )
    .fix(newer_matrix());
    Outcome::found([finding])
}

/// The matrix is more than 90 days older than the snapshot.
pub(super) fn matrix_old(ctx: &Ctx<'_>) -> Outcome {
    let day = |text: &str| text.get(..10).and_then(|day| day.parse::<Date>().ok());
    let (as_of, taken_at) = (ctx.matrix.as_of(), &ctx.facts.taken_at);
    let (Some(of), Some(taken)) = (day(as_of), day(taken_at)) else {
        return Outcome::unknown("the age of the compatibility matrix: the snapshot has no date");
    };
    let days = of.duration_until(taken).as_hours() / 24;
    if days <= OLD_AFTER_DAYS {
        return Outcome::Clean;
    }
    let mut finding = Finding::new(
        "matrix-old",
        Layer::Driver,
        Severity::Note,
        format!("the compatibility matrix is of {as_of}, {days} days older than this look: newer drivers, toolkits and GPUs are unknown to it"),
    )
    .detail("What the matrix says still holds. What came out since is judged by the general rules, or is unknown.")
    .evidence("matrix", as_of, "bundled with gpudoctor")
    .evidence("taken at", taken_at.clone(), "this snapshot")
    .fix(newer_matrix());
    finding.vendor = None;
    Outcome::found([finding])
}

/// What helps against both; the stack has nothing to change.
fn newer_matrix() -> Fix {
    Fix {
        summary: "take a newer gpudoctor, or add rows of your own with `--matrix DIR`".to_owned(),
        ..Fix::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Facts, Reading};
    use crate::matrix::Matrix;

    fn ask(facts: &Facts, rule: fn(&Ctx<'_>) -> Outcome) -> Outcome {
        let matrix = Matrix::bundled();
        rule(&Ctx {
            facts,
            matrix: &matrix,
            expect_gpu: false,
        })
    }

    #[test]
    fn a_matrix_is_old_after_ninety_days() {
        let as_of: Date = Matrix::bundled().as_of().parse().unwrap();
        for (days, old) in [
            (-400, false),
            (0, false),
            (90, false),
            (91, true),
            (4000, true),
        ] {
            let taken = as_of.checked_add(jiff::Span::new().days(days)).unwrap();
            let facts = Facts {
                taken_at: format!("{taken}T23:59:59Z"),
                ..Facts::default()
            };
            let outcome = ask(&facts, matrix_old);
            assert_eq!(matches!(outcome, Outcome::Found(_)), old, "{days}");
            if let Outcome::Found(found) = outcome {
                let title = &found.first().unwrap().title;
                assert!(title.contains(&format!("{days} days older")), "{title}");
            }
        }
        let unknown = ask(&Facts::default(), matrix_old);
        assert!(matches!(unknown, Outcome::Unknown { .. }));
    }

    #[test]
    fn a_driver_is_newer_by_its_number_where_numbers_compare() {
        let newest = Matrix::bundled().newest_branch().unwrap().branch;
        for (branch, wsl, newer) in [
            (newest, false, false),
            (newest + 10, false, true),
            (newest + 10, true, false),
        ] {
            let mut facts = Facts::default();
            let version = Version::parse(&format!("{branch}.10")).unwrap();
            facts.driver.sys_version = Reading::present(version, "/sys/module/nvidia/version");
            let absent = || Reading::absent("/proc");
            facts.system.wsl = if wsl {
                Reading::present(String::new(), "/proc")
            } else {
                absent()
            };
            facts.system.tegra = Reading::absent("/proc");
            let outcome = ask(&facts, matrix_newer_driver);
            assert_eq!(
                matches!(outcome, Outcome::Found(_)),
                newer,
                "{branch} {wsl}"
            );
        }
    }
}
