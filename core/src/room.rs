//! Memory whose size a file decides. Where the system refuses it that is an error of the file's reader, not the end of the
//! process: every vector of a reader that grows with its file is made here.

/// The system refused this many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoMemory(pub u64);

impl From<NoMemory> for std::io::Error {
    fn from(NoMemory(bytes): NoMemory) -> Self {
        Self::new(std::io::ErrorKind::OutOfMemory, format!("no memory for {bytes} bytes"))
    }
}

/// An empty vector with room for exactly `len` elements.
pub(crate) fn room<T>(len: usize) -> Result<Vec<T>, NoMemory> {
    let mut list = Vec::new();
    list.try_reserve_exact(len).map_err(|_| refused::<T>(len))?;
    Ok(list)
}

/// `len` elements, each `value`.
pub(crate) fn filled<T: Clone>(len: usize, value: T) -> Result<Vec<T>, NoMemory> {
    let mut list = room(len)?;
    list.resize(len, value);
    Ok(list)
}

/// A copy.
pub(crate) fn copied<T: Copy>(values: &[T]) -> Result<Vec<T>, NoMemory> {
    let mut list = room(values.len())?;
    list.extend_from_slice(values);
    Ok(list)
}

/// Appends one element to a list that grows as a file is read.
#[inline]
pub(crate) fn push<T>(list: &mut Vec<T>, value: T) -> Result<(), NoMemory> {
    if list.len() == list.capacity() {
        grow(list, 1)?;
    }
    list.push(value);
    Ok(())
}

/// Appends elements to a list that grows as a file is read.
#[inline]
pub(crate) fn extend<T: Copy>(list: &mut Vec<T>, values: &[T]) -> Result<(), NoMemory> {
    if values.len() > list.capacity() - list.len() {
        grow(list, values.len())?;
    }
    list.extend_from_slice(values);
    Ok(())
}

#[cold]
fn grow<T>(list: &mut Vec<T>, more: usize) -> Result<(), NoMemory> {
    list.try_reserve(more).map_err(|_| refused::<T>(list.len().saturating_add(more)))
}

fn refused<T>(len: usize) -> NoMemory {
    NoMemory((len as u64).saturating_mul(size_of::<T>() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_machine_has_is_refused_with_its_size() {
        let most = usize::MAX;
        assert_eq!(room::<u8>(most), Err(NoMemory(most as u64)));
        assert_eq!(room::<u64>(most), Err(NoMemory((most as u64).saturating_mul(8))));
        assert_eq!(filled(most / 2 + 1, 0u8), Err(NoMemory(most as u64 / 2 + 1)));
        assert_eq!(grow(&mut vec![7u8], most), Err(NoMemory(most as u64)));
    }

    #[test]
    fn lists_hold_what_was_put_into_them() {
        let mut list = copied(&[1, 2]).unwrap();
        push(&mut list, 3).unwrap();
        extend(&mut list, &[4, 5]).unwrap();
        assert_eq!(list, [1, 2, 3, 4, 5]);
        assert_eq!(filled(3, 'x').unwrap(), ['x'; 3]);
        assert!(room::<u32>(9).unwrap().capacity() >= 9);
    }
}
