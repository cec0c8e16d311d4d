//! Keys in etcd.

/// Keys of one cluster.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    prefix: Vec<u8>,
}

impl Keys {
    pub(super) fn new(cluster: &str) -> Self {
        Self { prefix: format!("stripewise/{cluster}/").into_bytes() }
    }

    fn under(&self, rest: &[u8]) -> Vec<u8> {
        [&self.prefix, rest].concat()
    }

    pub(super) fn master(&self) -> Vec<u8> {
        self.under(b"master")
    }

    pub(super) fn state(&self) -> Vec<u8> {
        self.under(b"state")
    }

    pub(super) fn table(&self, key: &[u8]) -> Vec<u8> {
        self.under(&[b"t/", key].concat())
    }

    /// Of a key in etcd, that of the table.
    pub(super) fn in_table<'a>(&self, key: &'a [u8]) -> &'a [u8] {
        key.get(self.prefix.len() + 2..).unwrap_or_default()
    }

    pub(super) fn staged(&self) -> Vec<u8> {
        self.under(b"s/")
    }

    pub(super) fn part(&self, batch: &str, number: usize) -> Vec<u8> {
        self.under(format!("s/{batch}/{number:08x}").as_bytes())
    }

    pub(super) fn copy_name(&self, name: &str) -> Vec<u8> {
        self.under(format!("k/{name}").as_bytes())
    }

    pub(super) fn copies(&self, name: &str) -> Vec<u8> {
        self.under(format!("c/{name}/").as_bytes())
    }

    pub(super) fn copy(&self, name: &str, copy: &str) -> Vec<u8> {
        self.under(format!("c/{name}/{copy}/").as_bytes())
    }
}

/// The first key behind all that start with `prefix`, which has a byte below 255.
pub(super) fn behind(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while end.pop_if(|last| *last == u8::MAX).is_some() {}
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}
