//! Keys: held so that no log line can show them, read from files that not everybody may read.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A value that `Debug` does not print.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret<T>(T);

impl<T> Secret<T> {
    /// Hides a value.
    pub const fn new(value: T) -> Self {
        Self(value)
    }
    /// The value, for the one place that needs it.
    pub const fn expose(&self) -> &T {
        &self.0
    }
}

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// What is wrong with a key file: problem and remedy.
pub(super) type BadKey = (String, String);

fn read(path: &Path) -> Result<Vec<u8>, BadKey> {
    let unreadable =
        |e: std::io::Error| (format!("cannot be read: {e}"), "create it, readable by weir alone".to_string());
    let metadata = std::fs::metadata(path).map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(("is no regular file".into(), "name a file that holds the key".into()));
    }
    if metadata.mode() & 0o007 != 0 {
        let why = format!("has mode {:04o}: everybody may use it", metadata.mode() & 0o7777);
        return Err((why, format!("chmod 0600 {}", path.display())));
    }
    if metadata.len() > 4096 {
        return Err((
            format!("has {} bytes, too many for a key", metadata.len()),
            "name the key's file".into(),
        ));
    }
    std::fs::read(path).map_err(unreadable)
}

/// Reads the hash key: exactly 32 raw bytes, or 64 hexadecimal digits with an optional end of line.
pub(super) fn hash_key(path: &Path) -> Result<Secret<[u8; 32]>, BadKey> {
    let bytes = read(path)?;
    if let Ok(raw) = <[u8; 32]>::try_from(bytes.as_slice()) {
        return Ok(Secret::new(raw));
    }
    let digits = bytes.trim_ascii_end();
    let mut key = [0; 32];
    if digits.len() == 64 {
        let digit = |c: u8| (c as char).to_digit(16);
        let pairs = digits.chunks_exact(2).map(|p| Some((digit(p[0])? << 4 | digit(p[1])?) as u8));
        if key.iter_mut().zip(pairs).all(|(k, p)| p.map(|p| *k = p).is_some()) {
            return Ok(Secret::new(key));
        }
    }
    let why = format!("holds {} bytes, neither 32 raw bytes nor 64 hexadecimal digits", bytes.len());
    Err((
        why,
        "make it once with `head -c 32 /dev/urandom` and copy it to every gateway of the region".into(),
    ))
}

/// Reads a password: the first line, 1–80 bytes (the most the kernel takes for TCP-MD5).
pub(super) fn password(path: &Path) -> Result<Secret<Vec<u8>>, BadKey> {
    let bytes = read(path)?;
    let line = bytes.split(|&b| b == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.is_empty() || line.len() > 80 {
        let why = format!("has a first line of {} bytes", line.len());
        return Err((why, "write the password, 1 to 80 bytes, as its first line".into()));
    }
    Ok(Secret::new(line.to_vec()))
}
