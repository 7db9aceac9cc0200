//! Archives as a test wants them, sound or not.

use std::io::Write as _;

/// A member: its name, its kind, its bytes, where it leads.
pub struct Member<'a>(pub &'a str, pub u8, pub &'a [u8], pub &'a str);

/// A header that says this size.
pub fn header(name: &str, kind: u8, size: u64, link: &str) -> Vec<u8> {
    let mut header = vec![0; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[100..107].copy_from_slice(b"0000755");
    header[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
    header[156] = kind;
    header[157..157 + link.len()].copy_from_slice(link.as_bytes());
    header[257..263].copy_from_slice(b"ustar\0");
    header[148..156].copy_from_slice(b"        ");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    header
}

/// An archive of these members.
pub fn archive(members: &[Member<'_>]) -> Vec<u8> {
    let mut all = Vec::new();
    for Member(name, kind, bytes, link) in members {
        all.extend(header(name, *kind, bytes.len() as u64, link));
        all.extend_from_slice(bytes);
        all.resize(all.len().next_multiple_of(512), 0);
    }
    all.resize(all.len() + 1024, 0);
    all
}

/// The same, packed.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// What `docker save` writes, of layers as they are.
pub fn saved(layers: &[Vec<u8>]) -> Vec<u8> {
    let names: Vec<String> = (0..layers.len()).map(|n| format!("{n:064x}.tar")).collect();
    let quoted: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    let manifest = format!(
        "[{{\"Config\":\"config.json\",\"RepoTags\":[\"app:1\"],\"Layers\":[{}]}}]",
        quoted.join(",")
    );
    let config =
        b"{\"architecture\":\"amd64\",\"os\":\"linux\",\"config\":{\"Env\":[\"PATH=/bin\"]}}";
    let mut members: Vec<Member<'_>> = names
        .iter()
        .zip(layers)
        .map(|(name, layer)| Member(name, b'0', layer, ""))
        .collect();
    members.push(Member("config.json", b'0', config, ""));
    members.push(Member("manifest.json", b'0', manifest.as_bytes(), ""));
    archive(&members)
}
