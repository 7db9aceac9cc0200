//! The targets of a file's device code, read only as far as somebody wants to know them.
//!
//! A framework's library has thousands of containers, and its first few have nearly every target that it was built for.
//! So the walk asks after each container whether that is enough; only one that went to the end may say what is missing.

use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};

use super::walk::{Event, Kind, walk};
use super::{Arch, EXECUTABLE, Isa, MAX_TARGETS, RELOCATABLE, STUB};
use crate::read::elf;
use crate::read::window::ReadAt;

/// The targets that were seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Of machine code. Stubs of the linker count only where there is nothing else.
    pub elf: BTreeSet<Arch>,
    /// Of PTX, with the version of its language.
    pub ptx: BTreeSet<(Arch, Isa)>,
    /// Containers that were looked into.
    pub containers: u64,
    /// Whether the walk went to the end, and nothing on its way was corrupt.
    pub complete: bool,
}

/// The targets of a shared library or program. `enough` is asked after each container and ends the walk; empty and
/// complete where the file has no device code.
pub fn held(file: &dyn ReadAt, enough: &mut dyn FnMut(&Held) -> bool) -> Held {
    let sections = elf::sections(file);
    let mut seen = Held {
        // Without a section table nothing says where device code would be.
        complete: !sections.is_empty(),
        ..Held::default()
    };
    let mut stubs = BTreeSet::new();
    for section in elf::apart(&sections) {
        let executable = section.name == EXECUTABLE;
        if !executable && section.name != RELOCATABLE {
            continue;
        }
        let range = section.range.clone();
        if look(file, range, executable, &mut seen, &mut stubs, enough).is_break() {
            seen.complete = false;
            break;
        }
    }
    if seen.elf.is_empty() {
        seen.elf = stubs;
    }
    seen
}

/// One section. Of code that is still to be linked only the PTX counts: its cubins run nowhere as they are.
fn look(
    file: &dyn ReadAt,
    range: Range<u64>,
    executable: bool,
    seen: &mut Held,
    stubs: &mut BTreeSet<Arch>,
    enough: &mut dyn FnMut(&Held) -> bool,
) -> ControlFlow<()> {
    let mut outcome = ControlFlow::Continue(());
    walk(file, range, &mut |event| {
        match event {
            Event::Container => seen.containers += 1,
            Event::Entry(entry, _) => match entry.kind {
                Kind::Cubin if executable => {
                    let set = if entry.unpacked >= STUB {
                        &mut seen.elf
                    } else {
                        &mut *stubs
                    };
                    if set.len() < MAX_TARGETS {
                        set.insert(entry.arch);
                    }
                }
                Kind::Ptx if seen.ptx.len() < MAX_TARGETS => {
                    seen.ptx.insert((entry.arch, entry.isa));
                }
                _ => {}
            },
            Event::End => {
                if enough(seen) {
                    outcome = ControlFlow::Break(());
                }
            }
            Event::Problem(..) => seen.complete = false,
        }
        outcome
    });
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARED: &[u8] = include_bytes!("../../../fixtures/fatbin/shared.so");

    #[test]
    fn a_walk_to_the_end_sees_what_the_full_look_sees() {
        let all = held(&SHARED, &mut |_| false);
        assert!(all.complete && all.containers > 1, "{all:?}");
        let full = super::super::device_code(&SHARED, super::super::Look::default());
        let executable: BTreeSet<Arch> = full.executable.elf.keys().copied().collect();
        assert_eq!(all.elf, executable);
        let ptx: BTreeSet<_> = full.places().flat_map(|c| c.ptx.keys().copied()).collect();
        assert_eq!(all.ptx, ptx);
    }

    #[test]
    fn what_was_left_off_is_not_complete() {
        let first = held(&SHARED, &mut |_| true);
        assert!(!first.complete && first.containers == 1, "{first:?}");
        let cut = held(&SHARED.get(..SHARED.len() / 2).unwrap(), &mut |_| false);
        assert!(!cut.complete, "{cut:?}");
    }

    #[test]
    fn a_file_without_device_code_is_complete_and_empty() {
        let none = include_bytes!("../../../fixtures/elf/libexample.so.9");
        let none = held(&none.as_slice(), &mut |_| false);
        assert!(none.elf.is_empty() && none.ptx.is_empty() && none.containers == 0);
    }
}
