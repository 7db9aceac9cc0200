//! What a release of TensorFlow, JAX, ONNX Runtime or vLLM is built with and asks for.

use super::{and_newer, cuda_in_words, needs_driver, not_in_matrix};
use crate::ask::{Answer, Cited, Question, Word, in_words};
use crate::matrix::{CodeTargets, JaxPlugin, Matrix, Released as _, nearest};
use crate::requirement::Bounds;
use crate::version::Version;

fn python(bounds: &Bounds) -> String {
    format!("Python {bounds}")
}

fn device_code(code: &CodeTargets) -> String {
    code.words().join(", ")
}

/// What a release of TensorFlow is built with.
pub(super) fn tensorflow(matrix: &Matrix, version: &Version, question: Question) -> Answer {
    let Some(row) = matrix.tensorflow_release(version) else {
        let near = nearest(matrix.tensorflow_releases(), version);
        let name = format!("TensorFlow {version}");
        return Answer::not_known(question, not_in_matrix(matrix, &name, near));
    };
    let cited = |text: String| {
        let (table, key) = ("tensorflow_release", &row.version);
        Cited::row(text, table, key, &row.source, row.confidence)
    };
    let mut answer = Answer::new(
        question,
        Word::Known,
        format!(
            "TensorFlow {version} is built with CUDA {} and cuDNN {}{}",
            row.cuda,
            row.cudnn,
            needs_driver(matrix, &row.cuda)
        ),
    );
    answer.fact(
        "built with",
        cited(format!("CUDA {}, cuDNN {}", row.cuda, row.cudnn)),
    );
    answer.least_driver(matrix, &row.cuda);
    if let Some(code) = &row.archs {
        answer.fact("device code", cited(device_code(code)));
    }
    answer.fact("Python", cited(python(&row.requires_python)));
    let libraries = if row.cuda_extra {
        "pip install tensorflow[and-cuda] brings them"
    } else {
        "it brings none: CUDA and cuDNN have to be on the loader's path"
    };
    answer.fact("libraries", cited(libraries.to_owned()));
    answer.pins(matrix, "tensorflow", &row.version);
    if let Some(note) = &row.note {
        answer.fact("note", cited(note.clone()));
    }
    answer.weighed()
}

/// What the CUDA plugins of a JAX release need.
pub(super) fn jax(matrix: &Matrix, version: &Version, question: Question) -> Answer {
    let of_minor = |row: &&JaxPlugin| row.version.major_minor() == version.major_minor();
    let rows = matrix.jax_plugins().iter();
    // Of 0.6 the newest 0.6, as for other releases.
    let newest = rows.clone().filter(of_minor).map(|row| &row.version).max();
    let wanted = if version.len() == 2 {
        newest.unwrap_or(version)
    } else {
        version
    };
    let found: Vec<&JaxPlugin> = rows.filter(|row| row.version == *wanted).collect();
    let Some(first) = found.first() else {
        let near = nearest(matrix.jax_plugins(), version);
        let name = format!("JAX {version}");
        return Answer::not_known(question, not_in_matrix(matrix, &name, near));
    };
    let plugins: Vec<_> = found
        .iter()
        .map(|row| match &row.cudnn_min {
            Some(cudnn) => format!("CUDA {} (cuDNN {cudnn} or newer)", row.cuda),
            None => format!("CUDA {}", row.cuda),
        })
        .collect();
    let mut answer = Answer::new(
        question,
        Word::Known,
        format!(
            "JAX {} has plugins for {}",
            first.version,
            in_words(&plugins)
        ),
    );
    for row in &found {
        let key = format!("{} {}", row.plugin, row.version);
        let cited =
            |text: String| Cited::row(text, "jax_plugin", &key, &row.source, row.confidence);
        let cudnn = row
            .cudnn_min
            .as_ref()
            .map_or_else(String::new, |cudnn| format!(", cuDNN {cudnn} or newer"));
        let text = format!(
            "{}: CUDA {}.x{cudnn}, {}, Python {}",
            row.plugin,
            row.cuda,
            and_newer(row.capability_min),
            row.requires_python
        );
        answer.fact("plugin", cited(text));
        if let Some(cuda) = Version::parse(&row.cuda.to_string()) {
            answer.least_driver(matrix, &cuda);
        }
        answer.pins(matrix, &row.plugin, &row.version);
    }
    let topics = ["jax checks", "jax cuBLAS"];
    answer.notes(matrix.framework_notes().iter(), &topics);
    answer.weighed()
}

/// What a release of onnxruntime-gpu is built with.
pub(super) fn onnxruntime(matrix: &Matrix, version: &Version, question: Question) -> Answer {
    let Some(row) = matrix.onnxruntime(version) else {
        let near = nearest(matrix.onnxruntime_releases(), version);
        let name = format!("onnxruntime-gpu {version}");
        return Answer::not_known(question, not_in_matrix(matrix, &name, near));
    };
    let cited = |text: String| {
        let (table, key) = ("onnxruntime_release", &row.version);
        Cited::row(text, table, key, &row.source, row.confidence)
    };
    let built = format!("{} and cuDNN {}", cuda_in_words(&row.cuda), row.cudnn);
    let mut answer = Answer::new(
        question,
        Word::Known,
        format!(
            "onnxruntime-gpu {} on PyPI is built for {built}{}",
            row.version(),
            needs_driver(matrix, &row.cuda)
        ),
    );
    answer.fact("built for", cited(built));
    answer.least_driver(matrix, &row.cuda);
    if let Some(code) = &row.archs {
        answer.fact("device code", cited(device_code(code)));
    }
    if let Some(bounds) = &row.requires_python {
        answer.fact("Python", cited(python(bounds)));
    }
    answer.pins(matrix, "onnxruntime-gpu", &row.version);
    if let Some(note) = &row.note {
        answer.fact("note", cited(note.clone()));
    }
    answer.notes(matrix.framework_notes().iter(), &["onnxruntime TensorRT"]);
    answer.weighed()
}

/// Which PyTorch a release of vLLM pins.
pub(super) fn vllm(matrix: &Matrix, version: &Version, question: Question) -> Answer {
    let Some(row) = matrix.vllm_release(version) else {
        let near = nearest(matrix.vllm_releases(), version);
        let name = format!("vLLM {version}");
        return Answer::not_known(question, not_in_matrix(matrix, &name, near));
    };
    let cited = |text: String| {
        let (table, key) = ("vllm_release", &row.version);
        Cited::row(text, table, key, &row.source, row.confidence)
    };
    let mut answer = Answer::new(
        question,
        Word::Known,
        format!(
            "vLLM {} on PyPI pins torch {}, built for CUDA {}{}",
            row.version,
            row.torch,
            row.cuda,
            needs_driver(matrix, &row.cuda)
        ),
    );
    answer.fact(
        "torch",
        cited(format!("{} for CUDA {}", row.torch, row.cuda)),
    );
    answer.least_driver(matrix, &row.cuda);
    if let Some(archs) = matrix.torch_archs(&row.torch, &row.cuda) {
        answer.fact("code of torch", crate::ask::torch::code(archs));
    }
    if let Some(capability) = row.capability_min {
        answer.fact("GPUs", cited(and_newer(capability)));
    }
    answer.fact("Python", cited(python(&row.requires_python)));
    answer.pins(matrix, "vllm", &row.version);
    answer.weighed()
}
