//! gpudoctor walks the layers between a program and the GPU and names the one at fault.
//!
//! This library serves the `gpudoctor` binary, its tests, fuzz targets and benchmarks; it is not a public API. This page is
//! the way in for whoever changes it: what happens in which order, where things are, what must stay true.
//!
//! # Bird's eye view
//!
//! ```text
//! world --probe--> Facts --rules (+ matrix)--> Outcomes --diagnosis--> Diagnosis --report--> text, Markdown, JSON
//! ```
//!
//! A run takes a snapshot of the machine, judges it, and renders what came of it. The three steps share nothing but the data
//! between them, so a snapshot can be judged on another machine, by a later version, with a newer matrix, and a test is a
//! snapshot and what is expected of it.
//!
//! - A probe asks and writes down what was answered and where. Each answer is a [`facts::Reading`]: present, absent, or
//!   unreadable with the reason. Those are three different things all the way to the report. It never judges.
//! - A rule is a pure function of facts and matrix with an id. It answers [`rules::Outcome`]: found, clean, or unknown with
//!   what was missing. "Could not be read" never becomes "fine".
//! - The diagnosis links findings (a lower fault explains the symptoms above it), picks the root, and gives each layer its
//!   state.
//! - A report renders and never decides.
//!
//! # Code map
//!
//! | module | what it is for |
//! |---|---|
//! | [`facts`] | the snapshot: plain data, one file a layer, with a schema; [`facts::Layer`] in walking order |
//! | [`probe`] | the only part that looks at the machine: one file a layer, the consumer with its interpreter's search path and what is installed there, the loader's search; `probe::vendor` asks NVIDIA's libraries in a confined child with a deadline |
//! | [`ffi`] | the unsafe room: symbols of vendor libraries, and the few system calls that need it |
//! | [`sysroot`] | the only way to a path: the live machine, or a folder or an image that is read as a machine's root and never left |
//! | [`image`] | a container image read where it lies: its layout, its layers one by one, the merged tree without its bytes; what is in it is judged by [`inspect`] |
//! | [`read`] | parsers of what is found: ELF, kernel modules, the loader's cache, /proc, packages; bytes in, values out |
//! | [`matrix`] | what goes with what: tables of `compat-matrix/`, typed, each row with source and confidence; its linter |
//! | [`rules`] | the rules, one file a layer, those of another vendor than NVIDIA in a folder of their own (`rules/amd`, as `probe/amd`), and a page an id in `rules/pages/` |
//! | [`finding`] | what a rule finds: severity, evidence, fixes; shell quoting of commands |
//! | [`diagnosis`] | from outcomes to a verdict, and the one-line summaries of layers |
//! | [`catalogue`] | errors of the stack: texts, codes, layers at fault, causes, fixes (`compat-matrix/errors`); an index of them that is made when gpudoctor is built (`catalogue/build.rs`); its linter |
//! | [`explain`] | what the catalogue knows of a code, a line or a log; which cause it is on a machine; pages about words |
//! | [`ask`], [`target`] | questions to the matrix: what a version or GPU is, and whether a described target runs it |
//! | [`inspect`] | what files hold (runtime, device code, needs) and whether they run on a target; its own findings and pages |
//! | [`preflight`] | artifacts held against the machines of a fleet: `gpudoctor.toml`, globs, requirement and lock files, the judgement on each target, `matrix plan`; whether a file runs is [`inspect`]'s |
//! | [`report`] | text, Markdown and JSON, and the escaping of strings from the host |
//! | [`redact`] | the one writer that takes private names out of a snapshot |
//! | [`version`], [`requirement`], [`gfx`] | versions as NVIDIA writes them, the bounds that Python packages put on them, AMD's names for instruction sets |
//! | [`cli`], [`commands`] | the command line; the caller's world (environment, terminal, clock) is read there and handed on as data |
//! | [`error`] | the caller's mistakes: exit code 2. What the host does wrong is a reading or a finding, never an error |
//!
//! # What must stay true, and the test that holds it
//!
//! | promise | test |
//! |---|---|
//! | rules, diagnosis, reports, matrix, redaction and parsers touch no file, environment, process or clock | `meta::what_judges_and_renders_touches_nothing` |
//! | files of the machine are opened by the sysroot alone | `meta::only_the_sysroot_opens_the_files_of_a_machine` |
//! | the caller's environment is read by commands alone | `meta::only_commands_read_the_callers_world` |
//! | one place starts processes, none connects to anything | `meta::only_the_vendor_probe_starts_a_process_and_nobody_connects` |
//! | unsafe code stands in `ffi` | `meta::only_ffi_is_unsafe` |
//! | `main` alone ends the program, commands alone write to standard output | `meta::only_main_ends_the_program`, `meta::only_commands_write_to_standard_output` |
//! | ids are unique, in order, and never renamed or used again | `meta::rules_stand_in_walking_order_and_ids_are_unique`, `meta::no_id_is_renamed_or_used_again` |
//! | an id has a page of one form | `meta::every_id_has_a_page_and_every_page_an_id` |
//! | what explains a finding exists, and never leads round | `meta::what_explains_a_finding_exists_and_never_leads_round` |
//! | an id is provoked by a described host, and quiet on its healthy twin | `meta::every_id_is_provoked_by_a_host_and_stays_quiet_on_its_twin`, `hosts::each_twin_stays_quiet` |
//! | each described host is blamed on the right layer, a healthy one on none | `hosts::each_sick_host_is_blamed_on_the_right_layer_and_told_what_mends_it`, `hosts::no_healthy_host_is_alarmed` |
//! | each entry of the catalogue is what its codes, names and sample lines lead to, and names findings that exist | `meta::the_catalogue_of_errors_has_no_fault_that_its_linter_knows` |
//! | every table is bundled and has no fault that the linter knows | `meta::every_table_of_the_matrix_is_bundled`, `meta::the_bundled_matrix_has_no_fault_that_its_linter_knows` |
//! | a snapshot reads back to the same report, byte for byte | `hosts::a_snapshot_reads_back_to_the_same_report` |
//! | a key that a snapshot lacks makes a verdict unknown, never a fault, and never fine | `hosts::a_missing_key_accuses_nobody_and_clears_nobody` |
//! | the reports of some telling hosts read as they were reviewed | `reports::text_and_json_of_telling_hosts` |
//!
//! Lints hold the rest: no panicking on foreign data (`unwrap_used`, `indexing_slicing`), no stray file access
//! (`.clippy.toml`). Probes and rules run under `catch_unwind`, so the release profile keeps unwinding.
//!
//! # How to add
//!
//! **A rule.** An entry in `rules/LAYER.rs`, sorted by id; `rules/pages/ID.md`; the id in `tests/ids.txt`; a sick host and its
//! healthy twin in `fixtures/hosts/`. Leave early until the fault is certain, then build one finding with evidence that says
//! where each value was read. Knowledge goes into the matrix, not into the rule. If something else explains the fault, name
//! its id in `follows_from`. `cargo test --test meta --test hosts` says what is missing.
//!
//! **An error.** An entry in `compat-matrix/errors/FAMILY.toml`, in the form that `catalogue/rows.rs` describes, with sample
//! lines; `cargo test --test meta catalogue` says what does not fit, `--test errors` what it takes from others.
//!
//! **A row.** The TOML in `compat-matrix/`; every row has a source and a confidence. What only others say is `secondary`, and
//! gives no error unless the host confirms it. The linter says what does not fit.
//!
//! **A probe.** A field of type [`facts::Reading`] in `facts/LAYER.rs` (a missing key of an older snapshot then reads as
//! unreadable by itself), a function in `probe/LAYER.rs` whose comment numbers its sources in order, a parser in `read/` with
//! tests on real and damaged bytes, and a host in `fixtures/hosts/` that has it. All sources of one fact are kept: that they
//! disagree is a finding.

pub mod ask;
pub mod catalogue;
pub mod cli;
pub mod commands;
pub mod diagnosis;
pub mod error;
pub mod explain;
pub mod facts;
pub mod ffi;
pub mod finding;
pub mod gfx;
pub mod image;
pub mod inspect;
pub mod matrix;
pub mod preflight;
pub mod probe;
pub mod read;
pub mod redact;
pub mod report;
pub mod requirement;
pub mod rules;
pub mod sysroot;
pub mod target;
pub mod version;
