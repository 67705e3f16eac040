//! Files of JavaScript as sources: a handle of the origin's private file system, a blob, a file of Node.

use crate::error::{Code, fail};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use wasm_bindgen::prelude::*;
use zen_edge_core::source::Source;

#[wasm_bindgen]
extern "C" {
    /// What JavaScript hands in.
    pub type File;
    #[wasm_bindgen(method, getter)]
    fn name(this: &File) -> String;
    #[wasm_bindgen(method, getter)]
    fn size(this: &File) -> f64;
    /// Known from a verified download, else `undefined`.
    #[wasm_bindgen(method, getter)]
    fn sha256(this: &File) -> Option<String>;
    /// Fills `into` with the bytes from `offset`, or throws. `into` lies in this module's memory: nothing is copied twice.
    #[wasm_bindgen(method, catch)]
    fn read(this: &File, offset: f64, into: &mut [u8]) -> Result<(), JsValue>;
}

thread_local! {
    /// The files of this worker. A JavaScript object stays with its worker, a source may be sent: so the source holds a
    /// number, and a pool's thread, which has no files and asks for none, would find nothing under it.
    static FILES: RefCell<(u32, BTreeMap<u32, File>)> = const { RefCell::new((0, BTreeMap::new())) };
}

/// A file as a source. It has no views: what is read is read into memory.
pub struct Stored {
    id: u32,
    name: String,
    len: u64,
    sha256: Option<String>,
}

impl Stored {
    pub fn new(file: File) -> Self {
        let (name, len, sha256) = (file.name(), file.size().max(0.0) as u64, file.sha256());
        let id = FILES.with_borrow_mut(|(last, files)| {
            *last += 1;
            files.insert(*last, file);
            *last
        });
        Self { id, name, len, sha256 }
    }
}

impl Drop for Stored {
    fn drop(&mut self) {
        FILES.with_borrow_mut(|(_, files)| files.remove(&self.id));
    }
}

impl Source for Stored {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        FILES.with_borrow(|(_, files)| {
            let file = files.get(&self.id).ok_or(io::ErrorKind::NotFound)?;
            file.read(offset as f64, buf).map_err(|error| io::Error::other(message(&error)))
        })
    }

    fn known_sha256(&self) -> Option<&str> {
        self.sha256.as_deref()
    }
}

/// A small file's name and bytes.
pub fn whole(file: &File) -> Result<(String, Vec<u8>), JsValue> {
    /// Texts of a pack have some kilobytes; whoever names a model here has mixed something up.
    const MOST: f64 = 16e6;
    let (name, size) = (file.name(), file.size());
    if !(0.0..=MOST).contains(&size) {
        return Err(fail(
            Code::Config,
            &format!("{name} has {size} bytes: no config, catalog or policy has so many"),
        ));
    }
    let mut bytes = vec![0; size as usize];
    file.read(0.0, &mut bytes).map_err(|error| fail(Code::Io, &format!("{name}: {}", message(&error))))?;
    Ok((name, bytes))
}

fn message(error: &JsValue) -> String {
    let error = error.dyn_ref::<js_sys::Error>().map(|error| String::from(error.message()));
    error.unwrap_or_else(|| "cannot be read".to_owned())
}
