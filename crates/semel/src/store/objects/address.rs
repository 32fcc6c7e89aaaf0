//! From an address and its variables to the client of a service.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::list::PaginatedListStore;
use object_store::signer::Signer;
use object_store::{ObjectStore, RetryConfig};
use url::Url;

use super::wire::Wire;
use crate::store::{OpenError, Settings};

/// What is asked of a service's client.
pub(super) trait Service: ObjectStore + PaginatedListStore + Signer {}

impl<T: ObjectStore + PaginatedListStore + Signer> Service for T {}

/// Which service it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// S3, or what speaks like it.
    S3,
    /// Google Cloud Storage.
    Gcs,
    /// Azure Blob Storage.
    Azure,
}

impl Kind {
    /// What a person sets so that it knows them.
    pub(super) fn credentials(self) -> &'static str {
        match self {
            Kind::S3 => "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
            Kind::Gcs => "GOOGLE_APPLICATION_CREDENTIALS",
            Kind::Azure => "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
        }
    }

    fn scheme(self) -> &'static str {
        match self {
            Kind::S3 => "s3",
            Kind::Gcs => "gs",
            Kind::Azure => "az",
        }
    }

    fn options(self) -> &'static [&'static str] {
        match self {
            Kind::S3 => &["region", "endpoint", "ca"],
            Kind::Gcs => &["endpoint", "ca"],
            Kind::Azure => &["account", "endpoint", "ca"],
        }
    }
}

/// Where a ledger lies.
pub(super) struct Place {
    pub(super) kind: Kind,
    /// The bucket, or the container.
    pub(super) bucket: String,
    /// What every name begins with: nothing, or it ends with a slash.
    pub(super) root: String,
    /// Who serves it, for people to read.
    pub(super) host: String,
    pub(super) service: Arc<dyn Service>,
    pub(super) wire: Wire,
}

/// No secret is a part of it.
impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}/{} at {}", self.kind.scheme(), self.bucket, self.root, self.host)
    }
}

/// The longest root: with the longest name of a record it fits into what a service takes.
const ROOT_LIMIT: usize = 100;

/// What was written in the address, and around it.
struct Asked<'a> {
    kind: Kind,
    bucket: String,
    root: String,
    options: BTreeMap<String, String>,
    settings: &'a Settings,
}

impl Place {
    /// Read the address. Nothing is connected.
    pub(super) fn read(url: &str, settings: &Settings) -> Result<Place, OpenError> {
        let asked = Asked::read(url, settings)?;
        let wire = Wire::new(asked.options.get("ca").map(String::as_str), settings.deadline / 2)?;
        let retry = RetryConfig {
            // a conditional write that is sent twice may be refused for its own success
            max_retries: 0,
            retry_timeout: Duration::ZERO,
            ..RetryConfig::default()
        };
        let (service, host) = match asked.kind {
            Kind::S3 => asked.s3(&wire, retry)?,
            Kind::Gcs => asked.gcs(&wire, retry)?,
            Kind::Azure => asked.azure(&wire, retry)?,
        };
        Ok(Place { kind: asked.kind, bucket: asked.bucket, root: asked.root, host, service, wire })
    }
}

type Client = (Arc<dyn Service>, String);

impl<'a> Asked<'a> {
    fn read(url: &str, settings: &'a Settings) -> Result<Asked<'a>, OpenError> {
        let wrong = |why: String| OpenError::Configuration(why);
        // what is said never repeats the address: it may hold a secret
        let read = Url::parse(url)
            .map_err(|_| wrong("the address cannot be read: write it as in s3://BUCKET/PREFIX".to_owned()))?;
        let kind = match read.scheme() {
            "s3" => Kind::S3,
            "gs" => Kind::Gcs,
            "az" => Kind::Azure,
            _ => return Err(wrong("it is no object store: use s3://, gs:// or az://".to_owned())),
        };
        let scheme = kind.scheme();
        if !read.username().is_empty() || read.password().is_some() || read.port().is_some() {
            return Err(wrong(format!(
                "{scheme}:// takes a bucket and no credentials or port: set {}, and ?endpoint= for another service",
                kind.credentials()
            )));
        }
        let bucket = read.host_str().unwrap_or_default().to_owned();
        if bucket.is_empty() {
            return Err(wrong(format!("{scheme}:// has no bucket: write it as in {scheme}://BUCKET/PREFIX")));
        }
        let root = read.path().trim_matches('/');
        let plain = |part: &str| {
            !part.is_empty()
                && !part.trim_matches('.').is_empty()
                && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-=+@:".contains(&b))
        };
        if !root.is_empty() && (root.len() > ROOT_LIMIT || !root.split('/').all(plain)) {
            return Err(wrong(format!(
                "the prefix of the address is wrong: at most {ROOT_LIMIT} letters, digits and . _ - = + @ : /"
            )));
        }
        let root = if root.is_empty() { String::new() } else { format!("{root}/") };
        let mut options = BTreeMap::new();
        for (name, value) in read.query_pairs() {
            if !kind.options().contains(&&*name) {
                let known = kind.options().join(", ");
                return Err(wrong(format!("{scheme}:// knows no such option: it has {known}")));
            }
            options.insert(name.into_owned(), value.into_owned());
        }
        Ok(Asked { kind, bucket, root, options, settings })
    }

    /// The first of these options and variables that is set.
    fn value(&self, option: &str, variables: &[&str]) -> Option<String> {
        let option = self.options.get(option).filter(|value| !value.is_empty()).cloned();
        option.or_else(|| variables.iter().find_map(|name| self.settings.variable(name)).map(str::to_owned))
    }

    /// Another service than the usual one: its address, its host, and whether it is spoken to without TLS.
    fn endpoint(&self, variables: &[&str]) -> Result<Option<(String, String, bool)>, OpenError> {
        let Some(text) = self.value("endpoint", variables) else { return Ok(None) };
        let wrong = || {
            OpenError::Configuration(
                "the endpoint cannot be read: write it as in https://storage.example.org".to_owned(),
            )
        };
        let url = Url::parse(&text).map_err(|_| wrong())?;
        let (Some(host), "http" | "https") = (url.host_str(), url.scheme()) else { return Err(wrong()) };
        if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
            return Err(wrong());
        }
        let host = url.port().map_or(host.to_owned(), |port| format!("{host}:{port}"));
        Ok(Some((text.trim_end_matches('/').to_owned(), host, url.scheme() == "http")))
    }

    fn s3(&self, wire: &Wire, retry: RetryConfig) -> Result<Client, OpenError> {
        let endpoint = self.endpoint(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"])?;
        let region = self.value("region", &["AWS_REGION", "AWS_DEFAULT_REGION"]);
        if region.is_none() && endpoint.is_none() {
            return Err(OpenError::Configuration(
                "s3:// needs the region of its bucket: set AWS_REGION, or write it as in s3://BUCKET?region=eu-central-1"
                    .to_owned(),
            ));
        }
        let region = region.unwrap_or_else(|| "us-east-1".to_owned());
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(&self.bucket)
            .with_region(&region)
            // one request for each object: not every service knows the other way
            .with_disable_bulk_delete(true)
            .with_retry(retry)
            .with_http_connector(wire.clone());
        let variables = [
            (AmazonS3ConfigKey::AccessKeyId, "AWS_ACCESS_KEY_ID"),
            (AmazonS3ConfigKey::SecretAccessKey, "AWS_SECRET_ACCESS_KEY"),
            (AmazonS3ConfigKey::Token, "AWS_SESSION_TOKEN"),
            (AmazonS3ConfigKey::WebIdentityTokenFile, "AWS_WEB_IDENTITY_TOKEN_FILE"),
            (AmazonS3ConfigKey::RoleArn, "AWS_ROLE_ARN"),
            (AmazonS3ConfigKey::RoleSessionName, "AWS_ROLE_SESSION_NAME"),
            (AmazonS3ConfigKey::ContainerCredentialsRelativeUri, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"),
            (AmazonS3ConfigKey::ContainerCredentialsFullUri, "AWS_CONTAINER_CREDENTIALS_FULL_URI"),
            (AmazonS3ConfigKey::ContainerAuthorizationTokenFile, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"),
        ];
        for (key, name) in variables {
            if let Some(value) = self.settings.variable(name) {
                builder = builder.with_config(key, value);
            }
        }
        let host = match endpoint {
            Some((endpoint, host, plain)) => {
                builder = builder.with_endpoint(endpoint).with_allow_http(plain);
                host
            }
            None => format!("s3.{region}.amazonaws.com"),
        };
        let client = builder.build().map_err(|_| self.incomplete())?;
        Ok((Arc::new(client), host))
    }

    fn gcs(&self, wire: &Wire, retry: RetryConfig) -> Result<Client, OpenError> {
        let mut builder = GoogleCloudStorageBuilder::new()
            .with_bucket_name(&self.bucket)
            .with_retry(retry)
            .with_http_connector(wire.clone());
        let file = self.settings.variable("GOOGLE_APPLICATION_CREDENTIALS");
        let key = self.settings.variable("GOOGLE_SERVICE_ACCOUNT_KEY");
        if let Some(key) = key {
            builder = builder.with_service_account_key(key);
        } else if let Some(file) = file {
            builder = builder.with_application_credentials(file);
        }
        let known = file.is_some() || key.is_some();
        let host = match self.endpoint(&[])? {
            Some((endpoint, host, plain)) => {
                builder = builder.with_base_url(&endpoint);
                if plain && !known {
                    // an emulator: it knows nobody, and the machine is asked for no credentials
                    builder = builder.with_bearer_token("none");
                }
                host
            }
            None => "storage.googleapis.com".to_owned(),
        };
        let client = builder.build().map_err(|_| self.incomplete())?;
        Ok((Arc::new(client), host))
    }

    fn azure(&self, wire: &Wire, retry: RetryConfig) -> Result<Client, OpenError> {
        let Some(account) = self.value("account", &["AZURE_STORAGE_ACCOUNT_NAME"]) else {
            return Err(OpenError::Configuration(
                "az:// needs the storage account: set AZURE_STORAGE_ACCOUNT_NAME, or write it as in az://CONTAINER?account=NAME"
                    .to_owned(),
            ));
        };
        let mut builder = MicrosoftAzureBuilder::new()
            .with_container_name(&self.bucket)
            .with_account(&account)
            .with_retry(retry)
            .with_http_connector(wire.clone());
        if let Some(key) = self.settings.variable("AZURE_STORAGE_ACCOUNT_KEY") {
            builder = builder.with_access_key(key);
        } else if let Some(token) = self.settings.variable("AZURE_STORAGE_SAS_TOKEN") {
            builder = builder.with_config(AzureConfigKey::SasKey, token);
        }
        let host = match self.endpoint(&["AZURE_STORAGE_ENDPOINT"])? {
            Some((endpoint, host, plain)) => {
                builder = builder.with_endpoint(endpoint).with_allow_http(plain);
                host
            }
            None => format!("{account}.blob.core.windows.net"),
        };
        let client = builder.build().map_err(|_| self.incomplete())?;
        Ok((Arc::new(client), host))
    }

    /// What a builder complains of is a part of a credential that is missing or cannot be read; its own words may hold
    /// the other part.
    fn incomplete(&self) -> OpenError {
        OpenError::Configuration(format!(
            "the credentials for {}:// are incomplete or cannot be read: set {}",
            self.kind.scheme(),
            self.kind.credentials()
        ))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    type Variables = &'static [(&'static str, &'static str)];

    fn settings(variables: &[(&str, &str)]) -> Settings {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Settings { variables: variables.collect(), ..Settings::default() }
    }

    const KEYS: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "me"), ("AWS_SECRET_ACCESS_KEY", "hunter2")];

    #[test]
    fn addresses_are_read() {
        let place = Place::read("s3://ledger/a/b/?region=eu-west-1", &settings(&KEYS)).unwrap();
        assert_eq!(format!("{place:?}"), "s3://ledger/a/b/ at s3.eu-west-1.amazonaws.com");
        let place = Place::read("s3://ledger?endpoint=http://127.0.0.1:9000/", &settings(&KEYS)).unwrap();
        assert_eq!(format!("{place:?}"), "s3://ledger/ at 127.0.0.1:9000");
        let azure = [("AZURE_STORAGE_ACCOUNT_NAME", "acme"), ("AZURE_STORAGE_ACCOUNT_KEY", "aHVudGVyMg==")];
        let place = Place::read("az://ledger/p", &settings(&azure)).unwrap();
        assert_eq!(format!("{place:?}"), "az://ledger/p/ at acme.blob.core.windows.net");
        let place = Place::read("gs://ledger?endpoint=http://127.0.0.1:9023", &settings(&[])).unwrap();
        assert_eq!(format!("{place:?}"), "gs://ledger/ at 127.0.0.1:9023");
    }

    #[test]
    fn a_wrong_address_is_told_in_one_line_without_a_secret() {
        const HALF: Variables = &[("AWS_SECRET_ACCESS_KEY", "hunter2"), ("AWS_REGION", "x")];
        let cases: [(&str, Variables, &str); 9] = [
            ("s3://ledger", &KEYS, "AWS_REGION"),
            ("s3:///p?region=x", &KEYS, "no bucket"),
            ("s3://me:hunter2@ledger?region=x", &[], "no credentials"),
            ("s3://ledger?password=hunter2", &KEYS, "region, endpoint, ca"),
            ("s3://ledger/a//b?region=x", &KEYS, "prefix"),
            ("s3://ledger?endpoint=hunter2", &KEYS, "endpoint"),
            ("s3://ledger", HALF, "AWS_ACCESS_KEY_ID"),
            ("az://ledger", &[], "AZURE_STORAGE_ACCOUNT_NAME"),
            ("s3://ledger?region=x&ca=/nowhere", &KEYS, "/nowhere"),
        ];
        for (url, variables, wanted) in cases {
            let Err(OpenError::Configuration(why)) = Place::read(url, &settings(variables)) else {
                panic!("{url} is taken")
            };
            assert!(why.contains(wanted) && !why.contains('\n') && !why.contains("hunter2"), "{url}: {why}");
        }
    }
}
