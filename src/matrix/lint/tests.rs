//! The bundled tables hold, and a wrong cell in them is found.

use super::lint;
use crate::matrix::{
    CUDA_DRIVER, DISTROS, FILES, FRAMEWORKS, GPUS, LIBRARIES, Matrix, PLATFORMS, TOOLCHAIN,
};

#[test]
fn the_bundled_tables_hold() {
    let problems = lint(&Matrix::bundled());
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Each line: one cell changed, and what the linter has to say.
#[test]
fn a_wrong_cell_is_found() {
    for (file, from, to, problem) in [
        (
            CUDA_DRIVER,
            "as_of = \"2026-12-01\"",
            "as_of = \"December\"",
            "is no day",
        ),
        (
            CUDA_DRIVER,
            "min_level = 12000",
            "min_level = 12010",
            "not 1000 x major",
        ),
        (
            CUDA_DRIVER,
            "min_driver = \"525.60.13\"",
            "min_driver = \"440.60.13\"",
            "out of order",
        ),
        (
            CUDA_DRIVER,
            "native_below_branch = 580",
            "native_below_branch = 590",
            "where the next one begins",
        ),
        (
            CUDA_DRIVER,
            "branch = 545\nlevel = 12030",
            "branch = 545\nlevel = 12010",
            "out of order",
        ),
        (
            CUDA_DRIVER,
            "branch = 545\nlevel = 12030",
            "branch = 545\nlevel = 12040",
            "its branch has another level",
        ),
        (
            CUDA_DRIVER,
            "branch = 545\nlevel = 12030",
            "branch = 535\nlevel = 12030",
            "stands twice",
        ),
        (
            CUDA_DRIVER,
            "end_of_life = \"2028-06\"",
            "end_of_life = \"2028-13\"",
            "is no date",
        ),
        (
            CUDA_DRIVER,
            "end_of_life = \"2028-06\"",
            "end_of_life = \"unknown\"",
            "leave it out",
        ),
        (
            CUDA_DRIVER,
            "cuda = \"12.4.1\"",
            "cuda = \"12.4.1 or later\"",
            "is no version",
        ),
        (
            CUDA_DRIVER,
            "cuda = \"12.4.1\"",
            "cuda = \"12.4.0\"",
            "stands twice",
        ),
        (
            CUDA_DRIVER,
            "driver = \"550.54.15\"",
            "driver = \"555.54.15\"",
            "of another branch",
        ),
        (
            CUDA_DRIVER,
            "driver = \"550.54.15\"",
            "driver = \"550.54.10\"",
            "out of order",
        ),
        (
            CUDA_DRIVER,
            "driver = \"525.60.13\"\ndriver_windows",
            "driver = \"525.5\"\ndriver_windows",
            "below the floor",
        ),
        (
            CUDA_DRIVER,
            "released_confidence = \"secondary\"",
            "released_confidence = \"verified\"",
            "what the row says",
        ),
        (
            CUDA_DRIVER,
            "source = \"EasyBuild CUDAcompat\"",
            "source = \"\"",
            "is no source",
        ),
        (
            CUDA_DRIVER,
            "native = 575",
            "native = 570",
            "native branch has another level",
        ),
        (
            CUDA_DRIVER,
            "supported = [535, 550, 560, 565, 570]",
            "supported = [535, 550, 570]",
            "lists other branches",
        ),
        (
            CUDA_DRIVER,
            "supported = [535, 550, 560, 565, 570]",
            "supported = [535, 580]",
            "not older than the package",
        ),
        (
            CUDA_DRIVER,
            "supported = [535, 550, 560, 565, 570]",
            "supported = [536]",
            "536 is no driver branch",
        ),
        (
            CUDA_DRIVER,
            "supported = [470, 525, 535]",
            "supported = [525, 535]",
            "does not have branch 470",
        ),
        (
            CUDA_DRIVER,
            "libcuda = \"575.57.08\"",
            "libcuda = \"570.57.08\"",
            "of another level",
        ),
        (
            CUDA_DRIVER,
            "ptx = \"8.3\"",
            "ptx = \"8.5\"",
            "out of order",
        ),
        (
            CUDA_DRIVER,
            "document_branch = 387",
            "document_branch = 391",
            "does not lie at this level",
        ),
        (
            GPUS,
            "last_driver_branch = 470",
            "last_driver_branch = 580",
            "does not drive it",
        ),
        (
            GPUS,
            "last_driver_branch = 580",
            "last_driver_branch = 570",
            "still drives it",
        ),
        (
            GPUS,
            "first_toolkit = \"5.0\"",
            "first_toolkit = \"12.0\"",
            "newer than the last",
        ),
        (
            GPUS,
            "first_driver_branch = 520",
            "first_driver_branch = 515",
            "too old for its generation",
        ),
        (
            GPUS,
            "\nin_newest_toolkit = true",
            "\nlast_toolkit = \"12.9\"",
            "table arch differs",
        ),
        (GPUS, "\"GA103\", ", "", "does not list it"),
        (
            GPUS,
            "chip = \"GA103\"\ngeneration = \"Ampere\"",
            "chip = \"GA103\"\ngeneration = \"Turing\"",
            "not that of its capability",
        ),
        (
            GPUS,
            "    [\"2204\", \"GeForce RTX 3090\"]",
            "    [\"2203\", \"GeForce RTX 3090\"]",
            "an id of",
        ),
        (
            GPUS,
            "    [\"2204\", \"GeForce RTX 3090\"]",
            "    [\"2204\",\"GeForce RTX 3090\"]",
            "not found",
        ),
        (
            GPUS,
            "    [\"2204\", \"GeForce RTX 3090\"]",
            "    [\"22 4\", \"GeForce RTX 3090\"]",
            "no device id",
        ),
        (
            TOOLCHAIN,
            "\"87\", \"89\", \"90\"]",
            "\"87\", \"90\"]",
            "table arch differs",
        ),
        (TOOLCHAIN, "gcc_max = 13", "gcc_max = 11", "out of order"),
        (
            PLATFORMS,
            "branches = [470, 525, 535]",
            "branches = [470, 525, 555]",
            "is newer than the image",
        ),
        (
            PLATFORMS,
            "brands = \"old\"",
            "brands = \"ancient\"",
            "no such brand list",
        ),
        (
            PLATFORMS,
            "boards = [\"orin\"]",
            "boards = [\"orion\"]",
            "no board orion",
        ),
        (
            PLATFORMS,
            "never = [\"12.3\", \"12.7\"]",
            "never = [\"12.4\"]",
            "never works",
        ),
        (
            DISTROS,
            "os = \"debian\"",
            "os = \"debian\"\ndriver_branch = 1",
            "1 is no driver branch",
        ),
        (
            DISTROS,
            "{release}\"]]\nnote",
            "{kernel}\"]]\nnote",
            "nothing fills",
        ),
        (
            FRAMEWORKS,
            "cudas = [\"11.8\", \"12.4\", \"12.6\"]",
            "cudas = [\"11.8\", \"12.6\"]",
            "PyPI's build is none of its builds",
        ),
        (
            FRAMEWORKS,
            "cudas = [\"11.8\", \"12.4\", \"12.6\"]",
            "cudas = [\"12.4\", \"11.8\", \"12.6\"]",
            "out of order",
        ),
        (
            FRAMEWORKS,
            "newest_python = \"3.15\"",
            "newest_python = \"3.10\"",
            "too old for it",
        ),
        (
            FRAMEWORKS,
            "torch_from = \"2.8\"\ntorch_to = \"2.10\"",
            "torch_from = \"2.7\"\ntorch_to = \"2.10\"",
            "another row has the same builds",
        ),
        (
            FRAMEWORKS,
            "torch_from = \"2.11\"\ntorch_to = \"2.11\"\ncuda = \"12.8\"",
            "torch_from = \"2.16\"\ntorch_to = \"2.16\"\ncuda = \"12.8\"",
            "no release has such a build",
        ),
        (
            FRAMEWORKS,
            "x86_64 = [\"sm_37\", \"sm_50\", \"sm_60\", \"sm_70\", \"sm_75\", \"sm_80\", \"sm_86\"]",
            "x86_64 = [\"sm_37\", \"sm_100\"]",
            "CUDA 11.7 does not build for sm_100",
        ),
        (FRAMEWORKS, "\"sm_37\", ", "\"gfx90a\", ", "no architecture"),
        (
            FRAMEWORKS,
            "torch=={version}+{tag}",
            "torch=={release}+{tag}",
            "nothing fills",
        ),
        (
            FRAMEWORKS,
            "version = \"0.10.0\"\ntorch = \"2.7.1\"",
            "version = \"0.10.0\"\ntorch = \"2.7.3\"",
            "has no row",
        ),
        (
            FRAMEWORKS,
            "version = \"0.10.0\"\ntorch = \"2.7.1\"\ncuda = \"12.6\"",
            "version = \"0.10.0\"\ntorch = \"2.7.1\"\ncuda = \"12.8\"",
            "not that of the torch",
        ),
        (
            FRAMEWORKS,
            "torch = \"==2.6.0\"",
            "torch = \"=2.6.0\"",
            "bounds no version",
        ),
        (
            FRAMEWORKS,
            "package = \"torch\"\nversion = \"2.0.1\"",
            "package = \"torch\"\nversion = \"2.0.2\"",
            "no such release",
        ),
        (
            FRAMEWORKS,
            "\"nvidia-cuda-runtime-cu11==11.7.99\"",
            "\"nvidia-cuda-runtime-cu11==11.8.89\"",
            "runtime of another CUDA version",
        ),
        (
            FRAMEWORKS,
            "min_driver_printed = 575",
            "min_driver_printed = 470",
            "does not run its CUDA",
        ),
        (
            FRAMEWORKS,
            "plugin = \"jax-cuda13-plugin\"\ncuda = 13",
            "plugin = \"jax-cuda13-plugin\"\ncuda = 12",
            "of another CUDA version",
        ),
        (
            LIBRARIES,
            "first = \"9.7\"",
            "first = \"9.6\"",
            "the next one begins before it ends",
        ),
        (
            LIBRARIES,
            "archs_of = \"9.28.1\"",
            "archs_of = \"9.29.1\"",
            "archs_of is another release",
        ),
        (
            LIBRARIES,
            "last = \"9.6\"\ncuda = 12\nmin_driver = \"525.60.13\"\ncapability_min = \"5.0\"",
            "last = \"9.6\"\ncuda = 12\nmin_driver = \"525.60.13\"\ncapability_min = \"5.2\"",
            "older GPU again",
        ),
        (
            LIBRARIES,
            "last = \"10.4\"",
            "last = \"10.5\"",
            "the next one begins before it ends",
        ),
        (
            LIBRARIES,
            "soname = \"libnvinfer.so.11\"",
            "soname = \"libnvinfer.so.10\"",
            "of another version",
        ),
        (
            LIBRARIES,
            "cuda = \"12.9\"",
            "cuda = \"12.2\"",
            "CUDA 12.2 does not build for sm_100",
        ),
        (
            LIBRARIES,
            "toolkit = \"13.2.2\"",
            "toolkit = \"13.2.9\"",
            "no such toolkit",
        ),
    ] {
        let text = FILES.iter().find(|(name, _)| *name == file).unwrap().1;
        assert!(text.contains(from), "{from}");
        let broken = text.replacen(from, to, 1);
        let problems = Matrix::from_tables(&[(file, &broken)])
            .map_or_else(|error| vec![error], |matrix| lint(&matrix));
        assert!(
            problems.iter().any(|p| p.contains(problem)),
            "{from} -> {to}: {problem} not in {problems:?}"
        );
    }
}
