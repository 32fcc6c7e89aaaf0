//! The headers of a webhook, as [Standard Webhooks](https://www.standardwebhooks.com) say: a receiver can tell who
//! sent it, that nobody changed it, and that it is not an old one sent again.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::Secret;

/// What a secret in base64 begins with.
const PREFIX: &str = "whsec_";

/// People lose the padding when they copy.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A secret as people write it: `whsec_` and base64, or a text that is taken as it is.
pub(super) fn secret(text: &str) -> Result<Secret, &'static str> {
    let text = text.trim();
    let bytes = match text.strip_prefix(PREFIX) {
        Some(encoded) => {
            LENIENT.decode(encoded).map_err(|_| "what follows whsec_ is no base64: copy it once more")?
        }
        None => text.as_bytes().to_vec(),
    };
    if bytes.is_empty() { Err("it is empty: set it, or leave out the secret") } else { Ok(Secret(bytes)) }
}

/// The signature of a message.
fn signature(secret: &Secret, id: &str, at_s: u64, body: &str) -> Option<String> {
    // a key of any length will do, so there always is one
    let mut mac = Hmac::<Sha256>::new_from_slice(&secret.0).ok()?;
    mac.update(format!("{id}.{at_s}.{body}").as_bytes());
    Some(format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())))
}

/// What stands above a message.
pub(super) fn headers(
    id: &str,
    at_s: u64,
    body: &str,
    secret: Option<&Secret>,
) -> Vec<(&'static str, String)> {
    let mut headers = vec![
        ("content-type", "application/json".to_owned()),
        ("webhook-id", id.to_owned()),
        ("webhook-timestamp", at_s.to_string()),
    ];
    headers.extend(
        secret.and_then(|secret| signature(secret, id, at_s, body)).map(|text| ("webhook-signature", text)),
    );
    headers
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_published_example_is_signed_as_published() {
        let secret = secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let body = r#"{"test": 2432232314}"#;
        let headers = headers("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body, Some(&secret));
        assert_eq!(
            headers.last().unwrap(),
            &("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=".to_owned())
        );
    }

    #[test]
    fn a_secret_is_base64_or_a_text() {
        assert_eq!(secret("whsec_aGk=").unwrap(), Secret(b"hi".to_vec()));
        assert_eq!(secret(" whsec_aGk\n").unwrap(), Secret(b"hi".to_vec()));
        assert_eq!(secret("hunter2").unwrap(), Secret(b"hunter2".to_vec()));
        assert!(secret("whsec_???").unwrap_err().contains("no base64"));
        for empty in ["", "  ", "whsec_"] {
            assert!(secret(empty).unwrap_err().contains("empty"), "{empty:?}");
        }
        assert_eq!(format!("{:?}", secret("hunter2").unwrap()), "Secret");
    }

    #[test]
    fn without_a_secret_there_is_no_signature() {
        let names: Vec<_> = headers("a", 1, "{}", None).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["content-type", "webhook-id", "webhook-timestamp"]);
    }
}
