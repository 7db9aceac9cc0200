//! What the matrix has of one thing: a CUDA version, a driver, a GPU, a release of a library or framework. Each line with
//! its row.

mod cuda;
mod driver;
mod frameworks;
mod gpu;
mod libraries;
mod programs;
mod torch;

use serde::Serialize;

pub use cuda::cuda;
pub use driver::driver;
pub use gpu::gpu;
pub use torch::torch;

use super::{Answer, Cited, Fact, Question, Word, in_words};
use crate::matrix::{Capability, Confidence, DriverBranch, Matrix, Note, Pins, Released, Toolkit};
use crate::requirement::Requirement;
use crate::version::Version;

/// A library or framework whose releases are in the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Product {
    /// TensorFlow.
    Tensorflow,
    /// JAX, by the plugins that bring CUDA.
    Jax,
    /// ONNX Runtime for CUDA.
    Onnxruntime,
    /// vLLM.
    Vllm,
    /// cuDNN.
    Cudnn,
    /// NCCL.
    Nccl,
    /// TensorRT.
    Tensorrt,
    /// Ollama.
    Ollama,
    /// Triton Inference Server.
    Tritonserver,
}

/// What a release of a library or framework is built with, and what it needs and runs on.
pub fn release(matrix: &Matrix, product: Product, version: &Version) -> Answer {
    let question = Question::Release {
        product,
        version: version.clone(),
    };
    let look_up = match product {
        Product::Tensorflow => frameworks::tensorflow,
        Product::Jax => frameworks::jax,
        Product::Onnxruntime => frameworks::onnxruntime,
        Product::Vllm => frameworks::vllm,
        Product::Cudnn => libraries::cudnn,
        Product::Nccl => libraries::nccl,
        Product::Tensorrt => libraries::tensorrt,
        Product::Ollama => programs::ollama,
        Product::Tritonserver => programs::triton_server,
    };
    look_up(matrix, version, question)
}

/// `torch 2.9.5 is not in the matrix of ...; the nearest are 2.9.1 and 2.10.0`.
pub(super) fn not_in_matrix<R: Released>(
    matrix: &Matrix,
    name: &str,
    nearest: (Option<&R>, Option<&R>),
) -> String {
    let near = match nearest {
        (Some(older), Some(newer)) => format!(
            "; the nearest are {} and {}",
            older.version(),
            newer.version()
        ),
        (Some(older), None) => format!("; the newest there is {}", older.version()),
        (None, Some(newer)) => format!("; the oldest there is {}", newer.version()),
        (None, None) => String::new(),
    };
    format!("{name} is not in the matrix of {}{near}", matrix.as_of())
}

/// The same of a library that is known by ranges.
pub(super) fn not_in_matrix_by_range(matrix: &Matrix, name: &str) -> String {
    format!("{name} is not in the matrix of {}", matrix.as_of())
}

impl Answer {
    fn fact(&mut self, what: &'static str, cited: Cited) {
        self.facts.push(Fact { what, cited });
    }

    fn not_known(question: Question, summary: String) -> Self {
        Self::new(question, Word::Unknown, summary)
    }

    /// The least driver for a CUDA version, where the matrix has it.
    fn least_driver(&mut self, matrix: &Matrix, cuda: &Version) {
        let Some(minimum) = matrix.minimum_driver(cuda) else {
            return;
        };
        if let Some(least) = &minimum.version {
            let major = minimum.runtime_major;
            let text = format!("Linux {least}, the same for every CUDA {major}.x");
            let cited = Cited::row(text, "family", major, &minimum.source, minimum.confidence);
            self.fact("least driver", cited);
        }
    }

    /// What a row of [`Pins`] asks for, in the words of METADATA.
    fn pins(&mut self, matrix: &Matrix, package: &str, version: &Version) {
        if let Some(row) = matrix.pins_of(package, version) {
            let asked: Vec<_> = row.requires.iter().map(ToString::to_string).collect();
            self.fact("asks for", Cited::pins(asked.join(", "), row));
        }
    }

    /// The notes on these topics.
    fn notes<'m>(&mut self, notes: impl Iterator<Item = &'m Note>, topics: &[&str]) {
        for note in notes.filter(|note| topics.contains(&note.topic.as_str())) {
            self.fact("note", Cited::note(note));
        }
    }
}

/// `, which needs driver 525.60.13 or newer`.
fn needs_driver(matrix: &Matrix, cuda: &Version) -> String {
    let minimum = matrix.minimum_driver(cuda);
    let least = minimum.and_then(|minimum| minimum.version);
    least.map_or_else(String::new, |least| {
        format!(", which needs driver {least} or newer")
    })
}

/// `CUDA 12.4`; `CUDA 12.x` of a major version alone.
fn cuda_in_words(cuda: &Version) -> String {
    if cuda.len() == 1 {
        format!("CUDA {cuda}.x")
    } else {
        format!("CUDA {cuda}")
    }
}

/// `compute capability 7.5 and newer`.
fn and_newer(least: Capability) -> String {
    format!("compute capability {} and newer", super::capability(least))
}

/// Who asks for exactly this version of a package: "torch 2.9.0, 2.9.1 and 2.10.0", and the rows.
fn asked_by(found: &[(&Pins, &Requirement)]) -> Option<Cited> {
    let mut packages: Vec<(&str, Vec<String>)> = Vec::new();
    for (row, _) in found {
        let version = row.version.to_string();
        match packages.iter_mut().find(|(name, _)| *name == row.package) {
            Some((_, versions)) if versions.contains(&version) => {}
            Some((_, versions)) => versions.push(version),
            None => packages.push((&row.package, vec![version])),
        }
    }
    let texts = packages
        .iter()
        .map(|(name, versions)| format!("{name} {}", in_words(versions)));
    let text = texts.collect::<Vec<_>>().join("; ");
    let confidence = found.iter().map(|(row, _)| row.confidence).min()?;
    let source = found.first().map(|(row, _)| row.source.as_str())?;
    Some(Cited::row(text, "pins", "*", source, confidence))
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

    fn pins(text: impl Into<String>, row: &Pins) -> Self {
        let key = format!("{} {}", row.package, row.version);
        Self::row(text, "pins", key, &row.source, row.confidence)
    }

    fn weaker(mut self, confidence: Option<Confidence>) -> Self {
        self.confidence = confidence.unwrap_or(self.confidence);
        self
    }
}
