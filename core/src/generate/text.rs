//! Token bytes to text: whole characters only, and nothing of a stop text.

/// Turns the bytes of tokens into text as they come.
pub(super) struct TextStream {
    stop: Vec<String>,
    /// Bytes that are no whole character yet.
    bytes: Vec<u8>,
    /// Text that may be the beginning of a stop text.
    held: String,
    stopped: bool,
}

impl TextStream {
    pub(super) fn new(stop: &[String]) -> Self {
        let stop = stop.iter().filter(|stop| !stop.is_empty()).cloned().collect();
        Self { stop, bytes: Vec::new(), held: String::new(), stopped: false }
    }

    /// Whether a stop text came.
    pub(super) const fn stopped(&self) -> bool {
        self.stopped
    }

    /// Takes a token's bytes; appends to `out` what is certain now.
    pub(super) fn push(&mut self, bytes: &[u8], out: &mut String) {
        if self.stopped {
            return;
        }
        self.bytes.extend_from_slice(bytes);
        let mut rest = std::mem::take(&mut self.bytes);
        let mut from = 0;
        for chunk in rest.utf8_chunks() {
            self.held.push_str(chunk.valid());
            from += chunk.valid().len();
            let bad = chunk.invalid();
            if bad.is_empty() {
                continue;
            }
            // Half a character at the end waits for the rest of it.
            if from + bad.len() == rest.len() && is_half(bad) {
                break;
            }
            self.held.push(char::REPLACEMENT_CHARACTER);
            from += bad.len();
        }
        self.bytes = rest.split_off(from);
        self.release(out);
    }

    /// What is left when nothing more comes.
    pub(super) fn flush(&mut self) -> String {
        if !std::mem::take(&mut self.bytes).is_empty() && !self.stopped {
            self.held.push(char::REPLACEMENT_CHARACTER);
        }
        std::mem::take(&mut self.held)
    }

    fn release(&mut self, out: &mut String) {
        if let Some(at) = self.stop.iter().filter_map(|stop| self.held.find(stop.as_str())).min() {
            self.held.truncate(at);
            self.stopped = true;
            out.push_str(&std::mem::take(&mut self.held));
            return;
        }
        // The longest end that a stop text begins with.
        let waits = |stop: &String| {
            let longest = stop.len().saturating_sub(1).min(self.held.len());
            (1..=longest).rev().find(|n| {
                let at = self.held.len() - n;
                self.held.is_char_boundary(at) && stop.starts_with(&self.held[at..])
            })
        };
        let keep = self.stop.iter().filter_map(waits).max().unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - keep);
        out.push_str(&self.held);
        self.held = rest;
    }
}

/// Whether bytes that are not valid may become a character with more of them.
fn is_half(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stream(stop: &[&str], pieces: &[&[u8]]) -> (Vec<String>, bool) {
        let stop: Vec<String> = stop.iter().map(ToString::to_string).collect();
        let mut stream = TextStream::new(&stop);
        let mut out: Vec<String> = pieces
            .iter()
            .map(|piece| {
                let mut text = String::new();
                stream.push(piece, &mut text);
                text
            })
            .collect();
        out.push(stream.flush());
        (out, stream.stopped())
    }

    #[test]
    fn characters_come_whole() {
        let text = "a€b".as_bytes();
        let (out, _) = stream(&[], &[&text[..2], &text[2..3], &text[3..]]);
        assert_eq!(out, ["a", "", "€b", ""]);
        let (out, _) = stream(&[], &[b"a\xff", b"b", b"\xe2\x82"]);
        assert_eq!(out, ["a\u{fffd}", "b", "", "\u{fffd}"]);
    }

    #[test]
    fn nothing_of_a_stop_text_is_seen() {
        assert_eq!(
            stream(&["END"], &[b"one E", b"N", b"D two"]),
            (vec!["one ".into(), "".into(), "".into(), "".into()], true)
        );
        // What only began as one comes after all.
        assert_eq!(stream(&["END"], &[b"one E", b"Nd"]).0, ["one ", "ENd", ""]);
        assert_eq!(stream(&["END"], &[b"one EN"]).0, ["one ", "EN"]);
        // The one that begins first counts.
        assert_eq!(stream(&["cd", "bc"], &[b"abcd"]).0, ["a", ""]);
        assert_eq!(stream(&[""], &[b"abc"]), (vec!["abc".into(), "".into()], false));
    }

    proptest! {
        #[test]
        fn pieces_do_not_change_the_text(text in "[ab€é]{0,40}", cuts in proptest::collection::vec(0usize..120, 0..12)) {
            let stop = ["ab€", "éé"];
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut <= bytes.len()).chain([0, bytes.len()]).collect();
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            let (out, stopped) = stream(&stop, &pieces);
            let end = stop.iter().filter_map(|stop| text.find(stop)).min();
            prop_assert_eq!(out.concat(), &text[..end.unwrap_or(text.len())]);
            prop_assert_eq!(stopped, end.is_some());
        }
    }
}
