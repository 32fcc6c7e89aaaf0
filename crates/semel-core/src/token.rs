//! Fencing tokens.
//!
//! A token is an integer that grows each time a resource's lease is granted: never on renewal, never back, not
//! even on release. The low 32 bits count grants; the high bits are the store's epoch where it has one, so that
//! a failover that forgot some grants still moves forward. A token stays below 2^53, so that JSON and shells can
//! carry it.
//!
//! Each grant also has a random nonce. Two grants with one token cannot happen on a store that keeps its word;
//! the nonce is how a sink notices one that did not.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::canonical::{hex, unhex};
use crate::mutant::{self, Mutant};

/// The largest token: what a double, and so JSON, carries exactly.
pub const TOKEN_MAX: u64 = (1 << 53) - 1;

/// A fencing token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Token(u64);

/// Why there is no such token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The number is zero or does not fit 53 bits.
    #[error("a token is a number from 1 to 2^53-1")]
    OutOfRange,
    /// The counter has reached its end.
    #[error("the tokens of this resource are used up (2^53-1)")]
    UsedUp,
}

impl Token {
    /// The least one.
    pub const FIRST: Token = Token(1);

    /// The token with this value.
    pub fn new(value: u64) -> Result<Token, TokenError> {
        if value == 0 || value > TOKEN_MAX { Err(TokenError::OutOfRange) } else { Ok(Token(value)) }
    }

    /// Its value, as it is printed.
    pub fn value(self) -> u64 {
        self.0
    }

    /// The store's epoch in the high bits.
    pub fn epoch(self) -> u64 {
        self.0 >> 32
    }

    /// The grants counted within the epoch.
    pub fn count(self) -> u64 {
        self.0 & u64::from(u32::MAX)
    }

    /// The token of the next grant: above the last one, and not below the store's floor.
    pub fn next(last: Option<Token>, floor: u64) -> Result<Token, TokenError> {
        let least = match last {
            Some(last) if mutant::on(Mutant::TokenStaysOnGrant) => last.0,
            Some(last) => last.0 + 1,
            None => 1,
        };
        let next = if mutant::on(Mutant::TokenBelowTheFloor) { least } else { least.max(floor) };
        if next > TOKEN_MAX { Err(TokenError::UsedUp) } else { Ok(Token(next)) }
    }

    /// The least token of an epoch.
    pub fn floor_of_epoch(epoch: u32) -> u64 {
        // 21 bits of epoch fit below 2^53; a larger one would overflow the token, so it is held there.
        (u64::from(epoch).min((1 << 21) - 1) << 32) | 1
    }
}

impl TryFrom<u64> for Token {
    type Error = TokenError;
    fn try_from(value: u64) -> Result<Token, TokenError> {
        Token::new(value)
    }
}

impl From<Token> for u64 {
    fn from(token: Token) -> u64 {
        token.0
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Token {
    type Err = TokenError;
    fn from_str(text: &str) -> Result<Token, TokenError> {
        text.parse().map_err(|_| TokenError::OutOfRange).and_then(Token::new)
    }
}

/// What makes two grants different even if a store should ever give them one token.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Nonce([u8; 16]);

impl Nonce {
    /// A nonce from bytes that the caller drew at random.
    pub const fn from_bytes(bytes: [u8; 16]) -> Nonce {
        Nonce(bytes)
    }

    /// Its bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not 32 lower-case hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a nonce is 32 lower-case hexadecimal digits")]
pub struct NonceError;

impl FromStr for Nonce {
    type Err = NonceError;
    fn from_str(text: &str) -> Result<Nonce, NonceError> {
        unhex(text).map(Nonce).ok_or(NonceError)
    }
}

impl TryFrom<String> for Nonce {
    type Error = NonceError;
    fn try_from(text: String) -> Result<Nonce, NonceError> {
        text.parse()
    }
}

impl From<Nonce> for String {
    fn from(nonce: Nonce) -> String {
        nonce.to_string()
    }
}

/// One grant of a lease: its token, and the nonce that tells it from any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Grant {
    /// The fencing token.
    pub token: Token,
    /// The nonce.
    pub nonce: Nonce,
}

/// What a sink makes of a grant, given the last one it accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    /// Newer than the last, or the first: accept it and advance.
    Advance,
    /// The last one again: accept it.
    Same,
    /// Older than the last: refuse it.
    Stale,
    /// The same token with another nonce: refuse it and raise an alarm.
    Clash,
}

impl Grant {
    /// How a sink that last accepted `last` meets this grant.
    pub fn against(&self, last: Option<&Grant>) -> Fence {
        match last {
            None => Fence::Advance,
            Some(last) if self.token > last.token => Fence::Advance,
            Some(last) if self.token < last.token => Fence::Stale,
            Some(last) if self.nonce == last.nonce => Fence::Same,
            Some(_) => Fence::Clash,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn grant(token: u64, nonce: u8) -> Grant {
        Grant { token: Token::new(token).unwrap(), nonce: Nonce([nonce; 16]) }
    }

    #[test]
    fn next_is_above_the_last_and_not_below_the_floor() {
        let next = |last: u64, floor| Token::next(Some(Token(last)), floor).map(Token::value);
        assert_eq!(Token::next(None, 0).unwrap().value(), 1);
        assert_eq!(next(7, 0), Ok(8));
        assert_eq!(next(7, 100), Ok(100));
        assert_eq!(next(700, 100), Ok(701));
        assert_eq!(next(TOKEN_MAX, 0), Err(TokenError::UsedUp));
    }

    #[test]
    fn a_failover_that_forgot_grants_still_moves_forward() {
        let before = Token::next(Some(Token(900)), Token::floor_of_epoch(1)).unwrap();
        let forgotten = Some(Token(850));
        let after = Token::next(forgotten, Token::floor_of_epoch(2)).unwrap();
        assert!(after > before);
        assert_eq!((after.epoch(), after.count()), (2, 1));
        assert!(Token::floor_of_epoch(u32::MAX) < TOKEN_MAX);
    }

    #[test]
    fn a_sink_refuses_what_is_stale_and_what_clashes() {
        let last = grant(5, 1);
        assert_eq!(grant(6, 2).against(Some(&last)), Fence::Advance);
        assert_eq!(grant(5, 1).against(Some(&last)), Fence::Same);
        assert_eq!(grant(4, 1).against(Some(&last)), Fence::Stale);
        assert_eq!(grant(5, 2).against(Some(&last)), Fence::Clash);
        assert_eq!(grant(1, 2).against(None), Fence::Advance);
    }

    #[test]
    fn tokens_and_nonces_are_checked_on_the_way_in() {
        assert!("0".parse::<Token>().is_err());
        assert!("9007199254740992".parse::<Token>().is_err());
        assert_eq!("9007199254740991".parse::<Token>().unwrap().value(), TOKEN_MAX);
        assert!(serde_json::from_str::<Token>("-1").is_err());
        assert!("zz".parse::<Nonce>().is_err());
        assert!("é".repeat(16).parse::<Nonce>().is_err());
        let nonce = Nonce([0xab; 16]);
        assert_eq!(nonce.to_string().parse::<Nonce>().unwrap(), nonce);
    }
}
