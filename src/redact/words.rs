//! Words that a host or a user may be called and that mean something else nearly everywhere. Kept short on purpose:
//! a word on these lists is never replaced where it stands alone.

/// Words that stand alone in paths, package names and versions: also with digits behind them (`cuda-12`, `python3`)
/// they are no host.
const PATH_WORDS: &str = "\
    amd amdgpu arm bash cu cublas cuda cudart cudnn debian el fedora g gcc gfx glibc lib libcuda \
    libcudart libnvidia linux musl nccl nouveau nvidia py python pytorch rhel rocm sh sm so \
    tensorflow torch ubuntu v x xe";

/// English and technical words, and the ready-made users of distributions and images.
const COMMON: &str = "\
    a absent active ada adm admin administrator ai alpine amazon ampere an anaconda and any app \
    application apptainer arch archive archlinux at aws azure azureuser backup bare base bin \
    blackwell boot box build builder by cache call cat centos checkpoints chip ci client cloud \
    cluster code common compute conda conf config container containers core cpu current daemon \
    data datasets dead default desktop dev device dgx dist distribution docker domain driver dummy \
    easybuild ec2 empty env environment envs error etc failed false fault fermi file finished \
    forbidden ftp games garbled gb gce gcp gdm gh git gnats go gpu grace group guest h hgx home \
    hopper host hypervisor images in include info init install integrity intel irc is jetson job \
    jupyter k kepler kernel kubernetes kvm l4t lab laptop library link list live llama lmod load \
    local localdomain localhost lock log login lovelace lp lxc machine made mail main mamba \
    mambaforge man manager master maxwell media memory messagebus mi micromamba miniconda \
    miniforge minimal missing mnt mod model models module modules name nano net network news nixos \
    no nobody node nodes none nvlink ok ollama on open openmpi opt or oracle orin os output \
    package packages pascal pc pci pcie persistenced pi pip podman polkitd postgres power proc \
    process prod production project projects proprietary proxy pub public qemu quadro r rack ray \
    redhat release remote render resolve results rocky root rootfs rpc rtx rubin run runner \
    runtime sbin scratch script sda server service services share shared singularity site slurm \
    snap software source spack spark src srv sshd stack state static storage stub stubs suse \
    suspended sync sys system systemd t target team tegra temp tesla test thor titan tmp tools \
    train triton true truncated turing unknown user users usr uucp uv var venv video virtual vllm \
    vm volta web wheels windows work worker workspace workstation wsl www xavier yes";

/// Ends of file names and of systemd units: `name.service` is no host in a domain.
const ENDINGS: &str = "\
    a bin cfg conf csv db device err gz h html ini json ko log md mount out path pem pid pth pub \
    py rs scope service sh slice so sock socket swap tar target timer toml txt whl xml xz yaml yml \
    zip zst";

/// Domains that anybody knows; a URL there names no private host.
const PUBLIC_DOMAINS: &str = "\
    amd.com github.com huggingface.co intel.com kernel.org nvidia.com \
    python.org pytorch.org ubuntu.com";

/// Whether a word means something else nearly everywhere.
pub(super) fn is_common(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    holds(COMMON, &word) || holds(PATH_WORDS, &word)
}

/// Whether every alphabetic part of a name (`ubuntu-22.04`: `ubuntu`) is a word of paths and versions.
pub(super) fn is_path_name(name: &str) -> bool {
    alphabetic_parts(name).all(|part| holds(PATH_WORDS, &part.to_ascii_lowercase()))
}

/// Whether every alphabetic part of a name is a common word.
pub(super) fn is_common_name(name: &str) -> bool {
    alphabetic_parts(name).all(is_common)
}

/// Whether the last part of a dotted name ends a file's or a unit's name.
pub(super) fn is_ending(label: &str) -> bool {
    holds(ENDINGS, &label.to_ascii_lowercase())
}

/// Whether a host is one of those that anybody knows.
pub(super) fn is_public_host(host: &str) -> bool {
    let host = host.to_ascii_lowercase();
    PUBLIC_DOMAINS.split(' ').any(|domain| {
        host.strip_suffix(domain)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}

fn holds(list: &str, word: &str) -> bool {
    list.split(' ').any(|entry| entry == word)
}

fn alphabetic_parts(name: &str) -> impl Iterator<Item = &str> {
    name.split(|c: char| !c.is_alphabetic())
        .filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_hold_lower_case_words_once() {
        for list in [PATH_WORDS, COMMON, ENDINGS, PUBLIC_DOMAINS] {
            let mut seen = std::collections::BTreeSet::new();
            for word in list.split(' ') {
                assert!(seen.insert(word), "{word} twice");
                assert!(!word.is_empty());
                assert_eq!(word, word.to_ascii_lowercase());
            }
        }
    }

    #[test]
    fn only_whole_domains_are_public() {
        assert!(is_public_host("download.pytorch.org"));
        assert!(is_public_host("GitHub.com"));
        assert!(!is_public_host("notgithub.com"));
        assert!(!is_public_host("github.com.example.net"));
    }
}
