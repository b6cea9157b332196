//! Opens a connection: walks the hosts of the URL and the addresses of each, and takes the first that answers.
//!
//! The driver would do so too, but one host after the other, each for the whole limit of a handshake. Here the next one
//! is tried as well when a host is slow, and each attempt begins with the server that answered last.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::{Client, Connection, Socket};

use super::super::address::{Address, is_socket};
use super::super::failure::Failure;
use super::tls::{Encrypted, Handshake};
use crate::clock::{Boottime, Clock, Instant};
use crate::store::kit::connection::{
    HEAD_START, Unconnected, best, first_of, is_transient, most_telling,
};

/// Number of given-up connections to one server, whose end was not seen, before the next one has to wait.
const GIVEN_UP: usize = 2;
/// The first of the pauses between further connections to it; each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest of them.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Maximum number of given-up connections; beyond it none is opened before one of them ends. While a standby is away
/// each occupies one of the server's connections, 100 by default; one that the network has forgotten ends within a
/// minute.
const MOST_GIVEN_UP: usize = 16;

/// The driver's message for a server that answered the question for TLS with anything but yes.
const NO_TLS: &str = "server does not support TLS";
/// The question for TLS: a length, and a number where a version stands.
const ASK_FOR_TLS: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
/// The answer of a server that has none.
const HAS_NO_TLS: u8 = b'N';

/// One address of one host of the URL.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Endpoint {
    /// The index of the host in the URL.
    host: usize,
    /// `None` for a socket of this machine.
    address: Option<IpAddr>,
}

/// A connection that was just opened.
pub(crate) struct Opened {
    pub(crate) client: Client,
    pub(crate) connection: Connection<Socket, Encrypted<Socket>>,
    pub(crate) server: Endpoint,
}

/// The connections that were given up and whose end was not seen: on the server their last statement may still wait,
/// for a standby or for a lock, so each of them counts against its connections. Further ones are opened at growing
/// pauses, up to a bound, because a network that has forgotten a connection reports its end late.
#[derive(Debug, Default)]
pub(crate) struct GivenUp(Mutex<HashMap<Endpoint, Unended>>);

/// Counts one of them until this is dropped.
pub(crate) struct GivenUpOne(#[expect(dead_code, reason = "it is counted")] Arc<()>);

/// The connections to one server whose end was not seen.
#[derive(Debug, Default)]
struct Unended {
    /// Shared with each of them.
    counted: Arc<()>,
    /// When a further one may be opened, once there are too many, and after how long a pause.
    next: Option<(Instant, Duration)>,
}

impl GivenUp {
    pub(crate) fn count(&self, server: Endpoint) -> GivenUpOne {
        GivenUpOne(self.0.lock().entry(server).or_default().counted.clone())
    }

    /// Records that a lease was renewed on a later connection: the server is not stuck, so the network has forgotten
    /// the connections that were given up before.
    pub(crate) fn forgive(&self) {
        self.0.lock().clear();
    }

    fn may_connect(&self, server: &Endpoint, now: Instant) -> bool {
        self.0
            .lock()
            .get_mut(server)
            .is_none_or(|unended| unended.may_connect(now))
    }
}

impl Unended {
    fn count(&self) -> usize {
        Arc::strong_count(&self.counted) - 1
    }

    /// Returns whether a connection may be opened now. If there are too many, one may at the end of each pause, up to
    /// the bound.
    fn may_connect(&mut self, now: Instant) -> bool {
        if self.count() < GIVEN_UP {
            self.next = None;
            return true;
        }
        let (is_due, pause) = match self.next {
            _ if self.count() >= MOST_GIVEN_UP => return false,
            None => (false, FIRST_PAUSE),
            Some((at, _)) if now < at => return false,
            Some((_, pause)) => (true, (pause * 2).min(LONGEST_PAUSE)),
        };
        self.next = Some((now.after(pause), pause));
        is_due
    }
}

/// State that all attempts of one walk share.
struct Walk<'a> {
    address: &'a Address,
    handshake: Handshake,
    /// The limit of each handshake, and of each look-up of a name.
    limit: Duration,
    given_up: &'a GivenUp,
    last: Option<Endpoint>,
}

/// Maximum time that a walk over these hosts takes if names are looked up at once.
pub(crate) fn longest(address: &Address, limit: Duration) -> Duration {
    let others = address.hosts.len().saturating_sub(1);
    limit + HEAD_START * u32::try_from(others).unwrap_or(u32::MAX)
}

/// Opens a connection to the first server that answers; of several hosts, to the first that accepts writes.
pub(crate) async fn open(
    address: &Address,
    limit: Duration,
    given_up: &GivenUp,
) -> Result<Opened, Failure> {
    let handshake = timeout(limit, address.handshake()).await;
    let walk = Walk {
        address,
        handshake: handshake.map_err(|_| Unconnected::Late)??,
        limit,
        given_up,
        last: address.last_server(),
    };
    let mut hosts: Vec<_> = (0..address.hosts.len()).collect();
    hosts.sort_by_key(|host| walk.last.as_ref().is_none_or(|last| last.host != *host));
    let opened = first_of(HEAD_START, hosts.into_iter().map(|host| walk.host(host))).await;
    // The one that is down may be the primary.
    let late = Unconnected::Late;
    let opened = opened.map_err(|failures| best(failures, is_transient).unwrap_or(late.into()))?;
    address.remember(&opened.server);
    Ok(opened)
}

impl Walk<'_> {
    async fn host(&self, host: usize) -> Result<Opened, Failure> {
        let opened = self.first_address(host).await;
        match &*self.address.hosts {
            [_] => opened,
            hosts => opened.map_err(|why| Failure::At(hosts[host].to_string(), Box::new(why))),
        }
    }

    async fn first_address(&self, host: usize) -> Result<Opened, Failure> {
        let mut addresses = self.addresses(host).await?;
        addresses.sort_by_key(|address| {
            let server = Endpoint {
                host,
                address: *address,
            };
            self.last.as_ref() != Some(&server)
        });
        let is_one_host = self.address.hosts.len() == 1;
        let is_one = is_one_host && addresses.len() == 1;
        let attempts = |attributes| {
            let attempt = move |address| {
                let server = Endpoint { host, address };
                self.server(server, attributes)
            };
            addresses.clone().into_iter().map(attempt)
        };
        let mut opened = first_of(
            HEAD_START,
            attempts(match is_one {
                true => TargetSessionAttrs::Any,
                false => TargetSessionAttrs::ReadWrite,
            }),
        )
        .await;
        // A standby can be asked about itself.
        if let Err(failures) = &opened
            && is_one_host
            && failures.iter().any(Failure::is_read_only)
        {
            opened = first_of(HEAD_START, attempts(TargetSessionAttrs::Any)).await;
        }
        opened.map_err(most_telling)
    }

    async fn addresses(&self, host: usize) -> Result<Vec<Option<IpAddr>>, Failure> {
        let named = &self.address.hosts[host];
        if is_socket(&named.host) {
            return Ok(vec![None]);
        }
        let found = timeout(self.limit, lookup_host((&*named.host, named.port))).await;
        let found = found.map_err(|_| Unconnected::Late)?;
        let unknown = |error| format!("the host's name was not found: {error}");
        let found = found.map_err(|error| Failure::before_connecting(unknown(error)))?;
        let found: Vec<_> = found.map(|address| Some(address.ip())).collect();
        Ok(found)
    }

    async fn server(
        &self,
        server: Endpoint,
        attributes: TargetSessionAttrs,
    ) -> Result<Opened, Failure> {
        if !self.given_up.may_connect(&server, Boottime.now()) {
            return Err(Failure::GivenUp);
        }
        let mut config = self.address.config.clone();
        let named = &self.address.hosts[server.host];
        config.host(self.address.server_name(&named.host));
        config.port(named.port);
        if let Some(address) = server.address {
            config.hostaddr(address);
        }
        config.target_session_attrs(attributes);
        let made = timeout(self.limit, config.connect(self.handshake.clone())).await;
        let made = made.map_err(|_| Unconnected::Late)?;
        let (client, mut connection) = match made {
            Ok(made) => made,
            Err(error) if Failure::unmade(&error).to_string().contains(NO_TLS) => {
                let answer = self.ask_for_tls(&server);
                let answer = timeout(self.limit, answer).await;
                return Err(match answer {
                    Ok(Ok(HAS_NO_TLS)) => Failure::unmade(&error),
                    _ => Failure::before_connecting("the server could not answer".into()),
                });
            }
            Err(error) => return Err(Failure::unmade(&error)),
        };
        // Remarks of the server at the login, for example about an outdated collation, belong to no request.
        let mut remark = || poll_fn(|context| connection.poll_message(context)).now_or_never();
        while let Some(Some(Ok(_))) = remark() {}
        Ok(Opened {
            client,
            connection,
            server,
        })
    }

    /// Asks the server once more whether it has TLS, and returns its answer. A server that cannot fork answers with an
    /// error, which the driver takes for a no.
    async fn ask_for_tls(&self, server: &Endpoint) -> io::Result<u8> {
        let address = server.address.ok_or(io::ErrorKind::Unsupported)?;
        let port = self.address.hosts[server.host].port;
        let mut stream = TcpStream::connect((address, port)).await?;
        stream.write_all(&ASK_FOR_TLS).await?;
        stream.read_u8().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_with_two_unended_connections_is_tried_again_at_growing_pauses() {
        let mut unended = Unended::default();
        let mut now = Instant::ZERO;
        assert!(unended.may_connect(now));
        let mut given_up = vec![unended.counted.clone(); GIVEN_UP];
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert!(!unended.may_connect(now));
            now = now.after(Duration::from_secs(seconds));
            assert!(unended.may_connect(now), "{seconds} s");
        }
        given_up.pop();
        assert!(unended.may_connect(now));
    }

    #[test]
    fn connections_that_the_network_forgot_delay_no_further_one() {
        let (given_up, server) = (
            GivenUp::default(),
            Endpoint {
                host: 0,
                address: None,
            },
        );
        let counted = [(); GIVEN_UP].map(|()| given_up.count(server.clone()));
        assert!(!given_up.may_connect(&server, Instant::ZERO));
        given_up.forgive();
        assert!(given_up.may_connect(&server, Instant::ZERO));
        drop(counted);
        assert!(given_up.may_connect(&server, Instant::ZERO));
    }

    #[test]
    fn of_a_standby_that_is_away_for_long_few_connections_are_left() {
        let mut unended = Unended::default();
        let mut now = Instant::ZERO;
        let mut given_up = Vec::new();
        let mut open_within = |given_up: &mut Vec<_>, unended: &mut Unended, seconds: u32| {
            for _ in 0..seconds {
                if unended.may_connect(now) {
                    given_up.push(unended.counted.clone());
                }
                now = now.after(Duration::from_secs(1));
            }
        };
        open_within(&mut given_up, &mut unended, 36_000);
        assert_eq!(given_up.len(), MOST_GIVEN_UP, "in ten hours");
        given_up.pop();
        open_within(&mut given_up, &mut unended, 60);
        assert_eq!(
            given_up.len(),
            MOST_GIVEN_UP,
            "instead of one that has ended"
        );
        // Once the standby is back the server ends them all.
        given_up.clear();
        assert!(unended.may_connect(now));
    }
}
