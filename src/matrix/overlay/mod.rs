//! Rows that a user adds to the bundled tables, so that a new driver needs no new release.
//!
//! An overlay file is named like the bundled one and has its form: a head, then rows. It holds rows of version tables
//! only: no texts that a report would tell as its own, no commands, no patterns. What is not of that kind is refused, and
//! so is an overlay with which the whole no longer passes the linter. Which folder is read, and whether it can be
//! trusted, is the caller's business; nothing here opens a file.
//!
//! A row with a new key is added at its place. A row with a known key takes the place of the bundled one, whole, with
//! two exceptions: a secondary row never replaces a verified one, and a level that was measured on a real library stays
//! what it is. A `[[chip]]` with a known code is no replacement: its ids are added, and it may say a capability that is
//! not known yet. `as_of` of the matrix stays that of the bundled tables, for which an overlay cannot vouch.

use std::cmp::Ordering;

use serde::de::{DeserializeOwned, IntoDeserializer as _};
use serde::{Deserialize as _, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::rows::AnyRow;
use super::{
    Arch, BitsandbytesRelease, CUDA_DRIVER, Chip, CompatBuild, CompatNote, Confidence, Cudnn,
    DriverBranch, FILES, FRAMEWORKS, Family, ForwardCompat, GPUS, HostCompiler, ImageRequirement,
    JaxPlugin, Jetson, JetsonBoard, JetsonUpgrade, LIBRARIES, Matrix, Nccl, NgcImage, NvSwitch,
    OllamaRelease, OnnxruntimeRelease, PLATFORMS, Pins, PtxIsa, PtxasTargets, SCHEMA, Soname,
    TABLES, TOOLCHAIN, TensorflowRelease, Tensorrt, Toolkit, ToolkitComponents, TorchArchs,
    TorchRelease, TritonServer, VllmRelease, WheelPlatform, WheelPython, XformersRelease, lint,
};

/// The longest text in a row: names are shorter, sources seldom longer.
const LONGEST_TEXT: usize = 300;

/// A file whose rows were added, as every report names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Overlay {
    /// The file, as it may be shown.
    pub path: String,
    /// SHA-256 of its bytes, in hexadecimal.
    pub sha256: String,
    /// Rows in it.
    pub rows: usize,
}

/// A file of an overlay as it was read.
#[derive(Clone, Debug)]
pub struct OverlayFile {
    /// Its name: one of the bundled ones, `cuda-driver.toml`.
    pub name: String,
    /// Its path, as it may be shown.
    pub path: String,
    /// What it holds.
    pub text: String,
}

/// Why an overlay cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverlayError {
    /// The name of the file.
    pub name: String,
    /// What is wrong, one line: `line 7, [[toolkit]]: unknown field ...`.
    pub reason: String,
}

/// What comes of reading one file.
struct Reader<'a> {
    file: &'a str,
    text: &'a str,
    rows: Vec<Placed<String>>,
}

/// Declares the tables that an overlay may add to: field, file, name, and by what its rows are ordered.
macro_rules! open_tables {
    ($($field:ident: $file:ident, $name:literal, $type:ty, |$row:ident| $order:expr;)*) => {
        /// Tables that an overlay may add rows to.
        const OPEN: &[(&str, &str)] = &[$(($file, $name),)*];

        impl Matrix {
            /// Adds the rows of one table.
            fn add_rows(&mut self, reader: &mut Reader<'_>, table: &str, value: Spanned<DeValue<'_>>) -> Result<(), String> {
                match (reader.file, table) {
                    ("gpus.toml", "chip") => {
                        self.chips_added = true;
                        let rows = reader.rows("chip", value, |row: &mut Chip, from| row.source.push_str(from))?;
                        let chips = self.chips.get_mut().ok_or("the table is not parsed")?;
                        add_chips(chips, rows)
                    }
                    $(($file, $name) => {
                        let rows = reader.rows($name, value, |row: &mut $type, from| row.source.push_str(from))?;
                        let known = self.$field.get_mut().ok_or("the table is not parsed")?;
                        add(known, rows)?;
                        known.sort_by(|a, b| order_of(a, b, |$row| $order));
                        Ok(())
                    })*
                    _ => Err(reader.refuse(table)),
                }
            }
        }
    };
}

open_tables! {
    families: CUDA_DRIVER, "family", Family, |row| row.major;
    driver_branches: CUDA_DRIVER, "driver_branch", DriverBranch, |row| row.branch;
    toolkits: CUDA_DRIVER, "toolkit", Toolkit, |row| row.cuda.clone();
    forward_compat_rows: CUDA_DRIVER, "forward_compat", ForwardCompat, |row| row.cuda.clone();
    compat_builds: CUDA_DRIVER, "compat_build", CompatBuild, |row| row.cuda.clone();
    compat_notes: CUDA_DRIVER, "compat_note", CompatNote, |row| row.cuda.clone();
    ptx_isas: CUDA_DRIVER, "ptx_isa", PtxIsa, |row| row.cuda.clone();
    archs: GPUS, "arch", Arch, |row| row.capability;
    nvswitches: GPUS, "nvswitch", NvSwitch, |row| row.id.clone();
    ptxas_target_rows: TOOLCHAIN, "ptxas_targets", PtxasTargets, |row| row.toolkit_from.clone();
    host_compilers: TOOLCHAIN, "host_compiler", HostCompiler, |row| row.toolkit.clone();
    jetsons: PLATFORMS, "jetson", Jetson, |row| row.l4t.clone();
    jetson_boards: PLATFORMS, "jetson_board", JetsonBoard, |_row| ();
    jetson_upgrades: PLATFORMS, "jetson_upgrade", JetsonUpgrade, |_row| ();
    image_requirements: PLATFORMS, "image_require", ImageRequirement, |row| row.cuda.clone();
    cudnns: LIBRARIES, "cudnn", Cudnn, |row| (row.cuda, row.first.clone());
    nccls: LIBRARIES, "nccl", Nccl, |row| row.version.clone();
    tensorrts: LIBRARIES, "tensorrt", Tensorrt, |row| row.first.clone();
    sonames: LIBRARIES, "soname", Soname, |row| row.cuda;
    toolkit_component_rows: LIBRARIES, "toolkit_components", ToolkitComponents, |row| row.toolkit.clone();
    torch_releases: FRAMEWORKS, "torch_release", TorchRelease, |row| row.version.clone();
    torch_arch_rows: FRAMEWORKS, "torch_archs", TorchArchs, |row| (row.cuda.clone(), row.torch_from.clone());
    tensorflow_releases: FRAMEWORKS, "tensorflow_release", TensorflowRelease, |row| row.version.clone();
    jax_plugins: FRAMEWORKS, "jax_plugin", JaxPlugin, |row| (row.cuda, row.version.clone());
    onnxruntime_releases: FRAMEWORKS, "onnxruntime_release", OnnxruntimeRelease, |row| row.version.clone();
    vllm_releases: FRAMEWORKS, "vllm_release", VllmRelease, |row| row.version.clone();
    xformers_releases: FRAMEWORKS, "xformers_release", XformersRelease, |row| row.version.clone();
    bitsandbytes_releases: FRAMEWORKS, "bitsandbytes_release", BitsandbytesRelease, |row| row.version.clone();
    pins: FRAMEWORKS, "pins", Pins, |row| (row.package.clone(), row.version.clone());
    wheel_platforms: FRAMEWORKS, "wheel_platform", WheelPlatform, |row| (row.package.clone(), row.machine.clone(), row.first.clone());
    wheel_python_rows: FRAMEWORKS, "wheel_python", WheelPython, |row| (row.package.clone(), row.first.clone());
    ngc_images: FRAMEWORKS, "ngc_image", NgcImage, |row| row.tag.clone();
    ollama_releases: FRAMEWORKS, "ollama_release", OllamaRelease, |row| row.first.clone();
    triton_servers: FRAMEWORKS, "triton_server", TritonServer, |row| (row.tag.clone(), row.image.clone());
}

fn order_of<T, K: Ord>(a: &T, b: &T, key: impl Fn(&T) -> K) -> Ordering {
    key(a).cmp(&key(b))
}

impl Matrix {
    /// The bundled tables with the rows of these files added, held against the linter as a whole.
    ///
    /// # Errors
    /// The first file that cannot be used, and why: an unknown file, table or key, a table that is not open, a row that
    /// lacks a key or holds a wrong value, a row that may not replace the one it names, or a whole that no longer holds.
    pub fn with_overlay(files: &[OverlayFile]) -> Result<Self, OverlayError> {
        let mut matrix = Self::bundled();
        let Some(first) = files.first() else {
            return Ok(matrix);
        };
        matrix.parse_all().map_err(|reason| first.error(reason))?;
        let mut places = Vec::new();
        for file in files {
            let rows = matrix.add_file(file).map_err(|reason| file.error(reason))?;
            matrix.overlays.push(Overlay {
                path: file.path.clone(),
                sha256: sha256(file.text.as_bytes()),
                rows: rows.len(),
            });
            places.extend(rows.into_iter().map(|(line, row)| (file, line, row)));
        }
        let problems = lint::lint(&matrix);
        let Some(problem) = problems.first() else {
            return Ok(matrix);
        };
        let more = match problems.len() - 1 {
            0 => String::new(),
            n => format!(" (and {n} more)"),
        };
        // A problem of a row that was added is told first; others follow from it, or the bundled rows contradict it.
        let own = problems.iter().find_map(|problem| {
            let of = |(file, _, row): &&(&OverlayFile, usize, String)| {
                problem.starts_with(&format!("{}, {row}: ", file.name))
            };
            places.iter().find(of).map(|place| (problem, place))
        });
        let does_not_hold = "with its rows the matrix does not hold";
        if let Some((problem, (file, line, _))) = own {
            let problem = problem.get(file.name.len() + 2..).unwrap_or(problem);
            return Err(file.error(format!("line {line}, {does_not_hold}: {problem}{more}")));
        }
        let blamed = files
            .iter()
            .find(|file| problem.starts_with(&format!("{},", file.name)));
        Err(blamed
            .unwrap_or(first)
            .error(format!("{does_not_hold}: {problem}{more}")))
    }

    /// Adds the rows of one file: `[[table]] key` of each, and its line.
    fn add_file(&mut self, file: &OverlayFile) -> Result<Vec<Placed<String>>, String> {
        let Some((name, _)) = FILES.iter().find(|(name, _)| *name == file.name) else {
            let known: Vec<_> = FILES.iter().map(|(name, _)| *name).collect();
            return Err(format!(
                "is no file of the matrix, which are {}",
                known.join(", ")
            ));
        };
        let mut reader = Reader {
            file: name,
            text: &file.text,
            rows: Vec::new(),
        };
        let whole = DeTable::parse(&file.text).map_err(|error| reader.fault("", &error))?;
        let mut has_schema = false;
        for (key, value) in whole.into_inner() {
            match key.get_ref().as_ref() {
                "schema" => {
                    let schema = u32::deserialize(value.into_deserializer())
                        .map_err(|error| reader.fault("", &error))?;
                    if schema != SCHEMA {
                        return Err(format!(
                            "schema {schema} is not {SCHEMA}, the one this version reads"
                        ));
                    }
                    has_schema = true;
                }
                "as_of" => {
                    let line = reader.line(value.span().start);
                    let day = value.get_ref().as_str().unwrap_or_default();
                    if !lint::is_date(day) {
                        return Err(format!("line {line}, `as_of`: a day is wanted, 2026-12-01"));
                    }
                }
                table => {
                    let line = reader.line(key.span().start);
                    self.add_rows(&mut reader, table, value).map_err(|reason| {
                        match reason.strip_prefix("line ") {
                            Some(_) => reason,
                            None => format!("line {line}, {reason}"),
                        }
                    })?;
                }
            }
        }
        if has_schema {
            Ok(reader.rows)
        } else {
            Err(format!(
                "there is no `schema = {SCHEMA}` before the first table"
            ))
        }
    }
}

impl OverlayFile {
    fn error(&self, reason: String) -> OverlayError {
        OverlayError {
            name: self.name.clone(),
            reason,
        }
    }
}

/// A row, and the line that it begins on.
type Placed<T> = (usize, T);

impl Reader<'_> {
    /// The line of a byte, from 1.
    fn line(&self, at: usize) -> usize {
        let before = self.text.get(..at).unwrap_or(self.text);
        before.matches('\n').count() + 1
    }

    /// The line of a key in the row that begins on this one.
    fn line_of(&self, row: usize, key: &str) -> usize {
        let is_key = |line: &str| {
            let rest = line.trim_start().strip_prefix(key);
            rest.is_some_and(|rest| rest.trim_start().starts_with('='))
        };
        let mut lines = self.text.lines().skip(row);
        lines.position(is_key).map_or(row, |at| row + at + 1)
    }

    /// One line: line, table, key, and what the parser says.
    fn fault(&self, table: &str, error: &toml::de::Error) -> String {
        let at = error.span().map_or(0, |span| span.start);
        let line = self.line(at);
        let text = self.text.lines().nth(line - 1).unwrap_or_default();
        let key = text.split_once('=').map_or("", |(key, _)| key.trim());
        let message = error.message().replace('\n', "; ");
        let table = if table.is_empty() {
            String::new()
        } else {
            format!(", [[{table}]]")
        };
        if key.is_empty() || message.contains(&format!("`{key}`")) {
            format!("line {line}{table}: {message}")
        } else {
            format!("line {line}{table}: `{}`: {message}", key.escape_debug())
        }
    }

    /// What is said of a table that no row can be added to.
    fn refuse(&self, table: &str) -> String {
        if TABLES.contains(&(self.file, table)) {
            return format!(
                "[[{table}]] is closed to overlays: they hold rows of version tables, no texts, no commands and no package names"
            );
        }
        let open: Vec<_> = OPEN
            .iter()
            .chain(&[(GPUS, "chip")])
            .filter(|(file, _)| *file == self.file)
            .map(|(_, name)| *name)
            .collect();
        if open.is_empty() {
            format!(
                "unknown table or key `{}`: an overlay of this file can hold nothing",
                table.escape_debug()
            )
        } else {
            format!(
                "unknown table or key `{}`: an overlay of this file holds {}",
                table.escape_debug(),
                open.join(", ")
            )
        }
    }

    /// Reads the rows of one table. `mark` gets what is put behind the source, so that an answer tells whose row it is.
    fn rows<T: DeserializeOwned + AnyRow>(
        &mut self,
        table: &str,
        value: Spanned<DeValue<'_>>,
        mark: impl Fn(&mut T, &str),
    ) -> Result<Vec<Placed<T>>, String> {
        let line = self.line(value.span().start);
        let DeValue::Array(array) = value.into_inner() else {
            return Err(format!(
                "line {line}, `{table}`: rows are wanted, [[{table}]]"
            ));
        };
        let mut rows: Vec<Placed<T>> = Vec::new();
        for row in array {
            let line = self.line(row.span().start);
            // A note is a text that reports tell as the matrix's own.
            let keys = row.get_ref().as_table().into_iter().flat_map(DeTable::keys);
            let note = keys
                .map(|key| (key.get_ref(), key.span().start))
                .find(|(key, _)| key.ends_with("note"));
            if let Some((key, at)) = note {
                return Err(format!(
                    "line {}, [[{table}]]: `{key}`: an overlay holds no texts",
                    self.line(at)
                ));
            }
            let mut row = T::deserialize(row.into_deserializer())
                .map_err(|error| self.fault(table, &error))?;
            for (name, cell) in row.cells() {
                if let Some(reason) = unfit(&name, &cell) {
                    return Err(format!(
                        "line {}, [[{table}]]: `{name}`: {reason}",
                        self.line_of(line, &name)
                    ));
                }
            }
            let at = format!("line {line}, [[{table}]] {}", row.key().escape_debug());
            if rows.iter().any(|(_, other)| other.key() == row.key()) {
                return Err(format!("{at}: stands twice in this file"));
            }
            mark(&mut row, &format!(" (overlay {})", self.file));
            self.rows.push((line, format!("[[{table}]] {}", row.key())));
            rows.push((line, row));
        }
        Ok(rows)
    }
}

/// Why a cell cannot be used, or be shown in a report.
fn unfit(name: &str, cell: &Value) -> Option<String> {
    let version = lint::VERSION_CELLS.contains(&name);
    lint::strings(cell).into_iter().find_map(|text| {
        if text.len() > LONGEST_TEXT {
            Some("the text is too long".to_owned())
        } else if text.chars().any(char::is_control) {
            Some("control characters are no text".to_owned())
        } else if version && !lint::is_version(text) {
            Some(format!("`{}` is no version", text.escape_debug()))
        } else {
            None
        }
    })
}

/// Adds rows to a table; one with a known key takes the place of the bundled one.
fn add<T: AnyRow>(table: &mut Vec<T>, rows: Vec<Placed<T>>) -> Result<(), String> {
    for (line, row) in rows {
        match table.iter_mut().find(|known| known.key() == row.key()) {
            Some(known) => {
                may_replace(known, &row).map_err(|why| {
                    format!(
                        "line {line}, {} does not replace the known row: {why}",
                        row.key()
                    )
                })?;
                *known = row;
            }
            None => table.push(row),
        }
    }
    Ok(())
}

fn may_replace(known: &dyn AnyRow, new: &dyn AnyRow) -> Result<(), &'static str> {
    if new.confidence() < known.confidence() {
        return Err("that one is verified, and this one is secondary");
    }
    let (known, new) = (known.cells(), new.cells());
    let measured = known.get("level_by").and_then(Value::as_str) == Some("measured");
    if measured && known.get("level") != new.get("level") {
        return Err("its `level` was measured on a real library");
    }
    Ok(())
}

/// Adds chips, or ids to known ones.
fn add_chips(table: &mut Vec<Chip>, rows: Vec<Placed<Chip>>) -> Result<(), String> {
    for (line, row) in rows {
        let Some(known) = table.iter_mut().find(|known| known.chip == row.chip) else {
            table.push(row);
            continue;
        };
        let fault = |why: String| Err(format!("line {line}, [[chip]] {}: {why}", row.chip));
        if row.generation != known.generation {
            return fault(format!("its generation is {}", known.generation.name()));
        }
        if known.capability.is_some() && row.capability != known.capability {
            return fault("its capability is another one".to_owned());
        }
        if let Some((id, name)) = row
            .ids
            .iter()
            .find(|(id, _)| known.ids.iter().any(|(other, _)| other == id))
        {
            return fault(format!("{id} ({name}) is known already"));
        }
        if known.capability.is_none() {
            known.capability = row.capability;
            known.capability_confidence =
                (row.confidence < known.confidence).then_some(Confidence::Secondary);
        }
        known.source = format!("{}; {}", known.source, row.source);
        known.confidence = known.confidence.min(row.confidence);
        known.ids.extend(row.ids);
        known.ids.sort();
    }
    Ok(())
}

/// In hexadecimal.
fn sha256(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    Sha256::digest(bytes)
        .iter()
        .fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

#[cfg(test)]
mod tests;
