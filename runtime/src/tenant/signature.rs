//! Signatures of plugins: ed25519 over the blake3 digest of the component's bytes (RFC 8032, the 32 bytes of the digest are the message).
//!
//! Keys are 32 bytes and signatures 64, both in base64 as they are written in a file or a header.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::pkcs8::DecodePrivateKey as _;
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};

/// Why a signature or a key is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureFault {
    /// Not a public key.
    #[error("{0:?} is not an ed25519 public key: 32 bytes in base64")]
    Key(String),
    /// Not a private key.
    #[error("not an ed25519 private key in PEM (PKCS #8): {0}")]
    PrivateKey(String),
    /// Not a signature.
    #[error("the signature is not 64 bytes in base64")]
    Form,
    /// No key of the tenant made it.
    #[error("the signature is by none of the tenant's {0} keys, or of another plugin")]
    Foreign(usize),
}

/// Reads a public key.
///
/// # Errors
///
/// [`SignatureFault::Key`]; also for one of the few keys under which anything would be signed.
pub fn check_key(text: &str) -> Result<VerifyingKey, SignatureFault> {
    let fault = || SignatureFault::Key(text.chars().take(80).collect());
    let bytes = STANDARD.decode(text.trim()).map_err(|_| fault())?;
    let bytes = <[u8; 32]>::try_from(bytes).map_err(|_| fault())?;
    let key = VerifyingKey::from_bytes(&bytes).map_err(|_| fault())?;
    if key.is_weak() { Err(fault()) } else { Ok(key) }
}

/// Whether one of the keys signed a plugin.
///
/// # Errors
///
/// [`SignatureFault`].
pub fn check_signature(keys: &[String], digest: &[u8; 32], signature: &str) -> Result<(), SignatureFault> {
    let bytes = STANDARD.decode(signature.trim()).map_err(|_| SignatureFault::Form)?;
    let signature = Signature::from_slice(&bytes).map_err(|_| SignatureFault::Form)?;
    for key in keys {
        if check_key(key)?.verify_strict(digest, &signature).is_ok() {
            return Ok(());
        }
    }
    Err(SignatureFault::Foreign(keys.len()))
}

/// Signs a plugin with a private key as `openssl genpkey -algorithm ed25519` writes it. Gives the signature and the public key, as they are written.
///
/// # Errors
///
/// [`SignatureFault::PrivateKey`].
pub fn sign(private_key_pem: &str, digest: &[u8; 32]) -> Result<(String, String), SignatureFault> {
    let key = SigningKey::from_pkcs8_pem(private_key_pem).map_err(|e| SignatureFault::PrivateKey(e.to_string()))?;
    Ok((STANDARD.encode(key.sign(digest).to_bytes()), STANDARD.encode(key.verifying_key().to_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `openssl genpkey -algorithm ed25519` wrote it, for this test alone.
    const PRIVATE: &str = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n-----END PRIVATE KEY-----\n";

    #[test]
    fn what_a_key_of_the_tenant_signed_is_taken_and_nothing_else() {
        let digest = *blake3::hash(b"a plugin").as_bytes();
        let (signature, public) = sign(PRIVATE, &digest).expect("it is a key");
        // Test vector 1 of RFC 8032 has this private key.
        assert_eq!(public, "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=");
        let keys = [public];
        assert_eq!(check_signature(&keys, &digest, &signature), Ok(()));
        let other = *blake3::hash(b"another").as_bytes();
        assert_eq!(check_signature(&keys, &other, &signature), Err(SignatureFault::Foreign(1)));
        assert_eq!(check_signature(&[], &digest, &signature), Err(SignatureFault::Foreign(0)));
        assert_eq!(check_signature(&keys, &digest, "AAAA"), Err(SignatureFault::Form));
        // The neutral element: a weak key, under which some signatures hold for every message.
        let weak = STANDARD.encode([&[1u8][..], &[0u8; 31]].concat());
        assert!(matches!(check_key(&weak), Err(SignatureFault::Key(_))));
        assert!(sign("no key", &digest).is_err());
    }
}
