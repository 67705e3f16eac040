//! Connections in, and the end of them.

use futures_util::future::{Either, select};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Connections that may be open at once; of more, the later ones wait.
const CONNECTIONS: usize = 256;

/// How long a head may take to come, and a connection may lie idle.
const HEAD: Duration = Duration::from_secs(60);

/// What tells a server to end.
pub struct Signals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    /// Listens for them from now on.
    ///
    /// # Errors
    /// What the system says.
    pub fn new() -> io::Result<Self> {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            Ok(Self {
                terminate: signal(SignalKind::terminate())?,
                interrupt: signal(SignalKind::interrupt())?,
            })
        }
        #[cfg(not(unix))]
        Ok(Self {})
    }

    async fn next(&mut self) {
        #[cfg(unix)]
        select(pin!(self.terminate.recv()), pin!(self.interrupt.recv())).await;
        #[cfg(not(unix))]
        drop(tokio::signal::ctrl_c().await);
    }
}

/// Answers until a signal comes; then takes no new connection, and lets what runs end within `grace`. A second signal
/// ends it at once.
///
/// # Errors
/// A listener that is of no use.
pub async fn serve(
    listener: std::net::TcpListener,
    app: axum::Router,
    mut signals: Signals,
    grace: Duration,
) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let graceful = GracefulShutdown::new();
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD);
    {
        let mut end = pin!(signals.next());
        loop {
            let next = pin!(async {
                let place = room.clone().acquire_owned().await;
                (place, listener.accept().await)
            });
            let (place, stream) = match select(&mut end, next).await {
                Either::Left(_) => break,
                Either::Right(((place, Ok((stream, _))), _)) => (place, stream),
                Either::Right(((_, Err(_)), _)) => {
                    // One that went away before it was taken, or no more file handles: neither ends the server.
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                }
            };
            // An answer is one or two writes: none of them is to wait for an acknowledgement.
            drop(stream.set_nodelay(true));
            let service = TowerToHyperService::new(app.clone());
            let connection = graceful.watch(http.serve_connection(TokioIo::new(stream), service));
            tokio::spawn(async move {
                // How a connection ends is the client's affair.
                drop(connection.await);
                drop(place);
            });
        }
    }
    drop(listener);
    if graceful.count() > 0 {
        anstream::eprintln!("ending: what runs has {} s; a second signal ends it now", grace.as_secs_f64());
    }
    let over = pin!(async {
        select(pin!(tokio::time::sleep(grace)), pin!(signals.next())).await;
    });
    select(pin!(graceful.shutdown()), over).await;
    Ok(())
}
