//! One stored value: JSON behind a CRC-64/NVME of its key and itself.
//!
//! Always true: a value that comes back is the one that was stored under that key; anything else is an error.

use crc_fast::{CrcAlgorithm, Digest};
use serde::{Serialize, de::DeserializeOwned};

const SUM: usize = 8;

fn sum(key: &[u8], json: &[u8]) -> [u8; SUM] {
    let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
    digest.update(key);
    digest.update(json);
    digest.finalize().to_le_bytes()
}

/// The bytes to store.
pub(crate) fn seal<T: Serialize>(key: &[u8], value: &T) -> Result<Vec<u8>, String> {
    let json = serde_json::to_vec(value).map_err(|e| e.to_string())?;
    let mut sealed = sum(key, &json).to_vec();
    sealed.extend(json);
    Ok(sealed)
}

/// The reverse of [`seal`].
pub(crate) fn open<T: DeserializeOwned>(key: &[u8], sealed: &[u8]) -> Result<T, String> {
    let (stored, json) = sealed.split_at_checked(SUM).ok_or("a value is cut short")?;
    if stored != sum(key, json) {
        return Err("a checksum does not match".to_string());
    }
    serde_json::from_slice(json).map_err(|e| format!("a value is not understood: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_is_seen() {
        let sealed = seal(b"k", &vec![1, 2, 3]).unwrap();
        assert_eq!(open::<Vec<i32>>(b"k", &sealed).unwrap(), [1, 2, 3]);
        for at in 0..sealed.len() * 8 {
            let mut bad = sealed.clone();
            bad[at / 8] ^= 1 << (at % 8);
            assert!(open::<Vec<i32>>(b"k", &bad).is_err());
        }
        assert!(open::<Vec<i32>>(b"j", &sealed).is_err(), "a value under another key");
        assert!(open::<Vec<i32>>(b"k", &sealed[..5]).is_err());
        assert!(open::<String>(b"k", &sealed).is_err());
    }
}
