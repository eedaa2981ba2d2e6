//! Who asks: a secret that is shown once, of which only the hash is kept.
//!
//! A token is `weir_<scope>_<id>_<secret>`: whose it is (a tenant, or `server`), which one of theirs, and 32 random bytes in base64 without
//! padding. A secret of 256 bits cannot be guessed from its hash, so the hash is a plain blake3. What is compared is the hash, in constant time.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::model::{Timestamp, name_fault};

const PREFIX: &str = "weir";
/// The scope of tokens that are no tenant's: no tenant can have this name, since names have no capital letters.
const SERVER: &str = "SERVER";
const SECRET_BYTES: usize = 32;
const ID_BYTES: usize = 6;
/// The longest token, in bytes.
const TOKEN_BYTES_MAX: usize = 200;

/// What a token is good for. Each can do what those before it can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Looks.
    Read,
    /// Brings plugins and jobs.
    Deploy,
    /// Gives and takes tokens; of the server, everything.
    Admin,
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Deploy => "deploy",
            Self::Admin => "admin",
        })
    }
}

/// A token, as its owner has it. Never logged: its own form hides the secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// The tenant whose it is; none: the server's.
    pub tenant: Option<String>,
    /// Which one of theirs.
    pub id: String,
    secret: [u8; SECRET_BYTES],
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").field("tenant", &self.tenant).field("id", &self.id).finish_non_exhaustive()
    }
}

/// What is kept of a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenRecord {
    /// Which one.
    pub id: String,
    /// What it is good for.
    pub role: Role,
    /// The blake3 of its secret, in hexadecimal.
    pub hash: String,
    /// When it was made, in microseconds since the Unix epoch.
    pub created_at: Timestamp,
    /// From when on it is good for nothing.
    #[serde(default)]
    pub expires_at: Option<Timestamp>,
    /// What it is for, in the words of whoever made it.
    #[serde(default)]
    pub note: String,
}

/// Why something is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenFault {
    /// It does not have the form of one.
    #[error("this is not a token of weir")]
    Malformed,
    /// There is none such, it was revoked, or it has expired.
    #[error("this token is not known, was revoked or has expired")]
    Unknown,
}

impl Token {
    /// A new one, and what is to be kept of it.
    ///
    /// # Errors
    ///
    /// If the system has no random bytes to give.
    pub fn make(
        tenant: Option<&str>,
        role: Role,
        created_at: Timestamp,
        expires_at: Option<Timestamp>,
        note: &str,
    ) -> Result<(Self, TokenRecord), String> {
        let (mut secret, mut id) = ([0; SECRET_BYTES], [0; ID_BYTES]);
        getrandom::fill(&mut secret).and_then(|()| getrandom::fill(&mut id)).map_err(|error| error.to_string())?;
        let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let token = Self { tenant: tenant.map(str::to_owned), id: id.clone(), secret };
        let note = note.to_owned();
        let record = TokenRecord { id, role, hash: token.hash().to_hex().to_string(), created_at, expires_at, note };
        Ok((token, record))
    }

    fn hash(&self) -> blake3::Hash {
        blake3::hash(&self.secret)
    }

    /// Reads one.
    ///
    /// # Errors
    ///
    /// [`TokenFault::Malformed`].
    pub fn parse(text: &str) -> Result<Self, TokenFault> {
        let malformed = TokenFault::Malformed;
        if text.len() > TOKEN_BYTES_MAX {
            return Err(malformed);
        }
        // The secret may have underscores of its own: it is what comes last.
        let mut parts = text.splitn(4, '_');
        let mut next = || parts.next().ok_or(malformed);
        let (prefix, scope, id, secret) = (next()?, next()?, next()?, next()?);
        let tenant = match scope {
            SERVER => None,
            name if name_fault(name).is_none() => Some(name.to_owned()),
            _ => return Err(malformed),
        };
        let is_id = id.len() == 2 * ID_BYTES && id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let secret = URL_SAFE_NO_PAD.decode(secret).map_err(|_| malformed)?;
        let secret = <[u8; SECRET_BYTES]>::try_from(secret).map_err(|_| malformed)?;
        if prefix != PREFIX || !is_id {
            return Err(malformed);
        }
        Ok(Self { tenant, id: id.to_owned(), secret })
    }

    /// As its owner keeps it: the only place where its secret is shown.
    pub fn expose(&self) -> String {
        let scope = self.tenant.as_deref().unwrap_or(SERVER);
        format!("{PREFIX}_{scope}_{}_{}", self.id, URL_SAFE_NO_PAD.encode(self.secret))
    }

    /// What it is good for, by the records of whoever it says it belongs to.
    ///
    /// # Errors
    ///
    /// [`TokenFault::Unknown`].
    pub fn role<'a>(
        &self,
        records: impl IntoIterator<Item = &'a TokenRecord>,
        now: Timestamp,
    ) -> Result<Role, TokenFault> {
        let mut role = Err(TokenFault::Unknown);
        for record in records {
            // Comparing hashes of blake3 takes the same time wherever they differ.
            let is_same = blake3::Hash::from_hex(&record.hash).is_ok_and(|hash| hash == self.hash());
            if record.id == self.id && is_same && record.expires_at.is_none_or(|at| now < at) {
                role = Ok(record.role);
            }
        }
        role
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_token_is_good_as_long_as_its_record_is_there_and_for_its_role() {
        for tenant in [None, Some("a"), Some("a-b-c")] {
            let (token, record) = Token::make(tenant, Role::Deploy, 10, Some(20), "ci").expect("there is entropy");
            let read = Token::parse(&token.expose()).expect("it reads what it prints");
            assert_eq!(read, token);
            assert_eq!(read.role([&record], 19), Ok(Role::Deploy));
            assert_eq!(read.role([&record], 20), Err(TokenFault::Unknown));
            assert_eq!(read.role([], 0), Err(TokenFault::Unknown));
            let (other, theirs) = Token::make(tenant, Role::Admin, 10, None, "").expect("there is entropy");
            assert_eq!(other.role([&record], 0), Err(TokenFault::Unknown));
            let mixed = TokenRecord { id: token.id.clone(), ..theirs };
            assert_eq!(token.role([&mixed], 0), Err(TokenFault::Unknown), "the same id and another secret");
            let kept = serde_json::to_string(&record).expect("it is JSON");
            let secret = token.expose();
            assert!(!kept.contains(secret.rsplit('_').next().expect("it has parts")));
            assert!(!format!("{token:?}").contains(&URL_SAFE_NO_PAD.encode(token.secret)));
        }
        assert!(Role::Admin > Role::Deploy && Role::Deploy > Role::Read);
    }

    proptest! {
        #[test]
        fn nothing_but_a_token_is_one(text in "\\PC{0,250}") {
            if let Ok(token) = Token::parse(&text) {
                prop_assert_eq!(token.expose(), text);
            }
        }

        #[test]
        fn a_token_with_one_character_changed_is_not_good(at in 0usize..70, with in proptest::char::range('0', 'z')) {
            let (token, record) = Token::make(Some("acme"), Role::Admin, 0, None, "").expect("there is entropy");
            let mut text: Vec<char> = token.expose().chars().collect();
            let at = at % text.len();
            prop_assume!(text[at] != with);
            text[at] = with;
            let text: String = text.into_iter().collect();
            if let Ok(read) = Token::parse(&text) {
                prop_assert!(read.tenant.as_deref() != Some("acme") || read.role([&record], 0).is_err());
            }
        }
    }
}
