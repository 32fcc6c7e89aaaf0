//! Tests of [`super`].
#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::*;

fn of(text: &str) -> String {
    canonical(&parse(text).unwrap()).unwrap()
}

fn refused(text: &str) -> (String, JsonFault) {
    let error = parse(text).unwrap_err();
    (error.pointer.as_str().to_owned(), error.fault)
}

// RFC 8785, appendix B
const NUMBERS: &[(u64, &str)] = &[
    (0x0000000000000000, "0"),
    (0x8000000000000000, "0"),
    (0x0000000000000001, "5e-324"),
    (0x8000000000000001, "-5e-324"),
    (0x7fefffffffffffff, "1.7976931348623157e+308"),
    (0xffefffffffffffff, "-1.7976931348623157e+308"),
    (0x4340000000000000, "9007199254740992"),
    (0xc340000000000000, "-9007199254740992"),
    (0x4430000000000000, "295147905179352830000"),
    (0x44b52d02c7e14af5, "9.999999999999997e+22"),
    (0x44b52d02c7e14af6, "1e+23"),
    (0x44b52d02c7e14af7, "1.0000000000000001e+23"),
    (0x444b1ae4d6e2ef4e, "999999999999999700000"),
    (0x444b1ae4d6e2ef4f, "999999999999999900000"),
    (0x444b1ae4d6e2ef50, "1e+21"),
    (0x3eb0c6f7a0b5ed8c, "9.999999999999997e-7"),
    (0x3eb0c6f7a0b5ed8d, "0.000001"),
    (0x41b3de4355555553, "333333333.3333332"),
    (0x41b3de4355555554, "333333333.33333325"),
    (0x41b3de4355555555, "333333333.3333333"),
    (0x41b3de4355555556, "333333333.3333334"),
    (0x41b3de4355555557, "333333333.33333343"),
    (0xbecbf647612f3696, "-0.0000033333333333333333"),
    (0x43143ff3c1cb0959, "1424953923781206.2"),
];

#[test]
fn numbers_are_written_as_in_appendix_b() {
    for &(bits, expected) in NUMBERS {
        let value = json!(f64::from_bits(bits));
        assert_eq!(serde_json_canonicalizer::to_string(&value).unwrap(), expected);
        // what would be an integer that others round is refused; the rest is closed under reading back
        match canonical(&value) {
            Ok(text) => assert_eq!(of(&text), expected),
            Err(error) => {
                assert_eq!(error.fault, JsonFault::BigInteger);
                assert_eq!(refused(expected).1, JsonFault::BigInteger);
            }
        }
    }
}

#[test]
fn members_are_sorted_by_utf_16_code_units() {
    let text = r#"{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh",
        "1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}"#;
    let canonical = of(text);
    let places: Vec<_> = ["Carriage", "One", "Control", "Latin", "Euro", "Emoji", "Hebrew"]
        .iter()
        .map(|word| canonical.find(word).unwrap())
        .collect();
    assert!(places.is_sorted(), "{canonical}");
}

#[test]
fn the_example_of_the_rfc() {
    let text = r#"{
        "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
        "literals": [null, true, false]
    }"#;
    let expected = r#"{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}"#;
    assert_eq!(of(text), expected);
    assert_eq!(of(expected), expected);
}

#[test]
fn integral_floats_are_integers() {
    for (text, expected) in
        [("1.0", "1"), ("1e3", "1000"), ("-0", "0"), ("-0.0", "0"), ("1e300", "1e+300"), ("1e-400", "0")]
    {
        assert_eq!(of(text), expected);
    }
    assert_eq!(parse("[1.0, 10e-1]").unwrap(), json!([1, 1]));
    assert_eq!(of("9007199254740991"), "9007199254740991");
    assert_eq!(of("-9007199254740991.0"), "-9007199254740991");
}

#[test]
fn what_two_readers_take_differently_is_refused_with_its_place() {
    let cases = [
        (r#"{"a":{"b":1,"c":2,"b":1}}"#, "/a/b", JsonFault::Duplicate),
        (r#"{"a":1,"\u0061":2}"#, "/a", JsonFault::Duplicate),
        (r#"{"a/b":[0,1e999]}"#, "/a~1b/1", JsonFault::NotFinite),
        (r#"{"~":-1e999}"#, "/~0", JsonFault::NotFinite),
        ("[9007199254740992]", "/0", JsonFault::BigInteger),
        ("[-9007199254740992]", "/0", JsonFault::BigInteger),
        ("123456789012345678901234567890", "", JsonFault::BigInteger),
        ("9007199254740992.0", "", JsonFault::BigInteger),
        ("1e20", "", JsonFault::BigInteger),
        (r#"{"a":"\ud800"}"#, "/a", JsonFault::LoneSurrogate),
        (r#"{"a":"\ud800\u0041"}"#, "/a", JsonFault::LoneSurrogate),
        (r#"{"a":"\udc00\ud800"}"#, "/a", JsonFault::LoneSurrogate),
        (r#"{"a":{"\udfff":1}}"#, "/a", JsonFault::LoneSurrogate),
    ];
    for (text, pointer, fault) in cases {
        assert_eq!(refused(text), (pointer.to_owned(), fault), "{text}");
    }
}

#[test]
fn nesting_and_length_are_limited() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(parse(&nested(64)).is_ok());
    assert_eq!(refused(&nested(65)), ("/0".repeat(64), JsonFault::TooDeep));
    assert_eq!(refused(&"[".repeat(100_000)).1, JsonFault::TooDeep);
    let string = |length: usize| format!("\"{}\"", "x".repeat(length - 2));
    assert!(parse(&string(TEXT_LIMIT)).is_ok());
    assert_eq!(refused(&string(TEXT_LIMIT + 1)), (String::new(), JsonFault::TooLong));
}

#[test]
fn what_is_not_json_is_refused_with_line_and_character() {
    for text in [
        "",
        " ",
        "{",
        "[",
        "[1,]",
        "{\"a\":1,}",
        "{a:1}",
        "01",
        "-",
        "1.",
        ".5",
        "1e",
        "+1",
        "nul",
        "NaN",
        "Infinity",
        "'a'",
        "\"a",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\u00é\"",
        "\"\n\"",
        "1 2",
        "\u{feff}1",
        "[1 2]",
        "{\"a\" 1}",
        "\"\\",
    ] {
        assert!(matches!(refused(text).1, JsonFault::Syntax { .. }), "{text}");
    }
    let error = parse("{\"a\":\n  [1, é]}").unwrap_err();
    assert_eq!(error.to_string(), "JSON at /a/1: expected a value (line 2, character 7)");
}

#[test]
fn a_value_built_in_code_keeps_the_same_limits() {
    let error = check(&json!({"a": [1, u64::MAX]})).unwrap_err();
    assert_eq!((error.pointer.as_str(), error.fault), ("/a/1", JsonFault::BigInteger));
    assert_eq!(check(&json!(1e20)).unwrap_err().fault, JsonFault::BigInteger);
    assert!(check(&json!(1e300)).is_ok());
    let deep = (0..65).fold(json!(1), |inner, _| json!([inner]));
    assert_eq!(check(&deep).unwrap_err().fault, JsonFault::TooDeep);
    assert_eq!(check(&json!("x".repeat(TEXT_LIMIT))).unwrap_err().fault, JsonFault::TooLong);
    // 600,000 bytes in memory, six times that when written
    assert_eq!(canonical(&json!("\u{1}".repeat(600_000))).unwrap_err().fault, JsonFault::TooLong);
}

#[test]
fn an_error_is_one_line_whatever_the_member_is_called() {
    let error = parse("{\"a\\n\\u202e\": 1e999}").unwrap_err();
    assert_eq!(
        error.to_string(),
        "JSON at /a\\n\\u{202e}: is beyond the range of a double; write it as a string"
    );
    let long = format!("{{\"{}\":1e999}}", "x".repeat(500));
    assert!(parse(&long).unwrap_err().to_string().len() < 200);
}

#[test]
fn pointers_are_validated_and_cover_what_is_below() {
    for good in ["", "/", "/a", "/a~1b/~0", "//", "/é"] {
        assert_eq!(Pointer::new(good).unwrap().as_str(), good);
    }
    assert_eq!(Pointer::new("a/b").unwrap_err().to_string(), "a JSON pointer starts with '/': write /a/b");
    assert_eq!(Pointer::new("/a~").unwrap_err(), PointerError::Tilde(3));
    assert_eq!(Pointer::new("/~2").unwrap_err(), PointerError::Tilde(2));
    let pointer = |text| Pointer::new(text).unwrap();
    assert!(pointer("/a").covers(&pointer("/a")) && pointer("/a").covers(&pointer("/a/b")));
    assert!(!pointer("/a").covers(&pointer("/ab")) && !pointer("/a/b").covers(&pointer("/a")));
    assert!(pointer("").covers(&pointer("/a")));
    assert_eq!(Pointer::root().child("a/b").child("~").as_str(), "/a~1b/~0");
}

#[test]
fn hex_has_one_spelling() {
    assert_eq!(hex(&[0, 255, 16]), "00ff10");
    assert_eq!(unhex::<3>("00ff10"), Some([0, 255, 16]));
    for bad in ["00FF10", "00ff1", "00ff100", "00fg10", "+0ff10", ""] {
        assert_eq!(unhex::<3>(bad), None, "{bad}");
    }
}
