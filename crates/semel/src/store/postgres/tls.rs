//! How far the server's certificate is checked, as libpq means it.
//!
//! `prefer` and a bare `require` encrypt and check nothing: whoever sits between can read along. `require` with
//! `sslrootcert` and `verify-ca` check who signed it, `verify-full` also that it is for this host.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

use super::super::{OpenError, tls};

/// Whom we take for the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// Whoever answers.
    Anyone,
    /// Whoever an authority signed.
    Authority,
    /// Whoever an authority signed for this host.
    AuthorityAndName,
}

/// How to speak to a server that is trusted so far.
pub(super) fn config(trust: Trust, authorities: Option<&str>) -> Result<Arc<ClientConfig>, OpenError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let inner = match trust {
        Trust::AuthorityAndName => return tls::client(authorities),
        Trust::Anyone => None,
        Trust::Authority => {
            let roots = tls::roots(authorities)?;
            let verifier =
                WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
            Some(verifier.build().map_err(|why| {
                OpenError::Configuration(format!("the authorities of sslrootcert cannot be used: {why}"))
            })?)
        }
    };
    let verifier = Arc::new(Lenient { inner, provider: Arc::clone(&provider) });
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|why| OpenError::Configuration(format!("TLS cannot be set up: {why}")))?;
    Ok(Arc::new(config.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()))
}

/// Checks who signed a certificate, or nothing; never for whom.
#[derive(Debug)]
struct Lenient {
    inner: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(inner) = &self.inner else { return Ok(ServerCertVerified::assertion()) };
        match inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // looked at after the signatures
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
