//! What a release of PyTorch brings: its builds, the code in them, the libraries that it pins.

use super::{needs_driver, not_in_matrix};
use crate::ask::torch::{builds, code};
use crate::ask::{Answer, Cited, Question, Word, in_words};
use crate::matrix::{Matrix, TorchBuild, TorchRelease, nearest, torch_tag};
use crate::target::{Torch, TorchBuild as Asked};
use crate::version::Version;

/// What a build of PyTorch is; of `2.6` the newest 2.6.
pub fn torch(matrix: &Matrix, asked: &Torch) -> Answer {
    let question = Question::Torch {
        torch: asked.clone(),
    };
    let Some(row) = matrix.torch_release(&asked.version) else {
        let near = nearest(matrix.torch_releases(), &asked.version);
        let name = format!("torch {}", asked.version);
        return Answer::not_known(question, not_in_matrix(matrix, &name, near));
    };
    let cuda = match &asked.build {
        Some(Asked::Cuda(cuda)) => cuda,
        Some(Asked::Other(tag)) => {
            let mut answer = Answer::not_known(
                question,
                format!(
                    "torch {}+{tag} is a build without CUDA, and the matrix has those for CUDA only",
                    row.version
                ),
            );
            answer.fact("builds", builds(row));
            return answer;
        }
        None => &row.cuda,
    };
    if !row.cudas.contains(cuda) {
        let mut answer = Answer::not_known(
            question,
            format!(
                "the matrix knows no torch {}+{}",
                row.version,
                torch_tag(cuda)
            ),
        );
        answer.fact("builds", builds(row));
        return answer.weighed();
    }
    let summary = if *cuda == row.cuda {
        format!(
            "torch {} on PyPI brings CUDA {cuda}{}",
            row.version,
            needs_driver(matrix, cuda)
        )
    } else {
        format!(
            "torch {}+{} brings CUDA {cuda}{}",
            row.version,
            torch_tag(cuda),
            needs_driver(matrix, cuda)
        )
    };
    let mut answer = Answer::new(question, Word::Known, summary);
    facts(matrix, row, cuda, asked.build.is_some(), &mut answer);
    answer.weighed()
}

fn facts(matrix: &Matrix, row: &TorchRelease, cuda: &Version, one: bool, answer: &mut Answer) {
    let cited = |text: String| {
        Cited::row(
            text,
            "torch_release",
            &row.version,
            &row.source,
            row.confidence,
        )
    };
    answer.fact("CUDA", crate::ask::torch::brings(row, cuda));
    answer.least_driver(matrix, cuda);
    answer.fact("builds", builds(row));
    for built in row.cudas.iter().filter(|built| !one || *built == cuda) {
        if let Some(archs) = matrix.torch_archs(&row.version, built) {
            answer.fact("device code", code(archs));
        }
    }
    let newest = row
        .newest_python
        .as_ref()
        .map_or_else(String::new, |newest| format!(", wheels up to {newest}"));
    answer.fact("Python", cited(format!("{}{newest}", row.requires_python)));
    let aarch64 = if row.aarch64_cuda {
        format!("the wheel on PyPI is built for CUDA {} as well", row.cuda)
    } else {
        "the wheel on PyPI is built for the CPU alone".to_owned()
    };
    answer.fact(
        "aarch64",
        cited(aarch64).weaker(row.aarch64_cuda_confidence),
    );
    if *cuda == row.cuda {
        answer.pins(matrix, "torch", &row.version);
    }
    let by_vllm: Vec<_> = matrix
        .vllm_releases()
        .iter()
        .filter(|vllm| vllm.torch == row.version)
        .collect();
    if let Some(first) = by_vllm.first() {
        let versions: Vec<_> = by_vllm
            .iter()
            .map(|vllm| vllm.version.to_string())
            .collect();
        let text = format!("vLLM {}", in_words(&versions));
        answer.fact(
            "asked for by",
            Cited::row(text, "vllm_release", "*", &first.source, first.confidence),
        );
    }
    for built in row.cudas.iter().filter(|built| !one || *built == cuda) {
        install(matrix, row, built, answer);
    }
    if let Some(note) = &row.note {
        answer.fact("note", cited(note.clone()));
    }
}

/// The words with which pip takes a build.
fn install(matrix: &Matrix, row: &TorchRelease, cuda: &Version, answer: &mut Answer) {
    let build = TorchBuild {
        release: row,
        cuda,
        archs: None,
    };
    let Some(words) = matrix.torch_install(&build, "pip") else {
        return;
    };
    let source = matrix
        .torch_installs()
        .iter()
        .find(|row| row.installer == "pip");
    answer.facts.extend(source.map(|of| crate::ask::Fact {
        what: "install",
        cited: Cited::row(
            words.join(" "),
            "torch_install",
            &of.installer,
            &of.source,
            of.confidence,
        ),
    }));
}
