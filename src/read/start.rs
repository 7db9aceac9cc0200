//! What the kernel does with a file that is to be started: the first line of a script, what `env` makes of it, and the
//! handlers of `binfmt_misc` that take files of other machines.
//!
//! Sources: `fs/binfmt_script.c` and `fs/binfmt_misc.c` of Linux, `execve(2)`, `env(1)` of GNU coreutils.

use super::hexadecimal_bytes;

/// The most of a file's beginning that the kernel looks at, in bytes (`BINPRM_BUF_SIZE`).
const LOOKED_AT: usize = 256;
/// The most of a magic number that a handler may have, in bytes.
const MAX_MAGIC: usize = 128;

/// A script's first line, as the kernel takes it apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstLine {
    /// The file that is started: `/usr/bin/env`.
    pub interpreter: String,
    /// All that follows, as one argument: `python3`, `-S python3 -u`.
    pub argument: Option<String>,
}

/// Takes apart `#!/usr/bin/env python3`. `None` where the file begins otherwise, or the kernel does not take the line: it
/// is empty, or the interpreter's path is longer than what is looked at.
///
/// A carriage return before the line's end is a part of it, as for the kernel.
pub fn first_line(head: &[u8]) -> Option<FirstLine> {
    let looked_at = head.get(..LOOKED_AT).unwrap_or(head);
    let line = looked_at.strip_prefix(b"#!")?;
    let end = line.iter().position(|byte| matches!(byte, b'\n' | 0));
    let is_whole = end.is_some() || head.len() < LOOKED_AT;
    let line = trimmed(line.get(..end.unwrap_or(line.len()))?);
    let blank = line.iter().position(|byte| matches!(byte, b' ' | b'\t'));
    if line.is_empty() || (blank.is_none() && !is_whole) {
        return None;
    }
    let (interpreter, rest) = line.split_at(blank.unwrap_or(line.len()));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let rest = trimmed(rest);
    Some(FirstLine {
        interpreter: text(interpreter),
        argument: (!rest.is_empty()).then(|| text(rest)),
    })
}

/// Without blanks and tabs at both ends.
fn trimmed(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// The program that `env` starts, by the one argument that a first line gives it: `python3`; of `-S python3 -u` the first
/// word. Without `-S` blanks are a part of the name. `None` where other options make it something else.
pub fn env_command(argument: &str) -> Option<String> {
    let split = ["-S", "--split-string=", "-vS"]
        .iter()
        .find_map(|option| argument.strip_prefix(option));
    let Some(words) = split else {
        let is_name = !argument.starts_with('-') && !argument.contains('=');
        return is_name.then(|| argument.to_owned());
    };
    if words.contains(['$', '\\']) {
        return None;
    }
    let mut words = words
        .split_ascii_whitespace()
        .skip_while(|word| word.contains('='));
    let first = words.next()?;
    (!first.starts_with(['-', '"', '\''])).then(|| first.to_owned())
}

/// A handler of `binfmt_misc`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handler {
    /// What the kernel starts instead: `/usr/bin/qemu-aarch64-static`.
    pub interpreter: String,
    /// Whether the kernel holds it open since it was registered, so that it need not be there under its path (flag `F`).
    pub is_held: bool,
    offset: usize,
    magic: Vec<u8>,
    /// Empty: all bits count.
    mask: Vec<u8>,
}

/// Reads a file of `/proc/sys/fs/binfmt_misc`. `None` where the handler is switched off, or goes by the ending of a name:
/// no program of another machine is known by that.
pub fn handler(text: &str) -> Option<Handler> {
    let mut lines = text.lines();
    if lines.next()? != "enabled" {
        return None;
    }
    let value = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix([' ', ':']))
            .map(str::trim)
    };
    let magic = hexadecimal_bytes(value("magic")?, MAX_MAGIC)?;
    let mask = match value("mask") {
        Some(mask) => hexadecimal_bytes(mask, MAX_MAGIC).filter(|m| m.len() == magic.len())?,
        None => Vec::new(),
    };
    Some(Handler {
        interpreter: value("interpreter")?.to_owned(),
        is_held: value("flags").is_some_and(|flags| flags.contains('F')),
        offset: value("offset").map_or(Some(0), |offset| offset.parse().ok())?,
        magic,
        mask,
    })
}

impl Handler {
    /// Whether a file that begins like this is handed to it.
    pub fn takes(&self, head: &[u8]) -> bool {
        let Some(end) = self.offset.checked_add(self.magic.len()) else {
            return false;
        };
        let Some(bytes) = head.get(self.offset..end) else {
            return false;
        };
        let masks = self.mask.iter().copied().chain(std::iter::repeat(0xff));
        let mut all = bytes.iter().zip(&self.magic).zip(masks);
        !self.magic.is_empty() && all.all(|((byte, magic), mask)| (byte ^ magic) & mask == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_lines() {
        for (head, interpreter, argument) in [
            ("#!/bin/sh\nset -e\n", "/bin/sh", None),
            (
                "#! /usr/bin/env  python3 \n",
                "/usr/bin/env",
                Some("python3"),
            ),
            (
                "#!/usr/bin/env python3\r\n",
                "/usr/bin/env",
                Some("python3\r"),
            ),
            ("#!/v/bin/python -u -E", "/v/bin/python", Some("-u -E")),
            ("#!python3\n", "python3", None),
        ] {
            let line = first_line(head.as_bytes()).unwrap();
            assert_eq!(line.interpreter, interpreter, "{head}");
            assert_eq!(line.argument.as_deref(), argument, "{head}");
        }
        let long = format!("#!/{}\n", "x".repeat(LOOKED_AT));
        for head in ["", "#!", "#!\n", "#! \t\n", "import torch\n", &long] {
            assert_eq!(first_line(head.as_bytes()), None, "{head}");
        }
        let cut = format!("#!/bin/sh {}\n", "x".repeat(LOOKED_AT));
        assert_eq!(first_line(cut.as_bytes()).unwrap().interpreter, "/bin/sh");
    }

    #[test]
    fn what_env_starts() {
        for (argument, name) in [
            ("python3", Some("python3")),
            ("python3 -u", Some("python3 -u")),
            ("-S python3 -u", Some("python3")),
            ("-Spython3", Some("python3")),
            ("-S A=b python3", Some("python3")),
            ("-S -i python3", None),
            ("-S ${HOME}/python3", None),
            ("-i python3", None),
            ("A=b", None),
            ("-S", None),
        ] {
            assert_eq!(env_command(argument).as_deref(), name, "{argument}");
        }
    }

    #[test]
    fn handlers() {
        let text = "enabled\ninterpreter /usr/bin/qemu-aarch64-static\nflags: OCF\noffset 0\n\
            magic 7f454c460201010000000000000000000200b700\n\
            mask ffffffffffffff00fffffffffffffffffeffffff\n";
        let handler_of = handler(text).unwrap();
        assert_eq!(handler_of.interpreter, "/usr/bin/qemu-aarch64-static");
        assert!(handler_of.is_held);
        let mut head = b"\x7fELF\x02\x01\x01\x03\0\0\0\0\0\0\0\0\x03\0\xb7\0more".to_vec();
        assert!(handler_of.takes(&head));
        head[18] = 62;
        assert!(!handler_of.takes(&head) && !handler_of.takes(b"\x7fELF"));
        for text in [
            "disabled\ninterpreter /x\nmagic 7f",
            "enabled\ninterpreter /x\nextension .jar\n",
            "enabled\ninterpreter /x\nmagic 7f4\n",
            "enabled\ninterpreter /x\nmagic 7f45\nmask ff\n",
            "enabled\nmagic 7f45\n",
            "",
        ] {
            assert_eq!(handler(text), None, "{text}");
        }
    }
}
