//! Holds the table of drivers of Vulkan and `OpenCL` together.

use super::Report;

pub(super) fn check(report: &mut Report<'_>) {
    let rows = report.matrix.icds();
    report.ascending("icd", true, rows.iter().map(|row| (&row.library, row)));
    for row in rows {
        let mut at = report.at("icd", &row.library);
        at.need(
            ["vulkan", "opencl"].contains(&row.api.as_str()),
            format_args!("api `{}`", row.api),
        );
        at.need(
            row.vendor.is_some() != row.kernel_drivers.is_empty(),
            "a vendor and its kernel drivers stand together",
        );
        at.need(
            !(row.cpu && row.vendor.is_some()),
            "the processor and a GPU's vendor",
        );
    }
}
