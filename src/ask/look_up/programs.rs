//! What programs with CUDA in them bring and need: releases of Ollama, images of Triton Inference Server.

use super::{and_newer, not_in_matrix_by_range};
use crate::ask::{Answer, Cited, Question, Word, capability, in_words};
use crate::matrix::{Matrix, TritonServer};
use crate::version::Version;

/// Which back ends a release of Ollama has, and the driver that they need.
pub(super) fn ollama(matrix: &Matrix, version: &Version, question: Question) -> Answer {
    let Some(row) = matrix.ollama_release(version) else {
        let name = format!("Ollama {version}");
        return Answer::not_known(question, not_in_matrix_by_range(matrix, &name));
    };
    let cited = |text: String| {
        let (table, key) = ("ollama_release", &row.first);
        Cited::row(text, table, key, &row.source, row.confidence)
    };
    let cudas: Vec<String> = row
        .cudas
        .iter()
        .map(|cuda| format!("CUDA {cuda}"))
        .collect();
    let driver = row.min_driver.map_or_else(String::new, |branch| {
        format!(" and asks for driver {branch} or newer")
    });
    let mut answer = Answer::new(
        question,
        Word::Known,
        format!(
            "Ollama {version} has back ends for {}{driver}",
            in_words(&cudas)
        ),
    );
    answer.fact("back ends", cited(in_words(&cudas)));
    answer.fact("GPUs", cited(and_newer(row.capability_min)));
    if let Some(branch) = row.min_driver {
        answer.fact("driver", cited(format!("{branch} or newer")));
    }
    if let (Some(branch), Some(below)) = (row.min_driver_old, row.old_below) {
        let text = format!("{branch} or newer for GPUs below {}", capability(below));
        answer.fact("driver", cited(text));
    }
    for cuda in &row.cudas {
        answer.least_driver(matrix, cuda);
    }
    if let Some(note) = &row.note {
        answer.fact("note", cited(note.clone()));
    }
    answer.fact("since", cited(row.first.to_string()));
    answer.weighed()
}

/// What is in the images of a release of Triton Inference Server.
pub(super) fn triton_server(matrix: &Matrix, version: &Version, question: Question) -> Answer {
    let rows: Vec<&TritonServer> = matrix
        .triton_servers()
        .iter()
        .filter(|row| row.tag == version.as_str())
        .collect();
    let ngc = matrix.ngc_image(version.as_str());
    let mut cudas: Vec<&Version> = rows.iter().map(|row| &row.cuda).collect();
    cudas.extend(ngc.iter().map(|row| &row.cuda));
    cudas.sort_unstable();
    cudas.dedup();
    if cudas.is_empty() {
        let name = format!("release {version} of Triton Inference Server");
        return Answer::not_known(question, not_in_matrix_by_range(matrix, &name));
    }
    let words: Vec<String> = cudas.iter().map(|cuda| format!("CUDA {cuda}")).collect();
    let mut answer = Answer::new(
        question,
        Word::Known,
        format!(
            "images {version} of Triton Inference Server bring {}",
            in_words(&words)
        ),
    );
    for row in &rows {
        let mut parts = vec![format!(
            "CUDA {}, which came with driver {}",
            row.cuda, row.driver
        )];
        let named = [
            ("vLLM", &row.vllm),
            ("TensorRT-LLM", &row.tensorrt_llm),
            ("TensorRT", &row.tensorrt),
            ("ONNX Runtime", &row.onnxruntime),
        ];
        parts.extend(
            named
                .iter()
                .filter_map(|(name, version)| Some(format!("{name} {}", version.as_ref()?))),
        );
        let key = format!("{} {}", row.tag, row.image);
        let text = format!("{}: {}", row.image, parts.join("; "));
        let cited = Cited::row(text, "triton_server", key, &row.source, row.confidence);
        answer.fact("image", cited);
    }
    if let Some(row) = ngc {
        let cited =
            |text: String| Cited::row(text, "ngc_image", &row.tag, &row.source, row.confidence);
        let named = [
            ("cuBLAS", &row.cublas),
            ("cuDNN", &row.cudnn),
            ("NCCL", &row.nccl),
            ("TensorRT", &row.tensorrt),
        ];
        let mut parts = vec![format!("CUDA {}", row.cuda)];
        parts.extend(
            named
                .iter()
                .filter_map(|(name, version)| Some(format!("{name} {}", version.as_ref()?))),
        );
        answer.fact("all images", cited(parts.join(", ")));
        if let Some(least) = row.capability_min {
            answer.fact("GPUs", cited(and_newer(least)));
        }
    }
    let mut majors: Vec<u32> = cudas.iter().map(|cuda| cuda.major()).collect();
    majors.dedup();
    for major in majors {
        if let Some(cuda) = Version::parse(&major.to_string()) {
            answer.least_driver(matrix, &cuda);
        }
    }
    answer.weighed()
}
