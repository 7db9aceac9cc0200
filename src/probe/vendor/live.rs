//! A child while it runs, as the parent sees it: started, heard with a deadline, ended, and how it ended.
//!
//! It knows neither what is asked nor what an answer means.

#![expect(
    clippy::disallowed_methods,
    reason = "the one place that starts a process: its own executable"
)]

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::process::{Pid, WaitId, WaitIdOptions};
use serde::Serialize;

use super::protocol::{
    Answer, BEFORE_ANY_CALL, CHILD_ARGUMENT, EXIT_LOST, Message, Request, SLOW_MS,
};
use super::{Ask, Heard};
use crate::facts::{Call, ChildEnd, Reading};

/// What a library prints goes to a file of this size in memory; what does not fit is lost to the library.
const PRINTED_BYTES: u64 = 64 * 1024;
/// How much of that is kept for one call.
const PRINTED_KEPT: u64 = 4096;
/// Longest message of a child; more without an end of line is garbage.
const MESSAGE_BYTES: usize = 256 * 1024;
/// How long a wait for the child lasts at most before it is seen whether waiting still makes sense.
const LOOK_UP: Duration = Duration::from_millis(200);
/// How long a child that was killed, or that has let go of its socket, may take to be gone before it is left behind.
const TO_DIE: Duration = Duration::from_millis(500);

/// A child and what is needed to hear it.
#[derive(Debug)]
pub(super) struct Live {
    child: Child,
    socket: UnixStream,
    /// Hears once when the child has ended (and is still to be reaped).
    ended: Receiver<()>,
    printed: Option<std::fs::File>,
    /// Up to where printed text has been given to calls.
    printed_from: u64,
    started: Instant,
    deadline: Duration,
    /// The call that was announced last.
    calling: String,
    /// Whether it came back.
    called: bool,
    about: String,
    /// Whether whoever waits has had enough.
    stop: fn() -> bool,
}

impl Live {
    /// Starts a child of this program and gives it its question.
    pub(super) fn spawn(program: &Path, ask: &Ask) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let printed = printed_file()
            .inspect_err(|e| log::debug!("what libraries print is not kept: {e}"))
            .ok();
        let output = match &printed {
            Some(file) => file.try_clone().map_or_else(|_| Stdio::null(), Stdio::from),
            None => Stdio::null(),
        };
        let mut command = Command::new(program);
        command
            .arg(CHILD_ARGUMENT)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(output)
            // Shims that share out GPUs talk there and work: only what stands in a program's own output is odd. Memory
            // takes it too, so that not even /dev/null is opened for writing.
            .stderr(printed_file().map_or_else(|_| Stdio::null(), Stdio::from));
        for (name, value) in &ask.env {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let started = Instant::now();
        let child = command.spawn()?;
        // The command still holds the other end of the socket.
        drop(command);
        let mut live = Self {
            child,
            socket: ours,
            ended: channel().1,
            printed,
            printed_from: 0,
            started,
            deadline: ask.deadline,
            calling: BEFORE_ANY_CALL.to_owned(),
            called: true,
            about: ask.about().to_owned(),
            stop: || false,
        };
        live.ended = live.watch()?;
        live.tell(ask)?;
        Ok(live)
    }

    /// Says one thing to the child. A child that is gone already is an answer, which is heard later.
    fn tell(&mut self, what: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(what)?;
        line.push(b'\n');
        if let Err(e) = self.socket.write_all(&line) {
            log::debug!("{}: the child took no question: {e}", self.about);
        }
        Ok(())
    }

    /// Waiting for this child ends when `stop` says so.
    pub(super) fn stopped_by(&mut self, stop: fn() -> bool) {
        self.stop = stop;
    }

    /// Waits for the end of the child in a thread, without reaping it, so that killing it later cannot hit a stranger.
    fn watch(&self) -> io::Result<Receiver<()>> {
        let (tell, told) = channel();
        let socket = self.socket.try_clone()?;
        let pid = Pid::from_child(&self.child);
        std::thread::Builder::new()
            .name("vendor".to_owned())
            .stack_size(64 * 1024)
            .spawn(move || {
                while let Err(rustix::io::Errno::INTR) = rustix::process::waitid(
                    WaitId::Pid(pid),
                    WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
                ) {}
                // What was said before can still be read. Without this, a process that the library forked could hold the line.
                let _ = socket.shutdown(std::net::Shutdown::Both);
                let _ = tell.send(());
            })?;
        Ok(told)
    }

    fn left(&self) -> Duration {
        self.deadline.saturating_sub(self.started.elapsed())
    }

    /// Hears the child to its end, or to the deadline.
    pub(super) fn hear(mut self, heard: &mut Heard, patience: Duration, say: &mut dyn FnMut(&str)) {
        heard.confined = Reading::unreadable("the child did not come to that");
        let line = self.listen(heard, patience, say);
        self.over(heard, line);
    }

    /// Asks a child once more that is asked again and again, and hears its answer; its deadline begins anew. Whether it can
    /// be asked once more: if not, the child has ended, or is to be killed, and `heard` says how.
    pub(super) fn ask_again(&mut self, request: &Request, heard: &mut Heard) -> bool {
        self.started = Instant::now();
        let line = match self.tell(request) {
            Ok(()) => self.listen(heard, Duration::MAX, &mut |_| ()),
            Err(_) => Line::Garbled,
        };
        if matches!(line, Line::Tick) {
            return true;
        }
        self.over(heard, line);
        false
    }

    /// Kills the child. Whether it is gone: one that hangs in the kernel cannot be killed.
    pub(super) fn kill(&mut self) -> bool {
        self.is_gone() || {
            let _ = self.child.kill();
            let _ = self.ended.recv_timeout(TO_DIE);
            self.is_gone()
        }
    }

    /// Whether it has ended.
    pub(super) fn is_gone(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|ended| ended.is_some())
    }

    /// Writes down how the conversation ended.
    fn over(&mut self, heard: &mut Heard, line: Line) {
        let end = match line {
            Line::Done => ChildEnd::Finished,
            Line::Tick | Line::Stopped => ChildEnd::Unknown,
            Line::Garbled => ChildEnd::Garbled {
                call: self.calling.clone(),
            },
            Line::Late => self.timed_out(),
            Line::Ended => match self.ended.recv_timeout(self.left().max(TO_DIE)) {
                Err(RecvTimeoutError::Timeout) => self.timed_out(),
                Ok(()) | Err(RecvTimeoutError::Disconnected) => self.post_mortem(),
            },
        };
        if end != ChildEnd::Finished && !self.called {
            let printed = self.printed_up_to(PRINTED_BYTES);
            let name = self.calling.clone();
            heard.answers.calls.push(Call {
                name,
                printed,
                ..Call::default()
            });
        }
        log::debug!(
            "{}: {end:?} after {} ms",
            self.about,
            self.started.elapsed().as_millis()
        );
        heard.answers.end = end;
    }

    /// Reads messages until there are no more.
    fn listen(&mut self, heard: &mut Heard, patience: Duration, say: &mut dyn FnMut(&str)) -> Line {
        let mut pending = Vec::new();
        let mut chunk = [0; 4096];
        let mut patience = Some(patience);
        loop {
            if (self.stop)() {
                return Line::Stopped;
            }
            let left = self.left();
            let quiet = patience.map(|patience| patience.saturating_sub(self.started.elapsed()));
            if quiet.is_some_and(|quiet| quiet.is_zero()) {
                patience = None;
                say(&self.calling);
                continue;
            }
            // Zero would mean: wait for ever.
            let wait = quiet
                .map_or(left, |quiet| quiet.min(left))
                .clamp(Duration::from_millis(1), LOOK_UP);
            if self.socket.set_read_timeout(Some(wait)).is_err() {
                return Line::Ended;
            }
            let read = match self.socket.read(&mut chunk) {
                Ok(0) => return Line::Ended,
                Ok(read) => chunk.get(..read).unwrap_or_default(),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                // Only when nothing is left to be read: others may have been waited for in the meantime.
                Err(e) if is_quiet(&e) && self.left().is_zero() => return Line::Late,
                Err(e) if is_quiet(&e) => continue,
                Err(_) => return Line::Ended,
            };
            pending.extend_from_slice(read);
            while let Some(end) = memchr::memchr(b'\n', &pending) {
                let line: Vec<u8> = pending.drain(..=end).collect();
                match serde_json::from_slice(&line) {
                    Ok(Message::Done) => return Line::Done,
                    Ok(Message::Tick { certain }) => {
                        heard.certain = certain;
                        return Line::Tick;
                    }
                    Ok(message) => self.note(message, heard),
                    Err(_) => return Line::Garbled,
                }
            }
            if pending.len() > MESSAGE_BYTES {
                return Line::Garbled;
            }
        }
    }

    fn note(&mut self, message: Message, heard: &mut Heard) {
        match message {
            Message::Confined {
                confinement,
                withheld,
            } => {
                heard.confined = Reading::present(confinement, self.about.clone());
                heard.answers.withheld = withheld;
            }
            Message::Calling(name) => {
                self.calling = name;
                self.called = false;
            }
            Message::Answer(Answer {
                code,
                number,
                text,
                ms,
                printed_to,
                routine,
            }) => {
                self.called = true;
                let printed = self.printed_up_to(printed_to);
                let slow_ms = (ms >= SLOW_MS).then_some(ms);
                let call = Call {
                    name: self.calling.clone(),
                    code,
                    number,
                    text,
                    printed,
                    slow_ms,
                };
                let odd = call.code != Some(0)
                    && !heard
                        .answers
                        .calls
                        .iter()
                        .any(|c| c.name == call.name && c.code == call.code);
                if !routine || odd || call.printed.is_some() || call.slow_ms.is_some() {
                    heard.answers.calls.push(call);
                }
            }
            Message::Device(device) => heard.answers.devices.push(*device),
            Message::Gpu(sample) => heard.gpus.push(*sample),
            Message::Opened(open) => heard.opens.push(open),
            Message::Tick { .. } | Message::Done => {}
        }
    }

    /// What was printed since the last call, up to this place or the last byte.
    fn printed_up_to(&mut self, end: u64) -> Option<String> {
        let file = self.printed.as_ref()?;
        // The child writes through the same open file, so its place in it is ours.
        let end = end
            .min(rustix::fs::tell(file.as_fd()).ok()?)
            .min(PRINTED_BYTES);
        let length = end.saturating_sub(self.printed_from).min(PRINTED_KEPT);
        let mut text = vec![0; usize::try_from(length).ok()?];
        std::os::unix::fs::FileExt::read_exact_at(file, &mut text, self.printed_from).ok()?;
        self.printed_from = self.printed_from.max(end);
        (!text.is_empty()).then(|| String::from_utf8_lossy(&text).into_owned())
    }

    fn timed_out(&self) -> ChildEnd {
        let after_ms = u64::try_from(self.deadline.as_millis()).unwrap_or(u64::MAX);
        ChildEnd::TimedOut {
            call: self.calling.clone(),
            after_ms,
        }
    }

    /// How a child ended that did not say it was done.
    fn post_mortem(&mut self) -> ChildEnd {
        let call = self.calling.clone();
        match self.child.wait() {
            Ok(status) => match (status.signal(), status.code()) {
                (Some(signal), _) => ChildEnd::Signal { call, signal },
                (None, Some(EXIT_LOST)) => ChildEnd::Garbled { call },
                // What a shell and an emulator answer for a program that they cannot run: it did not come to a library.
                (None, Some(code @ (126 | 127))) if call == BEFORE_ANY_CALL => {
                    ChildEnd::NotStarted {
                        reason: format!("it ended with status {code} before it began"),
                    }
                }
                (None, code) => ChildEnd::Exited {
                    call,
                    code: code.unwrap_or_default(),
                },
            },
            // Somebody else reaped it: how it ended is lost.
            Err(_) => ChildEnd::Garbled { call },
        }
    }
}

/// Whoever stops listening ends the child; one that cannot be killed is left behind.
impl Drop for Live {
    fn drop(&mut self) {
        if self.is_gone() {
            return;
        }
        // A child that has said all is about to end by itself, but nothing hangs on that.
        let killed = self.child.kill();
        match self.ended.recv_timeout(TO_DIE) {
            Err(RecvTimeoutError::Timeout) => {
                log::debug!("{}: a child is left behind ({killed:?})", self.about);
            }
            Ok(()) | Err(RecvTimeoutError::Disconnected) => {
                let _ = self.child.try_wait();
            }
        }
    }
}

fn is_quiet(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

/// Why no more messages are read.
#[derive(Clone, Copy)]
enum Line {
    /// The child is done.
    Done,
    /// It has answered, and waits to be asked again.
    Tick,
    /// Whoever waits has had enough.
    Stopped,
    /// What came was no message.
    Garbled,
    /// The deadline has passed.
    Late,
    /// The child's end is closed.
    Ended,
}

/// Memory that looks like a file of a fixed size: a library that prints without end fills that and no more.
fn printed_file() -> io::Result<std::fs::File> {
    let file = std::fs::File::from(rustix::fs::memfd_create(
        "printed",
        MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
    )?);
    file.set_len(PRINTED_BYTES)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(file)
}
