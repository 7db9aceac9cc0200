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

/// A frame of zstd: bytes as they are, and then a byte over and over.
pub fn zstd(bytes: &[u8], times: usize) -> Vec<u8> {
    const BLOCK: usize = 128 << 10;
    let mut frame = b"\x28\xb5\x2f\xfd\0\x50".to_vec();
    let raw = u32::try_from(bytes.len() << 3).unwrap().to_le_bytes();
    frame.extend_from_slice(&raw[..3]);
    frame.extend_from_slice(bytes);
    let block = u32::try_from(BLOCK << 3 | 2).unwrap().to_le_bytes();
    for _ in 0..times {
        frame.extend_from_slice(&block[..3]);
        frame.push(0);
    }
    frame.extend_from_slice(b"\x01\0\0");
    frame
}

/// The digest of bytes, as images write it.
pub fn digest(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    let hashed = sha2::Sha256::digest(bytes);
    let digits: Vec<String> = hashed.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{}", digits.concat())
}

/// An archive in the OCI's layout, of layers by the digest that their manifest has for them.
pub fn oci(layers: &[(String, &[u8])]) -> Vec<u8> {
    oci_and(layers, "")
}

/// The same, with the descriptions of other layers in the manifest.
pub fn oci_and(layers: &[(String, &[u8])], others: &str) -> Vec<u8> {
    let config = br#"{"architecture":"amd64","os":"linux","config":{}}"#;
    let described = |digest: &str, bytes: &[u8], kind: &str| {
        format!(
            r#"{{"mediaType":"application/vnd.oci.image.{kind}","digest":"{digest}","size":{}}}"#,
            bytes.len()
        )
    };
    let told: Vec<String> = layers
        .iter()
        .map(|(digest, bytes)| described(digest, bytes, "layer.v1.tar"))
        .collect();
    let manifest = format!(
        r#"{{"schemaVersion":2,"config":{},"layers":[{}{others}]}}"#,
        described(&digest(config), config, "config.v1+json"),
        told.join(",")
    );
    let manifest = manifest.as_bytes();
    let index = format!(
        r#"{{"schemaVersion":2,"manifests":[{}]}}"#,
        described(&digest(manifest), manifest, "manifest.v1+json")
    );
    let name = |digest: &str| format!("blobs/{}", digest.replace(':', "/"));
    let mut blobs: Vec<(String, &[u8])> = vec![
        (
            "oci-layout".to_owned(),
            br#"{"imageLayoutVersion":"1.0.0"}"#,
        ),
        ("index.json".to_owned(), index.as_bytes()),
        (name(&digest(manifest)), manifest),
        (name(&digest(config)), config),
    ];
    blobs.extend(layers.iter().map(|(digest, bytes)| (name(digest), *bytes)));
    let members: Vec<Member<'_>> = blobs
        .iter()
        .map(|(name, bytes)| Member(name, b'0', bytes, ""))
        .collect();
    archive(&members)
}
