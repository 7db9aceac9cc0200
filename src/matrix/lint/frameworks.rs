//! Holds releases of frameworks against each other, against toolkits and architectures, and against what they ask for.

use super::{Report, libraries};
use crate::matrix::rows::AnyRow;
use crate::matrix::{Confidence, TorchArchs, TritonServer};
use crate::version::Version;

pub(super) fn check(report: &mut Report<'_>) {
    torch(report);
    torch_archs(report);
    torch_installs(report);
    others(report);
    built_on_torch(report);
    pins(report);
    images(report);
    programs(report);
    wheel_platforms(report);
    wheel_pythons(report);
}

fn wheel_platforms(report: &mut Report<'_>) {
    let rows = report.matrix.wheel_platforms();
    report.ascending(
        "wheel_platform",
        true,
        rows.iter()
            .map(|row| ((&row.package, &row.machine, &row.first), row)),
    );
    for row in rows {
        let mut at = report.at("wheel_platform", row.key());
        let is_machine = matches!(row.machine.as_str(), "x86_64" | "aarch64");
        at.need(is_machine, "its machine is none");
        let is_glibc = row.glibc.major() == 2 && row.glibc.len() == 2;
        at.need(is_glibc, "its glibc is none");
    }
}

fn wheel_pythons(report: &mut Report<'_>) {
    let rows = report.matrix.wheel_python_rows();
    report.ascending(
        "wheel_python",
        true,
        rows.iter().map(|row| ((&row.package, &row.first), row)),
    );
    for row in rows {
        let mut at = report.at("wheel_python", row.key());
        let ends = [Some(&row.oldest), row.newest.as_ref()];
        let are_pythons = ends
            .iter()
            .flatten()
            .all(|v| v.major() == 3 && v.len() == 2);
        at.need(are_pythons, "its Pythons are none");
        let newest = row.newest.as_ref();
        at.need(
            newest.is_none_or(|newest| row.oldest <= *newest),
            "its newest Python is older than its oldest",
        );
    }
}

fn torch(report: &mut Report<'_>) {
    let matrix = report.matrix;
    let rows = matrix.torch_releases();
    report.ascending(
        "torch_release",
        true,
        rows.iter().map(|row| (&row.version, row)),
    );
    for row in rows {
        let mut at = report.at("torch_release", &row.version);
        let own = row.cudas.contains(&row.cuda);
        at.need(own, "PyPI's build is none of its builds");
        at.need(row.cudas.is_sorted(), "its builds are out of order");
        for cuda in &row.cudas {
            at.toolkit(cuda);
        }
        let newest = row.newest_python.as_ref();
        let taken = newest.is_none_or(|newest| row.requires_python.allow(newest));
        at.need(taken, "its newest Python is too old for it");
    }
}

fn torch_archs(report: &mut Report<'_>) {
    let matrix = report.matrix;
    let rows = matrix.torch_arch_rows();
    for (index, row) in rows.iter().enumerate() {
        let mut at = report.at("torch_archs", row.key());
        at.need(row.torch_from <= row.torch_to, "it ends before it begins");
        let meets = |other: &TorchArchs| {
            other.cuda == row.cuda
                && other.torch_from <= row.torch_to
                && row.torch_from <= other.torch_to
        };
        let again = rows.iter().skip(index + 1).any(meets);
        at.need(!again, "another row has the same builds");
        let built = matrix.torch_releases().iter().any(|release| {
            let minor = Version::parse(&release.version.major_minor());
            minor.is_some_and(|minor| row.torch_from <= minor && minor <= row.torch_to)
                && release.cudas.contains(&row.cuda)
        });
        at.need(built, "no release has such a build");
        let both = row.aarch64.iter().chain([&row.x86_64]);
        for code in both {
            libraries::code(&mut at, code, &row.cuda);
        }
    }
}

fn torch_installs(report: &mut Report<'_>) {
    for row in report.matrix.torch_installs() {
        let mut at = report.at("torch_install", &row.installer);
        let filled = |word: &String| {
            let word = word.replace("{version}", "").replace("{tag}", "");
            !word.contains(['{', '}'])
        };
        let whole = row.command.iter().all(filled) && !row.command.is_empty();
        at.need(whole, "a placeholder that nothing fills");
        let verified = row.confidence == Confidence::Verified;
        at.need(verified, "commands of a row that is not verified");
    }
}

fn others(report: &mut Report<'_>) {
    let matrix = report.matrix;
    let rows = matrix.tensorflow_releases();
    report.ascending(
        "tensorflow_release",
        true,
        rows.iter().map(|row| (&row.version, row)),
    );
    for row in rows {
        let mut at = report.at("tensorflow_release", &row.version);
        at.toolkit(&row.cuda);
        if let Some(code) = &row.archs {
            libraries::code(&mut at, code, &row.cuda);
        }
    }
    let rows = matrix.jax_plugins();
    report.ascending(
        "jax_plugin",
        true,
        rows.iter().map(|row| ((row.cuda, &row.version), row)),
    );
    for row in rows {
        let named = row.plugin == format!("jax-cuda{}-plugin", row.cuda);
        report
            .at("jax_plugin", row.key())
            .need(named, "its name is that of another CUDA version");
    }
    let rows = matrix.onnxruntime_releases();
    report.ascending(
        "onnxruntime_release",
        true,
        rows.iter().map(|row| (&row.version, row)),
    );
    for row in rows {
        let mut at = report.at("onnxruntime_release", &row.version);
        at.major(row.cuda.major());
        if let Some(code) = row.archs.as_ref().filter(|_| row.cuda.len() > 1) {
            libraries::code(&mut at, code, &row.cuda);
        }
    }
    for row in matrix.bitsandbytes_releases() {
        let mut at = report.at("bitsandbytes_release", &row.version);
        for cuda in &row.cudas {
            at.toolkit(cuda);
        }
    }
}

fn built_on_torch(report: &mut Report<'_>) {
    let matrix = report.matrix;
    let rows = matrix.vllm_releases();
    report.ascending(
        "vllm_release",
        true,
        rows.iter().map(|row| (&row.version, row)),
    );
    for row in rows {
        let torch = matrix
            .torch_releases()
            .iter()
            .find(|torch| torch.version == row.torch);
        let mut at = report.at("vllm_release", &row.version);
        at.need(torch.is_some(), "the torch that it pins has no row");
        let same = torch.is_none_or(|torch| torch.cuda == row.cuda);
        at.need(same, "its CUDA is not that of the torch that it pins");
    }
    for row in matrix.xformers_releases() {
        let mut releases = matrix.torch_releases().iter();
        let some = releases.any(|torch| row.torch.allow(&torch.version));
        report
            .at("xformers_release", &row.version)
            .need(some, "no release of torch will do for it");
    }
}

/// A package that is in another table asks there as well what it asks here.
fn pins(report: &mut Report<'_>) {
    let matrix = report.matrix;
    for row in matrix.pins() {
        let mut at = report.at("pins", row.key());
        let version = &row.version;
        let known = match row.package.as_str() {
            "torch" => matrix.torch_release(version).is_some(),
            "tensorflow" => matrix.tensorflow_release(version).is_some(),
            "onnxruntime-gpu" => matrix.onnxruntime(version).is_some(),
            "vllm" => matrix.vllm_release(version).is_some(),
            name => matrix
                .jax_plugins()
                .iter()
                .any(|plugin| plugin.plugin == name && plugin.version == *version),
        };
        at.need(known, "no such release");
        at.need(!row.requires.is_empty(), "it asks for nothing");
        for asked in &row.requires {
            let twice = row.requires.iter().filter(|other| other.name == asked.name);
            let once = twice.count() == 1;
            at.need(once, format_args!("{} stands twice", asked.name));
        }
        let exactly = |name: &str| {
            let asked = row.requires.iter().find(|asked| asked.name == name);
            asked.and_then(|asked| asked.bounds.exactly())
        };
        if row.package == "vllm" {
            let torch = matrix.vllm_release(version).map(|vllm| &vllm.torch);
            at.need(
                exactly("torch") == torch,
                "vllm_release names another torch",
            );
        }
        if row.package == "torch" {
            let cuda = matrix.torch_release(version).map(|torch| &torch.cuda);
            let minor = |version: &Version| version.major_minor();
            let pinned = exactly("cuda-toolkit")
                .or_else(|| exactly("nvidia-cuda-runtime-cu12"))
                .or_else(|| exactly("nvidia-cuda-runtime-cu11"));
            let same = pinned.map(minor) == cuda.map(minor);
            at.need(same, "it pins the runtime of another CUDA version");
        }
    }
}

fn images(report: &mut Report<'_>) {
    let matrix = report.matrix;
    let rows = matrix.ngc_images();
    report.ascending("ngc_image", true, rows.iter().map(|row| (&row.tag, row)));
    report.ascending("ngc_image", false, rows.iter().map(|row| (&row.cuda, row)));
    for row in rows {
        let mut at = report.at("ngc_image", &row.tag);
        at.toolkit(&row.cuda);
        if let Some(branch) = row.min_driver_printed {
            // A branch of an older major version of CUDA cannot run the image.
            let level = at.branch(branch).map(|row| row.level);
            let runs = level.is_none_or(|level| level >= row.cuda.major() * 1000);
            at.need(runs, "the driver that is printed does not run its CUDA");
        }
    }
}

fn programs(report: &mut Report<'_>) {
    let matrix = report.matrix;
    let rows = matrix.ollama_releases();
    report.ascending(
        "ollama_release",
        true,
        rows.iter().map(|row| (&row.first, row)),
    );
    for row in rows {
        let mut at = report.at("ollama_release", &row.first);
        at.need(row.cudas.is_sorted(), "its CUDA versions are out of order");
        for cuda in &row.cudas {
            at.toolkit(cuda);
        }
        // 531 is printed for all systems, and is a branch of Windows: what is printed need be no branch here.
        let older = row.min_driver.zip(row.min_driver_old);
        let is_more = older.is_none_or(|(usual, old)| usual <= old);
        at.need(is_more, "older GPUs need an older driver than others");
        let both = row.min_driver_old.is_some() == row.old_below.is_some();
        at.need(both, "which GPUs need the other driver is not said");
    }
    let rows = matrix.triton_servers();
    let key = |row: &TritonServer| (row.tag.clone(), row.image.clone());
    let keys: Vec<_> = rows.iter().map(key).collect();
    report.ascending("triton_server", true, keys.iter().zip(rows));
    for row in rows {
        let mut at = report.at("triton_server", row.key());
        at.toolkit(&row.cuda);
        let branch = at.branch(row.driver.major());
        // The driver that came with a CUDA runs it.
        let runs = branch.is_none_or(|branch| branch.level >= row.cuda.cuda_level());
        at.need(runs, "the driver that it names is older than its CUDA");
        let has_its_own = match row.image.as_str() {
            "vllm-python-py3" => row.vllm.is_some(),
            "trtllm-python-py3" => row.tensorrt_llm.is_some(),
            _ => true,
        };
        at.need(has_its_own, "what the image is called after has no version");
    }
}
