//! Who may ask: the name that a request calls this server by, the origin of a page, the key.

use super::refusal::Refusal;
use axum::http::{HeaderMap, Uri, header};
use sha2::{Digest, Sha256};
use std::net::IpAddr;
use subtle::ConstantTimeEq;

/// The rules.
pub struct Guard {
    /// Names beside the machine's own, where only those may be used; `None`: any, because the key protects.
    pub hosts: Option<Vec<String>>,
    /// Origins whose pages may ask; `*` stands for all.
    pub origins: Vec<String>,
    /// The key's SHA-256: comparing hashes takes the same time for keys of any length.
    key: Option<[u8; 32]>,
}

impl Guard {
    /// With these rules.
    pub fn new(hosts: Option<Vec<String>>, origins: Vec<String>, key: Option<&str>) -> Self {
        Self { hosts, origins, key: key.map(|key| Sha256::digest(key).into()) }
    }

    /// Whether a request may be answered. `open`: its path needs no key.
    ///
    /// # Errors
    /// [`Refusal::Host`], [`Refusal::Origin`], [`Refusal::Key`].
    pub fn check(&self, uri: &Uri, headers: &HeaderMap, open: bool) -> Result<(), Refusal> {
        let host = headers.get(header::HOST).map(|host| host.to_str().unwrap_or("?"));
        if let Some(allowed) = &self.hosts {
            // Both, where a request has both: which one counts is not left to whoever reads it.
            let asked = [uri.authority().map(|authority| authority.as_str()), host];
            if asked == [None, None] {
                return Err(Refusal::Host("without a name".into()));
            }
            for asked in asked.into_iter().flatten() {
                if !own_name(asked) && !allowed.iter().any(|name| name.eq_ignore_ascii_case(name_of(asked))) {
                    return Err(Refusal::Host(shown(asked)));
                }
            }
        }
        if let Some(origin) = headers.get(header::ORIGIN) {
            // Browsers send it with every request that could change something; programs do not.
            let origin = origin.to_str().unwrap_or("?");
            let same = host.is_some_and(|host| origin.strip_prefix("http://") == Some(host));
            if !same && !self.origins.iter().any(|allowed| allowed == "*" || allowed == origin) {
                return Err(Refusal::Origin(shown(origin)));
            }
        }
        match &self.key {
            Some(key) if !open => {
                let given: [u8; 32] = Sha256::digest(given(headers).unwrap_or_default()).into();
                if bool::from(given.ct_eq(key)) { Ok(()) } else { Err(Refusal::Key) }
            }
            _ => Ok(()),
        }
    }
}

/// The key of a request: as OpenAI's clients send it, or as `X-Api-Key`.
fn given(headers: &HeaderMap) -> Option<&[u8]> {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let (scheme, key) = value.as_bytes().split_at_checked(7)?;
        return scheme.eq_ignore_ascii_case(b"bearer ").then_some(key);
    }
    headers.get("x-api-key").map(|value| value.as_bytes())
}

/// A `host:port` without its port.
fn name_of(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    }
}

/// Whether a `host:port` can mean only this machine, whatever a name server says.
fn own_name(host: &str) -> bool {
    let name = name_of(host);
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// A word of a client's, short enough for a message.
fn shown(word: &str) -> String {
    word.chars().take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    fn asks(guard: &Guard, pairs: &[(&'static str, &str)]) -> Result<(), Refusal> {
        guard.check(&Uri::from_static("/embedding"), &headers(pairs), false)
    }

    #[test]
    fn a_name_that_somebody_bound_to_this_address_is_refused() {
        let guard = Guard::new(Some(vec!["box.lan".into()]), Vec::new(), None);
        for good in ["localhost", "LOCALHOST:80", "127.0.0.1:8080", "127.9.9.9", "[::1]:8080", "box.lan:8080"]
        {
            assert_eq!(asks(&guard, &[("host", good)]), Ok(()), "{good}");
        }
        for bad in
            ["evil.example", "evil.example:8080", "localhost.evil.example", "10.0.0.1", "", "[::2]", "?"]
        {
            assert!(matches!(asks(&guard, &[("host", bad)]), Err(Refusal::Host(_))), "{bad}");
        }
        assert!(matches!(asks(&guard, &[]), Err(Refusal::Host(_))));
        // The request line can name a host, too.
        let uri = Uri::from_static("http://evil.example/embedding");
        let refused = guard.check(&uri, &headers(&[("host", "localhost")]), false);
        assert!(matches!(refused, Err(Refusal::Host(_))));
        let any = Guard::new(None, Vec::new(), Some("k"));
        assert_eq!(asks(&any, &[("host", "anything"), ("authorization", "Bearer k")]), Ok(()));
    }

    #[test]
    fn a_page_of_another_origin_is_refused_unless_it_is_let_in() {
        let guard = Guard::new(Some(Vec::new()), vec!["https://app.example".into()], None);
        let host = ("host", "localhost:8080");
        for good in ["http://localhost:8080", "https://app.example"] {
            assert_eq!(asks(&guard, &[host, ("origin", good)]), Ok(()), "{good}");
        }
        for bad in ["http://localhost:9090", "https://evil.example", "null", "https://app.example.evil"] {
            assert!(matches!(asks(&guard, &[host, ("origin", bad)]), Err(Refusal::Origin(_))), "{bad}");
        }
        let all = Guard::new(Some(Vec::new()), vec!["*".into()], None);
        assert_eq!(asks(&all, &[host, ("origin", "null")]), Ok(()));
    }

    #[test]
    fn the_key_is_asked_for_everywhere_but_where_it_is_open() {
        let guard = Guard::new(Some(Vec::new()), Vec::new(), Some("secret"));
        let host = ("host", "localhost");
        for good in
            [("authorization", "Bearer secret"), ("authorization", "bearer secret"), ("x-api-key", "secret")]
        {
            assert_eq!(asks(&guard, &[host, good]), Ok(()), "{good:?}");
        }
        for bad in [
            ("authorization", "Bearer secre"),
            ("authorization", "secret"),
            ("x-api-key", ""),
            ("accept", "*/*"),
        ] {
            assert_eq!(asks(&guard, &[host, bad]), Err(Refusal::Key), "{bad:?}");
        }
        assert_eq!(guard.check(&Uri::from_static("/health"), &headers(&[host]), true), Ok(()));
    }
}
