//! The rules classifier: a task from what is known of a prompt without any model. It answers before a backbone is
//! loaded, where a deadline leaves no time for it, and where the heads are not sure.
//!
//! Two sets of rules: [`RuleSet::Published`] is hanzo-router's, for compatibility; [`RuleSet::Ours`] is the default. On
//! the 1,071 test prompts of ../shared/data/prompts (the measure is kept in `tests/tests/decision_rules.rs`):
//!
//! | rules | accuracy | balanced |
//! |---|---:|---:|
//! | published | .27 | .24 |
//! | ours | .74 | .76 |
//!
//! Our cues were chosen with the training prompts in view, which come from the same sources as the test prompts, so that
//! figure flatters them; on prompts of other sources expect less.

mod cues;

use crate::catalog::Task;
use aho_corasick::{AhoCorasick, AhoCorasickKind};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::LazyLock;

/// From so many tokens on a prompt is `long_context` whatever it says, also against the learned head: the published rule.
pub const LONG_TOKENS: u64 = 32_000;
/// A prompt of at most so many tokens is short.
pub const SHORT_TOKENS: u64 = 16;
/// Cues of small talk count only up to this length: a greeting before a page of work is no small talk.
const CHAT_TOKENS: u64 = 24;
/// From so many characters on our rules call a prompt a long document (half of it in Chinese, Japanese, Korean).
const DOCUMENT_CHARS: u64 = 7_000;
/// The bytes at the start of a prompt in which our rules look for cues, and those at its end: instructions stand there,
/// and 10 MB of text answer as fast as 2 KB.
const HEAD_BYTES: usize = 4_096;
const TAIL_BYTES: usize = 1_024;

/// Which rules classify.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleSet {
    /// hanzo-router's: English substrings, in a fixed order.
    Published,
    /// Whole words in some 15 languages, the shape of code and formulas, the length of the prompt.
    #[default]
    Ours,
}

/// The kind of content that is asked about or for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Modality {
    /// Text.
    #[default]
    Text,
    /// Images to be understood.
    Vision,
    /// Images to be made.
    Image,
    /// Sound.
    Audio,
    /// Moving pictures.
    Video,
}

/// A prompt and what the caller knows of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request<'a> {
    /// The prompt.
    pub text: &'a str,
    /// Its tokens; `None`: estimated from the text.
    pub tokens: Option<u64>,
    /// Whether an image, a sound or a film goes with it.
    pub has_media: bool,
    /// The task, where the caller knows it.
    pub task: Option<Task>,
    /// The modality, where the caller knows it.
    pub modality: Option<Modality>,
}

impl<'a> Request<'a> {
    /// A prompt of which nothing else is known.
    #[must_use]
    pub fn new(text: &'a str) -> Self {
        Self { text, ..Self::default() }
    }

    /// What the answer is about: the caller's word, else vision where media goes with the prompt.
    #[must_use]
    pub fn modality(&self) -> Modality {
        let seen = if self.has_media { Modality::Vision } else { Modality::Text };
        self.modality.unwrap_or(seen)
    }
}

/// What led the rules to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cue {
    /// The caller said so.
    Hint,
    /// Media goes with the prompt.
    Media,
    /// The prompt is empty or blank: no model needs to read it.
    Empty,
    /// The prompt is long.
    Length,
    /// Words or shapes in the text.
    Text,
    /// The prompt is short and asks for nothing.
    Short,
    /// Nothing else applied.
    Nothing,
}

/// The rules' answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Classified {
    /// The task.
    pub task: Task,
    /// What led to it.
    pub cue: Cue,
    /// The prompt's tokens: the caller's figure or an estimate.
    pub tokens: u64,
}

impl Classified {
    /// Whether the task is a fact (the caller's word, media, a prompt of [`LONG_TOKENS`]) that a learned guess may not
    /// overrule.
    #[must_use]
    pub fn is_certain(&self) -> bool {
        match self.cue {
            Cue::Hint | Cue::Media | Cue::Empty => true,
            Cue::Length => self.tokens >= LONG_TOKENS,
            Cue::Text | Cue::Short | Cue::Nothing => false,
        }
    }
}

/// Classifies a prompt. Any length is answered in bounded time but for one pass that counts its characters.
#[must_use]
pub fn classify(rules: RuleSet, request: &Request) -> Classified {
    match rules {
        RuleSet::Published => published(request),
        RuleSet::Ours => ours(request),
    }
}

/// hanzo-router's `Heuristic::classify`, of which zen-router's `session_common.classify` is a port. A token is four
/// characters there, and a prompt has at least one.
fn published(request: &Request) -> Classified {
    const CODE: [&str; 6] = ["code", "function", "bug", "compile", "stack trace", "refactor"];
    const MATH: [&str; 6] = ["prove", "theorem", "integral", "equation", "calculate", "solve for"];
    const REASONING: [&str; 6] = ["why", "reason", "step by step", "analyze", "explain how", "trade-off"];
    const CREATIVE: [&str; 5] = ["write a story", "poem", "creative", "imagine", "brainstorm"];

    let tokens = request.tokens.unwrap_or_else(|| (characters(request.text) / 4).max(1));
    let answer = |task, cue| Classified { task, cue, tokens };
    if let Some(task) = request.task {
        return answer(task, Cue::Hint);
    }
    if request.has_media {
        return answer(Task::Vision, Cue::Media);
    }
    if tokens >= LONG_TOKENS {
        return answer(Task::LongContext, Cue::Length);
    }
    // A caller may state few tokens for a long text; what is searched is bounded all the same.
    let text = head(request.text, 4 * 4 * LONG_TOKENS as usize).to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if text.contains("```") || has(&CODE) {
        answer(Task::Code, Cue::Text)
    } else if has(&MATH) {
        answer(Task::Math, Cue::Text)
    } else if has(&REASONING) {
        answer(Task::Reasoning, Cue::Text)
    } else if has(&CREATIVE) {
        answer(Task::Creative, Cue::Text)
    } else if tokens <= SHORT_TOKENS {
        let cue = if text.trim().is_empty() { Cue::Empty } else { Cue::Short };
        answer(Task::CheapChat, cue)
    } else {
        answer(Task::General, Cue::Nothing)
    }
}

fn ours(request: &Request) -> Classified {
    let text = request.text;
    let start = head(text, HEAD_BYTES);
    let end = tail(&text[start.len()..], TAIL_BYTES);
    let scripts = Scripts::of(start);
    let characters = characters(text);
    let tokens = request.tokens.unwrap_or_else(|| scripts.tokens(characters));
    let answer = |task, cue| Classified { task, cue, tokens };
    if let Some(task) = request.task {
        return answer(task, Cue::Hint);
    }
    if request.has_media {
        return answer(Task::Vision, Cue::Media);
    }
    if text.len() <= HEAD_BYTES && text.trim().is_empty() {
        return answer(Task::CheapChat, Cue::Empty);
    }
    let document = if scripts.cjk_share() > 0.3 { DOCUMENT_CHARS / 2 } else { DOCUMENT_CHARS };
    if characters >= document || tokens >= LONG_TOKENS {
        return answer(Task::LongContext, Cue::Length);
    }

    let mut score = Score::default();
    let words = score.read(start, end, scripts.cjk > 0);
    if tokens > CHAT_TOKENS {
        score.points[Task::CheapChat as usize] = 0;
    }
    if let Some(task) = score.best() {
        return answer(task, Cue::Text);
    }
    if tokens > SHORT_TOKENS {
        return answer(Task::General, Cue::Nothing);
    }
    let chatty = if scripts.cjk > 0 {
        characters <= 5 || cues::CJK_PERSONS.iter().any(|person| text.contains(person))
    } else {
        words.person && !words.instructs || !words.asks || words.count <= 3
    };
    if chatty { answer(Task::CheapChat, Cue::Short) } else { answer(Task::General, Cue::Nothing) }
}

/// The Unicode scalar values of a text.
fn characters(text: &str) -> u64 {
    // A byte that continues none begins a character. `chars().count()` does the same behind a slower loop in debug.
    text.bytes().filter(|&byte| byte & 0xC0 != 0x80).count() as u64
}

/// The first bytes of a text, at most `limit`, cut between characters.
fn head(text: &str, limit: usize) -> &str {
    // `floor_char_boundary` is younger than our oldest compiler.
    let end = (0..=limit.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

/// The last bytes of a text, at most `limit`, cut between characters.
fn tail(text: &str, limit: usize) -> &str {
    let start = (text.len().saturating_sub(limit)..=text.len()).find(|&start| text.is_char_boundary(start));
    &text[start.unwrap_or(text.len())..]
}

/// Chinese characters, kana and Hangul: scripts in which a character is nearly a token and no blanks part the words.
fn is_cjk(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{ac00}'..='\u{d7a3}')
}

/// How much of a text's start is written in scripts without blanks.
struct Scripts {
    cjk: u64,
    all: u64,
}

impl Scripts {
    fn of(text: &str) -> Self {
        let (mut cjk, mut all) = (0, 0);
        for c in text.chars() {
            all += 1;
            cjk += u64::from(is_cjk(c));
        }
        Self { cjk, all }
    }

    fn cjk_share(&self) -> f64 {
        self.cjk as f64 / self.all.max(1) as f64
    }

    /// Four characters a token, .6 tokens a character in scripts without blanks: what byte-level BPE makes of them.
    fn tokens(&self, characters: u64) -> u64 {
        let share = self.cjk_share();
        let tokens = characters as f64 * ((1.0 - share) * 0.25 + share * 0.6);
        (tokens as u64).max(u64::from(characters > 0))
    }
}

/// A cue of whole words: what follows its first word, its task and weight, and its number.
struct Phrase {
    rest: Vec<&'static str>,
    cue: Entry,
}

#[derive(Clone, Copy)]
struct Entry {
    number: usize,
    task: Task,
    weight: u8,
}

/// What one word may mean: the cues that it begins, and the short lists of [`cues`] that it stands in.
#[derive(Default)]
struct Meaning {
    phrases: Vec<Phrase>,
    roles: u8,
}

const PERSON: u8 = 1;
const ASKING: u8 = 2;
const INSTRUCTING: u8 = 4;

/// The table of cues, arranged for one pass over a prompt's words.
struct Index {
    cues: usize,
    words: HashMap<&'static str, Meaning, BuildHasherDefault<Fnv>>,
    /// Sorted by the prefix.
    prefixes: Vec<(&'static str, Entry)>,
    /// Where in `prefixes` those with a first byte begin; one more at the end.
    prefix_ranges: [usize; 257],
    /// By the first character.
    substrings: HashMap<char, Vec<(&'static str, Entry)>, BuildHasherDefault<Fnv>>,
    /// The patterns of [`SHAPES`].
    shapes: AhoCorasick,
}

/// FNV-1a. The keys are our own table, so nobody can make them collide, and for words of some ten bytes the standard
/// hasher took half of the time of a classification.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// What code and formulas look like in any language, and the question mark.
const SHAPES: [(Shape, &[&str]); 4] = [
    (Shape::Fence, &["```"]),
    (
        Shape::Code,
        &[
            "def ",
            "#include",
            "return ",
            "();",
            "=>",
            "</",
            "public static",
            "import ",
            "SELECT ",
            "console.log",
            "println",
            "{\n",
            ") {",
            "fn ",
        ],
    ),
    (Shape::Formula, &["\\frac", "\\sqrt", "\\int", "\\sum", "$\\", "^2", "\\(", "x^"]),
    (Shape::Question, &["?", "？", "؟"]),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Fence,
    Code,
    Formula,
    Question,
}

/// The shape of each pattern of the automaton.
static SHAPE_OF: LazyLock<Vec<Shape>> = LazyLock::new(|| {
    SHAPES.iter().flat_map(|&(shape, patterns)| patterns.iter().map(move |_| shape)).collect()
});

static INDEX: LazyLock<Index> = LazyLock::new(|| {
    let patterns = SHAPES.iter().flat_map(|(_, patterns)| *patterns);
    let mut index = Index {
        cues: 0,
        words: HashMap::default(),
        prefixes: Vec::new(),
        prefix_ranges: [0; 257],
        substrings: HashMap::default(),
        shapes: AhoCorasick::builder()
            .kind(Some(AhoCorasickKind::DFA))
            .build(patterns)
            .expect("the patterns are few and short"),
    };
    for &(task, weight, line) in cues::CUES {
        for text in line.split_ascii_whitespace() {
            let cue = Entry { number: index.cues, task, weight };
            index.cues += 1;
            if let Some(first) = text.chars().next().filter(|_| text.chars().any(is_cjk)) {
                index.substrings.entry(first).or_default().push((text, cue));
            } else if let Some(prefix) = text.strip_suffix('*') {
                index.prefixes.push((prefix, cue));
            } else {
                let mut words = text.split('_');
                let first = words.next().expect("a cue has a word");
                index.words.entry(first).or_default().phrases.push(Phrase { rest: words.collect(), cue });
            }
        }
    }
    index.prefixes.sort_unstable_by_key(|&(prefix, _)| prefix);
    for byte in 0..=255u8 {
        let after = index.prefixes.partition_point(|(prefix, _)| prefix.as_bytes()[0] <= byte);
        index.prefix_ranges[usize::from(byte) + 1] = after;
    }
    for (role, list) in [(PERSON, cues::PERSONS), (ASKING, cues::ASKING), (INSTRUCTING, cues::INSTRUCTING)] {
        for word in list.split_ascii_whitespace() {
            index.words.entry(word).or_default().roles |= role;
        }
    }
    index
});

/// What the short lists say of a prompt's words.
struct Words {
    count: usize,
    person: bool,
    asks: bool,
    instructs: bool,
}

/// The words of a text, lowered, in one buffer.
struct Lowered {
    text: String,
    /// Where each word ends; the next begins there.
    ends: Vec<usize>,
    /// How many words hold a digit.
    numbers: u32,
}

impl Lowered {
    fn with_capacity(bytes: usize) -> Self {
        Self { text: String::with_capacity(bytes), ends: Vec::with_capacity(bytes / 4), numbers: 0 }
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    fn get(&self, word: usize) -> Option<&str> {
        let end = *self.ends.get(word)?;
        let start = word.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.text[start..end])
    }

    fn add(&mut self, part: &str) {
        let (mut letters, mut digit) = (0, false);
        for c in part.chars() {
            if is_apostrophe(c) {
                // Elided articles part from their word (l'équation, qu'il); other apostrophes fall out (don't).
                if letters > 2 {
                    continue;
                }
            } else if is_word(c) {
                letters += 1;
                digit |= c.is_numeric();
                if c.is_ascii() {
                    self.text.push(c.to_ascii_lowercase());
                } else {
                    self.text.extend(c.to_lowercase());
                }
                continue;
            }
            self.end(&mut letters, &mut digit);
        }
        self.end(&mut letters, &mut digit);
    }

    fn end(&mut self, letters: &mut u32, digit: &mut bool) {
        if std::mem::take(letters) > 0 {
            self.ends.push(self.text.len());
            self.numbers += u32::from(std::mem::take(digit));
        }
    }
}

#[derive(Default)]
struct Score {
    points: [u32; Task::ALL.len()],
    /// Each cue counts once: a bit for each.
    seen: Vec<u64>,
}

impl Score {
    /// Reads the start and the end of a prompt; `cjk` tells whether scripts without blanks stand in it.
    fn read(&mut self, start: &str, end: &str, cjk: bool) -> Words {
        let index = &*INDEX;
        self.seen.resize(index.cues.div_ceil(64), 0);
        let mut words = Lowered::with_capacity(start.len() + end.len());
        words.add(start);
        words.add(end);

        let mut roles = 0;
        for i in 0..words.len() {
            let current = words.get(i).expect("i is in bounds");
            if let Some(meaning) = index.words.get(current) {
                roles |= meaning.roles;
                for phrase in &meaning.phrases {
                    if phrase.rest.iter().enumerate().all(|(k, &next)| words.get(i + 1 + k) == Some(next)) {
                        self.count(phrase.cue);
                    }
                }
            }
            let first = usize::from(current.as_bytes()[0]);
            let prefixes = &index.prefixes[index.prefix_ranges[first]..index.prefix_ranges[first + 1]];
            let after = prefixes.partition_point(|&(prefix, _)| prefix <= current);
            if let Some(&(prefix, cue)) = after.checked_sub(1).map(|at| &prefixes[at])
                && current.starts_with(prefix)
            {
                self.count(cue);
            }
        }
        if cjk {
            for part in [start, end] {
                for (at, c) in part.char_indices().filter(|&(_, c)| is_cjk(c)) {
                    for &(text, cue) in index.substrings.get(&c).into_iter().flatten() {
                        if part[at..].starts_with(text) {
                            self.count(cue);
                        }
                    }
                }
            }
        }

        let mut seen = [false; SHAPES.len()];
        for part in [start, end] {
            for found in index.shapes.find_overlapping_iter(part) {
                seen[SHAPE_OF[found.pattern().as_usize()] as usize] = true;
            }
        }
        let has = |shape: Shape| seen[shape as usize];
        let mut add = |task: Task, points: u32, given: bool| {
            self.points[task as usize] += if given { points } else { 0 };
        };
        add(Task::Code, 6, has(Shape::Fence));
        add(Task::Code, 3, has(Shape::Code));
        add(Task::Math, 4, has(Shape::Formula));
        // Several numbers and a question: a word problem.
        add(Task::Math, 2, words.numbers >= 3 && has(Shape::Question));
        Words {
            count: words.len(),
            person: roles & PERSON != 0,
            asks: roles & ASKING != 0 || has(Shape::Question) && roles & PERSON == 0,
            instructs: roles & INSTRUCTING != 0,
        }
    }

    fn count(&mut self, cue: Entry) {
        let bit = 1 << (cue.number % 64);
        let seen = &mut self.seen[cue.number / 64];
        if *seen & bit == 0 {
            *seen |= bit;
            self.points[cue.task as usize] += u32::from(cue.weight);
        }
    }

    /// The task with the most points, of at least 3; of two the one that the published rules try first.
    fn best(&self) -> Option<Task> {
        const ORDER: [Task; 6] =
            [Task::Code, Task::Math, Task::Reasoning, Task::Creative, Task::Vision, Task::CheapChat];
        let best = ORDER.into_iter().rev().max_by_key(|&task| self.points[task as usize])?;
        (self.points[best as usize] >= 3).then_some(best)
    }
}

/// Letters, digits and the marks that Indic words hold inside. An underscore parts words: names in code are
/// often made of cues.
fn is_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '\u{0900}'..='\u{0dff}' if !matches!(c, '।' | '॥'))
}

fn is_apostrophe(c: char) -> bool {
    matches!(c, '\'' | '’')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn task(text: &str) -> Task {
        classify(RuleSet::Ours, &Request::new(text)).task
    }

    #[test]
    fn published_rules_are_kept_as_they_are() {
        let long = "a ".repeat(64_000);
        for (text, expected, cue) in [
            ("hi", Task::CheapChat, Cue::Short),
            ("", Task::CheapChat, Cue::Empty),
            (
                "I was debugging all day and then went out for a long dinner with friends",
                Task::Code,
                Cue::Text,
            ),
            ("```\nx\n```", Task::Code, Cue::Text),
            ("Prove it", Task::Math, Cue::Text),
            ("solve for x, step by step", Task::Math, Cue::Text),
            ("WHY", Task::Reasoning, Cue::Text),
            ("Write a story", Task::Creative, Cue::Text),
            (
                "Schreibe eine Funktion, die eine verkettete Liste umkehrt, und zwar in C",
                Task::General,
                Cue::Nothing,
            ),
            (&long, Task::LongContext, Cue::Length),
        ] {
            let answer = classify(RuleSet::Published, &Request::new(text));
            assert_eq!((answer.task, answer.cue), (expected, cue), "{}", &text[..text.len().min(60)]);
        }
        // 16 tokens of four characters are short, one more character of the 17th is not.
        for (characters, expected) in [(67, Task::CheapChat), (68, Task::General)] {
            let text = "z".repeat(characters);
            assert_eq!(classify(RuleSet::Published, &Request::new(&text)).task, expected, "{characters}");
        }
        for (tokens, expected) in [(31_999, Task::General), (32_000, Task::LongContext)] {
            let request = Request { tokens: Some(tokens), ..Request::new("z") };
            assert_eq!(classify(RuleSet::Published, &request).task, expected, "{tokens}");
        }
    }

    #[test]
    fn the_caller_knows_best() {
        for rules in [RuleSet::Published, RuleSet::Ours] {
            let hinted = Request { task: Some(Task::Math), has_media: true, ..Request::new("fix this code") };
            let answer = classify(rules, &hinted);
            assert_eq!((answer.task, answer.cue, answer.is_certain()), (Task::Math, Cue::Hint, true));
            let media = Request { has_media: true, ..Request::new("fix this code") };
            let answer = classify(rules, &media);
            assert_eq!((answer.task, answer.cue, answer.is_certain()), (Task::Vision, Cue::Media, true));
            assert_eq!((media.modality(), hinted.modality()), (Modality::Vision, Modality::Vision));
            let text = Request { modality: Some(Modality::Audio), ..media };
            assert_eq!(text.modality(), Modality::Audio);
        }
    }

    #[test]
    fn b11_a_blank_prompt_is_flagged() {
        for rules in [RuleSet::Published, RuleSet::Ours] {
            for text in ["", " ", "\n\t\u{3000}"] {
                let answer = classify(rules, &Request::new(text));
                assert_eq!((answer.task, answer.cue), (Task::CheapChat, Cue::Empty), "{text:?}");
            }
        }
    }

    #[test]
    fn cues_in_many_languages() {
        for (expected, prompts) in [
            (
                Task::Code,
                &[
                    "Write a Python function that reverses a linked list",
                    "写一个函数来反转链表",
                    "Python で関数を書いてください",
                    "파이썬 함수를 작성해 주세요",
                    "Escribe un programa que ordene una lista",
                    "Écris une fonction en Rust qui trie un tableau",
                    "Schreibe eine Funktion, die eine Liste umkehrt",
                    "Escreva uma função que inverta uma lista",
                    "Напиши функцию, которая сортирует массив",
                    "اكتب برمجة دالة تعكس القائمة",
                    "Bir fonksiyon yaz",
                ][..],
            ),
            (
                Task::Math,
                &[
                    "Solve for x: x^2 - 5x + 6 = 0",
                    "计算三角形的面积",
                    "次の方程式を解いてください",
                    "이 방정식을 풀어 주세요",
                    "Resuelve la ecuación de segundo grado",
                    "Explique-moi l'équation",
                    "Löse die Gleichung",
                    "Resolva a equação",
                    "Реши уравнение",
                    "حل المعادلة ثم احسب",
                ],
            ),
            (
                Task::Creative,
                &[
                    "Write a haiku about autumn",
                    "写一首关于秋天的诗",
                    "秋についての俳句を書いて",
                    "가을에 대한 소설을 써 주세요",
                    "Escribe un cuento sobre el mar",
                    "Écris un poème sur la mer",
                    "Schreibe ein Gedicht über den Herbst",
                    "Escreva uma poesia sobre o mar",
                    "Напиши рассказ о море",
                    "اكتب قصيدة عن البحر",
                ],
            ),
            (
                Task::Reasoning,
                &["What is the flaw in the reasoning of this argument?", "由前提能推出什么结论"],
            ),
            (Task::Vision, &["What is shown in this image?", "描述这张图片", "Was zeigt das Foto?"]),
            (
                Task::CheapChat,
                &[
                    "hello there",
                    "你好",
                    "こんにちは",
                    "안녕하세요",
                    "hola, ¿qué tal?",
                    "bonjour !",
                    "Hallo, wie geht es dir?",
                    "olá, tudo bem?",
                    "Привет, как дела?",
                    "مرحبا",
                ],
            ),
            (Task::General, &["Who wrote the Iliad?", "What is the capital of France?", "法国的首都在哪里"]),
        ] {
            for prompt in prompts {
                assert_eq!(task(prompt), expected, "{prompt}");
            }
        }
    }

    #[test]
    fn cues_are_whole_words() {
        // Substrings that the published rules fall for: bug, code, reason, prove, poem.
        for text in [
            "The ladybugs in my garden came early this year and the neighbours were quite surprised by that.",
            "The decoder ring that the museum improved last year stands in a reasonable place near the door.",
            "An encoded message lay beside the unreasonably large approved form that nobody had ever signed.",
        ] {
            assert_eq!(task(text), Task::General, "{text}");
            assert_ne!(classify(RuleSet::Published, &Request::new(text)).task, Task::General, "{text}");
        }
    }

    #[test]
    fn h10_one_borrowed_phrase_does_not_outweigh_the_rest() {
        assert_eq!(
            task(
                "def mean(xs):\n    return sum(xs) / len(xs)\n\nWhy does this function raise an exception for lists?"
            ),
            Task::Code
        );
        assert_eq!(
            task("Write a short story in which a character who is a programmer gives up and becomes a poet."),
            Task::Creative
        );
        // A greeting before work is no small talk.
        assert_eq!(
            task(
                "Hello! Could you please help me to refactor this Python function so that it reads the CSV file once?"
            ),
            Task::Code
        );
    }

    #[test]
    fn length_counts_characters_of_the_whole_prompt() {
        assert_eq!(task(&"word ".repeat(1_400)), Task::LongContext);
        assert_ne!(task(&"word ".repeat(1_399)), Task::LongContext);
        assert_eq!(task(&"文".repeat(3_500)), Task::LongContext);
        assert_ne!(task(&"文".repeat(3_499)), Task::LongContext);
        let answer = classify(RuleSet::Ours, &Request::new(&"word ".repeat(1_400)));
        assert!(!answer.is_certain(), "a learned head may see more in 7,000 characters");
        let answer = classify(RuleSet::Ours, &Request::new(&"word ".repeat(30_000)));
        assert!(answer.is_certain() && answer.tokens >= LONG_TOKENS);
    }

    #[test]
    fn ten_megabytes_answer_at_once() {
        for text in ["word ".repeat(2_000_000), "```".repeat(3_000_000), " ".repeat(10_000_000)] {
            for rules in [RuleSet::Published, RuleSet::Ours] {
                let answer = classify(rules, &Request::new(&text));
                assert_eq!(answer.task, Task::LongContext);
            }
        }
    }

    #[test]
    fn the_table_has_no_traps() {
        let prefixes: Vec<&str> = INDEX.prefixes.iter().map(|&(prefix, _)| prefix).collect();
        for pair in prefixes.windows(2) {
            assert!(!pair[1].starts_with(pair[0]), "{} hides {}", pair[1], pair[0]);
        }
        let mut all = BTreeSet::new();
        for &(task, _, line) in cues::CUES {
            for cue in line.split_ascii_whitespace() {
                assert_eq!(cue, cue.to_lowercase(), "cues are compared with lowered words");
                assert!(
                    !cue.contains(|c| is_apostrophe(c) || c == '-' || c == '"'),
                    "{cue} can never be found"
                );
                // Several languages share words; they count once for a task.
                if !all.insert((task, cue)) {
                    assert!(cue.chars().all(char::is_alphabetic) || cue.ends_with('*'), "{cue}");
                }
            }
        }
        assert!(all.len() > 700, "{}", all.len());
    }

    #[test]
    fn every_text_is_answered() {
        for text in
            ["\u{0}", "'", "’’’", "_", "🦀🦀", "e\u{301}", "\u{200d}", "'''```'''", "ＡＢＣ", "ǅ", "İ", "क्षि"]
        {
            for rules in [RuleSet::Published, RuleSet::Ours] {
                let _ = classify(rules, &Request::new(text));
                let _ = classify(rules, &Request::new(&text.repeat(5_000)));
            }
        }
    }
}
