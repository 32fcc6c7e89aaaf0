//! Names, fields, pointers, addresses and the small words of flags.

use std::str::FromStr;

use semel_core::address::Endpoint;
use semel_core::canonical::Pointer;
use semel_core::field::Field;
use semel_core::fill::scripts_in;
use semel_core::key::Key;
use semel_core::name::{Name, Slot, escape, unescape};
use semel_core::plan::{Choice, Recent};
use semel_core::token::{Nonce, Token};
use semel_core::trigger::slug;
use semel_fuzz::{Target, check};

fn again<T: FromStr + ToString + PartialEq + std::fmt::Debug>(text: &str) {
    if let Ok(read) = text.parse::<T>() {
        assert_eq!(read.to_string().parse::<T>().ok(), Some(read), "{text:?}");
    }
}

#[test]
fn names() {
    const SEEDS: &[&str] = &[
        "a/b:c_d-e.f",
        ".hidden",
        "-flag",
        "a%2Fb",
        "%2E%2E",
        "2026-06-19T02:00:00Z",
        "author.name",
        "/a~1b/0",
        "0123456789abcdef0123456789abcdef",
        "9007199254740991",
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        "\u{202e}\u{200b}\u{e9}",
    ];
    const WORDS: &[&str] =
        &["%2F", "%25", "..", "/", "~0", "~1", "\u{feff}", "\u{2028}", "\0", "\n", "\u{ffff}"];
    check(&Target::new("names", SEEDS, WORDS), |bytes| {
        let Ok(text) = std::str::from_utf8(bytes) else { return };
        again::<Name>(text);
        again::<Slot>(text);
        again::<Key>(text);
        again::<Nonce>(text);
        again::<Token>(text);
        if let Ok(pointer) = Pointer::new(text) {
            // what is shown is cut and escaped for people
            assert_eq!((pointer.as_str(), pointer.to_string().contains('\0')), (text, false));
        }
        let escaped = escape(text);
        assert!(escaped.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/'), "{escaped:?}");
        assert!(!escaped.starts_with('.'));
        assert_eq!(unescape(&escaped).as_deref(), Ok(text));
        if let Ok(plain) = unescape(text) {
            assert_eq!(escape(&plain), text, "one spelling");
        }
        if let Ok(name) = Name::new(text) {
            assert!(name.as_str().len() <= 128 && !name.as_str().starts_with(['-', '.']));
        }
        if let Ok(field) = Field::parse(text) {
            // a pointer that a dotted name can say is known by that name
            let by_name = Field::parse(field.name()).unwrap();
            assert_eq!(by_name.name(), field.name());
        }
        let slug = slug(text, 40);
        assert!(slug.len() <= 40, "{slug:?}");
    });
}

#[test]
fn addresses() {
    const SEEDS: &[&str] = &[
        "https://hooks.example.com/services/T0/B0/abcDEF0123456789?x=1&y",
        "http://127.0.0.1:8080/a%20b",
        "https://[::1]:443/?",
        "HTTPS://User@host/",
        "https://host:0/#f",
    ];
    const WORDS: &[&str] =
        &["https://", "http://", "://", "@", "[", "]", ":", ":65536", "?", "#", "%", "//", "&"];
    check(&Target::new("addresses", SEEDS, WORDS), |bytes| {
        let Ok(text) = std::str::from_utf8(bytes) else { return };
        let Ok(read) = Endpoint::parse(text) else { return };
        let again = Endpoint::parse(&read.reveal());
        assert!(again.as_ref() == Ok(&read), "{text:?}");
        let _ = (read.looks_secret(), read.port());
        let longer = read.extended("start", "rid=1");
        assert_eq!((longer.host(), longer.is_secure()), (read.host(), read.is_secure()));
        assert!(!format!("{read:?}").contains("abcDEF0123456789"), "shown as its host alone");
    });
}

#[test]
fn flags() {
    const SEEDS: &[&str] = &[
        "topic=a,b,c",
        "topic:=[\"a,b\",\" c\"]",
        "slugs=10:slug",
        "slugs=10:/a/b",
        "sh\0-c\0echo $1\0sh\0{x}",
        "bash\0-eu\0-o\0pipefail\0-c\0x",
        "env\0A=1\0sh\0-c\0x",
    ];
    const WORDS: &[&str] = &["=", ":=", ":", ",", "[", "]", "\"", "\0", "sh", "-c", "env", "--", "-", "+"];
    check(&Target::new("flags", SEEDS, WORDS), |bytes| {
        let words: Vec<&[u8]> = bytes.split(|byte| *byte == 0).collect();
        let scripts = scripts_in(words.iter().copied());
        assert!(scripts.iter().all(|at| *at < words.len()));
        let Ok(text) = std::str::from_utf8(bytes) else { return };
        if let Ok(choice) = Choice::parse(text) {
            let key = Key::from_bytes([7; 32]);
            assert!(
                choice.of(&key).is_some_and(|chosen| choice.options().iter().any(|option| option == chosen))
            );
        }
        let _ = Recent::parse(text);
    });
}
