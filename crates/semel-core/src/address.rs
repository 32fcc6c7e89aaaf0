//! Addresses of the web, as notices and pings use them: read strictly, and sorted into public and not.
//!
//! Theory. Who can write a webhook's address, or answer for its name in the DNS, could make Semel speak to what only
//! this machine can reach: its own services, its neighbours, the metadata of its cloud. So an address is read into its
//! parts once, the host is looked up once, and every address that is found is judged here before anything is
//! connected.
//!
//! Not guaranteed: that a public address is a good one, or that a public host does not hand on to a private one.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The longest address.
pub const ADDRESS_LIMIT: usize = 2_000;

/// Can anybody on the internet have this address? Not: private, loopback, link-local, shared by carriers, multicast,
/// reserved, for documentation, of a cloud's own services, or any of these written as IPv6.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(v4: Ipv4Addr) -> bool {
    let [a, b, c, d] = v4.octets();
    let special = match (a, b, c, d) {
        // this network, private, loopback
        (0 | 10 | 127, ..) | (192, 168, ..) | (172, 16..=31, ..) => true,
        // carriers' (some clouds keep metadata there), link-local (others do)
        (100, 64..=127, ..) | (169, 254, ..) => true,
        // protocol assignments (metadata again), relays for 6to4, benchmarks
        (192, 0, 0, _) | (192, 88, 99, _) | (198, 18 | 19, ..) => true,
        // documentation
        (192, 0, 2, _) | (198, 51, 100, _) | (203, 0, 113, _) => true,
        // a cloud's own services at an address that looks public
        (168, 63, 129, 16) => true,
        // multicast, reserved, broadcast
        (224.., ..) => true,
        _ => false,
    };
    !special
}

fn is_public_v6(v6: Ipv6Addr) -> bool {
    let last = |v6: Ipv6Addr| {
        let [.., a, b, c, d] = v6.octets();
        Ipv4Addr::new(a, b, c, d)
    };
    match v6.segments() {
        // IPv4 in other clothes: compatible (with unspecified and loopback), mapped, NAT64
        [0, 0, 0, 0, 0, 0 | 0xffff, _, _] | [0x64, 0xff9b, 0, 0, 0, 0, _, _] => is_public_v4(last(v6)),
        // protocol assignments with Teredo, documentation, 6to4
        [0x2001, 0..=0x01ff, ..] | [0x2001, 0x0db8, ..] | [0x2002, ..] | [0x3fff, 0..=0x0fff, ..] => false,
        // the only part that is given out; all else is local, multicast or nobody's
        [0x2000..=0x3fff, ..] => true,
        _ => false,
    }
}

/// An `http` or `https` address, in its parts. Often a secret: it is shown as its host alone.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint {
    secure: bool,
    host: String,
    port: Option<u16>,
    path: String,
    query: Option<String>,
}

/// Why a text is no address that can be used. Never says what was in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Another scheme, or none.
    #[error("it is no address: write https://HOST/PATH")]
    Scheme,
    /// A name or a password before the host.
    #[error("a name or a password before the host is not sent: leave out what stands before the @")]
    UserInfo,
    /// No host, or none that could be one.
    #[error("it has no host: write https://HOST/PATH")]
    Host,
    /// A port that is none.
    #[error("its port is no number from 1 to 65535")]
    Port,
    /// What follows a `#` stays with whoever reads it.
    #[error("what follows a # is never sent: leave it out")]
    Fragment,
    /// A character that must be escaped.
    #[error("it holds a character that no address has: write it as %XX")]
    Character,
    /// Too long.
    #[error("it is longer than {ADDRESS_LIMIT} bytes")]
    Long,
}

impl Endpoint {
    /// Read it.
    pub fn parse(text: &str) -> Result<Endpoint, EndpointError> {
        if text.len() > ADDRESS_LIMIT {
            return Err(EndpointError::Long);
        }
        let (secure, rest) = match text.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (true, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (false, rest),
            _ => return Err(EndpointError::Scheme),
        };
        if !rest.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte)) {
            return Err(EndpointError::Character);
        }
        if rest.contains('#') {
            return Err(EndpointError::Fragment);
        }
        let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err(EndpointError::UserInfo);
        }
        let (host, port) = host_and_port(authority)?;
        let (path, query) =
            target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        Ok(Endpoint {
            secure,
            host: host.to_ascii_lowercase(),
            port,
            path: if path.is_empty() { "/" } else { path }.to_owned(),
            query: query.map(str::to_owned),
        })
    }

    /// Is it encrypted?
    pub fn is_secure(&self) -> bool {
        self.secure
    }

    /// The host, an IPv6 address without its brackets.
    pub fn host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }

    /// The port, given or usual.
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(if self.secure { 443 } else { 80 })
    }

    /// With this behind its path, and this behind its query.
    pub fn extended(&self, segment: &str, pair: &str) -> Endpoint {
        let path = match segment {
            "" => self.path.clone(),
            segment => format!("{}/{segment}", self.path.trim_end_matches('/')),
        };
        let query = match self.query.as_deref() {
            None | Some("") => pair.to_owned(),
            Some(query) => format!("{}&{pair}", query.trim_end_matches('&')),
        };
        Endpoint { path, query: Some(query), ..self.clone() }
    }

    /// All of it: for the wire, and for no message.
    pub fn reveal(&self) -> String {
        let scheme = if self.secure { "https" } else { "http" };
        let port = self.port.map(|port| format!(":{port}")).unwrap_or_default();
        let query = self.query.as_ref().map(|query| format!("?{query}")).unwrap_or_default();
        format!("{scheme}://{}{port}{}{query}", self.host, self.path)
    }

    /// Does its path or its query hold what only those who are told it know: a key of letters and digits? That is a
    /// guess by length and mixture.
    pub fn looks_secret(&self) -> bool {
        const SHORTEST: usize = 16;
        let is_key = |word: &str| {
            let has = |kind: fn(&u8) -> bool| word.as_bytes().iter().any(&kind);
            word.len() >= SHORTEST
                && has(u8::is_ascii_alphabetic)
                && (has(u8::is_ascii_digit) || (has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase)))
        };
        let query = self.query.as_deref().unwrap_or_default();
        let words = self.path.split(['/', '.', ':']).chain(query.split(['&', ';', '=']));
        words.into_iter().any(is_key)
    }
}

fn host_and_port(authority: &str) -> Result<(&str, Option<u16>), EndpointError> {
    let end = if authority.starts_with('[') {
        authority.find(']').map(|end| end + 1).ok_or(EndpointError::Host)?
    } else {
        authority.find(':').unwrap_or(authority.len())
    };
    let (host, rest) = authority.split_at(end);
    match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(inner) => drop(inner.parse::<Ipv6Addr>().map_err(|_| EndpointError::Host)?),
        None => {
            let plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
            let is_name = !host.is_empty() && host.len() <= 253 && host.chars().all(plain);
            if !is_name || host.starts_with(['-', '.']) || host.contains("..") {
                return Err(EndpointError::Host);
            }
        }
    }
    let port = match rest.strip_prefix(':') {
        None if rest.is_empty() => None,
        // as browsers read it
        Some("") => None,
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            Some(digits.parse().ok().filter(|port| *port > 0).ok_or(EndpointError::Port)?)
        }
        _ => return Err(EndpointError::Port),
    };
    Ok((host, port))
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({})", self.host)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_anybody_can_have_is_public_and_nothing_else() {
        let public = [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.1",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "203.0.112.255",
            "203.0.114.0",
            "223.255.255.255",
            "168.63.129.15",
            "2606:4700:4700::1111",
            "2001:4860:4860::8888",
            "2a00::1",
            "2003::1",
            "3ffe::1",
            "::ffff:1.1.1.1",
            "::1.1.1.1",
            "64:ff9b::1.1.1.1",
        ];
        let not = [
            // this network, loopback, private
            "0.0.0.0",
            "0.1.2.3",
            "127.0.0.1",
            "127.255.255.255",
            "10.0.0.0",
            "10.255.255.255",
            "172.16.0.0",
            "172.31.255.255",
            "192.168.0.0",
            "192.168.255.255",
            // carriers', link-local, and the metadata that hides there
            "100.64.0.0",
            "100.127.255.255",
            "100.100.100.200",
            "169.254.0.0",
            "169.254.169.254",
            "169.254.255.255",
            "192.0.0.192",
            "168.63.129.16",
            "fd00:ec2::254",
            // benchmarks, relays, documentation
            "198.18.0.0",
            "198.19.255.255",
            "192.88.99.1",
            "192.0.2.1",
            "198.51.100.1",
            "203.0.113.1",
            "2001:db8::1",
            "3fff::1",
            "3fff:fff::1",
            // multicast, reserved, broadcast
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "ff02::1",
            "ff0e::1",
            // IPv6: unspecified, loopback, link-local, site-local, unique local, discard, segment routing
            "::",
            "::1",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "fc00::1",
            "fdff::1",
            "100::1",
            "5f00::1",
            // IPv4 in other clothes
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "::10.0.0.1",
            "::2",
            "64:ff9b::127.0.0.1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b::192.168.0.1",
            "64:ff9b:1::1.1.1.1",
            "::ffff:0:127.0.0.1",
            "2002:7f00:1::1",
            "2002:a00:1::1",
            "2001:0:7f00:1::1",
            "2001:20::1",
        ];
        for text in public {
            assert!(is_public(text.parse().unwrap()), "{text} is public");
        }
        for text in not {
            assert!(!is_public(text.parse().unwrap()), "{text} is not public");
        }
    }

    #[test]
    fn addresses_are_read_into_their_parts() {
        for (text, host, port, all) in [
            ("https://example.org", "example.org", 443, "https://example.org/"),
            ("HTTPS://Example.ORG/A?b=C", "example.org", 443, "https://example.org/A?b=C"),
            ("http://127.0.0.1:8080?x", "127.0.0.1", 8080, "http://127.0.0.1:8080/?x"),
            ("http://[::1]:90/a//b/", "::1", 90, "http://[::1]:90/a//b/"),
            ("https://example.org:/a@b", "example.org", 443, "https://example.org/a@b"),
            ("http://a_b.c./", "a_b.c.", 80, "http://a_b.c./"),
        ] {
            let read = Endpoint::parse(text).unwrap();
            assert_eq!((read.host(), read.port(), read.reveal().as_str()), (host, port, all), "{text}");
            assert_eq!(Endpoint::parse(all).unwrap(), read, "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        use EndpointError::*;
        for (text, why) in [
            ("", Scheme),
            ("example.org", Scheme),
            ("ftp://example.org", Scheme),
            ("file:///etc/passwd", Scheme),
            ("gopher://h", Scheme),
            ("https:/example.org", Scheme),
            ("https://", Host),
            ("https:///path", Host),
            ("https://:80/", Host),
            ("https://a..b/", Host),
            ("https://-a/", Host),
            ("https://a%2eb/", Host),
            ("https://[::1/", Host),
            ("https://[v1.x]/", Host),
            ("https://[fe80::1%25eth0]/", Host),
            ("https://me@h/", UserInfo),
            ("https://me:pw@h/", UserInfo),
            ("https://h:0/", Port),
            ("https://h:65536/", Port),
            ("https://h:+80/", Port),
            ("https://[::1]80/", Port),
            ("https://h/#x", Fragment),
            ("https://h/a b", Character),
            ("https://h/\n", Character),
            ("https://h\\@x/", Character),
            ("https://h\u{e4}/", Character),
            ("https://h/\u{0}", Character),
        ] {
            assert_eq!(Endpoint::parse(text), Err(why), "{text:?}");
        }
        assert_eq!(Endpoint::parse(&format!("https://h/{}", "a".repeat(2_000))), Err(Long));
    }

    #[test]
    fn a_ping_goes_behind_the_path_and_leaves_the_query() {
        let extended =
            |text: &str, word: &str| Endpoint::parse(text).unwrap().extended(word, "rid=1").reveal();
        assert_eq!(extended("https://h/abc", "start"), "https://h/abc/start?rid=1");
        assert_eq!(extended("https://h/abc/", "fail"), "https://h/abc/fail?rid=1");
        assert_eq!(extended("https://h/abc?create=1", "3"), "https://h/abc/3?create=1&rid=1");
        assert_eq!(extended("https://h/abc?create=1&", ""), "https://h/abc?create=1&rid=1");
        assert_eq!(extended("https://h", "start"), "https://h/start?rid=1");
        assert_eq!(extended("https://h?", ""), "https://h/?rid=1");
    }

    #[test]
    fn keys_in_addresses_are_seen() {
        for text in [
            "https://hooks.example.com/services/T00000000/B00000000/XxXxXxXxXxXxXxXxXxXxXxXx",
            "https://h/api/webhooks/1234567890/aB3dE5gH7jK9mN1pQ3sT",
            "https://h/?k=0123456789abcdef",
            "https://h/123e4567-e89b-12d3-a456-426614174000",
        ] {
            assert!(Endpoint::parse(text).unwrap().looks_secret(), "{text}");
        }
        for text in [
            "https://hooks.example.com/notify",
            "https://h/notifications-for-operations",
            "https://h/?channel=ops-20260619",
        ] {
            assert!(!Endpoint::parse(text).unwrap().looks_secret(), "{text}");
        }
        let shown = format!("{:?}", Endpoint::parse("https://h/hunter2?hunter3").unwrap());
        assert_eq!(shown, "Endpoint(h)");
    }
}
