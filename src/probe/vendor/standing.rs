//! A child that keeps libnvidia-ml loaded and is asked again and again, with a deadline each time.
//!
//! One that hangs or dies is replaced when it is asked the next time; one that cannot even be killed is waited for, so that
//! hours of asking a driver that is stuck do not leave a heap of children behind.

use super::live::Live;
use super::protocol::Request;
use super::{Ask, Heard, Launcher};
use crate::facts::{ChildEnd, LibraryAnswers};

/// The child, while there is one.
#[derive(Debug)]
pub struct Standing {
    launcher: Launcher,
    ask: Ask,
    stop: fn() -> bool,
    state: State,
}

#[derive(Debug)]
enum State {
    /// None, or none any more.
    None,
    /// It can be asked.
    Ready(Box<Live>),
    /// It could not be killed.
    Stuck(Box<Live>),
}

impl Standing {
    /// Starts nothing yet. `stop` ends waiting, whatever the deadline.
    pub fn new(launcher: Launcher, ask: Ask, stop: fn() -> bool) -> Self {
        Self {
            launcher,
            ask,
            stop,
            state: State::None,
        }
    }

    /// Asks, starting a child where there is none: GPUs of the indices in `asleep` are not touched, of the `listed` ones that
    /// the driver lists. `None` where a child that could not be killed is still there.
    ///
    /// An answer that came whole ends as [`ChildEnd::Unknown`], since the child goes on; anything else says how it ended.
    pub fn ask(&mut self, asleep: Vec<u32>, listed: Option<u32>) -> Option<Heard> {
        let mut heard = Heard {
            answers: LibraryAnswers {
                path: self.ask.path.clone(),
                ..LibraryAnswers::default()
            },
            certain: true,
            ..Heard::default()
        };
        if let State::Stuck(live) = &mut self.state
            && !live.is_gone()
        {
            return None;
        }
        let mut live = match std::mem::replace(&mut self.state, State::None) {
            State::Ready(live) => live,
            State::None | State::Stuck(_) => match self.launcher.start(&self.ask) {
                super::Running {
                    live: Some(mut live),
                    ..
                } => {
                    live.stopped_by(self.stop);
                    Box::new(live)
                }
                running => return Some(running.finish()),
            },
        };
        if live.ask_again(&Request { asleep, listed }, &mut heard) {
            self.state = State::Ready(live);
        } else if !live.kill() {
            self.state = State::Stuck(live);
        }
        Some(heard)
    }

    /// Lets go of a child that answers but is of no use any more: the next answer comes from a new one.
    pub fn renew(&mut self) {
        if let State::Ready(mut live) = std::mem::replace(&mut self.state, State::None)
            && !live.kill()
        {
            self.state = State::Stuck(live);
        }
    }
}

impl Heard {
    /// Whether the child said all that it had been asked.
    pub fn is_whole(&self) -> bool {
        self.answers.end == ChildEnd::Unknown
    }
}
