//! GPT-2's printable characters for bytes: the 188 printable Latin-1 bytes stand for themselves, the other 68 are the
//! characters from U+0100 on, in the order of the bytes (`bytes_to_unicode` in GPT-2's encoder.py).

/// Whether a byte stands for itself.
const fn printable(byte: u8) -> bool {
    matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF)
}

/// The byte of each character below U+0144; 0x100 where there is none.
const BYTE_OF: [u16; 0x144] = {
    let mut table = [0x100; 0x144];
    let mut byte = 0;
    let mut next = 0x100;
    while byte < 0x100 {
        if printable(byte as u8) {
            table[byte] = byte as u16;
        } else {
            table[next] = byte as u16;
            next += 1;
        }
        byte += 1;
    }
    table
};

/// The byte that a character stands for.
#[inline]
pub fn byte_of(c: char) -> Option<u8> {
    u8::try_from(*BYTE_OF.get(c as usize)?).ok()
}

/// Decodes a token's characters to the bytes that they stand for, into `out`. False, with `out` cut back to what it was,
/// where the token is not UTF-8 or has a character that stands for no byte.
pub fn decode(token: &[u8], out: &mut Vec<u8>) -> bool {
    let before = out.len();
    // Plain ASCII is the common case.
    if token.iter().all(|byte| matches!(byte, 0x21..=0x7E)) {
        out.extend_from_slice(token);
        return true;
    }
    let Ok(text) = std::str::from_utf8(token) else { return false };
    for c in text.chars() {
        let Some(byte) = byte_of(c) else {
            out.truncate(before);
            return false;
        };
        out.push(byte);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b2_all_256_bytes_have_a_character_and_come_back() {
        let mut seen = [false; 256];
        for c in ('\0'..='\u{143}').filter_map(byte_of) {
            assert!(!seen[usize::from(c)], "byte {c:#x} has two characters");
            seen[usize::from(c)] = true;
        }
        assert_eq!(seen, [true; 256]);
        assert_eq!(byte_of('Ġ'), Some(b' '));
        assert_eq!(byte_of('Ċ'), Some(b'\n'));
        assert_eq!(byte_of('ł'), Some(0xA0));
        assert_eq!(byte_of('Ń'), Some(0xAD));
        assert_eq!(byte_of('é'), Some(0xE9));
        assert_eq!(byte_of(' '), None);
        assert_eq!(byte_of('\u{144}'), None);
        assert_eq!(byte_of('▁'), None);
    }

    #[test]
    fn what_stands_for_no_byte_leaves_the_output_alone() {
        let mut out = b"x".to_vec();
        assert!(decode("Ġthé".as_bytes(), &mut out));
        assert_eq!(out, b"x th\xe9");
        assert!(!decode("ab▁".as_bytes(), &mut out));
        assert!(!decode(b"ab\xff", &mut out));
        assert_eq!(out, b"x th\xe9");
    }
}
