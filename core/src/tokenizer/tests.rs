//! Tests on small vocabularies of their own; those against Hugging Face `tokenizers` lie in `tests/`.

use super::bytes::byte_of;
use super::*;
use crate::gguf::testing::Builder;
use crate::source::Memory;
use proptest::prelude::*;
use std::sync::Arc;

/// GPT-2's character for each byte.
fn characters() -> Vec<char> {
    let mut characters = vec!['\0'; 256];
    for c in '\0'..='\u{143}' {
        if let Some(byte) = byte_of(c) {
            characters[usize::from(byte)] = c;
        }
    }
    characters
}

/// All bytes, a few merges, a control, a user-defined and an unused token.
fn bpe(pre: PreTokenizer) -> TokenizerSpec {
    let mut tokens: Vec<String> = characters().iter().map(char::to_string).collect();
    let merges =
        ["h e", "l l", "he ll", "hell o", "Ġ h", "Ġh e", "a a", "aa aa", "1 2", "12 3", "Ġ Ġ", "' s", "à ¤"];
    tokens.extend(merges.iter().map(|merge| merge.replace(' ', "")));
    let mut types = vec![1; tokens.len()];
    for (token, kind) in [
        ("<|end|>", 3),
        ("<|end|>>", 3),
        ("<tool>", 4),
        ("[PAD272]", 4),
        ("unused", 5),
        ("", 4),
        ("<unk>", 2),
    ] {
        tokens.push(token.to_owned());
        types.push(kind);
    }
    TokenizerSpec {
        model: TokenizerModel::ByteLevelBpe(pre),
        tokens: tokens.iter().collect(),
        scores: None,
        types: Some(types),
        merges: Some(merges.iter().collect()),
        bos: Some(269),
        eos: Some(270),
        unk: None,
        add_bos: false,
        add_eos: false,
        add_space_prefix: false,
    }
}

/// Pieces with scores, all byte tokens, control and user-defined ones.
fn spm() -> TokenizerSpec {
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>", "  ", "\n\n"].map(String::from).to_vec();
    let mut types = vec![2, 3, 3, 4, 4];
    tokens.extend((0..=255).map(|byte| format!("<0x{byte:02X}>")));
    types.extend([6; 256]);
    let pieces = ["▁", "a", "b", "n", "▁a", "an", "na", "ana", "▁ana", "é", "\n"];
    tokens.extend(pieces.map(String::from));
    types.extend([1; 11]);
    let scores = (0..tokens.len()).map(|id| -(id as f32)).collect();
    TokenizerSpec {
        model: TokenizerModel::SentencePiece(TieBreak::LeftId),
        tokens: tokens.iter().collect(),
        scores: Some(scores),
        types: Some(types),
        merges: None,
        bos: Some(1),
        eos: Some(2),
        unk: Some(0),
        add_bos: true,
        add_eos: false,
        add_space_prefix: true,
    }
}

fn words(tokenizer: &Tokenizer, text: &str, options: &EncodeOptions) -> Vec<String> {
    let ids = tokenizer.encode(text, options);
    ids.iter().map(|&id| String::from_utf8_lossy(tokenizer.token_bytes(id).unwrap()).into_owned()).collect()
}

fn split(pre: PreTokenizer, text: &str) -> Vec<&str> {
    let scanner = Scanner::new(text, pre);
    let mut pieces = Vec::new();
    let mut pos = 0;
    while pos < text.len() {
        let end = scanner.next(pos);
        pieces.push(&text[pos..end]);
        pos = end;
    }
    pieces
}

const PRES: [PreTokenizer; 5] = [
    PreTokenizer::Qwen2,
    PreTokenizer::Llama3,
    PreTokenizer::SmolLm,
    PreTokenizer::Gpt2,
    PreTokenizer::Default,
];

#[test]
fn merges_go_by_rank() {
    let tokenizer = Tokenizer::new(bpe(PreTokenizer::Gpt2)).unwrap();
    let default = EncodeOptions::default();
    assert_eq!(words(&tokenizer, "hello hex", &default), ["hello", " ", "he", "x"]);
    assert_eq!(words(&tokenizer, "aaaaaaa", &default), ["aaaa", "aa", "a"]);
    assert_eq!(tokenizer.encode("", &default), [0_u32; 0]);
}

#[test]
fn b3_qwen2_splits_as_its_expression() {
    let pre = PreTokenizer::Qwen2;
    assert_eq!(split(pre, "it's I'LL 'Re 'ſx"), ["it", "'s", " I", "'LL", " '", "Re", " '", "ſx"]);
    assert_eq!(split(pre, "'REx'ſx don'ts"), ["'RE", "x", "'ſ", "x", " don", "'t", "s"]);
    assert_eq!(split(pre, "a12 345"), ["a", "1", "2", " ", "3", "4", "5"]);
    assert_eq!(split(pre, "f(x) != y;\n\n  z"), ["f", "(x", ")", " !=", " y", ";\n\n", " ", " z"]);
    assert_eq!(split(pre, "a  b   \n \n  c  "), ["a", " ", " b", "   \n \n", " ", " c", "  "]);
    assert_eq!(split(pre, "\u{a0}x\r\n!\r\ny"), ["\u{a0}x", "\r\n", "!\r\n", "y"]);
}

#[test]
fn the_others_split_as_theirs() {
    assert_eq!(split(PreTokenizer::Llama3, "a12 3456"), ["a", "12", " ", "345", "6"]);
    assert_eq!(
        split(PreTokenizer::Gpt2, "I'LL it's 12 345!?  x"),
        ["I", "'", "LL", " it", "'s", " 12", " 345", "!?", " ", " x"]
    );
    assert_eq!(split(PreTokenizer::SmolLm, "a 12  3½x"), ["a", " ", "1", "2", "  ", "3", "½", "x"]);
    assert_eq!(
        split(PreTokenizer::Default, "it's $5 a+b ١2345 x"),
        ["it", "'", "s", " ", "$", "5", " a", "+", "b", " ", "١", "234", "5", " x"]
    );
}

#[test]
fn b8_special_tokens_in_the_text() {
    let tokenizer = Tokenizer::new(bpe(PreTokenizer::Qwen2)).unwrap();
    let default = EncodeOptions::default();
    let plain = EncodeOptions { plain_text: true, ..default };
    let (end, longer, tool) = (269, 270, 271);
    assert_eq!(tokenizer.encode("<|end|><tool><|end|>>", &default), [end, tool, longer]);
    let ids = tokenizer.encode("<|end|><tool><|end|>>", &plain);
    assert!(ids.contains(&tool) && !ids.contains(&end) && !ids.contains(&longer));
    assert_eq!(tokenizer.decode(&ids, true), b"<|end|><tool><|end|>>");
    assert_eq!(tokenizer.decode(&[end, tool], true), b"<tool>");
    assert_eq!(tokenizer.decode(&[end, tool, 99_999], false), b"<|end|><tool>");
    // Fillers and unused places are no tokens of the text, and neither is the empty one.
    for text in ["[PAD272]", "unused"] {
        assert_eq!(tokenizer.encode(text, &default).len(), text.len(), "{text}");
    }
    // NFC does not reach across an added token.
    assert_eq!(
        tokenizer.decode(&tokenizer.encode("e<tool>\u{301}e\u{301}", &default), false),
        "e<tool>\u{301}é".as_bytes()
    );
}

#[test]
fn b7_nothing_is_unescaped() {
    let tokenizer = Tokenizer::new(bpe(PreTokenizer::Qwen2)).unwrap();
    let default = EncodeOptions::default();
    assert_eq!(tokenizer.encode(r"a\nb", &default).len(), 4);
    assert_eq!(tokenizer.encode("a\nb", &default).len(), 3);
}

#[test]
fn b9_bos_and_eos_as_the_file_or_the_caller_says() {
    let yes = EncodeOptions { add_bos: Some(true), add_eos: Some(true), ..Default::default() };
    let tokenizer = Tokenizer::new(bpe(PreTokenizer::Qwen2)).unwrap();
    assert!(!tokenizer.adds_bos() && !tokenizer.adds_eos());
    assert_eq!(tokenizer.encode("x", &EncodeOptions::default()), [u32::from(b'x')]);
    assert_eq!(tokenizer.encode("x", &yes), [269, u32::from(b'x'), 270]);
    // B11: an empty text is no text.
    assert_eq!(tokenizer.encode("", &EncodeOptions::default()), [0_u32; 0]);
    assert_eq!(tokenizer.encode("", &yes), [269, 270]);
    let spec = TokenizerSpec { add_bos: true, add_eos: true, ..bpe(PreTokenizer::Qwen2) };
    let tokenizer = Tokenizer::new(spec).unwrap();
    assert_eq!(tokenizer.encode("x", &EncodeOptions::default()), [269, u32::from(b'x'), 270]);
    let no = EncodeOptions { add_bos: Some(false), add_eos: Some(false), ..Default::default() };
    assert_eq!(tokenizer.encode("x", &no), [u32::from(b'x')]);
    // The limit counts them, and keeps the start.
    let limited = |max| tokenizer.encode_limited("xy", &EncodeOptions::default(), max);
    assert_eq!(limited(4), (vec![269, u32::from(b'x'), u32::from(b'y'), 270], false));
    assert_eq!(limited(3), (vec![269, u32::from(b'x'), u32::from(b'y')], true));
    assert_eq!(limited(0), (vec![], true));
}

#[test]
fn b2_every_byte_comes_back() {
    for pre in PRES {
        let tokenizer = Tokenizer::new(bpe(pre)).unwrap();
        let text: String = (0..0x250).filter_map(char::from_u32).collect();
        let ids = tokenizer.encode(&text, &EncodeOptions::default());
        assert_eq!(tokenizer.decode(&ids, false), text.as_bytes(), "{pre:?}");
        for byte in 0..=255_u8 {
            assert_eq!(tokenizer.token_bytes(byte.into()), Some(&[byte][..]));
        }
    }
}

#[test]
fn sentencepiece_goes_by_score() {
    let tokenizer = Tokenizer::new(spm()).unwrap();
    let bare = EncodeOptions { add_bos: Some(false), ..Default::default() };
    assert_eq!(words(&tokenizer, "banana", &bare), [" ", "b", "an", "ana"]);
    assert_eq!(words(&tokenizer, "ana", &bare), [" ana"]);
    // `é` has a token, `ü` falls back to its bytes, runs of spaces are one token whatever its score.
    let ids = tokenizer.encode("éü", &bare);
    assert_eq!(ids[ids.len() - 2..], [5 + 0xC3, 5 + 0xBC]);
    assert_eq!(words(&tokenizer, "a  b", &bare), [" a", "  ", "b"]);
    assert_eq!(
        tokenizer.encode("a▁▁b", &bare),
        tokenizer
            .encode("a", &bare)
            .iter()
            .copied()
            .chain([3])
            .chain(tokenizer.encode("b", &bare))
            .collect::<Vec<_>>(),
        "a literal run is the added token, as written in tokenizer.json"
    );
    assert_eq!(
        tokenizer.decode(&tokenizer.encode("na naïve\u{2581}x", &EncodeOptions::default()), true),
        "na naïve x".as_bytes()
    );
    assert_eq!(tokenizer.encode("", &EncodeOptions::default()), [1]);
}

#[test]
fn sentencepiece_without_bytes_falls_back_to_unknown() {
    let mut spec = spm();
    let kept = |id: &usize| !(5..5 + 256).contains(id);
    spec.tokens =
        spec.tokens.iter().enumerate().filter(|(id, _)| kept(id)).map(|(_, token)| token.to_vec()).collect();
    spec.types = spec.types.map(|types| (0..types.len()).filter(kept).map(|id| types[id]).collect());
    spec.scores = spec.scores.map(|scores| (0..scores.len()).filter(kept).map(|id| scores[id]).collect());
    let tokenizer = Tokenizer::new(spec.clone()).unwrap();
    let bare = EncodeOptions { add_bos: Some(false), ..Default::default() };
    assert_eq!(words(&tokenizer, "axyza", &bare), [" a", "<unk>", "a"]);
    spec.unk = None;
    assert!(matches!(Tokenizer::new(spec), Err(TokenizerError::NoFallback { byte: 0 })));
}

#[test]
fn ids_and_texts() {
    let tokenizer = Tokenizer::new(bpe(PreTokenizer::Qwen2)).unwrap();
    assert_eq!(tokenizer.token_id("<|end|>"), Some(269));
    assert_eq!(tokenizer.token_id(" he"), Some(261));
    assert_eq!(tokenizer.token_id("nothing"), None);
    assert_eq!(tokenizer.token_bytes(tokenizer.vocab_len() as u32), None);
    assert_eq!(tokenizer.token_type(271), Some(TokenType::UserDefined));
    assert_eq!((tokenizer.bos(), tokenizer.eos(), tokenizer.unk()), (Some(269), Some(270), None));
    assert!(tokenizer.memory() < 1 << 20);
    fn shared<T: Send + Sync>(_: &T) {}
    shared(&tokenizer);
}

macro_rules! refused {
    ($spec:expr, $change:expr, $error:pat $(if $guard:expr)?) => {{
        let mut spec = $spec;
        #[allow(clippy::redundant_closure_call)]
        ($change)(&mut spec);
        match Tokenizer::new(spec) {
            Err(ref error @ $error) $(if $guard)? => assert!(!error.to_string().is_empty()),
            other => panic!("expected {}, got {other:?}", stringify!($error)),
        }
    }};
}

#[test]
fn hostile_descriptions_are_refused_each_with_its_cause() {
    type E = TokenizerError;
    type S = TokenizerSpec;
    let bpe = || bpe(PreTokenizer::Qwen2);
    refused!(bpe(), |s: &mut S| s.tokens = Strings::default(), E::EmptyVocab);
    refused!(
        bpe(),
        |s: &mut S| s.types.as_mut().unwrap().truncate(3),
        E::ListLength { key: "tokenizer.ggml.token_type", found: 3, .. }
    );
    refused!(bpe(), |s: &mut S| s.types.as_mut().unwrap()[7] = 9, E::UnknownTokenType { id: 7, value: 9 });
    refused!(bpe(), |s: &mut S| s.types.as_mut().unwrap()[7] = -1, E::UnknownTokenType { id: 7, value: -1 });
    refused!(
        bpe(),
        |s: &mut S| s.bos = Some(u32::MAX),
        E::IdOutOfRange { key: "tokenizer.ggml.bos_token_id", .. }
    );
    refused!(
        bpe(),
        |s: &mut S| s.eos = Some(276),
        E::IdOutOfRange { key: "tokenizer.ggml.eos_token_id", id: 276, tokens: 276 }
    );
    refused!(
        bpe(),
        |s: &mut S| s.unk = Some(276),
        E::IdOutOfRange { key: "tokenizer.ggml.unknown_token_id", .. }
    );
    refused!(
        bpe(),
        |s: &mut S| (s.add_bos, s.bos) = (true, None),
        E::FlagWithoutToken { flag: "tokenizer.ggml.add_bos_token", .. }
    );
    refused!(
        bpe(),
        |s: &mut S| (s.add_eos, s.eos) = (true, None),
        E::FlagWithoutToken { flag: "tokenizer.ggml.add_eos_token", .. }
    );
    refused!(bpe(), |s: &mut S| s.merges = None, E::MissingMerges);
    for merge in ["ab", "a ", " ab", "a b c", ""] {
        refused!(bpe(), |s: &mut S| s.merges.as_mut().unwrap().push(merge), E::MergeFormat { index: 13, .. });
    }
    for (merge, missing) in
        [("a q1", "q1"), ("q1 a", "q1"), ("a b", "ab"), ("a ▁", "▁"), ("unused a", "unused")]
    {
        refused!(bpe(), |s: &mut S| s.merges.as_mut().unwrap().push(merge), E::MergeUnknownToken { index: 13, ref token, .. } if token == missing);
    }
    refused!(bpe(), |s: &mut S| s.merges.as_mut().unwrap().push(b"a \xff"), E::MergeUnknownToken { .. });
    refused!(
        bpe(),
        |s: &mut S| s.types.as_mut().unwrap()[usize::from(b'e')] = 5,
        E::MissingByte { byte: b'e' }
    );
    refused!(
        bpe(),
        |s: &mut S| {
            s.tokens.push("x".repeat(1 << 23));
            s.types.as_mut().unwrap().push(3);
        },
        E::AddedTokens { .. }
    );
    refused!(
        bpe(),
        |s: &mut S| for _ in 0..=vocab::MAX_TOKENS {
            s.tokens.push("");
        },
        E::VocabTooLarge { .. }
    );

    refused!(spm(), |s: &mut S| s.scores = None, E::MissingScores);
    refused!(
        spm(),
        |s: &mut S| s.scores.as_mut().unwrap().push(0.0),
        E::ListLength { key: "tokenizer.ggml.scores", .. }
    );
    refused!(
        spm(),
        |s: &mut S| s.scores.as_mut().unwrap()[300 - 35] = f32::NAN,
        E::ScoreNotANumber { id: 265 }
    );
}

#[test]
fn keys_that_fall_together_are_refused() {
    // Sixteen bytes a key: the first eight are chosen, the next eight cancel them in the hash.
    use super::vocab::{Blob, MergeMap, TokenMap, mix};
    let start = 16_u64.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut blob = Blob::default();
    for i in 0..2000_u64 {
        let key: Vec<u8> = i.to_le_bytes().into_iter().chain(mix(start ^ i).to_le_bytes()).collect();
        blob.push(&key).unwrap();
    }
    let mut map = TokenMap::with_room(2000).unwrap();
    let refused = (0..2000).find_map(|id| map.insert(id, &blob).err());
    assert!(matches!(refused, Some(TokenizerError::Crowded { what: "tokens" })));
    // The same for pairs: those whose hashes share their low bits, found by trying.
    let mut merges = MergeMap::with_room(1500).unwrap();
    let crowd = (0..u32::MAX).filter(|&i| MergeMap::place(i, i, 4096) == 0).take(1500);
    let refused = crowd.map(|i| merges.insert(i, i, 0, 0)).find_map(Result::err);
    assert!(matches!(refused, Some(TokenizerError::Crowded { what: "merges" })));
}

fn file(change: impl FnOnce(Builder) -> Builder) -> Result<Tokenizer, TokenizerError> {
    let spec = bpe(PreTokenizer::Qwen2);
    let builder = Builder::new("qwen3")
        .strings("tokenizer.ggml.tokens", spec.tokens.iter())
        .i32s("tokenizer.ggml.token_type", &spec.types.unwrap())
        .strings("tokenizer.ggml.merges", spec.merges.unwrap().iter())
        .with("tokenizer.ggml.bos_token_id", 269_u32);
    let bytes = change(builder).build();
    Tokenizer::from_gguf(&Gguf::open(Arc::new(Memory::new("test.gguf", bytes))).unwrap())
}

#[test]
fn b4_an_unknown_or_missing_pre_tokenizer_is_an_error() {
    let with = |pre: &str| file(|f| f.with("tokenizer.ggml.model", "gpt2").with("tokenizer.ggml.pre", pre));
    assert!(matches!(with("qwen3.5"), Err(TokenizerError::UnknownPre { pre, .. }) if pre == "qwen3.5"));
    assert!(matches!(with(""), Err(TokenizerError::UnknownPre { .. })));
    let missing = file(|f| f.with("tokenizer.ggml.model", "gpt2"));
    assert!(matches!(missing, Err(TokenizerError::MissingPre { .. })));
    for name in PreTokenizer::NAMES.split(", ") {
        let tokenizer = with(name).unwrap();
        assert_eq!(tokenizer.pre_tokenizer(), PreTokenizer::from_name(name));
        let pre = tokenizer.pre_tokenizer().unwrap();
        assert_eq!(PreTokenizer::from_name(pre.name()), Some(pre));
        // llama-bpe begins with BOS unless the file says otherwise.
        assert_eq!(tokenizer.adds_bos(), pre == PreTokenizer::Llama3);
    }
    // Unless the caller names it.
    let file =
        Builder::new("qwen3").with("tokenizer.ggml.model", "gpt2").strings("tokenizer.ggml.tokens", ["a"]);
    let gguf = Gguf::open(Arc::new(Memory::new("test.gguf", file.build()))).unwrap();
    let spec = TokenizerSpec::from_gguf_as(&gguf, Some(PreTokenizer::Gpt2)).unwrap();
    assert_eq!(spec.model, TokenizerModel::ByteLevelBpe(PreTokenizer::Gpt2));
}

#[test]
fn other_models_and_missing_keys_are_refused() {
    let model = |name: &str| file(|f| f.with("tokenizer.ggml.model", name));
    for name in ["bert", "t5", "rwkv", "plamo2", "none", ""] {
        assert!(matches!(model(name), Err(TokenizerError::UnsupportedModel { model }) if model == name));
    }
    assert!(matches!(model("llama"), Err(TokenizerError::MissingScores)));
    assert!(matches!(file(|f| f), Err(TokenizerError::Metadata(_))));
    let wrong = file(|f| f.with("tokenizer.ggml.model", "gpt2").with("tokenizer.ggml.pre", 3_u32));
    assert!(matches!(wrong, Err(TokenizerError::Metadata(_))));
}

#[test]
fn stretches_do_not_show() {
    // Every place of a stretch's end, and pieces that are longer than one.
    let unit = "hello  he\n\n 'll 12e\u{301}<tool>\u{301}  ";
    for pre in PRES {
        let tokenizer = Tokenizer::new(bpe(pre)).unwrap();
        let one = |text: &str| tokenizer.encode(text, &EncodeOptions::default());
        for lead in 0..unit.len() {
            let head = "a".repeat(STRETCH - lead);
            // The text before the added token is the same in both, and so is that from it on.
            let whole = one(&(head.clone() + unit));
            let (before, after) = unit.split_at(unit.find("<tool>").unwrap());
            let parts = [one_piece(&tokenizer, &(head + before)), one(after)].concat();
            assert_eq!(whole, parts, "{pre:?}, {lead} bytes before the end of a stretch");
        }
    }
}

/// The ids of a text without added tokens, taken in one stretch.
fn one_piece(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    let mut whole = String::new();
    tokenizer.normalizer.append(text, true, &mut whole);
    let mut ids = Vec::new();
    Pieces { tokenizer, scratch: Scratch::default(), cache: None }.encode(&whole, true, usize::MAX, &mut ids);
    ids
}

#[test]
fn both_ways_of_joining_agree() {
    let tokenizer = Tokenizer::new(spm()).unwrap();
    let Model::Spm(spm) = &tokenizer.model else { unreachable!() };
    let mut state = 1_u32;
    for _ in 0..300 {
        let word: String = (0..200)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                ['a', 'n', 'b', ' ', 'ü'][(state >> 24) as usize % 5]
            })
            .collect();
        // Long words go by the heap; short ones, cut where nothing is joined across, by the scan.
        let mut long = Vec::new();
        spm.encode(&word, &tokenizer.blob, &mut Scratch::default(), &mut long);
        let mut short = Vec::new();
        let mut pos = 0;
        while pos < word.len() {
            let end = spm.next(&word, pos);
            spm.encode(&word[pos..end], &tokenizer.blob, &mut Scratch::default(), &mut short);
            pos = end;
        }
        assert_eq!(long, short, "{word}");
    }
}

fn tokenizers() -> &'static [Tokenizer] {
    static ALL: std::sync::OnceLock<Vec<Tokenizer>> = std::sync::OnceLock::new();
    ALL.get_or_init(|| {
        let specs = PRES.map(bpe).into_iter().chain([spm()]);
        specs.map(|spec| Tokenizer::new(spec).unwrap()).collect()
    })
}

proptest! {
    #[test]
    fn text_comes_back(text in "(\\PC|[ \\t\\r\\n]|hello|<tool>|<\\|end\\|>|'s|[0-9]){0,60}", plain: bool) {
        for tokenizer in tokenizers() {
            let options = EncodeOptions { plain_text: plain, add_bos: Some(false), add_eos: None };
            let ids = tokenizer.encode(&text, &options);
            let mut expected = String::new();
            match tokenizer.normalizer {
                // Runs of text are composed one by one.
                Normalizer::Nfc => {
                    let mut parts = Parts::new(&tokenizer.added, &text, plain, Normalizer::Nfc);
                    while let Some(part) = parts.next(usize::MAX) {
                        match part {
                            Part::Text(text) => Normalizer::Nfc.append(text, true, &mut expected),
                            Part::Token(id) => expected += &String::from_utf8_lossy(tokenizer.token_bytes(id).unwrap()),
                        }
                    }
                }
                Normalizer::None => expected += &text,
                Normalizer::Spaces { .. } => {
                    // A space before each run of text is not taken off again, but for the first.
                    if text.contains("\n\n") || text.contains("  ") || text.contains('▁') {
                        continue;
                    }
                    expected += &text;
                }
            }
            prop_assert_eq!(String::from_utf8(tokenizer.decode(&ids, false)).unwrap(), expected);
            prop_assert!(ids.iter().all(|&id| (id as usize) < tokenizer.vocab_len()));
            prop_assert!(!plain || !ids.iter().any(|&id| tokenizer.is_control(id)));
        }
    }

    #[test]
    fn any_bytes_encode(bytes in proptest::collection::vec(any::<u8>(), 0..200), max in 0_usize..40) {
        for tokenizer in tokenizers() {
            let ids = tokenizer.encode_bytes(&bytes, &EncodeOptions::default());
            let text = String::from_utf8_lossy(&bytes);
            let (start, truncated) = tokenizer.encode_limited(&text, &EncodeOptions::default(), max);
            prop_assert_eq!(&start, &ids[..max.min(ids.len())]);
            prop_assert_eq!(truncated, ids.len() > max);
            tokenizer.decode(&ids, true);
        }
    }

    #[test]
    fn any_description_is_built_or_refused(
        tokens in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..5), 0..12),
        types in proptest::option::of(proptest::collection::vec(-1..8, 0..12)),
        scores in proptest::option::of(proptest::collection::vec(any::<f32>(), 0..12)),
        merges in proptest::option::of(proptest::collection::vec("[a-d ]{0,5}", 0..8)),
        bos in proptest::option::of(0_u32..14),
        small: bool,
        model in 0..6_usize,
    ) {
        let mut spec = if model == 5 { spm() } else { bpe(PRES[model]) };
        if small {
            spec.tokens = tokens.iter().collect();
            spec.types = types;
            spec.scores = scores;
        } else {
            for token in &tokens {
                spec.tokens.push(token);
                spec.types.as_mut().unwrap().push(1);
                if let Some(scores) = &mut spec.scores { scores.push(0.5) }
            }
        }
        spec.merges = merges.map(|merges| merges.iter().collect());
        spec.bos = bos;
        if let Ok(tokenizer) = Tokenizer::new(spec) {
            tokenizer.encode("ab <|end|> \u{301}é", &EncodeOptions::default());
        }
    }
}
