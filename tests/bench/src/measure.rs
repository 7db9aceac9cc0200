//! One run of a program, and what the kernel says it cost: `wait4` and `/proc/PID/io` count the run's own children, too.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::{fs, io, mem, ptr};

/// A program with its arguments and environment, ready to be started.
pub(crate) struct Run {
    program: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
}

/// What a run cost.
#[derive(Clone, Copy)]
pub(crate) struct Cost {
    /// User and system time, in milliseconds.
    pub(crate) cpu_ms: f64,
    /// The largest resident set of the run or of one of its children, in megabytes (10^6 bytes).
    pub(crate) memory_mb: f64,
    /// Bytes that it read, of any file and from the page cache or not; what it maps is not among them.
    pub(crate) read_bytes: u64,
}

/// Several runs of one program.
pub(crate) struct Costs(Vec<Cost>);

impl Costs {
    /// Runs each program `times` times by turns, so that they meet the same weather, and once before, which warms the
    /// caches and does not count.
    ///
    /// # Errors
    /// As [`cost`], and where `times` is 0.
    pub(crate) fn of(runs: &[Run], times: usize) -> Result<Vec<Self>, String> {
        if times == 0 {
            return Err("`--runs` must be 1 or more".to_owned());
        }
        let mut costs: Vec<Self> = runs.iter().map(|_| Self(Vec::new())).collect();
        for turn in 0..=times {
            for (run, costs) in runs.iter().zip(&mut costs) {
                let cost = cost(run)?;
                if turn > 0 {
                    costs.0.push(cost);
                }
            }
        }
        for costs in &mut costs {
            costs.0.sort_by(|a, b| a.cpu_ms.total_cmp(&b.cpu_ms));
        }
        Ok(costs)
    }

    /// One run that counts, and none before it: for what takes minutes.
    ///
    /// # Errors
    /// As [`cost`].
    pub(crate) fn once(run: &Run) -> Result<Self, String> {
        Ok(Self(vec![cost(run)?]))
    }

    /// Median, least and most processor time, in milliseconds.
    pub(crate) fn cpu_ms(&self) -> [f64; 3] {
        let at = |index: usize| self.0.get(index).map_or(f64::NAN, |cost| cost.cpu_ms);
        let last = self.0.len().saturating_sub(1);
        [at(self.0.len() / 2), at(0), at(last)]
    }

    /// The largest resident set of all runs, in megabytes.
    pub(crate) fn memory_mb(&self) -> f64 {
        self.0.iter().map(|cost| cost.memory_mb).fold(0.0, f64::max)
    }

    /// The most bytes that a run read.
    pub(crate) fn read_bytes(&self) -> u64 {
        self.0.iter().map(|cost| cost.read_bytes).max().unwrap_or(0)
    }
}

fn text(bytes: &[u8]) -> Result<CString, String> {
    CString::new(bytes).map_err(|e| e.to_string())
}

impl Run {
    /// `PROGRAM ARGUMENTS...`, with no other environment than this one.
    pub(crate) fn new<A: AsRef<OsStr>>(
        program: &Path,
        arguments: impl IntoIterator<Item = A>,
        variables: &[(&str, PathBuf)],
        home: &Path,
    ) -> Result<Self, String> {
        let program = program
            .canonicalize()
            .map_err(|e| format!("{}: {e}", program.display()))?;
        let program = text(program.as_os_str().as_bytes())?;
        let given = arguments
            .into_iter()
            .map(|argument| text(argument.as_ref().as_bytes()));
        let arguments = [Ok(program.clone())]
            .into_iter()
            .chain(given)
            .collect::<Result<_, _>>()?;
        let mut environment = vec![c"PATH=/usr/bin:/bin".to_owned()];
        for (name, value) in variables.iter().chain(&[("HOME", home.to_owned())]) {
            let bytes = [name.as_bytes(), b"=", value.as_os_str().as_bytes()].concat();
            environment.push(text(&bytes)?);
        }
        Ok(Self {
            program,
            arguments,
            environment,
        })
    }
}

/// Runs it once, its output thrown away. `posix_spawn`, since a forked copy of this process would count as the run's memory.
///
/// # Errors
/// Where it cannot be started, is ended by a signal, or says that it failed itself (exit code 2).
fn cost(run: &Run) -> Result<Cost, String> {
    let pointers = |texts: &[CString]| -> Vec<*mut libc::c_char> {
        let all = texts.iter().map(|text| text.as_ptr().cast_mut());
        all.chain([ptr::null_mut()]).collect()
    };
    let (arguments, environment) = (pointers(&run.arguments), pointers(&run.environment));
    let failed = |code: i32| io::Error::from_raw_os_error(code).to_string();
    let mut pid = 0;
    // SAFETY: the actions are initialised before they are used and destroyed once. Every pointer that is handed over is to
    // a C string, or to an array of such that ends in null, of `run`, which outlives the calls.
    let spawned = unsafe {
        let mut actions: libc::posix_spawn_file_actions_t = mem::zeroed();
        libc::posix_spawn_file_actions_init(&raw mut actions);
        // It throws away as /dev/null does, where `grep` would stop at the first line that it finds.
        for fd in [1, 2] {
            libc::posix_spawn_file_actions_addopen(
                &raw mut actions,
                fd,
                c"/dev/zero".as_ptr(),
                libc::O_WRONLY,
                0,
            );
        }
        let spawned = libc::posix_spawn(
            &raw mut pid,
            run.program.as_ptr(),
            &raw const actions,
            ptr::null(),
            arguments.as_ptr(),
            environment.as_ptr(),
        );
        libc::posix_spawn_file_actions_destroy(&raw mut actions);
        spawned
    };
    if spawned != 0 {
        return Err(failed(spawned));
    }
    // SAFETY: all zeroes are a valid `siginfo_t`, and the pointer is to a local of the right type.
    let ended = unsafe {
        let mut info: libc::siginfo_t = mem::zeroed();
        let id = libc::id_t::try_from(pid).map_err(|e| e.to_string())?;
        let how = libc::WEXITED | libc::WNOWAIT;
        libc::waitid(libc::P_PID, id, &raw mut info, how)
    };
    if ended != 0 {
        return Err(io::Error::last_os_error().to_string());
    }
    // It has ended and is not waited for yet: now its counters are complete and still there.
    let counters = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let read = counters
        .lines()
        .find_map(|line| line.strip_prefix("rchar: ")?.parse().ok());
    let mut status = 0;
    // SAFETY: all zeroes are a valid `rusage`, and both pointers are to locals of the right type.
    let (waited, usage) = unsafe {
        let mut usage: libc::rusage = mem::zeroed();
        let waited = libc::wait4(pid, &raw mut status, 0, &raw mut usage);
        (waited, usage)
    };
    if waited != pid {
        return Err(io::Error::last_os_error().to_string());
    }
    if !libc::WIFEXITED(status) || libc::WEXITSTATUS(status) > 1 {
        return Err(format!("the run failed: wait status {status:#x}"));
    }
    let ms = |time: libc::timeval| time.tv_sec as f64 * 1e3 + time.tv_usec as f64 / 1e3;
    Ok(Cost {
        cpu_ms: ms(usage.ru_utime) + ms(usage.ru_stime),
        // The kernel counts in units of 1024 bytes.
        memory_mb: usage.ru_maxrss as f64 * 1024.0 / 1e6,
        read_bytes: read.ok_or("the kernel counts no reads: /proc/PID/io")?,
    })
}
