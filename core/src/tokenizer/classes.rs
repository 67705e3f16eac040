//! The character classes of the pre-tokenizers' regular expressions.
//!
//! `\p{L}`, `\p{N}` and `\p{P}` are those of Unicode 16, as in the Oniguruma that Hugging Face `tokenizers` matches with;
//! `\s` is White_Space, the same 25 characters. Its `Digits` pre-tokenizer asks Rust's `char::is_numeric` instead, a
//! newer Unicode: [`NUMERIC`] is that one.

use std::sync::OnceLock;
use unicode_general_category::{GeneralCategory as G, get_general_category};

/// `\p{L}`
pub const LETTER: u8 = 1;
/// `\p{N}`
pub const NUMBER: u8 = 1 << 1;
/// `\s`
pub const SPACE: u8 = 1 << 2;
/// `[^\s\p{L}\p{N}]`
pub const OTHER: u8 = 1 << 3;
/// `[\p{P}\$\+<=>\^~\|]`
pub const SIGN: u8 = 1 << 4;
/// `char::is_numeric`
pub const NUMERIC: u8 = 1 << 5;

/// The classes of the Basic Multilingual Plane. The crate searches 3,300 ranges for each character, which is too slow for
/// text that is not ASCII; looked up once, the plane's 64 KiB cost 2 ms. Beyond it are emoji and rare scripts.
pub struct Classes {
    plane: Box<[u8]>,
}

/// The table, made on first use.
pub fn classes() -> &'static Classes {
    static CLASSES: OnceLock<Classes> = OnceLock::new();
    CLASSES
        .get_or_init(|| Classes { plane: (0..=0xFFFF).map(|c| char::from_u32(c).map_or(0, find)).collect() })
}

impl Classes {
    #[inline]
    pub fn of(&self, c: char) -> u8 {
        match self.plane.get(c as usize) {
            Some(&class) => class,
            None => find(c),
        }
    }
}

fn find(c: char) -> u8 {
    let mut class = match get_general_category(c) {
        G::UppercaseLetter | G::LowercaseLetter | G::TitlecaseLetter | G::ModifierLetter | G::OtherLetter => {
            LETTER
        }
        G::DecimalNumber | G::LetterNumber | G::OtherNumber => NUMBER,
        G::ConnectorPunctuation
        | G::DashPunctuation
        | G::OpenPunctuation
        | G::ClosePunctuation
        | G::InitialPunctuation
        | G::FinalPunctuation
        | G::OtherPunctuation => OTHER | SIGN,
        _ if c.is_whitespace() => SPACE,
        _ => OTHER,
    };
    if matches!(c, '$' | '+' | '<' | '=' | '>' | '^' | '~' | '|') {
        class |= SIGN;
    }
    if c.is_numeric() {
        class |= NUMERIC;
    }
    class
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FNV-1a over the code points of a class, as `tests/fixtures/tokenizer/make_golden.py` prints it for what
    /// Hugging Face `tokenizers` 0.23 matches.
    fn digest(class: u8) -> (usize, u64) {
        let mut count = 0;
        let mut h = 0xcbf2_9ce4_8422_2325_u64;
        for c in ('\0'..=char::MAX).filter(|&c| classes().of(c) & class != 0) {
            count += 1;
            for byte in (c as u32).to_le_bytes() {
                h = (h ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
            }
        }
        (count, h)
    }

    #[test]
    fn classes_are_those_of_hugging_face_tokenizers() {
        assert_eq!(unicode_general_category::UNICODE_VERSION, (16, 0, 0));
        assert_eq!(digest(LETTER), (141_028, 0xf41b_f722_3945_5b4f));
        assert_eq!(digest(NUMBER), (1_911, 0xd155_86ee_8a14_5a41));
        assert_eq!(digest(SPACE), (25, 0x07db_14e6_e1f1_a2f5));
        assert_eq!(digest(SIGN), (855 + 8, 0xb45f_34ba_20a3_5ede));
        for c in '\0'..=char::MAX {
            let class = classes().of(c) & (LETTER | NUMBER | SPACE | OTHER);
            assert_eq!(class.count_ones(), 1, "{c:?}");
        }
    }
}
