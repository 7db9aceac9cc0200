//! Jetson releases and boards, and what the official CUDA images ask of the host.

use serde::{Deserialize, Serialize};

use super::rows::{capability, row};
use super::{Capability, Confidence, Matrix};
use crate::version::Version;

/// A Jetson Linux release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Jetson {
    /// Jetson Linux: 36.4.3.
    pub l4t: Version,
    /// The SDK: 6.2.
    pub jetpack: Version,
    /// A developer preview.
    #[serde(default)]
    pub preview: bool,
    /// The CUDA version that it brings.
    pub cuda: Version,
    /// Boards that it runs on, see [`JetsonBoard`].
    pub boards: Vec<String>,
    /// Plain arm64 server builds of CUDA run there.
    #[serde(default)]
    pub sbsa: bool,
    /// What else is worth knowing.
    pub note: Option<String>,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(Jetson, |jetson| jetson.l4t);

/// A Jetson board.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JetsonBoard {
    /// `orin`.
    pub board: String,
    /// (8, 7).
    #[serde(with = "capability")]
    pub capability: Capability,
    /// Its chips, as the device tree calls them: `tegra234`.
    #[serde(default)]
    pub chips: Vec<String>,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(JetsonBoard, |board| board.board);

/// Which CUDA upgrade packages work on a `JetPack` series.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JetsonUpgrade {
    /// The series: `6` takes every 6.x, `7.2` that one.
    pub jetpack: Version,
    /// The CUDA version that the series brings by the document.
    pub cuda: Version,
    /// Versions that it can be upgraded to.
    pub upgrades: Vec<Version>,
    /// Versions that do not work.
    #[serde(default)]
    pub never: Vec<Version>,
    /// This version and later ones do not work.
    pub never_from: Option<Version>,
    /// Nothing was said about later versions than this.
    pub unknown_after: Option<Version>,
    /// What else is worth knowing.
    pub note: Option<String>,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(JetsonUpgrade, |upgrade| upgrade.jetpack);

/// A series of vGPU profiles: the letter that ends their names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VgpuSeries {
    /// `Q`.
    pub series: char,
    /// What it is sold for: `vWS`, `vPC`.
    pub product: String,
    /// Whether CUDA runs on it.
    pub cuda: bool,
    /// Where weaker or stronger than the row.
    pub cuda_confidence: Option<Confidence>,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(VgpuSeries, |row| row.series);

/// What an official CUDA image asks of the host: `cuda>=CUDA`, or one of these driver branches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageRequirement {
    /// `nvidia/cuda:12.1.1`: the first tag that the row is for.
    pub image: String,
    /// The CUDA level in its first term.
    pub cuda: Version,
    /// Branches that do for brand Tesla only.
    #[serde(default)]
    pub tesla_branches: Vec<u32>,
    /// Branches that do for each brand of the list [`ImageRequirement::brands`].
    #[serde(default)]
    pub branches: Vec<u32>,
    /// The name of the [`BrandList`].
    pub brands: Option<String>,
    /// Any brand does from this driver on.
    pub any_brand_from_driver: Option<u32>,
    /// What early builds of the tag list in place of `tesla_branches`.
    #[serde(default)]
    pub early_branches: Vec<u32>,
    /// What late builds of the tag list in place of `branches`.
    #[serde(default)]
    pub late_branches: Vec<u32>,
    /// What else is worth knowing.
    pub note: Option<String>,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(ImageRequirement, |image| image.image);

/// A list of product brands, as requirement values spell them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BrandList {
    /// `old`, `new`.
    pub name: String,
    /// `tesla`, `geforce` ...
    pub brands: Vec<String>,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(BrandList, |list| list.name);

impl Matrix {
    /// The Jetson release of an L4T version.
    pub fn jetson(&self, l4t: &Version) -> Option<&Jetson> {
        self.jetsons().iter().find(|row| row.l4t == *l4t)
    }

    /// A Jetson board by name.
    pub fn jetson_board(&self, board: &str) -> Option<&JetsonBoard> {
        self.jetson_boards().iter().find(|row| row.board == board)
    }

    /// The Jetson board of a chip: `tegra234`.
    pub fn jetson_board_of(&self, chip: &str) -> Option<&JetsonBoard> {
        let is_it = |row: &&JetsonBoard| row.chips.iter().any(|known| known == chip);
        self.jetson_boards().iter().find(is_it)
    }

    /// A series of vGPU profiles by its letter.
    pub fn vgpu_series(&self, letter: char) -> Option<&VgpuSeries> {
        self.vgpu_series_rows()
            .iter()
            .find(|row| row.series == letter)
    }

    /// The upgrade row of a `JetPack` version.
    pub fn jetson_upgrade(&self, jetpack: &Version) -> Option<&JetsonUpgrade> {
        let in_series = |series: &Version| {
            (0..series.len()).all(|part| series.part(part) == jetpack.part(part))
        };
        self.jetson_upgrades()
            .iter()
            .find(|row| in_series(&row.jetpack))
    }

    /// What the official images of this CUDA minor version ask of the host; the newest tag of that minor.
    pub fn image_requirement(&self, cuda: &Version) -> Option<&ImageRequirement> {
        self.image_requirements()
            .iter()
            .rev()
            .find(|row| row.cuda.major_minor() == cuda.major_minor())
    }
}
