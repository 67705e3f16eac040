//! The file of what was learned: bound to the heads, checked whole, replaced in one step.
//!
//! Little-endian, without padding: magic, version, the file's length, what it is bound to, the scale, counters, the users
//! in the order of their keys, the outcomes that wait, and last the SHA-256 of all that. A file that does not hold is not
//! repaired: learning starts anew and [`FreshStart`] says why.

use super::learner::{Row, Tally, User};
use super::scale::{RAW, SETTLED, Scale};
use super::{Arms, Bandit, BanditOptions, DIMENSIONS, OutcomeId, Pending, UserKey};
use sha2::{Digest, Sha256};
use thiserror::Error;

const MAGIC: [u8; 8] = *b"ZEDGEBDT";
/// To be raised with any change of the layout, or of the model or its constants that makes old evidence wrong.
const VERSION: u32 = 1;
/// Magic, version and length.
const HEADER: usize = 20;
const CHECKSUM: usize = 32;

/// Why what was learned could not be taken over.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FreshStart {
    /// It does not start as such a file does.
    #[error("this is no file of learned preferences; learning starts anew")]
    NotOurs,
    /// It is of another version of the format.
    #[error(
        "the learned preferences are in format {found}, this program reads {VERSION}; learning starts anew"
    )]
    Version {
        /// The file's.
        found: u32,
    },
    /// It is shorter or longer than it says.
    #[error("the learned preferences have {found} bytes instead of {expected}; learning starts anew")]
    Length {
        /// The bytes that there are.
        found: u64,
        /// The bytes by the file itself.
        expected: u64,
    },
    /// It was changed after it was written.
    #[error("the learned preferences are damaged (checksum); learning starts anew")]
    Checksum,
    /// It was learned with other heads.
    #[error(
        "the learned preferences belong to the heads {found}, these are {expected}; learning starts anew"
    )]
    OtherHeads {
        /// The SHA-256 that the file names.
        found: String,
        /// That of the heads.
        expected: String,
    },
    /// The heads are the same, but not the models that stand behind their rows, or the features.
    #[error("the learned preferences are for other models or features than these; learning starts anew")]
    OtherArms,
    /// Its checksum holds but its contents do not.
    #[error("the learned preferences hold an impossible value ({what}); learning starts anew")]
    Impossible {
        /// Which.
        what: &'static str,
    },
}

impl Bandit {
    /// All that was learned, with the outcomes that wait for rewards. No prompt and no user's name stands in it.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer(Vec::new());
        out.0.extend_from_slice(&MAGIC);
        out.u32(VERSION);
        out.u64(0);
        out.text(&self.arms.heads_sha256);
        out.u32(self.arms.ids.len() as u32);
        self.arms.ids.iter().for_each(|id| out.text(id));
        out.u32(self.arms.features as u32);
        out.u32(DIMENSIONS as u32);
        out.u32(self.scale.count);
        out.f64s(&self.scale.mean);
        out.f64s(&[self.scale.spread]);
        out.u32(self.epoch);
        for count in [self.tick, self.evictions, self.missing, self.observed] {
            out.u64(count);
        }
        out.u32(self.users.len() as u32);
        for (key, user) in &self.users {
            out.0.extend_from_slice(&key.0);
            out.u64(user.observations);
            out.f64s(&[user.effective]);
            out.u64(user.last_used);
            out.f64s(&user.losses);
            for belief in &user.beliefs {
                out.f64s(&belief.precision);
                out.f64s(&belief.target);
            }
            out.u32(user.rows().count() as u32);
            for (row, tally) in user.rows() {
                out.u32(row as u32);
                out.u64(tally.pulls);
                out.f64s(&[tally.weight, tally.sum]);
                // A row that has a tally has a state under each belief: both are made by its first reward.
                for state in user.beliefs.iter().filter_map(|belief| belief.rows[row].as_deref()) {
                    out.f32s(&state.covariance);
                    out.f32s(&state.quality);
                    out.f32s(&state.prior);
                }
            }
        }
        out.u32(self.pending.len() as u32);
        for pending in &self.pending {
            out.u64(pending.id.to_bits());
            out.0.extend_from_slice(&pending.user.0);
            out.u32(pending.row as u32);
            out.f32s(&pending.raw);
            out.f32s(&[pending.prior]);
        }
        let mut bytes = out.0;
        let length = (bytes.len() + CHECKSUM) as u64;
        bytes[12..HEADER].copy_from_slice(&length.to_le_bytes());
        let checksum = Sha256::digest(&bytes);
        bytes.extend_from_slice(&checksum);
        bytes
    }

    /// Takes over what [`Self::to_bytes`] gave, if it is whole and belongs to these arms; else starts anew and says why.
    ///
    /// `options` are the new run's; users and outcomes beyond its caps are forgotten, the oldest first.
    #[must_use]
    pub fn from_bytes(bytes: &[u8], arms: Arms, options: BanditOptions) -> (Self, Option<FreshStart>) {
        let mut bandit = Self::new(arms, options);
        match read(bytes, &bandit.arms) {
            Ok(saved) => {
                bandit.take_over(saved);
                (bandit, None)
            }
            Err(reason) => (bandit, Some(reason)),
        }
    }

    fn take_over(&mut self, saved: Saved) {
        let Saved { scale, epoch, counts: [tick, evictions, missing, observed], users, pending } = saved;
        // No id that is still about may be given again.
        while self.epoch == epoch || pending.iter().any(|pending| pending.id.epoch() == self.epoch) {
            self.epoch = self.epoch.wrapping_add(1);
        }
        (self.tick, self.evictions, self.missing, self.observed) = (tick, evictions, missing, observed);
        self.scale = scale;
        self.users = users.into_iter().collect();
        self.pending = pending.into();
        self.make_room(0);
        self.trim_pending();
    }

    /// Writes the file, in one step: another program sees the old one or the new one whole, and so does the next start
    /// after a power cut. Only the user's own account may read it.
    ///
    /// # Errors
    /// What the system says; an earlier file is then as it was.
    #[cfg(not(target_family = "wasm"))]
    pub fn save(&self, path: &std::path::Path) -> std::io::Result<()> {
        publish(path, &self.to_bytes())
    }

    /// Reads a file of [`Self::save`]. An absent one is a bandit that knows nothing; one that cannot be used is that
    /// too, with the reason.
    ///
    /// # Errors
    /// What the system says where the file is there but cannot be read.
    #[cfg(not(target_family = "wasm"))]
    pub fn load(
        path: &std::path::Path,
        arms: Arms,
        options: BanditOptions,
    ) -> std::io::Result<(Self, Option<FreshStart>)> {
        match std::fs::read(path) {
            Ok(bytes) => Ok(Self::from_bytes(&bytes, arms, options)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Ok((Self::new(arms, options), None))
            }
            Err(error) => Err(error),
        }
    }
}

/// Writes a file in one step, so that it lasts; the user's own account alone may read it.
#[cfg(not(target_family = "wasm"))]
pub(crate) fn publish(path: &std::path::Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::io::Write;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => std::path::Path::new("."),
    };
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    // The rename lasts only once the folder is written; where folders cannot be opened, it is the system's affair.
    #[cfg(unix)]
    std::fs::File::open(folder)?.sync_all()?;
    Ok(())
}

/// A file's contents, checked.
struct Saved {
    scale: Scale,
    epoch: u32,
    counts: [u64; 4],
    users: Vec<(UserKey, User)>,
    pending: Vec<Pending>,
}

fn read(bytes: &[u8], arms: &Arms) -> Result<Saved, FreshStart> {
    let short = FreshStart::Length { found: bytes.len() as u64, expected: (HEADER + CHECKSUM) as u64 };
    let magic = &bytes[..bytes.len().min(MAGIC.len())];
    if !MAGIC.starts_with(magic) || magic.is_empty() {
        return Err(FreshStart::NotOurs);
    }
    let mut header = Reader(&bytes[magic.len()..]);
    let version = header.u32().ok_or_else(|| short.clone())?;
    if version != VERSION {
        return Err(FreshStart::Version { found: version });
    }
    let expected = header.u64().ok_or_else(|| short.clone())?;
    if bytes.len() < HEADER + CHECKSUM {
        return Err(short);
    }
    if bytes.len() as u64 != expected {
        return Err(FreshStart::Length { found: bytes.len() as u64, expected });
    }
    let (body, checksum) = bytes.split_at(bytes.len() - CHECKSUM);
    if Sha256::digest(body).as_slice() != checksum {
        return Err(FreshStart::Checksum);
    }
    // From here on only a program that computes checksums can have written nonsense: that is refused as well.
    let mut input = Reader(&body[HEADER..]);
    let heads = input.text().ok_or(FreshStart::Impossible { what: "heads" })?;
    if heads != arms.heads_sha256 {
        let found = heads.chars().take(64).collect();
        return Err(FreshStart::OtherHeads { found, expected: arms.heads_sha256.clone() });
    }
    bound(&mut input, arms)?;
    contents(&mut input, arms.ids.len())
}

/// The rows and features that it was learned for.
fn bound(input: &mut Reader, arms: &Arms) -> Result<(), FreshStart> {
    let ids = input.u32().ok_or(FreshStart::Impossible { what: "models" })?;
    if ids as usize != arms.ids.len() {
        return Err(FreshStart::OtherArms);
    }
    for id in &arms.ids {
        if input.text().ok_or(FreshStart::Impossible { what: "models" })? != id {
            return Err(FreshStart::OtherArms);
        }
    }
    let [features, dimensions] = [input.u32(), input.u32()];
    if features != Some(arms.features as u32) || dimensions != Some(DIMENSIONS as u32) {
        return Err(FreshStart::OtherArms);
    }
    Ok(())
}

fn contents(input: &mut Reader, rows: usize) -> Result<Saved, FreshStart> {
    let impossible = |what| FreshStart::Impossible { what };
    let scale = scale(input).ok_or(impossible("scale"))?;
    let epoch = input.u32().ok_or(impossible("epoch"))?;
    let mut counts = [0; 4];
    for count in &mut counts {
        *count = input.u64().ok_or(impossible("counters"))?;
    }
    // Counters only rise by one: room enough that they never overflow.
    if counts.iter().any(|&count| count > u64::MAX / 2) {
        return Err(impossible("counters"));
    }
    let mut users: Vec<(UserKey, User)> = Vec::new();
    // Nothing is reserved by the count: the list grows with what the bytes really hold.
    for _ in 0..input.u32().ok_or(impossible("users"))? {
        let (key, user) = user(input, rows).ok_or(impossible("user"))?;
        let ascending = users.last().is_none_or(|(last, _)| *last < key);
        if !ascending || user.last_used > counts[0] || !user.is_possible() {
            return Err(impossible("user"));
        }
        users.push((key, user));
    }
    let mut pending = Vec::new();
    for _ in 0..input.u32().ok_or(impossible("outcomes"))? {
        pending.push(outcome(input, rows).ok_or(impossible("outcome"))?);
    }
    match input.0 {
        [] => Ok(Saved { scale, epoch, counts, users, pending }),
        _ => Err(impossible("bytes at the end")),
    }
}

fn scale(input: &mut Reader) -> Option<Scale> {
    let (count, mean) = (input.u32()?, input.f64s::<RAW>()?);
    let [spread] = input.f64s()?;
    // Features are f32: neither a mean nor a sum of squares of these can be larger.
    let possible =
        count <= SETTLED && (0.0..1e85).contains(&spread) && mean.iter().all(|x| x.abs() <= f32::MAX.into());
    possible.then_some(Scale { count, mean, spread })
}

fn user(input: &mut Reader, rows: usize) -> Option<(UserKey, User)> {
    let key = UserKey(input.array()?);
    let mut user = User { observations: input.u64()?, effective: input.f64()?, ..User::default() };
    user.last_used = input.u64()?;
    user.losses = input.f64s()?;
    for belief in &mut user.beliefs {
        belief.precision = input.f64s()?;
        belief.target = input.f64s()?;
        belief.rows.resize_with(rows, || None);
    }
    user.tallies.resize(rows, Tally::default());
    for _ in 0..input.u32()? {
        let row = input.u32()? as usize;
        let tally = user.tallies.get_mut(row).filter(|tally| tally.pulls == 0)?;
        *tally = Tally { pulls: input.u64()?, weight: input.f64()?, sum: input.f64()? };
        if tally.pulls == 0 {
            return None;
        }
        for belief in &mut user.beliefs {
            let state = Row { covariance: input.f32s()?, quality: input.f32s()?, prior: input.f32s()? };
            belief.rows[row] = Some(Box::new(state));
        }
    }
    Some((key, user))
}

fn outcome(input: &mut Reader, rows: usize) -> Option<Pending> {
    let id = OutcomeId::from_bits(input.u64()?);
    let user = UserKey(input.array()?);
    let row = input.u32()? as usize;
    let raw: [f32; RAW] = input.f32s()?;
    let [prior] = input.f32s()?;
    let possible = row < rows && prior.is_finite() && raw.iter().all(|x| x.is_finite());
    possible.then_some(Pending { id, user, row, raw, prior })
}

struct Writer(Vec<u8>);

impl Writer {
    fn u32(&mut self, x: u32) {
        self.0.extend_from_slice(&x.to_le_bytes());
    }

    fn u64(&mut self, x: u64) {
        self.0.extend_from_slice(&x.to_le_bytes());
    }

    fn f32s(&mut self, values: &[f32]) {
        values.iter().for_each(|x| self.0.extend_from_slice(&x.to_le_bytes()));
    }

    fn f64s(&mut self, values: &[f64]) {
        values.iter().for_each(|x| self.0.extend_from_slice(&x.to_le_bytes()));
    }

    fn text(&mut self, text: &str) {
        self.u32(text.len() as u32);
        self.0.extend_from_slice(text.as_bytes());
    }
}

/// The bytes that are left. Each method gives `None` where they do not reach.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, left) = self.0.split_at_checked(len)?;
        self.0 = left;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn f64(&mut self) -> Option<f64> {
        self.array().map(f64::from_le_bytes)
    }

    fn f32s<const N: usize>(&mut self) -> Option<[f32; N]> {
        let mut values = [0.0; N];
        for value in &mut values {
            *value = f32::from_le_bytes(self.array()?);
        }
        Some(values)
    }

    fn f64s<const N: usize>(&mut self) -> Option<[f64; N]> {
        let mut values = [0.0; N];
        for value in &mut values {
            *value = self.f64()?;
        }
        Some(values)
    }

    fn text(&mut self) -> Option<&'a str> {
        let len = self.u32()? as usize;
        std::str::from_utf8(self.take(len)?).ok()
    }
}
