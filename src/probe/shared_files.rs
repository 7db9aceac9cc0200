//! What more than one distribution brought: (1) shared objects that two of them recorded, (2) where a record is missing,
//! packages that are known to lie in one folder. And what tells whose it is now: its size, what the file says of its
//! version, what the package says it is. Whether the right one lies there is a rule's question.

use std::collections::BTreeMap;

use crate::facts::{Installed, Owner, Reading, RecordedFile, SharedFile};
use crate::read::elf::Shape;
use crate::read::{ReadAt as _, elf, recipes};
use crate::sysroot::{Sysroot, file_name, join};

/// Libraries that NVIDIA's wheels for several CUDA versions (`nvidia-NAME-cu11`, `-cu12`, `-cu13`) put at the same path,
/// `nvidia/NAME/lib`: their sonames do not change with CUDA. Of cuDNN the major version is part of it.
const WHEELS: &[(&str, &str)] = &[
    ("cudnn", "libcudnn_ops_infer.so.8"),
    ("cudnn", "libcudnn_graph.so.9"),
    ("cufile", "libcufile.so.0"),
    ("curand", "libcurand.so.10"),
    ("cusolver", "libcusolver.so.11"),
    ("cusparselt", "libcusparseLt.so.0"),
    ("nccl", "libnccl.so.2"),
    ("nvshmem", "libnvshmem_host.so.3"),
];

/// Distributions that are builds of one package and lie in its folder. A `*` at the end stands for any rest.
const PACKAGES: &[(&str, &[&str])] = &[
    ("cupy", &["cupy", "cupy-cuda*", "cupy-rocm-*"]),
    ("faiss", &["faiss-cpu", "faiss-gpu*"]),
    (
        "onnxruntime",
        &[
            "onnxruntime",
            "onnxruntime-directml",
            "onnxruntime-gpu",
            "onnxruntime-migraphx",
            "onnxruntime-openvino",
            "onnxruntime-qnn",
            "onnxruntime-rocm",
            "onnxruntime-training",
        ],
    ),
    ("paddle", &["paddlepaddle", "paddlepaddle-gpu"]),
    (
        "tensorflow",
        &[
            "tensorflow",
            "tensorflow-cpu",
            "tensorflow-gpu",
            "tensorflow-intel",
            "intel-tensorflow*",
            "tensorflow-rocm",
            "tf-nightly",
            "tf-nightly-cpu",
        ],
    ),
];

/// What a record says of a file: size in bytes, and digest.
type Recorded<'a> = (Option<u64>, Option<&'a str>);

/// All of them, by path. `modules` has each distribution's extension modules.
pub(super) fn find(
    sysroot: &Sysroot,
    distributions: &[Installed],
    modules: &[Vec<RecordedFile>],
) -> Vec<SharedFile> {
    let mut by_path: BTreeMap<&str, Vec<(&Installed, Recorded<'_>)>> = BTreeMap::new();
    for (dist, modules) in distributions.iter().zip(modules) {
        for file in dist.files.items().iter().chain(modules) {
            let owners = by_path.entry(&file.path).or_default();
            // Conda records what it unpacked, and the dist-info of Python that lies in it says the same again.
            let again = owners
                .iter()
                .any(|(other, _)| is_same_installation(other, dist));
            if !again {
                owners.push((dist, (file.size_bytes, file.digest.as_deref())));
            }
        }
    }
    let mut found: Vec<SharedFile> = by_path
        .into_iter()
        .filter(|(_, owners)| owners.len() > 1)
        .map(|(path, owners)| shared(sysroot, path, &owners))
        .collect();
    for (path, owners) in unrecorded(sysroot, distributions) {
        let known = found
            .iter()
            .any(|file| file.path == path || file.path.starts_with(&format!("{path}/")));
        if !known {
            let owners: Vec<_> = owners
                .into_iter()
                .map(|dist| (dist, (None, None)))
                .collect();
            found.push(shared(sysroot, &path, &owners));
        }
    }
    found
}

/// Whether two records are of one installation.
fn is_same_installation(one: &Installed, other: &Installed) -> bool {
    let by_conda = |dist: &Installed| {
        dist.is_conda_package() || dist.installer.value().is_some_and(|by| by == "conda")
    };
    one.metadata == other.metadata
        || one.is_conda_package() != other.is_conda_package() && by_conda(one) && by_conda(other)
}

/// Paths that distributions without a list of their files are known to share.
fn unrecorded<'a>(
    sysroot: &Sysroot,
    distributions: &'a [Installed],
) -> Vec<(String, Vec<&'a Installed>)> {
    let mut groups: BTreeMap<String, Vec<&Installed>> = BTreeMap::new();
    for dist in distributions.iter().filter(|dist| !dist.is_conda_package()) {
        for (folder, library) in WHEELS {
            let wheel = dist
                .name
                .strip_prefix("nvidia-")
                .and_then(|name| name.strip_prefix(folder));
            let major = library.rsplit('.').next().unwrap_or_default();
            let is_major = dist.version.split('.').next() == Some(major);
            if wheel.is_some_and(|rest| rest.starts_with("-cu")) && (*folder != "cudnn" || is_major)
            {
                let path = format!("{}/nvidia/{folder}/lib/{library}", dist.site);
                groups.entry(path).or_default().push(dist);
            }
        }
        for (folder, names) in PACKAGES {
            let is_build = names.iter().any(|known| match known.strip_suffix('*') {
                Some(start) => dist.name.starts_with(start),
                None => dist.name == *known,
            });
            if is_build {
                groups
                    .entry(join(&dist.site, folder))
                    .or_default()
                    .push(dist);
            }
        }
    }
    groups
        .into_iter()
        .filter(|(path, owners)| {
            owners.len() > 1
                && owners.iter().any(|dist| !dist.files.is_present())
                && sysroot.exists(path)
        })
        .collect()
}

/// One shared path, with what tells whose it is.
fn shared(sysroot: &Sysroot, path: &str, owners: &[(&Installed, Recorded<'_>)]) -> SharedFile {
    let file = sysroot.file(path);
    let size_bytes = match &file {
        Reading::Present { value, source } => Reading::present(value.len(), source),
        Reading::Absent { source } => Reading::absent(source),
        // A folder cannot be opened as a file; it has no size that says anything.
        Reading::Unreadable { .. } => Reading::absent(path),
    };
    let told_by_size = size_bytes.value().is_some_and(|size| {
        let fitting = owners
            .iter()
            .filter(|(_, (recorded, _))| recorded.as_ref() == Some(size));
        fitting.count() == 1
    });
    let mut found = SharedFile {
        path: path.to_owned(),
        owners: owners
            .iter()
            .map(|(dist, (recorded_bytes, digest))| Owner {
                name: dist.name.clone(),
                version: dist.version.clone(),
                metadata: dist.metadata.clone(),
                recorded_bytes: *recorded_bytes,
                recorded_digest: digest.map(str::to_owned),
            })
            .collect(),
        size_bytes,
        version: Reading::unreadable("not looked for"),
        cuda: Reading::unreadable("not looked for"),
        package: package(sysroot, path),
    };
    if told_by_size {
        return found;
    }
    let identity = file.value().and_then(|file| match elf::identify(file) {
        Shape::Elf(elf) => recipes::identify(file, &elf, file_name(path)),
        _ => None,
    });
    if let Some(identity) = identity {
        let told = |version: Option<_>, by: &str| match version {
            Some(version) => Reading::present(version, format!("{path}: {by}")),
            None => Reading::absent(path),
        };
        found.version = told(identity.version, &identity.source);
        found.cuda = told(identity.cuda, "the CUDA version that it was built for");
    } else {
        found.version = Reading::absent(path);
        found.cuda = Reading::absent(path);
    }
    found
}

/// What ONNX Runtime says of itself in a file that each of its builds brings.
fn package(sysroot: &Sysroot, path: &str) -> Reading<String> {
    const FOLDER: &str = "/onnxruntime";
    let Some(root) = path
        .match_indices(FOLDER)
        .map(|(at, _)| at + FOLDER.len())
        .find(|end| {
            path.get(*end..)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
        .and_then(|end| path.get(..end))
    else {
        return Reading::absent(path);
    };
    sysroot
        .text(&join(root, "capi/build_and_package_info.py"))
        .and_then("no package_name", |text| {
            let value = text.lines().find_map(|line| {
                let (key, value) = line.split_once('=')?;
                (key.trim() == "package_name").then(|| value.trim())
            })?;
            Some(value.trim_matches(['"', '\'']).to_owned())
        })
}
