//! What `matrix plan` answers, as text and as JSON by the contract `gpudoctor.plan/1`.

use owo_colors::Style;
use serde::Serialize;

use super::json::MatrixOf;
use super::paragraph::{self, painted};
use crate::matrix::Matrix;
use crate::preflight::plan::Plan;

/// Columns of the names.
const LABEL: usize = 14;

#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    plan: &'a Plan,
    version: &'static str,
    matrix: MatrixOf<'a>,
}

/// As pretty-printed JSON with a final newline.
pub fn json(plan: &Plan, matrix: &Matrix) -> serde_json::Result<String> {
    let document = Document {
        plan,
        version: env!("CARGO_PKG_VERSION"),
        matrix: matrix.into(),
    };
    serde_json::to_string_pretty(&document).map(|text| text + "\n")
}

/// As text.
pub fn text(plan: &Plan, width: usize, color: bool) -> String {
    let mut out = String::new();
    let mut wrapped = |first: &str, rest: &str, text: &str| {
        out.push_str(&paragraph::wrapped(width, first, rest, text));
    };
    let bold = |text: String| painted(color, &text, Style::new().bold());
    let names: Vec<&str> = plan.targets.iter().map(|(name, _)| name.as_str()).collect();
    let names = names.join(", ");
    let first = plan.builds.first();
    let answer = match first.and_then(|build| build.newest.as_ref()) {
        Some(cuda) => format!("CUDA {cuda} is the newest that runs on {names}"),
        None => format!("no CUDA version runs on all of {names}"),
    };
    wrapped("", "  ", &answer);
    for (name, described) in &plan.targets {
        wrapped("  ", "    ", &format!("{name}: {described}"));
    }
    if !plan.unsaid.is_empty() {
        let unsaid = plan.unsaid.join("; ");
        wrapped(
            "  ",
            "    ",
            &format!("not said, and so held against nothing: {unsaid}"),
        );
    }
    wrapped("", "", "");
    let indent = " ".repeat(LABEL);
    for build in &plan.builds {
        let label = bold(format!("{:<LABEL$}", build.what));
        let newest = build.newest.as_deref().unwrap_or("none");
        wrapped(&label, &indent, newest);
        if let Some(install) = &build.install {
            wrapped(&indent, &format!("{indent}  "), install);
        }
        if let Some(limit) = &build.limit {
            wrapped(&format!("{indent}not "), &format!("{indent}  "), limit);
        }
        if let Some(note) = &build.note {
            wrapped(&indent, &format!("{indent}  "), note);
        }
    }
    if let Some(compile) = &plan.compile {
        wrapped("", "", "");
        let label = bold(format!("{:<LABEL$}", "nvcc"));
        for (index, option) in compile.gencode.iter().enumerate() {
            let first = if index == 0 {
                label.as_str()
            } else {
                indent.as_str()
            };
            wrapped(first, &indent, option);
        }
        wrapped(
            &indent,
            &indent,
            &format!("TORCH_CUDA_ARCH_LIST=\"{}\"", compile.torch_cuda_arch_list),
        );
        wrapped(
            &indent,
            &indent,
            &format!(
                "CMAKE_CUDA_ARCHITECTURES=\"{}\"",
                compile.cmake_cuda_architectures
            ),
        );
        wrapped(&indent, &indent, &compile.note);
    }
    out
}
