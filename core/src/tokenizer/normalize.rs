//! What happens to the text between added tokens before it is split.

use unicode_normalization_alignments::char::canonical_combining_class;
use unicode_normalization_alignments::{IsNormalized, UnicodeNormalization, is_nfc_quick};

/// SentencePiece's sign for a space.
pub const SPACE_SIGN: &str = "▁";

/// A rewriting of text that can be done stretch by stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Normalizer {
    /// The text stays as it is.
    None,
    /// Canonical composition.
    Nfc,
    /// `▁` becomes a space, and a space may be put before the first stretch.
    Spaces {
        /// Whether it is.
        prefix: bool,
    },
}

impl Normalizer {
    /// Appends a stretch of text, rewritten; `first` where it begins a run of text.
    pub fn append(self, text: &str, first: bool, out: &mut String) {
        match self {
            Self::None => out.push_str(text),
            Self::Nfc if is_nfc(text) => out.push_str(text),
            Self::Nfc => out.extend(text.nfc().map(|(c, _)| c)),
            Self::Spaces { prefix } => {
                if first && prefix {
                    out.push(' ');
                }
                let mut parts = text.split(SPACE_SIGN);
                out.extend(parts.next());
                for part in parts {
                    out.push(' ');
                    out.push_str(part);
                }
            }
        }
    }

    /// The first place at or after `at` where the text may be cut so that the stretches are rewritten as the whole is.
    pub fn boundary(self, text: &str, at: usize) -> usize {
        let Some(at) = (at..text.len()).find(|&at| text.is_char_boundary(at)) else { return text.len() };
        if self != Self::Nfc {
            return at;
        }
        text[at..].char_indices().find(|&(_, c)| starts(c)).map_or(text.len(), |(offset, _)| at + offset)
    }
}

/// Whether a character is composed with none before it and reordered with none.
fn starts(c: char) -> bool {
    c < '\u{300}'
        || canonical_combining_class(c) == 0 && is_nfc_quick(std::iter::once(c)) == IsNormalized::Yes
}

fn is_nfc(text: &str) -> bool {
    // Every character below U+0300 is a composed starter; from there on, the first byte is 0xCC or more.
    text.bytes().all(|byte| byte < 0xCC) || is_nfc_quick(text.chars()) == IsNormalized::Yes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn nfc(text: &str) -> String {
        let mut out = String::new();
        Normalizer::Nfc.append(text, true, &mut out);
        out
    }

    #[test]
    fn composes_and_reorders() {
        assert_eq!(nfc("cafe\u{301} A\u{30A}ngstro\u{308}m \u{212B}"), "café Ångström Å");
        assert_eq!(nfc("\u{1112}\u{1161}\u{11AB}\u{1100}\u{1173}\u{11AF}"), "한글");
        assert_eq!(nfc("q\u{307}\u{323}"), "q\u{323}\u{307}");
        assert_eq!(nfc("\u{0958}"), "\u{0915}\u{093C}");
    }

    #[test]
    fn knows_no_character_newer_than_unicode_9() {
        // U+11930 (Unicode 13) composes with U+11935 in newer tables.
        assert_eq!(nfc("\u{11935}\u{11930}"), "\u{11935}\u{11930}");
        // U+0CF3's neighbours: U+0C3C (Unicode 14) has class 7 in newer tables, so it would go before U+0C4D (class 9).
        assert_eq!(nfc("\u{0C15}\u{0C4D}\u{0C3C}"), "\u{0C15}\u{0C4D}\u{0C3C}");
    }

    proptest! {
        #[test]
        fn a_cut_at_a_boundary_changes_nothing(
            text in "[a-é\u{300}-\u{330}\u{1100}-\u{1112}\u{1161}-\u{1175}\u{11A8}-\u{11C2}가-각\u{915}\u{93C}\u{958}中]{0,40}",
            at in 0_usize..60,
        ) {
            let cut = Normalizer::Nfc.boundary(&text, at);
            prop_assert_eq!(nfc(&text[..cut]) + &nfc(&text[cut..]), nfc(&text));
        }
    }
}
