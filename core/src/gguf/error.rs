//! Why a GGUF file is refused.

/// Why a GGUF file, one of its keys or one of its tensors is refused. One variant for one cause.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are what the messages say
pub enum GgufError {
    /// The source failed: the system's own words.
    #[error("{file}: cannot read {len} bytes at {offset}: {source}")]
    Io { file: String, offset: u64, len: u64, source: std::io::Error },

    /// The file does not begin with `GGUF`.
    #[error("{file} is not a GGUF file: {looks_like}")]
    NotGguf { file: String, looks_like: String },

    /// A big-endian GGUF file.
    #[error(
        "{file} is a big-endian GGUF file; only little-endian ones are read: convert it (`gguf-convert-endian FILE little`) \
         or fetch the little-endian one"
    )]
    BigEndian { file: String },

    /// A version other than 2 and 3.
    #[error(
        "{file} is GGUF version {version}; versions 2 and 3 are read: convert the model again with a current llama.cpp"
    )]
    Version { file: String, version: u32 },

    /// The file ends inside its header.
    #[error(
        "{file} ends inside its header: {what} needs {need} bytes at {offset}, {left} are left; the file is damaged or \
         was not fetched completely: fetch it again"
    )]
    Truncated { file: String, what: String, offset: u64, need: u64, left: u64 },

    /// Metadata and tensor table are larger than [`super::MAX_HEADER`].
    #[error(
        "{file}: {what} would take the header past {limit} bytes, which no model needs: the file is damaged or hostile"
    )]
    HeaderTooLarge { file: String, what: String, limit: u64 },

    /// More metadata entries or tensors than the rest of the file could hold.
    #[error(
        "{file} claims {count} {what}, more than the {left} bytes that are left could hold: the file is damaged or hostile"
    )]
    CountTooLarge { file: String, what: &'static str, count: u64, left: u64 },

    /// A string longer than any that GGUF allows or a model needs.
    #[error(
        "{file}: {what} is a string of {len} bytes, the limit is {limit}: the file is damaged or hostile"
    )]
    StringTooLong { file: String, what: String, len: u64, limit: u64 },

    /// An array with more elements than the rest of the file could hold.
    #[error(
        "{file}: {what} is an array of {count} elements, more than the {left} bytes that are left could hold: the file \
         is damaged or hostile"
    )]
    ArrayTooLong { file: String, what: String, count: u64, left: u64 },

    /// Arrays in arrays beyond [`super::MAX_DEPTH`].
    #[error("{file}: {what} nests arrays more than {limit} deep: the file is damaged or hostile")]
    NestedTooDeep { file: String, what: String, limit: usize },

    /// A value type that GGUF does not have.
    #[error(
        "{file}: {what} has value type {value_type}, which GGUF does not have (0 to 12): the file is damaged"
    )]
    UnknownValueType { file: String, what: String, value_type: u32 },

    /// A boolean that is neither 0 nor 1.
    #[error("{file}: {what} is a boolean with the byte {byte}, not 0 or 1: the file is damaged")]
    InvalidBool { file: String, what: String, byte: u8 },

    /// A key, a tensor's name or a string value that is not UTF-8.
    #[error("{file}: {what} is not UTF-8: the file is damaged")]
    InvalidUtf8 { file: String, what: String },

    /// A key or a tensor's name of length 0.
    #[error("{file}: {what} has an empty name: the file is damaged")]
    EmptyName { file: String, what: String },

    /// A key that occurs twice.
    #[error("{file}: the key `{key}` occurs twice: the file is damaged")]
    DuplicateKey { file: String, key: String },

    /// A tensor's name that occurs twice.
    #[error("{file}: the tensor `{tensor}` occurs twice: the file is damaged")]
    DuplicateTensor { file: String, tensor: String },

    /// `general.alignment` is no power of two from 8 to [`super::MAX_ALIGNMENT`].
    #[error("{file}: general.alignment is {alignment}; it must be a power of two from 8 to {limit}")]
    Alignment { file: String, alignment: u64, limit: u64 },

    /// A tensor with no dimension or with more than [`super::MAX_DIMS`].
    #[error("{file}: the tensor `{tensor}` has {dims} dimensions; 1 to {limit} are allowed")]
    Dimensions { file: String, tensor: String, dims: u32, limit: u32 },

    /// A tensor with a dimension of 0.
    #[error("{file}: the tensor `{tensor}` has a dimension of 0 ({dims:?})")]
    ZeroDimension { file: String, tensor: String, dims: Vec<u64> },

    /// A tensor whose number of elements or of bytes does not fit 64 bits.
    #[error("{file}: the size of the tensor `{tensor}` ({dims:?}) overflows: the file is damaged or hostile")]
    SizeOverflow { file: String, tensor: String, dims: Vec<u64> },

    /// A tensor whose rows are not whole blocks of its type.
    #[error(
        "{file}: the rows of the tensor `{tensor}` have {row} elements, not whole {type_name} blocks of {block}"
    )]
    PartialBlock { file: String, tensor: String, row: u64, type_name: &'static str, block: u64 },

    /// A tensor whose offset is not a multiple of the alignment.
    #[error(
        "{file}: the tensor `{tensor}` starts at offset {offset}, which is not a multiple of {alignment}"
    )]
    UnalignedTensor { file: String, tensor: String, offset: u64, alignment: u64 },

    /// A tensor that does not lie within the file.
    #[error(
        "{file}: the tensor `{tensor}` needs {bytes} bytes at {offset}, but the file has {len} bytes; it was not \
         fetched completely or is damaged: fetch it again"
    )]
    TensorOutsideFile { file: String, tensor: String, offset: u64, bytes: u64, len: u64 },

    /// Two tensors that share bytes.
    #[error("{file}: the tensors `{first}` and `{second}` overlap at byte {offset}: the file is damaged")]
    Overlap { file: String, first: String, second: String, offset: u64 },

    /// A key that is needed and absent.
    #[error(
        "{file}: the key `{key}` is missing: the file is no complete model of its architecture, convert it again"
    )]
    MissingKey { file: String, key: String },

    /// A key whose value has another type than the one that is needed.
    #[error("{file}: the key `{key}` should be {expected}, but it is {found}")]
    WrongType { file: String, key: String, expected: &'static str, found: &'static str },

    /// An integer that does not fit the type that is needed.
    #[error("{file}: the key `{key}` is {value}, which does not fit {expected}")]
    OutOfRange { file: String, key: String, value: i128, expected: &'static str },

    /// A tensor that is needed and absent.
    #[error("{file}: the tensor `{tensor}` is missing: the file is no complete model of its architecture")]
    MissingTensor { file: String, tensor: String },

    /// A tensor of a type that the kernels do not support.
    #[error(
        "the tensor `{tensor}` has the type {}, which is not supported (supported: {}): use another quantisation of the \
         model, such as Q4_K_M or Q8_0",
        type_label(*.type_id),
        supported_types()
    )]
    UnsupportedType { tensor: String, type_id: u32 },

    /// A range that leaves its tensor.
    #[error("{file}: bytes {start}..{end} were asked of the tensor `{tensor}`, which has {bytes}")]
    RangeOutsideTensor { file: String, tensor: String, start: u64, end: u64, bytes: u64 },

    /// Memory for a part of the file was refused, or is more than this machine can address.
    #[error("{file}: no memory for {what}, {bytes} bytes: free memory or use a smaller model")]
    OutOfMemory { file: String, what: String, bytes: u64 },
}

/// A ggml type's name and id for messages: `IQ2_XXS (ggml type 16)`, `unknown (ggml type 99)`.
pub(super) fn type_label(id: u32) -> String {
    format!("{} (ggml type {id})", super::type_name(id).unwrap_or("unknown"))
}

fn supported_types() -> String {
    zen_edge_kernels::format::BlockType::ALL.map(|t| t.name()).join(", ")
}
