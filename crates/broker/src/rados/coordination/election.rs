//! The election: whoever holds the lock on the table's object replaces the record of the master before it.

use super::super::{ConnectOptions, Connection, KeyRange, LockState, Pool, RadosError, Renewal, shared};
use super::error::RadosTableError;
use super::objects::{Change, Objects, TABLE};
use super::state::{MASTER, MasterRecord, decode, value_of};
use super::store::{Fence, RadosTable};
use crate::coordination::{Candidate, Coordinator, Master, Mastership, boot_time_ms, unique_name};
use crate::rmt::{MappingStore, RmtError};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Name of the lock.
const LOCK: &str = "master";
/// The time after which a master that is not heard of is followed by another.
const USUAL_LEASE: Duration = Duration::from_secs(4);
/// A candidate tries again after so long.
const RETRY: Duration = Duration::from_millis(200);

/// Where the table of a cluster lies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RadosOptions {
    /// Which Ceph. A process that asks for servers with the same options shares the connection with them, so that a master which
    /// is shut out writes to none of them any more.
    pub ceph: ConnectOptions,
    /// A replicated pool; it need not be that of a server.
    pub pool: String,
}

/// The table and the election of one cluster in a pool.
pub struct RadosCoordinator {
    pool: Arc<Pool>,
    objects: Arc<dyn Objects>,
    lease: Duration,
}

impl RadosCoordinator {
    /// Of the cluster with this id.
    ///
    /// # Errors
    ///
    /// As [`Connection::open`] and [`Pool::open`].
    pub fn new(options: &RadosOptions, cluster: &str) -> Result<Self, RadosError> {
        Self::over(&shared(&options.ceph)?, &options.pool, cluster)
    }

    /// The same over a connection that is there.
    ///
    /// # Errors
    ///
    /// As [`Pool::open`].
    pub fn over(connection: &Arc<Connection>, pool: &str, cluster: &str) -> Result<Self, RadosError> {
        let pool = Arc::new(Pool::open(connection, pool, &format!("stripewise-{cluster}-table"))?);
        Ok(Self { objects: Arc::new(Arc::clone(&pool)), pool, lease: USUAL_LEASE })
    }

    /// How long a master that does not renew stays master; at least a second.
    #[must_use]
    pub fn with_lease(self, lease: Duration) -> Self {
        Self { lease: lease.max(Duration::from_secs(1)), ..self }
    }

    fn record(&self) -> Result<(Option<Vec<u8>>, Option<MasterRecord>), RadosTableError> {
        let (found, _) = self.objects.read(TABLE, &[MASTER], KeyRange::NONE)?;
        let value = value_of(&found, MASTER).map(<[u8]>::to_vec);
        let record = value.as_ref().map(|value| decode(self.objects.as_ref(), MASTER, value)).transpose()?;
        Ok((value, record))
    }

    /// Makes the holder of the lock the master. `None`: another did so meanwhile.
    fn take_over(&self, candidate: &Candidate, cookie: &str) -> Result<Option<MasterRecord>, RadosTableError> {
        let (found, before) = self.record()?;
        let connection = self.pool.connection();
        let addresses = connection.addresses()?;
        let is_left = |record: &&MasterRecord| record.candidate.is_some() && record.addresses != addresses;
        if let Some(before) = before.as_ref().filter(is_left) {
            connection.shut_out(&before.addresses).map_err(|source| RadosTableError::ShutOut {
                name: before.candidate.as_ref().map(|candidate| candidate.name.clone()).unwrap_or_default(),
                source,
            })?;
        }
        let record = MasterRecord::after(before.as_ref(), candidate, addresses, cookie.to_owned());
        let mut change = Change { expected: vec![(MASTER.to_owned(), found)], ..Change::default() };
        change.put(MASTER.to_owned(), Some(record.encode()));
        // A second sending does not find what it expects; the record then is the one that it wanted.
        let is_mine = self.objects.change(TABLE, &change)? || self.record()?.1.as_ref() == Some(&record);
        Ok(is_mine.then_some(record))
    }

    fn won(&self, record: MasterRecord, candidate: &Candidate, asked_ms: i64) -> RadosMastership {
        let master = Master { candidate: candidate.clone(), term: record.term };
        let renewing = Arc::new(Renewing {
            pool: Arc::clone(&self.pool),
            cookie: record.cookie.clone(),
            lease: self.lease,
            renewed_ms: AtomicI64::new(asked_ms),
            is_over: AtomicBool::new(false),
            ended: Mutex::new(false),
            woken: Condvar::new(),
        });
        let thread = Arc::clone(&renewing);
        let started = std::thread::Builder::new().name("rados-lock".into()).spawn(move || thread.run());
        // Without the thread the mastership is lost when the lock ends, and says so.
        drop(started);
        let fence = Fence { record: record.clone(), candidate: candidate.clone() };
        let store = Arc::new(RadosTable::new(Arc::clone(&self.objects), Some(fence)));
        RadosMastership { master, record, objects: Arc::clone(&self.objects), store, renewing }
    }
}

impl Coordinator for RadosCoordinator {
    fn table(&self) -> Box<dyn MappingStore> {
        Box::new(RadosTable::new(Arc::clone(&self.objects), None))
    }

    fn master(&self) -> Result<Option<Master>, RmtError> {
        let holder = self.pool.lock_holder(TABLE, LOCK).map_err(RadosTableError::from)?;
        let (_, record) = self.record()?;
        // Who has the lock and no record yet is not master yet.
        let record = record.filter(|record| holder.as_ref() == Some(&record.cookie));
        let master = |record: MasterRecord| Some(Master { candidate: record.candidate?, term: record.term });
        Ok(record.and_then(master))
    }

    fn campaign(&self, candidate: &Candidate, patience: Duration) -> Result<Option<Box<dyn Mastership>>, RmtError> {
        let deadline = Instant::now() + patience;
        loop {
            let (cookie, asked_ms) = (unique_name(), boot_time_ms());
            let locked = self.pool.lock(TABLE, LOCK, &cookie, self.lease, Renewal::Allowed);
            if locked.map_err(RadosTableError::from)? == LockState::Held {
                match self.take_over(candidate, &cookie) {
                    Ok(Some(record)) => return Ok(Some(Box::new(self.won(record, candidate, asked_ms)))),
                    Ok(None) => self.pool.unlock(TABLE, LOCK, &cookie).map_err(RadosTableError::from)?,
                    Err(error) => {
                        // It ends by itself too; what went wrong before matters more.
                        let _ = self.pool.unlock(TABLE, LOCK, &cookie);
                        return Err(error.into());
                    }
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            std::thread::sleep(left.min(RETRY));
        }
    }
}

struct Renewing {
    pool: Arc<Pool>,
    cookie: String,
    lease: Duration,
    /// When the last renewal that was granted was asked for.
    renewed_ms: AtomicI64,
    /// Ceph said so.
    is_over: AtomicBool,
    ended: Mutex<bool>,
    woken: Condvar,
}

impl Renewing {
    fn run(&self) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        while !*ended && !self.is_over.load(Ordering::Relaxed) {
            (ended, _) = self.woken.wait_timeout(ended, self.lease / 4).unwrap_or_else(PoisonError::into_inner);
            if *ended {
                return;
            }
            drop(ended);
            self.renew();
            ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn renew(&self) {
        let asked_ms = boot_time_ms();
        match self.pool.lock(TABLE, LOCK, &self.cookie, self.lease, Renewal::Required) {
            Ok(LockState::Held) => self.renewed_ms.store(asked_ms, Ordering::Relaxed),
            Ok(LockState::NotHeld) | Err(RadosError::Blocklisted { .. }) => self.is_over.store(true, Ordering::Relaxed),
            // Without an answer the time goes on.
            Err(_) => {}
        }
    }

    fn is_lost(&self) -> bool {
        let age_ms = boot_time_ms() - self.renewed_ms.load(Ordering::Relaxed);
        self.is_over.load(Ordering::Relaxed) || u128::from(age_ms.unsigned_abs()) >= self.lease.as_millis()
    }

    fn end(&self) {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.woken.notify_all();
    }
}

struct RadosMastership {
    master: Master,
    record: MasterRecord,
    objects: Arc<dyn Objects>,
    store: Arc<RadosTable>,
    renewing: Arc<Renewing>,
}

impl Drop for RadosMastership {
    fn drop(&mut self) {
        self.renewing.end();
    }
}

impl Mastership for RadosMastership {
    fn master(&self) -> &Master {
        &self.master
    }

    fn table(&self) -> Box<dyn MappingStore> {
        // All tables of one mastership are one writer.
        Box::new(Arc::clone(&self.store))
    }

    fn is_lost(&self) -> bool {
        self.renewing.is_lost()
    }

    fn resign(self: Box<Self>) -> Result<(), RmtError> {
        self.renewing.end();
        let mut change =
            Change { expected: vec![(MASTER.to_owned(), Some(self.record.encode()))], ..Change::default() };
        change.put(MASTER.to_owned(), Some(self.record.resigned().encode()));
        // Where another is master already, there is nothing to hand over.
        self.objects.change(TABLE, &change).map_err(RadosTableError::from)?;
        self.renewing.is_over.store(true, Ordering::Relaxed);
        self.renewing.pool.unlock(TABLE, LOCK, &self.record.cookie).map_err(RadosTableError::from)?;
        Ok(())
    }
}
