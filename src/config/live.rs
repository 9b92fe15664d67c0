//! Settings that a reload may change while they are read without a lock: a value and those that took its place.
//! Law: a read is two loads and takes no lock; a reader has the old value or the new one, whole, and may keep using
//! the old one for as long as it borrows it.
//! Values that were replaced stay where they are until the process ends, so their number is bounded.
//! Why not a lock around an `Arc`: a request reads settings several times, and reloads are made by people.
//! Next: `change.rs`.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Values that one setting may have had in one process: a change a day for years. Each place is 16 bytes.
pub const VALUES_MAX: usize = 1_024;

/// A value that can be replaced while it is read. It is read by dereferencing it.
pub struct Live<T> {
    values: Box<[OnceLock<Arc<T>>]>,
    newest: AtomicUsize,
    /// One writer at a time.
    writer: Mutex<()>,
}

/// A value was replaced [`VALUES_MAX`] times; only a restart makes room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

impl<T> Live<T> {
    /// Begins with this value.
    pub fn new(value: Arc<T>) -> Self {
        let values: Box<[OnceLock<Arc<T>>]> = (0..VALUES_MAX).map(|_| OnceLock::new()).collect();
        // The place is new, so it takes the value.
        let _ = values[0].set(value);
        Self {
            values,
            newest: AtomicUsize::new(0),
            writer: Mutex::new(()),
        }
    }

    /// The value as it is now, for those who keep it.
    pub fn get(this: &Self) -> &Arc<T> {
        let newest = this.newest.load(Ordering::Acquire);
        this.values
            .get(newest)
            .and_then(OnceLock::get)
            .expect("the newest place was filled before it was named")
    }

    /// Puts another value in its place.
    ///
    /// # Errors
    /// [`Full`]: it was replaced too often; the value stays what it was.
    pub fn put(this: &Self, value: Arc<T>) -> Result<(), Full> {
        let _alone = this.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let next = this.newest.load(Ordering::Relaxed) + 1;
        let place = this.values.get(next).ok_or(Full)?;
        place.set(value).map_err(|_| Full)?;
        this.newest.store(next, Ordering::Release);
        Ok(())
    }

    /// Whether it can be replaced once more.
    ///
    /// # Errors
    /// [`Full`]: it can't.
    pub fn room(this: &Self) -> Result<(), Full> {
        let next = this.newest.load(Ordering::Acquire) + 1;
        if next < this.values.len() {
            Ok(())
        } else {
            Err(Full)
        }
    }
}

impl<T> Deref for Live<T> {
    type Target = T;

    fn deref(&self) -> &T {
        Self::get(self)
    }
}

impl<T: fmt::Debug> fmt::Debug for Live<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_has_the_newest_value_or_the_one_that_it_borrowed() {
        let live = Live::new(Arc::new(1));
        let old: &u32 = &live;
        Live::put(&live, Arc::new(2)).unwrap();
        assert_eq!((*old, *live), (1, 2));
        assert_eq!(**Live::get(&live), 2);
    }

    #[test]
    fn it_is_replaced_so_often_and_no_more() {
        let live = Live::new(Arc::new(0));
        for n in 1..VALUES_MAX {
            assert_eq!(Live::room(&live), Ok(()));
            assert_eq!(Live::put(&live, Arc::new(n)), Ok(()));
        }
        assert_eq!(Live::room(&live), Err(Full));
        assert_eq!(Live::put(&live, Arc::new(0)), Err(Full));
        assert_eq!(*live, VALUES_MAX - 1, "the value stays what it was");
    }
}
