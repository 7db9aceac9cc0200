//! What a driver's number says: its branch, and between which CUDA versions it lies.
//!
//! Numbers of Linux drivers are looked up by branch; side lines (beta drivers, internal branches) are compared with
//! their neighbours. Numbers of Windows drivers are another line: they are compared with the Windows column only, and a
//! number that is known to be one is never taken for a Linux driver.

use super::{Cited, cuda_of};
use crate::matrix::{Confidence, DriverBranch, Matrix};
use crate::target::{self, Os};
use crate::version::Version;

/// A driver, as far as its number tells.
pub(super) struct Side<'m> {
    /// `driver 470.82.01`, `Windows driver 551.61`, `no driver`.
    pub(super) shown: String,
    /// Its version, where there is a driver.
    pub(super) number: Option<&'m Version>,
    /// It is a Windows driver's.
    pub(super) windows: bool,
    /// Its row, where it has one.
    pub(super) branch: Option<&'m DriverBranch>,
    /// Its CUDA level is at least this.
    pub(super) low: Option<u32>,
    /// And at most this.
    pub(super) high: Option<u32>,
    /// It is newer than the newest branch of the matrix.
    pub(super) newer: bool,
    /// What that rests on.
    pub(super) cited: Vec<Cited>,
    /// Why nothing can be said of it.
    pub(super) unknown: Option<String>,
}

impl<'m> Side<'m> {
    pub(super) fn of(matrix: &'m Matrix, driver: &'m target::Driver, os: Option<&Os>) -> Self {
        let windows = os.is_some_and(Os::has_windows_driver);
        let target::Driver::Version(number) = driver else {
            return Self {
                shown: "no driver".to_owned(),
                number: None,
                windows,
                branch: None,
                low: Some(0),
                high: Some(0),
                newer: false,
                cited: Vec::new(),
                unknown: None,
            };
        };
        let mut side = Self {
            shown: if windows {
                format!("Windows driver {number}")
            } else {
                format!("driver {number}")
            },
            number: Some(number),
            windows,
            branch: None,
            low: None,
            high: None,
            newer: false,
            cited: Vec::new(),
            unknown: None,
        };
        if windows {
            side.compare_windows(matrix, number);
        } else if let Some(toolkit) = of_windows(matrix, number) {
            side.unknown = Some(format!(
                "{number} is the number of a Windows driver (it came with CUDA {toolkit}), and those do not compare with Linux ones: say `--os windows`, or take the number that the Linux host shows"
            ));
        } else {
            side.look_up_linux(matrix, number);
        }
        side
    }

    fn look_up_linux(&mut self, matrix: &'m Matrix, number: &Version) {
        if let Some(branch) = matrix.branch(number) {
            (self.low, self.high) = (Some(branch.level), Some(branch.level));
            self.branch = Some(branch);
            self.cited.push(Cited::row(
                format!(
                    "branch {} brings {} (level {})",
                    branch.branch,
                    cuda_of(branch.level),
                    branch.level
                ),
                "driver_branch",
                branch.branch,
                &branch.source,
                branch.confidence,
            ));
            return;
        }
        (self.low, self.high) = matrix.cuda_level_range(number);
        let rows = matrix.driver_branches();
        let below = rows.iter().rev().find(|row| row.branch < number.major());
        let above = rows.iter().find(|row| row.branch > number.major());
        self.newer = above.is_none();
        let text = match (below, above) {
            (Some(below), Some(above)) => format!(
                "{} is no branch in the tables: it lies between {} ({}) and {} ({})",
                number.major(),
                below.branch,
                cuda_of(below.level),
                above.branch,
                cuda_of(above.level)
            ),
            (Some(below), None) => format!(
                "branch {} is newer than the matrix of {}, which ends with {} ({}): judged by the general rules",
                number.major(),
                matrix.as_of(),
                below.branch,
                cuda_of(below.level)
            ),
            (None, Some(above)) => format!(
                "branch {} is older than the matrix, which begins with {} ({})",
                number.major(),
                above.branch,
                cuda_of(above.level)
            ),
            (None, None) => return,
        };
        if let Some(row) = below.or(above) {
            self.cited.push(Cited::row(
                text,
                "driver_branch",
                row.branch,
                &row.source,
                row.confidence,
            ));
        }
    }

    /// By the drivers that came with toolkits for Windows: each has the CUDA level of its toolkit, and levels rise with
    /// numbers.
    fn compare_windows(&mut self, matrix: &'m Matrix, number: &Version) {
        let shipped = || {
            matrix
                .toolkits()
                .iter()
                .filter_map(|row| Some((row.driver_windows.as_ref()?, row)))
        };
        let below = shipped()
            .filter(|(driver, _)| *driver <= number)
            .max_by(|a, b| a.0.cmp(b.0));
        let above = shipped()
            .filter(|(driver, _)| *driver >= number)
            .min_by(|a, b| a.0.cmp(b.0));
        self.low = below.map(|(_, row)| row.level);
        self.high = above.map(|(_, row)| row.level);
        for (side, found) in [("at least", below), ("at most", above)] {
            let Some((driver, row)) = found else { continue };
            if side == "at most" && self.low == self.high {
                continue;
            }
            self.cited.push(Cited::row(
                format!(
                    "{side} {}: Windows driver {driver} came with CUDA {}",
                    cuda_of(row.level),
                    row.cuda
                ),
                "toolkit",
                &row.cuda,
                &row.source,
                row.confidence,
            ));
        }
        if self.low.is_none() && self.high.is_none() {
            self.unknown = Some("the matrix has no Windows drivers to compare it with".to_owned());
        }
    }

    /// That Windows numbers and CUDA levels rise together is seen in the tables and written nowhere.
    pub(super) fn by_number(&self) -> Option<Cited> {
        self.windows.then(|| {
            Cited::rule(
                "a Windows driver of a higher number has the same CUDA version or a newer one",
                "the Windows column of the toolkit table, in which it holds",
                Confidence::Secondary,
            )
        })
    }

    /// `CUDA 11.4`, `CUDA 9.0 to 9.1`, `CUDA 13.5 or newer`.
    pub(super) fn level_in_words(&self) -> Option<String> {
        match (self.low, self.high) {
            (Some(0), _) | (None, None) => None,
            (Some(low), Some(high)) if low == high => Some(cuda_of(low)),
            (Some(low), Some(high)) => Some(format!(
                "{} to {}",
                cuda_of(low),
                Version::from_cuda_level(high)
            )),
            (Some(low), None) => Some(format!("{} or newer", cuda_of(low))),
            (None, Some(high)) => Some(format!("{} or older", cuda_of(high))),
        }
    }

    /// `driver 470.82.01 (CUDA 11.4)`.
    pub(super) fn in_full(&self) -> String {
        match self.level_in_words() {
            Some(level) => format!("{} ({level})", self.shown),
            None => self.shown.clone(),
        }
    }
}

/// The toolkit whose Windows driver this very number is, where no Linux driver has it.
fn of_windows<'m>(matrix: &'m Matrix, number: &Version) -> Option<&'m Version> {
    let rows = matrix.toolkits();
    let of_linux = rows.iter().any(|row| row.driver.as_ref() == Some(number));
    // A branch alone is no Windows number.
    if of_linux || number.len() < 2 {
        return None;
    }
    rows.iter()
        .find(|row| row.driver_windows.as_ref() == Some(number))
        .map(|row| &row.cuda)
}
