//! The archives, packed streams and manifests of container images, and the merged layers.

#![no_main]

use std::sync::Arc;

use gpudoctor::image::Tree;
use gpudoctor::read::oci;
use gpudoctor::read::tar::{Members, is_tar};
use gpudoctor::read::unpacked::{Packing, Unpacked};
use gpudoctor::read::window::{bytes_up_to, find};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|file: &[u8]| {
    let _ = (oci::saved(file), oci::config(file));
    for descriptor in oci::manifest(file).unwrap_or_default().layers {
        let _ = (descriptor.path(), descriptor.name());
    }
    if let Some(packing) = Packing::of(&file) {
        let unpacked = Unpacked::new(file, packing);
        let _ = is_tar(&unpacked);
        let _ = bytes_up_to(&unpacked, 100_000, 64);
        let _ = find(&unpacked, 0..1 << 20, b"\x7fELF");
        unpacked.rest(1 << 20);
        let _ = bytes_up_to(&unpacked, 7, 64);
    }
    // Two layers of the same members: the second one hides and replaces what the first one has.
    let mut tree = Tree::new();
    for _ in 0..2 {
        tree.add_layer(Arc::new(file.to_vec()), true);
        for member in Members::new(&file).map_while(Result::ok) {
            if let Ok(Some(id)) = tree.add(&member) {
                let path = tree.path(id);
                let _ = (tree.find(&path, true), tree.open(id));
            }
        }
    }
});
