//! Architectures that a build asks for, as people and tools write them: nvcc's flags, `CMake`'s lists, the list of
//! `PyTorch`'s extensions. Text to words (`sm_80`, `compute_80`); whether an nvcc knows them is not said here.

use std::collections::BTreeSet;

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Code that is written: machine code `sm_80`, PTX `compute_80`; sorted.
    pub written: BTreeSet<String>,
    /// Every architecture that is named, also where no code of it stays: nvcc must know them all.
    pub named: BTreeSet<String>,
    /// A word that leaves the choice to the tool or to the machine: `native`, `all-major`, `Blackwell`.
    pub open: Option<String>,
}

impl Asked {
    fn write(&mut self, word: String) {
        self.named.insert(word.clone());
        self.written.insert(word);
    }

    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        self.named.is_empty() && self.open.is_none()
    }

    /// Adds what another text asks for.
    pub fn add(&mut self, other: Self) {
        self.written.extend(other.written);
        self.named.extend(other.named);
        self.open = self.open.take().or(other.open);
    }
}

/// `86`, `90a`, `100f`: two or three digits and a letter.
fn number(text: &str) -> Option<&str> {
    let digits = text.trim_end_matches(['a', 'f']);
    let is_number = (2..=3).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
    (is_number && text.len() <= digits.len() + 1).then_some(text)
}

/// `sm_86` or `compute_86`.
fn architecture(word: &str) -> Option<&str> {
    let rest = word
        .strip_prefix("sm_")
        .or_else(|| word.strip_prefix("compute_"))?;
    number(rest).map(|_| word)
}

/// The list of `TORCH_CUDA_ARCH_LIST`: `8.0;8.6+PTX`, `9.0a`, names of generations, parted by semicolons or blanks.
///
/// The names are those of `torch.utils.cpp_extension`; what newer versions of it made of `Blackwell` differs, so that
/// one is left open.
pub fn of_torch(text: &str) -> Asked {
    const NAMES: &[(&str, &str)] = &[
        ("Kepler+Tesla", "3.7"),
        ("Kepler", "3.5+PTX"),
        ("Maxwell+Tegra", "5.3"),
        ("Maxwell", "5.0;5.2+PTX"),
        ("Pascal", "6.0;6.1+PTX"),
        ("Volta+Tegra", "7.2"),
        ("Volta", "7.0+PTX"),
        ("Turing", "7.5+PTX"),
        ("Ampere+Tegra", "8.7"),
        ("Ampere", "8.0;8.6+PTX"),
        ("Ada", "8.9+PTX"),
        ("Hopper", "9.0+PTX"),
    ];
    let mut asked = Asked::default();
    for word in text.split([';', ' ', ',']).filter(|word| !word.is_empty()) {
        if let Some((_, list)) = NAMES.iter().find(|(name, _)| *name == word) {
            asked.add(of_torch(list));
            continue;
        }
        let (version, ptx) = match word.strip_suffix("+PTX") {
            Some(version) => (version, true),
            None => (word, false),
        };
        let joined = version.replacen('.', "", 1);
        if version.contains('.')
            && let Some(number) = number(&joined)
        {
            asked.write(format!("sm_{number}"));
            asked.named.insert(format!("compute_{number}"));
            if ptx {
                asked.write(format!("compute_{number}"));
            }
        } else {
            asked.open.get_or_insert_with(|| word.to_owned());
        }
    }
    asked
}

/// A list of `CMake`: `75;80-real;90a-virtual`, `native`, `all`, `all-major`; `OFF` and an empty one ask for nothing.
/// A number alone is machine code and PTX.
pub fn of_cmake(text: &str) -> Asked {
    let mut asked = Asked::default();
    for word in text
        .split(';')
        .map(str::trim)
        .filter(|word| !word.is_empty())
    {
        let (text, real, ptx) = match word.rsplit_once('-') {
            Some((text, "real")) => (text, true, false),
            Some((text, "virtual")) => (text, false, true),
            _ => (word, true, true),
        };
        match number(text) {
            Some(number) => {
                asked.named.insert(format!("compute_{number}"));
                if real {
                    asked.write(format!("sm_{number}"));
                }
                if ptx {
                    asked.write(format!("compute_{number}"));
                }
            }
            None if ["OFF", "FALSE", "0", "NOTFOUND"].contains(&word) => {}
            None => {
                asked.open.get_or_insert_with(|| word.to_owned());
            }
        }
    }
    asked
}

/// Flags of nvcc: `-gencode arch=compute_80,code=[sm_80,compute_80]`, `--generate-code=...`, `-arch=sm_86`, `-arch=native`,
/// with quotes and backslashes as a shell or a JSON string has them.
pub fn of_flags(text: &str) -> Asked {
    let text = text.replace(['"', '\'', '\\'], "");
    let mut asked = Asked::default();
    let mut words = text.split_ascii_whitespace().peekable();
    // The older form names the virtual architecture and the code in two options.
    let mut code_of_arch: Vec<String> = Vec::new();
    let mut arch: Option<String> = None;
    while let Some(word) = words.next() {
        let word = word.trim_start_matches('-');
        let (option, value) = match word.split_once('=') {
            Some((option, value)) => (option, Some(value)),
            None => (word, None),
        };
        let mut value = || value.or_else(|| words.next_if(|next| !next.starts_with('-')));
        match option {
            "gencode" | "generate-code" => {
                if let Some(value) = value() {
                    asked.add(of_pair(value));
                }
            }
            "arch" | "gpu-architecture" => arch = value().map(str::to_owned),
            "code" | "gpu-code" => code_of_arch.extend(codes(value().unwrap_or_default())),
            _ => {}
        }
    }
    match arch.as_deref() {
        Some(arch) if architecture(arch).is_some() => {
            asked.named.insert(arch.to_owned());
            if code_of_arch.is_empty() {
                // "-arch=sm_86" stands for that machine code and its PTX.
                asked.write(arch.to_owned());
                asked.write(arch.replacen("sm_", "compute_", 1));
            }
        }
        Some(word) if !word.is_empty() => asked.open = Some(word.to_owned()),
        _ => {}
    }
    if arch.is_some() {
        for code in code_of_arch {
            asked.write(code);
        }
    }
    asked
}

/// `arch=compute_80,code=[sm_80,compute_80]`.
fn of_pair(text: &str) -> Asked {
    let mut asked = Asked::default();
    let Some(rest) = text.strip_prefix("arch=") else {
        return asked;
    };
    let (arch, code) = rest.split_once(",code=").unwrap_or((rest, rest));
    if let Some(arch) = architecture(arch) {
        asked.named.insert(arch.to_owned());
    }
    for code in codes(code) {
        asked.write(code);
    }
    asked
}

/// `[sm_80,compute_80]`, `sm_80`; link-time code (`lto_80`) is machine code in the end.
fn codes(text: &str) -> impl Iterator<Item = String> + '_ {
    text.trim_matches(['[', ']', ','])
        .split(',')
        .filter_map(|word| {
            let word = word.replacen("lto_", "sm_", 1);
            architecture(&word).map(str::to_owned)
        })
}

/// What a `CMakeCache.txt` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CmakeCache {
    /// `CMAKE_CUDA_ARCHITECTURES`, as written.
    pub architectures: Option<String>,
    /// `CMAKE_CUDA_COMPILER`: a path.
    pub compiler: Option<String>,
    /// `CMAKE_CUDA_FLAGS`.
    pub flags: Option<String>,
}

/// Reads the lines `NAME:TYPE=VALUE` of a `CMakeCache.txt`.
pub fn cmake_cache(text: &str) -> CmakeCache {
    let mut cache = CmakeCache::default();
    for line in text.lines() {
        let Some((name, value)) = line
            .split_once(':')
            .and_then(|(name, rest)| Some((name, rest.split_once('=')?.1)))
        else {
            continue;
        };
        let value = || Some(value.trim().to_owned()).filter(|value| !value.is_empty());
        match name.trim() {
            "CMAKE_CUDA_ARCHITECTURES" => cache.architectures = value(),
            "CMAKE_CUDA_COMPILER" => cache.compiler = value(),
            "CMAKE_CUDA_FLAGS" => cache.flags = value(),
            _ => {}
        }
    }
    cache
}

/// The flags about architectures in a `compile_commands.json`, over all commands of it, and the first nvcc that one of
/// them calls. Read as text, so that a part of a large file does.
pub fn compile_commands(text: &str) -> (Asked, Option<String>) {
    let mut asked = Asked::default();
    let mut nvcc = None;
    for line in text.lines() {
        let is_command = line.trim_start().starts_with("\"command\"");
        if is_command || line.contains("arch") {
            // Where arguments are a list, each stands on a line: the pair is in one word all the same.
            let flags = line.trim().trim_end_matches(',');
            asked.add(of_flags(flags));
            if let Some(at) = flags.find("arch=compute_").filter(|_| !is_command) {
                let pair = flags.get(at..).unwrap_or_default();
                asked.add(of_pair(pair.trim_end_matches('"')));
            }
        }
        if nvcc.is_none() {
            nvcc = line
                .split(['"', ' ', '\\'])
                .find(|word| word.starts_with('/') && word.ends_with("/nvcc"))
                .map(str::to_owned);
        }
    }
    (asked, nvcc)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(asked: &Asked, written: &[&str], named: &[&str], open: Option<&str>) {
        let words = |set: &BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>();
        assert_eq!(words(&asked.written), written);
        assert_eq!(words(&asked.named), named);
        assert_eq!(asked.open.as_deref(), open);
    }

    #[test]
    fn lists_of_torch() {
        check(
            &of_torch("8.0;8.6+PTX 9.0a"),
            &["compute_86", "sm_80", "sm_86", "sm_90a"],
            &[
                "compute_80",
                "compute_86",
                "compute_90a",
                "sm_80",
                "sm_86",
                "sm_90a",
            ],
            None,
        );
        check(
            &of_torch("Volta Blackwell"),
            &["compute_70", "sm_70"],
            &["compute_70", "sm_70"],
            Some("Blackwell"),
        );
        check(
            &of_torch("12.0"),
            &["sm_120"],
            &["compute_120", "sm_120"],
            None,
        );
        check(&of_torch(" ; "), &[], &[], None);
        // What is no such list is left open, and asks for nothing.
        check(&of_torch("80"), &[], &[], Some("80"));
    }

    #[test]
    fn lists_of_cmake() {
        check(
            &of_cmake("75;80-real;90a-virtual"),
            &["compute_75", "compute_90a", "sm_75", "sm_80"],
            &["compute_75", "compute_80", "compute_90a", "sm_75", "sm_80"],
            None,
        );
        check(&of_cmake("native"), &[], &[], Some("native"));
        check(&of_cmake("all-major"), &[], &[], Some("all-major"));
        check(&of_cmake("OFF"), &[], &[], None);
    }

    #[test]
    fn flags_of_nvcc() {
        for flags in [
            "-O3 -gencode arch=compute_80,code=[sm_80,compute_80] -gencode arch=compute_90a,code=sm_90a",
            "\"--generate-code=arch=compute_80,code=[compute_80,sm_80]\" --generate-code arch=compute_90a,code=sm_90a -c x.cu",
            "-gencode=arch=compute_80,code=\\\"sm_80,compute_80\\\" '-gencode=arch=compute_90a,code=sm_90a'",
        ] {
            check(
                &of_flags(flags),
                &["compute_80", "sm_80", "sm_90a"],
                &["compute_80", "compute_90a", "sm_80", "sm_90a"],
                None,
            );
        }
        check(
            &of_flags("nvcc -arch=sm_86 x.cu"),
            &["compute_86", "sm_86"],
            &["compute_86", "sm_86"],
            None,
        );
        check(
            &of_flags("-arch compute_70 -code sm_70,sm_75"),
            &["sm_70", "sm_75"],
            &["compute_70", "sm_70", "sm_75"],
            None,
        );
        check(&of_flags("-arch=native"), &[], &[], Some("native"));
        check(&of_flags("gcc -march=native -O2 -code"), &[], &[], None);
    }

    #[test]
    fn caches_and_commands_of_a_build_folder() {
        let cache = cmake_cache(
            "# comment\n//CUDA architectures\nCMAKE_CUDA_ARCHITECTURES:STRING=80;90\n\
             CMAKE_CUDA_COMPILER:FILEPATH=/usr/local/cuda/bin/nvcc\nCMAKE_CUDA_FLAGS:STRING=\n",
        );
        assert_eq!(cache.architectures.as_deref(), Some("80;90"));
        assert_eq!(cache.compiler.as_deref(), Some("/usr/local/cuda/bin/nvcc"));
        assert_eq!(cache.flags, None);
        let text = r#"[
{
  "directory": "/src/build",
  "command": "/usr/local/cuda/bin/nvcc  -O3 \"--generate-code=arch=compute_75,code=[compute_75,sm_75]\" -c a.cu",
  "file": "/src/a.cu"
},
{
  "arguments": [
    "/usr/local/cuda/bin/nvcc",
    "--generate-code=arch=compute_80,code=[sm_80]"
  ]
}
]"#;
        let (asked, nvcc) = compile_commands(text);
        check(
            &asked,
            &["compute_75", "sm_75", "sm_80"],
            &["compute_75", "compute_80", "sm_75", "sm_80"],
            None,
        );
        assert_eq!(nvcc.as_deref(), Some("/usr/local/cuda/bin/nvcc"));
    }
}
