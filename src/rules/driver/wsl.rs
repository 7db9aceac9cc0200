//! WSL: the driver is the one of Windows. Its libraries are mounted at `/usr/lib/wsl/lib` and speak to `/dev/dxg`.
//!
//! `/dev/dxg` is there for a GPU of any vendor. That one is NVIDIA's is told by its libraries: Windows's NVIDIA driver alone
//! brings them.

use crate::facts::Layer;
use crate::facts::LibraryCopy;
use crate::finding::{Finding, Fix, Severity};
use crate::rules::driver::library::with_copy;
use crate::rules::stack::{verified, with_cu_init};
use crate::rules::{Ctx, Expectation, Outcome, gpu_expected};

/// Where Windows's libraries are mounted.
const WINDOWS_LIBRARIES: &str = "/usr/lib/wsl/lib";
/// WSL's device.
const DXG: &str = "/dev/dxg";

/// Whether a copy came from Windows.
fn is_of_windows(copy: &LibraryCopy) -> bool {
    [&copy.path, &copy.real_path]
        .iter()
        .any(|path| path.starts_with("/usr/lib/wsl/"))
}

impl Ctx<'_> {
    /// Whether this is WSL 1, which translates system calls and has no device of Windows: its kernel is called
    /// `4.4.0-19041-Microsoft`, that of WSL 2 `...-microsoft-standard-WSL2`.
    pub fn in_wsl_1(&self) -> bool {
        let release = self.facts.system.wsl.value();
        release.is_some_and(|release| release.ends_with("-Microsoft"))
    }

    /// Whether Windows's NVIDIA driver has put a library here: then Windows has an NVIDIA GPU.
    pub fn windows_has_nvidia(&self) -> bool {
        let driver = &self.facts.driver;
        let mut copies = driver
            .libcuda
            .items()
            .iter()
            .chain(driver.libnvidia_ml.items());
        // A container gets them under the names of a Linux driver's.
        self.in_wsl()
            && copies.any(|copy| {
                is_of_windows(copy) || self.in_container() && !copy.is_stub() && !copy.is_compat()
            })
    }

    /// Whether an NVIDIA GPU of Windows is passed to this WSL.
    pub fn wsl_gpu(&self) -> bool {
        self.windows_has_nvidia() && self.facts.driver.node(DXG).is_some()
    }
}

/// A GPU is expected, and WSL does not pass it, or passes one without NVIDIA's driver.
pub(super) fn wsl_gpu_missing(ctx: &Ctx<'_>) -> Outcome {
    if !ctx.in_wsl() || ctx.in_container() || ctx.wsl_gpu() {
        return Outcome::Clean;
    }
    let (severity, why) = match gpu_expected(ctx) {
        Expectation::Yes(why) => (Severity::Error, why),
        Expectation::Likely(why) => (Severity::Warning, why),
        Expectation::No => return Outcome::Clean,
    };
    let has_dxg = ctx.facts.driver.node(DXG).is_some();
    if ctx.facts.driver.nodes.is_unreadable() || has_dxg && ctx.facts.driver.libcuda.is_unreadable()
    {
        return Outcome::unknown("whether Windows passes a GPU: /dev could not be read");
    }
    let dxg = if has_dxg { "there" } else { "absent" };
    let (layer, title, detail, fixes) = if ctx.in_wsl_1() {
        (
            Layer::System,
            "this is WSL 1, which has no GPU: only WSL 2 passes the GPU of Windows".to_owned(),
            "WSL 1 translates system calls and has no device of Windows. No driver or library in it can change that.",
            vec![
                Fix::at(Layer::System, "make this distribution a WSL 2 one, in a terminal of Windows (NAME as `wsl.exe -l -v` says it; nothing in it is lost)")
                    .line("wsl.exe --set-version NAME 2")
                    .cost("restart of WSL"),
            ],
        )
    } else if has_dxg {
        (
            Layer::Driver,
            format!("WSL passes a GPU, and Windows has put no NVIDIA driver into {WINDOWS_LIBRARIES}"),
            "/dev/dxg is there for a GPU of any vendor. libcuda comes from the NVIDIA driver of Windows, never from a package in WSL: Windows has none, one from before WSL was supported, or another vendor's GPU.",
            vec![
                Fix::at(Layer::Driver, "install a current NVIDIA driver in Windows, and start WSL anew from a terminal of Windows")
                    .line("wsl.exe --shutdown")
                    .cost("administrator in Windows, restart of WSL"),
            ],
        )
    } else {
        (
            Layer::System,
            "/dev/dxg is missing: WSL does not pass the GPU of Windows".to_owned(),
            "The kernel of WSL 2 makes /dev/dxg for the GPUs of Windows. Without it there is an old WSL or Windows, a Windows inside a virtual machine without a GPU, a kernel of one's own without dxgkrnl, or gpuSupport=false in .wslconfig.",
            vec![
                Fix::at(Layer::System, "in a terminal of Windows: bring WSL and its kernel up to date, and start it anew")
                    .line("wsl.exe --update")
                    .line("wsl.exe --shutdown")
                    .cost("restart of WSL"),
                Fix::at(Layer::Driver, "install a current NVIDIA driver in Windows")
                    .cost("administrator in Windows, restart of WSL")
                    .second("only where Windows itself has no working driver: nvidia-smi there tells"),
                Fix::at(Layer::System, "take `gpuSupport=false` and `kernel=` out of .wslconfig in the user's folder of Windows")
                    .second("only where they stand there"),
            ],
        )
    };
    let mut finding = Finding::new("wsl-gpu-missing", layer, severity, title)
        .complaining(Layer::Runtime)
        .component(DXG)
        .detail(detail)
        .reading("WSL kernel", &ctx.facts.system.wsl)
        .evidence(DXG, dxg, "/dev")
        .evidence("GPU expected", why, "the table of when a GPU is expected")
        .source("NVIDIA: CUDA on WSL user guide")
        .source("microsoft/WSL: kernel sources (drivers/hv/dxgkrnl), .wslconfig");
    let all = &ctx.facts.driver.libcuda;
    finding = match all.items().iter().find(|copy| is_of_windows(copy)) {
        Some(copy) => with_copy(finding, "libcuda of Windows's driver", copy),
        None => finding.evidence("libcuda of Windows's driver", "absent", WINDOWS_LIBRARIES),
    };
    let finding = with_cu_init(ctx, finding);
    Outcome::found([fixes
        .into_iter()
        .fold(finding, |finding, fix| finding.fix(verified(ctx, fix)))])
}

/// What to do where Windows's driver refuses: the kernel log of WSL says nothing of it.
pub(super) fn with_fixes_in_windows(ctx: &Ctx<'_>, finding: Finding) -> Finding {
    finding
        .fix(verified(ctx, Fix::at(Layer::Driver, "start WSL anew: after an update of the Windows driver it still has the libraries of the old one")
            .line("wsl.exe --shutdown")
            .cost("restart of WSL")))
        .fix(verified(ctx, Fix::at(Layer::Driver, "see whether `nvidia-smi.exe` works in Windows, and install a current NVIDIA driver there if not; `wsl.exe --update` brings WSL up to date")
            .line("nvidia-smi.exe")
            .cost("administrator in Windows, restart of WSL")))
        .fix(Fix::at(Layer::Driver, "a data-center GPU has to be in driver model WDDM (or MCDM) in Windows: `nvidia-smi.exe` shows TCC where it is not, and WSL sees none that is")
            .cost("administrator in Windows, reboot")
            .second("for GPUs that can be in TCC mode alone"))
}

/// A Linux driver's libraries inside WSL shadow those of Windows.
pub(super) fn wsl_linux_driver(ctx: &Ctx<'_>) -> Outcome {
    if !ctx.in_wsl() || ctx.in_container() {
        return Outcome::Clean;
    }
    let Some(copy) = ctx
        .libcuda()
        .filter(|c| !is_of_windows(c) && !c.is_stub() && !c.is_compat())
    else {
        return Outcome::Clean;
    };
    let windows = ctx
        .facts
        .driver
        .libcuda
        .items()
        .iter()
        .find(|c| is_of_windows(c));
    let mut packages = ctx.packages(&[
        "nvidia-driver",
        "libnvidia-",
        "nvidia-utils",
        "nvidia-dkms",
        "nvidia-kernel",
        "libcuda1",
        "cuda-drivers",
    ]);
    // The container toolkit is no driver, and belongs into WSL.
    packages.retain(|p| !p.starts_with("libnvidia-container"));
    let has_gpu = ctx.wsl_gpu();
    let named = packages
        .first()
        .cloned()
        .or_else(|| copy.package.value().cloned());
    let title = match &named {
        Some(package) => format!(
            "a Linux driver ({}) is installed inside WSL and hides the Windows driver's libraries in /usr/lib/wsl/lib",
            package.split(' ').next().unwrap_or(package)
        ),
        None => format!(
            "a Linux driver's libcuda ({}) hides the Windows driver's in /usr/lib/wsl/lib",
            copy.real_path
        ),
    };
    let mut finding = Finding::new("wsl-linux-driver", Layer::Driver, if has_gpu { Severity::Error } else { Severity::Warning }, title)
        .complaining(Layer::Runtime)
        .component("libcuda.so.1")
        .detail("In WSL the driver is the Windows one: its libraries are mounted at /usr/lib/wsl/lib and speak to /dev/dxg. A Linux libcuda looks for /dev/nvidia*, which WSL does not have.")
        .reading("WSL kernel", &ctx.facts.system.wsl)
        .source("NVIDIA: CUDA on WSL user guide");
    finding = with_copy(finding, "libcuda.so.1 in use", copy);
    if let Some(windows) = windows {
        finding = with_copy(finding, "the Windows driver's", windows);
    }
    for package in &packages {
        finding = finding.evidence(
            "package",
            package.clone(),
            ctx.facts.system.packages.source(),
        );
    }
    let finding = with_cu_init(ctx, finding);
    let names: Vec<&str> = packages
        .iter()
        .filter_map(|p| p.split(' ').next())
        .collect();
    let fix = Fix::at(Layer::Driver, "remove the Linux driver from this WSL distribution, and keep only toolkit packages (cuda-toolkit, not cuda or cuda-drivers)").cost("root");
    let is_dpkg = ctx
        .facts
        .system
        .packages
        .source()
        .starts_with("/var/lib/dpkg");
    let fix = if names.is_empty() || !is_dpkg {
        fix
    } else {
        let mut words = vec!["sudo", "apt-get", "purge"];
        words.extend(names);
        fix.command(&words)
    };
    Outcome::found([finding.fix(verified(ctx, fix.line("sudo ldconfig")))])
}
