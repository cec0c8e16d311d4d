//! The election: whoever holds the lock on the table's object replaces the record of the master before it.

use super::super::{
    ConnectOptions, Connection, KeyRange, LockState, Operation, Pool, RadosError, Renewal, probe_blocklist, shared,
};
use super::error::RadosTableError;
use super::objects::{Change, Objects, TABLE};
use super::salvaging::salvage;
use super::state::{MASTER, MasterRecord, decode, value_of};
use super::store::{Fence, RadosTable};
use crate::coordination::{Candidate, Coordinator, Lease, Master, Mastership, Salvage, boot_time_ms, unique_name};
use crate::rmt::{MappingStore, RmtError};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// An object that is made and removed again.
const PROBE: &str = "probe";
/// Name of the lock.
const LOCK: &str = "master";
/// The time after which a master that is not heard of is followed by another.
const USUAL_LEASE: Duration = Duration::from_secs(3);
/// So many times in a lease is it renewed: Ceph, or the way to it, may be slow for most of a lease.
const RENEWALS: u32 = 6;
/// A candidate tries again after so long.
const RETRY: Duration = Duration::from_millis(200);

/// Where the table of a cluster lies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RadosOptions {
    /// Which Ceph.
    pub ceph: ConnectOptions,
    /// A replicated pool; it need not be that of a server.
    pub pool: String,
}

/// For how long an operation of the table is waited for. What an answer that does not come means is asked again.
const OPERATION_PATIENCE: Duration = Duration::from_secs(10);

impl RadosOptions {
    /// Of the pool that the cluster file names; `None`: it names another engine.
    #[must_use]
    pub fn of(coordination: &stripewise_layout::Coordinator) -> Option<Self> {
        let usual = ConnectOptions::default();
        let ceph = ConnectOptions {
            conf: coordination.rados_conf.clone(),
            user: coordination.rados_user.clone().unwrap_or(usual.user),
            operation_patience: Some(OPERATION_PATIENCE),
            ..usual
        };
        Some(Self { ceph, pool: coordination.rados.clone()? })
    }
}

/// The table and the election of one cluster in a pool.
pub struct RadosCoordinator {
    pool: Mutex<Arc<Pool>>,
    /// How the pool is reached again by a process that was shut out. `None` over somebody else's connection.
    again: Option<(RadosOptions, String)>,
    lease: Duration,
}

/// The pool with the table of a cluster.
fn pool_over(connection: &Arc<Connection>, pool: &str, cluster: &str) -> Result<Arc<Pool>, RadosError> {
    Ok(Arc::new(Pool::open(connection, pool, &format!("stripewise-{cluster}-table"))?))
}

impl RadosCoordinator {
    /// Of the cluster with this id.
    ///
    /// # Errors
    ///
    /// As [`Connection::open`] and [`Pool::open`].
    pub fn new(options: &RadosOptions, cluster: &str) -> Result<Self, RadosError> {
        let pool = Mutex::new(pool_over(&shared(&options.ceph)?, &options.pool, cluster)?);
        Ok(Self { pool, again: Some((options.clone(), cluster.to_owned())), lease: USUAL_LEASE })
    }

    /// The same over a connection that is there.
    ///
    /// # Errors
    ///
    /// As [`Pool::open`].
    pub fn over(connection: &Arc<Connection>, pool: &str, cluster: &str) -> Result<Self, RadosError> {
        Ok(Self { pool: Mutex::new(pool_over(connection, pool, cluster)?), again: None, lease: USUAL_LEASE })
    }

    /// Looks whether a new cluster can have its table in the pool and elect its master there. Nothing is left behind.
    ///
    /// # Errors
    ///
    /// As [`Self::new`]; [`RadosError::ErasureCoded`]; [`RadosTableError::Taken`] where the cluster has a table there already, and
    /// [`RadosError::MayNotBlocklist`] where the user may not shut out a master that went silent.
    pub fn probe(options: &RadosOptions, cluster: &str) -> Result<(), RadosTableError> {
        let connection = shared(&options.ceph)?;
        let pool = pool_over(&connection, &options.pool, cluster)?;
        // A pool without omap says so only when a key is set.
        pool.run(PROBE, Operation::SetKeys(&[("probe", b"1")]))?;
        pool.run(PROBE, Operation::Remove { epoch: None })?;
        match pool.run(TABLE, Operation::StatPlain) {
            Err(RadosError::Missing { .. }) => {}
            Err(error) => return Err(error.into()),
            Ok(_) => {
                let (pool, cluster) = (options.pool.clone(), cluster.to_owned());
                return Err(RadosTableError::Taken { pool, cluster });
            }
        }
        Ok(probe_blocklist(&connection)?)
    }

    #[cfg(test)]
    pub(super) fn connection_for_tests(&self) -> Arc<Connection> {
        Arc::clone(self.pool().connection())
    }

    fn pool(&self) -> Arc<Pool> {
        Arc::clone(&self.pool.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What `act` gave. A process that was shut out is somebody else over a new connection, unless it is another's.
    fn with_pool<T>(&self, act: impl Fn(&Arc<Pool>) -> Result<T, RadosTableError>) -> Result<T, RadosTableError> {
        let pool = self.pool();
        match (act(&pool), &self.again) {
            (Err(RadosTableError::Rados(RadosError::Blocklisted { .. })), Some((options, cluster))) => {
                let mut known = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
                if Arc::ptr_eq(&known, &pool) {
                    *known = pool_over(&shared(&options.ceph)?, &options.pool, cluster)?;
                }
                let pool = Arc::clone(&known);
                drop(known);
                act(&pool)
            }
            (result, _) => result,
        }
    }

    /// How long a master that does not renew stays master; at least a second.
    #[must_use]
    pub fn with_lease(self, lease: Duration) -> Self {
        Self { lease: lease.max(Duration::from_secs(1)), ..self }
    }

    /// Makes the holder of the lock the master. `None`: another did so meanwhile.
    fn take_over(
        pool: &Arc<Pool>,
        candidate: &Candidate,
        cookie: &str,
    ) -> Result<Option<MasterRecord>, RadosTableError> {
        let (found, before) = record_in(pool)?;
        let connection = pool.connection();
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
        let is_mine = pool.change(TABLE, &change)? || record_in(pool)?.1.as_ref() == Some(&record);
        Ok(is_mine.then_some(record))
    }

    fn won(&self, pool: &Arc<Pool>, record: MasterRecord, candidate: &Candidate, asked_ms: i64) -> RadosMastership {
        let master = Master { candidate: candidate.clone(), term: record.term };
        let renewing = Arc::new(Renewing {
            pool: Arc::clone(pool),
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
        let objects: Arc<dyn Objects> = Arc::new(Arc::clone(pool));
        let store = Arc::new(RadosTable::new(Arc::clone(&objects), Some(fence)));
        RadosMastership { master, record, objects, store, renewing }
    }

    /// Tries to become master, once.
    fn stand(&self, pool: &Arc<Pool>, candidate: &Candidate) -> Result<Option<RadosMastership>, RadosTableError> {
        let (cookie, asked_ms) = (unique_name(), boot_time_ms());
        if pool.lock(TABLE, LOCK, &cookie, self.lease, Renewal::Allowed)? == LockState::NotHeld {
            return Ok(None);
        }
        match Self::take_over(pool, candidate, &cookie) {
            Ok(Some(record)) => Ok(Some(self.won(pool, record, candidate, asked_ms))),
            Ok(None) => {
                pool.unlock(TABLE, LOCK, &cookie)?;
                Ok(None)
            }
            Err(error) => {
                // It ends by itself too; what went wrong before matters more.
                let _ = pool.unlock(TABLE, LOCK, &cookie);
                Err(error)
            }
        }
    }
}

/// The record of the last master, as it stands there and as it is meant.
fn record_in(pool: &Arc<Pool>) -> Result<(Option<Vec<u8>>, Option<MasterRecord>), RadosTableError> {
    let (found, _) = pool.read(TABLE, &[MASTER], KeyRange::NONE)?;
    let value = value_of(&found, MASTER).map(<[u8]>::to_vec);
    let record = value.as_ref().map(|value| decode(pool, MASTER, value)).transpose()?;
    Ok((value, record))
}

/// Takes the lock from the master of a term. Whoever gets it next shuts that master out before it becomes master itself, as ever.
fn end_term(pool: &Arc<Pool>, term: u64) -> Result<(), RadosTableError> {
    match record_in(pool)?.1.filter(|record| record.term == term && record.candidate.is_some()) {
        Some(record) => Ok(pool.break_lock(TABLE, LOCK, &record.cookie)?),
        None => Ok(()),
    }
}

impl Coordinator for RadosCoordinator {
    fn table(&self) -> Box<dyn MappingStore> {
        Box::new(RadosTable::new(Arc::new(self.pool()), None))
    }

    fn salvage(&self) -> Result<Salvage, RmtError> {
        Ok(self.with_pool(|pool| salvage(pool))?)
    }

    fn master(&self) -> Result<Option<Master>, RmtError> {
        let (holder, record) = self.with_pool(|pool| Ok((pool.lock_holder(TABLE, LOCK)?, record_in(pool)?.1)))?;
        // Who has the lock and no record yet is not master yet.
        let record = record.filter(|record| holder.as_ref() == Some(&record.cookie));
        let master = |record: MasterRecord| Some(Master { candidate: record.candidate?, term: record.term });
        Ok(record.and_then(master))
    }

    fn campaign(&self, candidate: &Candidate, patience: Duration) -> Result<Option<Box<dyn Mastership>>, RmtError> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(mastership) = self.with_pool(|pool| self.stand(pool, candidate))? {
                return Ok(Some(Box::new(mastership)));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            std::thread::sleep(left.min(RETRY));
        }
    }

    fn end_term(&self, term: u64) -> Result<(), RmtError> {
        Ok(self.with_pool(|pool| end_term(pool, term))?)
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
            (ended, _) = self.woken.wait_timeout(ended, self.lease / RENEWALS).unwrap_or_else(PoisonError::into_inner);
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

    fn end(&self) {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.woken.notify_all();
    }
}

impl Lease for Renewing {
    fn is_over(&self) -> bool {
        let age_ms = boot_time_ms() - self.renewed_ms.load(Ordering::Relaxed);
        self.is_over.load(Ordering::Relaxed) || u128::from(age_ms.unsigned_abs()) >= self.lease.as_millis()
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

    fn lease(&self) -> Arc<dyn Lease> {
        Arc::clone(&self.renewing) as _
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
