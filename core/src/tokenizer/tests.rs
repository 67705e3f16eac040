//! Tests on small vocabularies of their own; those against Hugging Face `tokenizers` lie in `tests/`.
