//! The child: confines itself, loads one library or opens the nodes, and says before each call which one it is.
//!
//! It judges nothing and waits for nobody: the parent knows the deadline.

#![expect(
    clippy::redundant_closure_for_method_calls,
    reason = "`call` is another method for each type of function: its path alone would be ambiguous"
)]

use std::fmt::Display;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit};
use serde::de::DeserializeOwned;

use super::protocol::{Answer, EXIT_LOST, Message, Request, SLOW_MS};
use super::{Ask, LibraryKind, confine};
use crate::facts::{DeviceAnswer, OpenAnswer};
use crate::ffi;
use crate::ffi::dl::{self, Entry, Loaded, Symbol};

/// The socket is kept away from the numbers that a careless library might use or close.
const SOCKET_AT_LEAST: i32 = 200;
/// Longest question that is read.
const QUESTION_BYTES: u64 = 1 << 20;
/// Longest text of an answer, in characters: a message of the loader.
const TEXT_CHARS: usize = 4096;
/// GPUs that are asked for one by one; no machine has more.
pub(super) const MOST_DEVICES: i32 = 64;
/// `NVML_ERROR_FUNCTION_NOT_FOUND`: what NVML itself answers where the driver lacks a function.
const FUNCTION_NOT_FOUND: i32 = 13;
/// How much later than at the deadline the child ends by itself, should the parent be gone.
const GRACE_SECONDS: u64 = 10;

/// Answers the question that is on stdin. Returns only where there is none, with the exit code.
pub(super) fn run() -> i32 {
    let Some((ask, session)) = question() else {
        return 2;
    };
    let code = catch_unwind(AssertUnwindSafe(|| answer(&ask, session))).map_or(EXIT_LOST, |()| 0);
    ffi::exit_now(code)
}

/// Takes the socket from stdin and the question from the socket. What a library then reads from stdin is its end.
fn question() -> Option<(Ask, Session)> {
    let stdin = std::io::stdin();
    let socket = rustix::io::fcntl_dupfd_cloexec(stdin.as_fd(), SOCKET_AT_LEAST)
        .or_else(|_| rustix::io::fcntl_dupfd_cloexec(stdin.as_fd(), 3))
        .ok()?;
    let (empty, _) = rustix::pipe::pipe().ok()?;
    rustix::stdio::dup2_stdin(empty).ok()?;
    let out = UnixStream::from(socket);
    let mut session = Session {
        input: BufReader::new(out.try_clone().ok()?),
        out,
        grace_seconds: 0,
        about: None,
        printed_to: 0,
    };
    let ask: Ask = session.read()?;
    let grace = ask.deadline.as_secs().saturating_add(GRACE_SECONDS);
    session.grace_seconds = u32::try_from(grace).unwrap_or(u32::MAX);
    Some((ask, session))
}

fn answer(ask: &Ask, mut session: Session) {
    ffi::end_after(session.grace_seconds);
    ffi::faults_are_fatal();
    ffi::unbuffer_stdout();
    leave_no_core();
    let (confinement, unconfined) = confine::confine();
    let init = ask.init && unconfined.is_none();
    if ask.kind == LibraryKind::Gpus {
        stay_with_parent();
    }
    session.say(&Message::Confined {
        confinement,
        withheld: unconfined.filter(|_| ask.init),
    });
    match ask.kind {
        LibraryKind::Cuda => {
            session.with_library(ask, |session, library| {
                session.cuda(library, init);
            });
        }
        LibraryKind::Nvml => {
            session.with_library(ask, |session, library| {
                session.nvml(library, init);
            });
        }
        LibraryKind::Gpus => {
            session.with_library(ask, |session, library| {
                session.gpus(library, init);
            });
        }
        LibraryKind::Cudart => session.with_library(ask, |session, library| {
            session.cudart(library, &ask.path, init);
        }),
        LibraryKind::Hip => session.with_library(ask, |session, library| {
            session.hip(library, init);
        }),
        LibraryKind::Hsa => session.with_library(ask, |session, library| {
            session.hsa(library, init);
        }),
        LibraryKind::Nodes if init => session.nodes(&ask.nodes),
        LibraryKind::Nodes => {}
    }
    session.say(&Message::Done);
}

/// A child that lives for hours: Ctrl-C in a terminal reaches it as well, but when it ends is for its parent to say; and it
/// ends with it, even while a call hangs. (Set after the change of user, which would undo it.)
fn stay_with_parent() {
    ffi::interrupt::leave_to_parent();
    if let Err(e) =
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
    {
        log::debug!("a parent that dies will not end this child: {e}");
    }
}

/// A crash is an answer, not something to keep: with a limit of 1 byte the kernel neither writes a core file nor starts the
/// program that collects them (core(5): a limit of 0 would still start it).
fn leave_no_core() {
    let limit = rustix::process::getrlimit(Resource::Core);
    let wanted = limit.maximum.map_or(1, |most| most.min(1));
    if let Err(e) = rustix::process::setrlimit(
        Resource::Core,
        Rlimit {
            current: Some(wanted),
            maximum: Some(wanted),
        },
    ) {
        log::debug!("core limit: {e}");
    }
}

/// What a call hands out, as far as it is worth writing down.
pub(super) trait Value {
    fn number(&self) -> Option<i64> {
        None
    }
    fn text(&self) -> Option<String> {
        None
    }
}

impl Value for () {}
impl Value for dl::NvmlHandle {}
impl Value for (i32, i32) {}
impl Value for i32 {
    fn number(&self) -> Option<i64> {
        Some(i64::from(*self))
    }
}
impl Value for String {
    fn text(&self) -> Option<String> {
        Some(self.clone())
    }
}

/// Whether a call is one of a kind or one of many (see [`Answer::routine`]).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Made {
    Once,
    PerDevice,
}

/// The conversation with the parent.
pub(super) struct Session {
    out: UnixStream,
    input: BufReader<UnixStream>,
    /// After how many seconds this process ends by itself, once it has begun to answer.
    grace_seconds: u32,
    /// The GPU whose sensors are being asked, for the names of the calls.
    pub(super) about: Option<u32>,
    /// How many bytes had been printed when the last call came back.
    printed_to: u64,
}

impl Session {
    /// Without a parent there is nobody to ask for: the process ends.
    pub(super) fn say(&mut self, message: &Message) {
        let Ok(mut line) = serde_json::to_vec(message) else {
            ffi::exit_now(EXIT_LOST)
        };
        line.push(b'\n');
        if self.out.write_all(&line).is_err() {
            ffi::exit_now(EXIT_LOST)
        }
    }

    /// One line of what the parent says.
    fn read<T: DeserializeOwned>(&mut self) -> Option<T> {
        let mut line = String::new();
        (&mut self.input)
            .take(QUESTION_BYTES)
            .read_line(&mut line)
            .ok()?;
        serde_json::from_str(&line).ok()
    }

    /// Waits, for as long as it takes, until the parent asks once more; `None` where it has let go.
    pub(super) fn hear_parent(&mut self) -> Option<Request> {
        ffi::end_after(0);
        let request = self.read();
        ffi::end_after(self.grace_seconds);
        request
    }

    fn calling(&mut self, name: impl Display) -> Instant {
        let name = match self.about {
            Some(index) => format!("{name} of GPU {index}"),
            None => name.to_string(),
        };
        self.say(&Message::Calling(name));
        Instant::now()
    }

    fn answered(&mut self, since: Instant, answer: Answer) {
        let ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
        let text = answer
            .text
            .map(|text| text.chars().take(TEXT_CHARS).collect());
        let printed_to = printed_to();
        self.printed_to = printed_to;
        self.say(&Message::Answer(Answer {
            text,
            ms,
            printed_to,
            ..answer
        }));
    }

    /// Loads the library and goes on with it.
    fn with_library(&mut self, ask: &Ask, go_on: impl FnOnce(&mut Self, &'static Loaded)) {
        let since = self.calling("dlopen");
        match Loaded::open(&ask.path) {
            Ok(library) => {
                self.answered(
                    since,
                    Answer {
                        code: Some(0),
                        ..Answer::default()
                    },
                );
                go_on(self, library);
            }
            Err(message) => self.answered(
                since,
                Answer {
                    text: Some(message),
                    ..Answer::default()
                },
            ),
        }
    }

    /// Asks for one of the many readings of a GPU: its value, or the code. That a board does not have it is an answer like any
    /// other, so the call is told of only where something else is odd about it: it printed, or took long.
    pub(super) fn sense<F: Copy, T>(
        &mut self,
        library: &'static Loaded,
        symbol: &Symbol<F>,
        call: impl FnOnce(&Entry<F>) -> (i32, T),
    ) -> Result<T, i32> {
        let Ok(entry) = library.find(symbol) else {
            return Err(FUNCTION_NOT_FOUND);
        };
        let since = self.calling(entry.name);
        let (code, value) = call(&entry);
        if since.elapsed() >= Duration::from_millis(SLOW_MS) || printed_to() != self.printed_to {
            self.answered(
                since,
                Answer {
                    code: Some(code.into()),
                    routine: true,
                    ..Answer::default()
                },
            );
        }
        if code == 0 { Ok(value) } else { Err(code) }
    }

    /// Makes one call. Its code and value; `None` where the library has no such function.
    pub(super) fn ask<F: Copy, T: Value>(
        &mut self,
        library: &'static Loaded,
        symbol: &Symbol<F>,
        made: Made,
        call: impl FnOnce(&Entry<F>) -> (i32, T),
    ) -> Option<(i32, T)> {
        let routine = made == Made::PerDevice;
        let entry = match library.find(symbol) {
            Ok(entry) => entry,
            Err(message) => {
                let since = self.calling(symbol.name());
                self.answered(
                    since,
                    Answer {
                        text: Some(message),
                        routine,
                        ..Answer::default()
                    },
                );
                return None;
            }
        };
        let since = self.calling(entry.name);
        let (code, value) = call(&entry);
        let good = code == 0;
        self.answered(
            since,
            Answer {
                code: Some(code.into()),
                number: value.number().filter(|_| good),
                text: value.text().filter(|_| good),
                routine,
                ..Answer::default()
            },
        );
        Some((code, value))
    }

    /// The same, where only success is of use.
    pub(super) fn get<F: Copy, T: Value>(
        &mut self,
        library: &'static Loaded,
        symbol: &Symbol<F>,
        made: Made,
        call: impl FnOnce(&Entry<F>) -> (i32, T),
    ) -> Option<T> {
        self.ask(library, symbol, made, call)
            .and_then(|(code, value)| (code == 0).then_some(value))
    }

    fn cuda(&mut self, library: &'static Loaded, init: bool) {
        self.get(library, &dl::CU_DRIVER_GET_VERSION, Made::Once, |f| {
            f.call()
        });
        if !init
            || self
                .get(library, &dl::CU_INIT, Made::Once, |f| (f.call(0), ()))
                .is_none()
        {
            return;
        }
        let count = self
            .get(library, &dl::CU_DEVICE_GET_COUNT, Made::Once, |f| f.call())
            .unwrap_or(0);
        for ordinal in 0..count.clamp(0, MOST_DEVICES) {
            let each = Made::PerDevice;
            let Some((code, device)) =
                self.ask(library, &dl::CU_DEVICE_GET, each, |f| f.call(ordinal))
            else {
                return;
            };
            let mut said = DeviceAnswer {
                index: ordinal.unsigned_abs(),
                code: code.into(),
                ..DeviceAnswer::default()
            };
            if code == 0 {
                said.name = self.get(library, &dl::CU_DEVICE_GET_NAME, each, |f| f.call(device));
                let mut attribute = |number| {
                    let value = self.get(library, &dl::CU_DEVICE_GET_ATTRIBUTE, each, |f| {
                        f.call(number, device)
                    });
                    value.and_then(|value| u32::try_from(value).ok())
                };
                said.capability =
                    attribute(dl::CAPABILITY_MAJOR).zip(attribute(dl::CAPABILITY_MINOR));
                said.address = self
                    .get(library, &dl::CU_DEVICE_GET_PCI_BUS_ID, each, |f| {
                        f.call(device)
                    })
                    .map(|address| as_in_sysfs(&address));
            }
            self.say(&Message::Device(Box::new(said)));
        }
    }

    fn cudart(&mut self, library: &'static Loaded, path: &str, init: bool) {
        // Up to 11.x this function initialises the driver before it answers; from 12.0 on it only answers.
        if init || runtime_major(path).is_some_and(|major| major >= 12) {
            self.get(library, &dl::CUDA_RUNTIME_GET_VERSION, Made::Once, |f| {
                f.call()
            });
        }
        self.get(library, &dl::CUDA_DRIVER_GET_VERSION, Made::Once, |f| {
            f.call()
        });
        if init {
            self.get(library, &dl::CUDA_GET_DEVICE_COUNT, Made::Once, |f| {
                f.call()
            });
        }
    }

    /// Every call of HIP initialises it, those for a version as well.
    fn hip(&mut self, library: &'static Loaded, init: bool) {
        if init {
            for version in [&dl::HIP_RUNTIME_GET_VERSION, &dl::HIP_DRIVER_GET_VERSION] {
                self.get(library, version, Made::Once, |f| f.call());
            }
            self.get(library, &dl::HIP_GET_DEVICE_COUNT, Made::Once, |f| f.call());
        }
    }

    fn hsa(&mut self, library: &'static Loaded, init: bool) {
        if !init
            || self
                .get(library, &dl::HSA_INIT, Made::Once, |f| (f.call(), ()))
                .is_none()
        {
            return;
        }
        self.get(library, &dl::HSA_SYSTEM_GET_INFO, Made::Once, |f| {
            f.call_version()
        });
    }

    fn nodes(&mut self, nodes: &[String]) {
        for path in nodes {
            let since = self.calling(format_args!("open {path}"));
            let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
            let (code, result) = match rustix::fs::open(path, flags, Mode::empty()) {
                Ok(_) => (0, "ok".to_owned()),
                Err(e) => (e.raw_os_error(), errno_name(e)),
            };
            self.answered(
                since,
                Answer {
                    code: Some(code.into()),
                    routine: true,
                    ..Answer::default()
                },
            );
            self.say(&Message::Opened(OpenAnswer {
                path: path.clone(),
                result,
            }));
        }
    }
}

/// How many bytes stand in the file of printed text.
fn printed_to() -> u64 {
    rustix::fs::tell(std::io::stdout().as_fd()).unwrap_or(0)
}

/// The major version that a file name of libcudart tells: 11 of `libcudart.so.11.0`, `libcudart-d0da41ae.so.11.8.89`.
fn runtime_major(path: &str) -> Option<u32> {
    let name = Path::new(path).file_name()?.to_str()?;
    let (_, version) = name.split_once(".so.")?;
    version.split('.').next()?.parse().ok()
}

/// `00000000:41:00.0` (NVML) and `0000:41:00.0` (CUDA) as /sys writes it; a domain of more than 16 bits stays as it is.
pub(super) fn as_in_sysfs(address: &str) -> String {
    let address = address.to_ascii_lowercase();
    match address.strip_prefix("0000") {
        Some(rest) if rest.find(':') == Some(4) => rest.to_owned(),
        _ => address,
    }
}

/// The names that `open()` of a device may answer, as errno(3) has them.
fn errno_name(errno: rustix::io::Errno) -> String {
    use rustix::io::Errno as E;
    let name = match errno {
        E::PERM => "EPERM",
        E::NOENT => "ENOENT",
        E::INTR => "EINTR",
        E::IO => "EIO",
        E::NXIO => "ENXIO",
        E::AGAIN => "EAGAIN",
        E::NOMEM => "ENOMEM",
        E::ACCESS => "EACCES",
        E::BUSY => "EBUSY",
        E::EXIST => "EEXIST",
        E::NODEV => "ENODEV",
        E::NOTDIR => "ENOTDIR",
        E::ISDIR => "EISDIR",
        E::INVAL => "EINVAL",
        E::NFILE => "ENFILE",
        E::MFILE => "EMFILE",
        E::NOTTY => "ENOTTY",
        E::TXTBSY => "ETXTBSY",
        E::FBIG => "EFBIG",
        E::NOSPC => "ENOSPC",
        E::ROFS => "EROFS",
        E::NAMETOOLONG => "ENAMETOOLONG",
        E::NOSYS => "ENOSYS",
        E::LOOP => "ELOOP",
        E::OVERFLOW => "EOVERFLOW",
        E::OPNOTSUPP => "EOPNOTSUPP",
        E::TIMEDOUT => "ETIMEDOUT",
        E::STALE => "ESTALE",
        other => return format!("errno {}", other.raw_os_error()),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses() {
        for (path, major) in [
            ("/usr/local/cuda/lib64/libcudart.so.12.4.127", Some(12)),
            ("/x.so.9/libcudart-d0da41ae.so.11.0", Some(11)),
            ("/x/libcudart.so", None),
            ("/x/libcudart.so.abc", None),
            ("", None),
        ] {
            assert_eq!(runtime_major(path), major, "{path}");
        }
        for (address, sysfs) in [
            ("00000000:41:00.0", "0000:41:00.0"),
            ("0000:C1:00.0", "0000:c1:00.0"),
            ("0000000A:41:00.0", "000a:41:00.0"),
            ("00010000:41:00.0", "00010000:41:00.0"),
            ("", ""),
        ] {
            assert_eq!(as_in_sysfs(address), sysfs, "{address}");
        }
        assert_eq!(errno_name(rustix::io::Errno::PERM), "EPERM");
        assert_eq!(
            errno_name(rustix::io::Errno::from_raw_os_error(4000)),
            "errno 4000"
        );
    }
}
