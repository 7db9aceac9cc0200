//! What the matrix has of one thing: a CUDA version, a driver, a GPU. Each line with its row.

mod cuda;
mod driver;
mod gpu;

pub use cuda::cuda;
pub use driver::driver;
pub use gpu::gpu;

use super::{Answer, Cited, Fact};
use crate::matrix::{DriverBranch, Toolkit};

impl Answer {
    fn fact(&mut self, what: &'static str, cited: Cited) {
        self.facts.push(Fact { what, cited });
    }
}

impl Cited {
    fn toolkit(text: impl Into<String>, row: &Toolkit) -> Self {
        Self::row(text, "toolkit", &row.cuda, &row.source, row.confidence)
    }

    fn branch(text: impl Into<String>, row: &DriverBranch) -> Self {
        Self::row(
            text,
            "driver_branch",
            row.branch,
            &row.source,
            row.confidence,
        )
    }
}
