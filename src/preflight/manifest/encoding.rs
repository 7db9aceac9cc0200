//! The text of a file as editors and shells on several systems write it: UTF-8 with or without a mark, UTF-16 with one.

/// The text; a byte that is none of UTF-8 is shown as such.
///
/// # Errors
/// In one line, where it is no text.
pub fn decoded(bytes: &[u8]) -> Result<String, String> {
    let wide = |rest: &[u8], of: fn([u8; 2]) -> u16| {
        let (pairs, odd) = rest.as_chunks::<2>();
        let units = pairs.iter().map(|pair| of(*pair));
        let text: Result<String, _> = char::decode_utf16(units).collect();
        text.ok()
            .filter(|_| odd.is_empty())
            .ok_or_else(|| "it begins as UTF-16 and is none".to_owned())
    };
    match bytes {
        [0xff, 0xfe, rest @ ..] => wide(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => wide(rest, u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, rest @ ..] | rest => {
            if rest.iter().take(4096).any(|byte| *byte == 0) {
                return Err("it holds zero bytes and is no text".to_owned());
            }
            Ok(String::from_utf8_lossy(rest).into_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_no_part_of_the_text() {
        let text = "torch==2.7.1\r\n";
        let le: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let be: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
        for bytes in [
            text.as_bytes().to_vec(),
            [&[0xef, 0xbb, 0xbf], text.as_bytes()].concat(),
            [&[0xff, 0xfe], le.as_slice()].concat(),
            [&[0xfe, 0xff], be.as_slice()].concat(),
        ] {
            assert_eq!(decoded(&bytes).unwrap(), text);
        }
        assert!(decoded(&[0xff, 0xfe, b'a']).is_err());
        assert!(decoded(&[0xff, 0xfe, 0x00, 0xd8]).is_err());
        assert!(decoded(&le).is_err());
        assert_eq!(decoded(b"").unwrap(), "");
        assert_eq!(
            decoded(b"# caf\xe9\ntorch").unwrap(),
            "# caf\u{fffd}\ntorch"
        );
    }
}
