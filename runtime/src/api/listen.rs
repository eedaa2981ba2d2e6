//! Connections: how many, how long they may take, and how they end.
//!
//! Whoever connects and says nothing, or reads nothing, is let go after a while, so that slow clients take no places from others: soon where places
//! are few. One address has half of them at most.

mod peers;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;

use self::peers::Peers;
use crate::error::{Error, ErrorKind};

/// How many connections there may be.
const CONNECTIONS_MAX: usize = 1_024;
/// How long the head of a request may take to come, also the next one of a connection; and a handshake.
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);
/// The same for connections that come when most places are taken.
const HEAD_TIMEOUT_CROWDED: Duration = Duration::from_secs(3);
/// Fewer free places than this are few.
const PLACES_FEW: usize = CONNECTIONS_MAX / 4;
/// How many connections one address may have.
const CONNECTIONS_OF_ONE_MAX: usize = CONNECTIONS_MAX / 2;
/// How long a client may take to read something, or to send the next piece of a body.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long what was begun may take when the server stops.
const GRACE: Duration = Duration::from_secs(5);
/// What the head of a request may have, in bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// By which certificate a server shows who it is.
#[derive(Clone, Debug)]
pub struct Tls {
    /// A chain in PEM, its own certificate first.
    pub certificate: PathBuf,
    /// Its private key in PEM.
    pub key: PathBuf,
}

/// An address that is listened on.
pub struct Listening {
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    /// Where it is.
    pub address: SocketAddr,
}

impl std::fmt::Debug for Listening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listening").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Tls {
    fn acceptor(&self) -> Result<TlsAcceptor, Error> {
        let wrong = |path: &PathBuf, what: &str| {
            Error::new(ErrorKind::Usage, format!("{} cannot be used as {what}", path.display()))
                .help("give a certificate chain and its private key, both in PEM")
        };
        let chain = CertificateDer::pem_file_iter(&self.certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let chain = chain.map_err(|e| wrong(&self.certificate, "a certificate").caused_by(e))?;
        if chain.is_empty() {
            return Err(wrong(&self.certificate, "a certificate: there is none in it"));
        }
        let key =
            PrivateKeyDer::from_pem_file(&self.key).map_err(|e| wrong(&self.key, "a private key").caused_by(e))?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
            .map_err(|e| wrong(&self.certificate, "a certificate for that key").caused_by(e))?;
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

/// Listens, so that an address that cannot be had, or a certificate that cannot be used, is an error at once.
///
/// # Errors
///
/// Which of the two, and why.
pub async fn listen(address: SocketAddr, tls: Option<&Tls>) -> Result<Listening, Error> {
    let tls = tls.map(Tls::acceptor).transpose()?;
    let taken = |e| {
        Error::new(ErrorKind::Usage, format!("address {address} cannot be listened on"))
            .help("give an address and a port of this machine that are free, such as --listen 127.0.0.1:7400")
            .caused_by(e)
    };
    let listener = TcpListener::bind(address).await.map_err(taken)?;
    let address = listener.local_addr().map_err(taken)?;
    Ok(Listening { listener, tls, address })
}

/// Answers until `stop` becomes true, and a moment longer to what was begun.
pub async fn serve(listening: Listening, router: Router, mut stop: watch::Receiver<bool>) {
    let Listening { listener, tls, .. } = listening;
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let peers = Peers::new(CONNECTIONS_OF_ONE_MAX);
    let graceful = GracefulShutdown::new();
    loop {
        let accepted = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, stream, peer) = tokio::select! {
            accepted = accepted => match accepted {
                (Ok(place), Ok((stream, peer))) => (place, stream, peer),
                (_, Err(error)) => {
                    // Out of files, perhaps: not at once again.
                    tracing::warn!(target: "weir::api", %error, "a connection could not be taken");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
                // It is never closed.
                (Err(_), _) => return,
            },
            () = told(&mut stop) => break,
        };
        let Some(of_peer) = peers.enter(peer.ip()) else {
            tracing::debug!(target: "weir::api", %peer, "it has {CONNECTIONS_OF_ONE_MAX} connections: one more is closed");
            continue;
        };
        let is_crowded = places.available_permits() < PLACES_FEW;
        let patience = if is_crowded { HEAD_TIMEOUT_CROWDED } else { HEAD_TIMEOUT };
        let (router, tls, watcher) = (router.clone(), tls.clone(), graceful.watcher());
        tokio::spawn(async move {
            let _places = (place, of_peer);
            if let Err(error) = connection(stream, tls, router, patience, watcher).await {
                tracing::debug!(target: "weir::api", error, "a connection ended");
            }
        });
    }
    drop(listener);
    let _ = tokio::time::timeout(GRACE, graceful.shutdown()).await;
}

/// Waits until it becomes true; also when nobody can say so any more.
async fn told(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

async fn connection(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    router: Router,
    patience: Duration,
    watcher: hyper_util::server::graceful::Watcher,
) -> Result<(), String> {
    let _ = stream.set_nodelay(true);
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(WRITE_TIMEOUT));
    let stream = Box::pin(stream);
    match tls {
        None => answer(stream, router, patience, watcher).await,
        Some(tls) => {
            let accepted = tokio::time::timeout(patience, tls.accept(stream)).await;
            let stream = accepted.map_err(|_| "no handshake came".to_owned())?.map_err(|e| e.to_string())?;
            answer(stream, router, patience, watcher).await
        }
    }
}

async fn answer(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    patience: Duration,
    watcher: hyper_util::server::graceful::Watcher,
) -> Result<(), String> {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(patience)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    watcher.watch(connection).await.map_err(|e| e.to_string())
}
