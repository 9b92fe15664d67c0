//! The orderly end of a connection: FIN, then what the peer still sends is read and dropped, within bounds.
//! Law: a socket closed with unread input sends a reset, and a reset makes the peer drop an answer it has not read.
//! Why bounded: a peer that never stops sending would own the connection for ever.
//! Next: `reject.rs`.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::downstream::front::Link;
use crate::net::Io;

/// Longest that a closed connection waits for its peer's FIN: two round trips on a bad line.
const LINGER_MAX: Duration = Duration::from_secs(2);

/// Most bytes read and dropped after the end; a peer that sends more gets its reset.
const LINGER_BYTES_MAX: usize = 1 << 20;

/// Bytes read at a time.
const SCRATCH_BYTES: usize = 4 * 1024;

/// Ends a connection in an orderly way. Its seat stays taken until then.
pub(crate) async fn linger<T: Io>(mut link: Link<T>) {
    // An error or the time running out both mean that there is nobody left to be polite to.
    let _ = tokio::time::timeout(LINGER_MAX, drain_input(&mut link.io)).await;
}

async fn drain_input<T: Io>(io: &mut T) -> std::io::Result<()> {
    io.shutdown().await?;
    let mut scratch = vec![0; SCRATCH_BYTES];
    let mut dropped = 0;
    while dropped < LINGER_BYTES_MAX {
        match io.read(&mut scratch).await? {
            0 => break,
            n => dropped += n,
        }
    }
    Ok(())
}
