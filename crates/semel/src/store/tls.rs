//! One TLS for all drivers: rustls with ring, and the authorities that the machine trusts.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use super::OpenError;

/// How to speak to a server: by the machine's authorities, or by those of a file (PEM) alone.
#[allow(dead_code)] // not by every set of stores
pub(crate) fn client(authorities: Option<&str>) -> Result<Arc<ClientConfig>, OpenError> {
    let roots = roots(authorities)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|why| OpenError::Configuration(format!("TLS cannot be set up: {why}")))?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}

/// The machine's authorities, or those of a file (PEM) alone.
#[allow(dead_code)] // not by every set of stores
pub(crate) fn roots(authorities: Option<&str>) -> Result<RootCertStore, OpenError> {
    let wrong = |why: String| OpenError::Configuration(why);
    let mut roots = RootCertStore::empty();
    match authorities {
        Some(path) => {
            let read = CertificateDer::pem_file_iter(path)
                .and_then(Iterator::collect::<Result<Vec<_>, _>>)
                .map_err(|why| wrong(format!("the authorities in {path} cannot be read: {why}")))?;
            for authority in read {
                roots
                    .add(authority)
                    .map_err(|why| wrong(format!("an authority in {path} is wrong: {why}")))?;
            }
            if roots.is_empty() {
                return Err(wrong(format!("{path} holds no authority: give a file with certificates (PEM)")));
            }
        }
        // what cannot be read is left out, as other clients do: a server that needs it is refused by name
        None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
    }
    Ok(roots)
}
