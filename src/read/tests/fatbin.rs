//! `fatbin`, `needs`, `linkage`, `recipes`, `gobuild`: samples of nvcc's, and the same damaged.

use proptest::prelude::*;

use super::{Counted, LIBRARY, patched};
use crate::read::elf::{self, Shape};
use crate::read::fatbin::{DeviceCode, Look, device_code, ptx_text};
use crate::read::{ar, gobuild, linkage, needs, recipes};

pub(super) const SEVERAL: &[u8] = include_bytes!("../../../fixtures/fatbin/several.fatbin");
pub(super) const ZSTD: &[u8] = include_bytes!("../../../fixtures/fatbin/zstd.fatbin");
pub(super) const LZ4: &[u8] = include_bytes!("../../../fixtures/fatbin/lz4.fatbin");
pub(super) const CONCATENATED: &[u8] =
    include_bytes!("../../../fixtures/fatbin/concatenated.fatbin");
const CUBIN: &[u8] = include_bytes!("../../../fixtures/fatbin/sm_90a.cubin");
pub(super) const SHARED: &[u8] = include_bytes!("../../../fixtures/fatbin/shared.so");
pub(super) const OBJECT: &[u8] = include_bytes!("../../../fixtures/fatbin/relocatable.o");

fn shallow(file: &[u8]) -> DeviceCode {
    device_code(&file, Look::default())
}

fn deep(file: &[u8]) -> DeviceCode {
    device_code(&file, Look { deep: true })
}

fn sm(code: &DeviceCode) -> Vec<String> {
    code.executable.elf.keys().map(|arch| arch.sm()).collect()
}

#[test]
fn padding_and_garbage_between_containers_are_stepped_over() {
    let mut file = SEVERAL.to_vec();
    file.extend([0; 64]);
    file.extend(ZSTD);
    let code = shallow(&file);
    assert_eq!((code.executable.containers, code.problems.len()), (2, 0));
    let mut file = SEVERAL.to_vec();
    file.extend(b"garbage!");
    file.extend(ZSTD);
    let code = shallow(&file);
    assert_eq!((code.executable.containers, code.problems.len()), (2, 1));
}

#[test]
fn what_is_cut_off_or_corrupt_is_said() {
    let cut = shallow(&SEVERAL[..SEVERAL.len() - 100]);
    assert!(cut.problems[0].contains("cut off"), "{:?}", cut.problems);
    // The length of the first entry's header.
    let corrupt = shallow(&patched(SEVERAL, 16 + 4, &[1, 0, 0, 0]));
    assert!(
        corrupt.problems[0].contains("corrupt"),
        "{:?}",
        corrupt.problems
    );
    assert!(sm(&corrupt).is_empty());
}

#[test]
fn an_unknown_kind_is_counted_and_stepped_over() {
    let code = shallow(&patched(SEVERAL, 16, &[0x40, 0]));
    assert_eq!(code.executable.other, 1);
    assert_eq!(
        code.executable.elf.values().sum::<u64>() + code.executable.ptx.values().sum::<u64>(),
        4
    );
}

#[test]
fn the_toolkit_of_packed_cubins_that_are_all_large() {
    const LEN: usize = 9 << 20;
    // A block of LZ4 with nothing but a literal: a token, its length in bytes that are added up, the content.
    let mut cubin = CUBIN.to_vec();
    cubin.resize(LEN, 0);
    let mut packed = vec![0xf0];
    packed.extend(vec![255; (LEN - 15) / 255]);
    packed.push(u8::try_from((LEN - 15) % 255).unwrap());
    packed.extend(cubin);
    let stored = u64::try_from(packed.len()).unwrap();
    packed.resize(packed.len().next_multiple_of(8), 0);

    let mut entry = vec![0; 64];
    let mut put = |at: usize, bytes: &[u8]| entry[at..at + bytes.len()].copy_from_slice(bytes);
    put(0x00, &[2, 0, 1, 1, 64]);
    put(0x08, &u64::try_from(packed.len()).unwrap().to_le_bytes());
    put(0x10, &stored.to_le_bytes());
    put(0x18, &[8, 0, 1, 0, 90]);
    // 64-bit, LZ4, an architecture of its own.
    put(0x28, &0x0010_2011_u64.to_le_bytes());
    put(0x38, &u64::try_from(LEN).unwrap().to_le_bytes());
    let mut file = vec![0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0];
    file.extend(
        u64::try_from(entry.len() + packed.len())
            .unwrap()
            .to_le_bytes(),
    );
    file.extend(entry);
    file.extend(packed);
    for code in [shallow(&file), deep(&file)] {
        assert_eq!(
            (sm(&code), &code.problems),
            (vec!["sm_90a".to_owned()], &vec![])
        );
        let toolkits: Vec<_> = code.toolkits.iter().map(ToString::to_string).collect();
        assert_eq!((toolkits, code.asked), (vec!["13.5".to_owned()], (1, 1)));
    }
}

#[test]
fn stray_code_takes_a_deep_look() {
    // The sections for device code get other names.
    let hidden = super::replaced(SHARED, b".nv_fatbin", b".lrodata\0\0");
    assert!(shallow(&hidden).is_empty());
    let code = deep(&hidden);
    assert_eq!(code.stray.keys().collect::<Vec<_>>(), [".lrodata"]);
    assert_eq!(code.stray[".lrodata"].elf.len(), 4);
    assert_eq!(deep(SHARED).stray.len(), 0);
    let bare = super::without_sections(SHARED);
    assert_eq!(shallow(&bare).stray["no section table"].elf.len(), 4);
}

#[test]
fn ptx_targets() {
    let (arch, isa) =
        ptx_text(b"//\n.version 8.4\n.target sm_90a, debug\n.address_size 64\n").unwrap();
    assert_eq!(
        (arch.compute(), isa.to_string()),
        ("compute_90a".to_owned(), "8.4".to_owned())
    );
    for text in [
        "",
        ".version 8.4",
        ".version x\n.target sm_90",
        ".version 8.4\n.target gfx90a",
    ] {
        assert_eq!(ptx_text(text.as_bytes()), None, "{text}");
    }
}

/// A fat binary of cubins of the new generation, each a stretch of zeros of that many bytes, said to be packed.
fn of_new_cubins(count: usize, stored: usize) -> Vec<u8> {
    let mut entry = vec![0; 64 + stored];
    entry[..8].copy_from_slice(&[2, 0, 1, 1, 64, 0, 0, 0]);
    entry[8..12].copy_from_slice(&u32::try_from(stored).unwrap().to_le_bytes());
    entry[0x18..0x1c].copy_from_slice(&[8, 0, 1, 0]);
    entry[0x1c] = 90;
    // zstd, 64 bits
    entry[0x28..0x2a].copy_from_slice(&[0x01, 0x80]);
    entry[0x38..0x3c].copy_from_slice(&100_000u32.to_le_bytes());
    let mut file = vec![0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0];
    file.extend((count * entry.len()).to_le_bytes());
    file.extend(entry.repeat(count));
    file
}

#[test]
fn little_more_than_headers_is_read() {
    let file = Counted::new(of_new_cubins(1000, 2000));
    let code = device_code(&file, Look::default());
    assert_eq!(code.asked, (0, 1000));
    assert_eq!(sm(&code), ["sm_90"]);
    // Some samples are tried besides.
    let headers = 16 + 1000 * 64;
    assert!(file.bytes() <= 2 * headers, "{}", file.bytes());
}

/// Everything that is asked of a file.
fn ask(file: &[u8]) {
    let code = shallow(file);
    let _ = deep(file);
    let needs = needs::version_needs(&file);
    let _ = needs::loading(&file);
    let _ = needs::version_definitions(&file);
    let _ = needs::undefined_symbols(&file);
    let _ = gobuild::build(&file);
    let _ = ar::members(&file);
    if let Shape::Elf(elf) = elf::identify(&file) {
        let _ = linkage::linkage(&file, &elf, &needs, !code.is_empty(), Look::default());
        for name in [
            "libcudart.so.12",
            "libcublasLt.so.13",
            "libcudnn_graph.so.9",
            "libnccl.so.2",
            "libnvrtc.so.12",
        ] {
            let elf = elf::Elf {
                soname: Some(name.to_owned()),
                ..elf.clone()
            };
            let _ = recipes::identify(&file, &elf, name);
        }
    }
}

#[test]
fn needs_of_a_library() {
    let file = SHARED;
    let needs = needs::version_needs(&file);
    assert!(
        needs
            .iter()
            .any(|need| need.nodes.iter().any(|node| node == "libcudart.so.13")),
        "{needs:?}"
    );
    let undefined = needs::undefined_symbols_of(&file, |library| {
        library.is_some_and(|l| l.starts_with("libcudart"))
    });
    let register = undefined
        .iter()
        .find(|symbol| symbol.name == "__cudaRegisterFatBinary")
        .unwrap();
    let library = |symbol: &needs::Undefined| symbol.node.as_ref().map(|(_, l)| l.clone());
    assert_eq!(library(register).as_deref(), Some("libcudart.so.13"));
    let of_another =
        |symbol: &&needs::Undefined| library(symbol).as_deref() != Some("libcudart.so.13");
    assert_eq!(undefined.iter().filter(of_another).count(), 0);
    // Those of every library, as before.
    let all = needs::undefined_symbols(&file);
    assert!(all.len() > undefined.len());
    for symbol in &undefined {
        assert!(all.contains(symbol), "{symbol:?}");
    }
    assert!(!needs::version_definitions(&LIBRARY).is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn damaged_files(which in 0usize..7, places in prop::collection::vec((any::<usize>(), any::<u8>()), 1..12), cut: usize) {
        let mut file = [SEVERAL, ZSTD, LZ4, CONCATENATED, SHARED, OBJECT, LIBRARY][which].to_vec();
        for (place, byte) in places {
            // Most of it in the headers, where it counts.
            let end = if place % 2 == 0 { 512 } else { file.len() };
            let place = place / 2 % end.min(file.len());
            file[place] = byte;
        }
        if cut % 3 == 0 {
            file.truncate(cut / 3 % file.len());
        }
        ask(&file);
    }
}
