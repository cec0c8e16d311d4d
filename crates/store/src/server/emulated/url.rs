//! `emulated:///DIRECTORY?device=NAME[&link=NAME][&time_scale=FACTOR][&dirty_limit=SIZE]`

use super::{EmulatedSpec, SCHEME};
use std::path::Path;
use stripewise_device::UnknownName;
use stripewise_layout::{ByteCount, ServerUrl};

/// Less than that is no page cache.
const MIN_DIRTY_LIMIT: ByteCount = ByteCount(1 << 20);

/// The parameters of an emulated server's URL.
#[derive(Clone, PartialEq, Debug)]
pub struct EmulatedUrl {
    /// A name of [`stripewise_device::DEVICES`]; [`Self::spec`] checks it.
    pub device: String,
    /// A name of [`stripewise_device::LINKS`]; `None` for a server without a link of its own.
    pub link: Option<String>,
    /// Factor on every service time, more than 0; 1 for the device's own speed.
    pub time_scale: f64,
    /// As [`EmulatedSpec::dirty_limit_bytes`].
    pub dirty_limit: Option<ByteCount>,
}

impl EmulatedUrl {
    /// The parameters of `url`; `None` if it is no emulated server's.
    ///
    /// # Errors
    ///
    /// The URL and the parameter that is missing, unknown or wrong.
    pub fn of(url: &ServerUrl) -> Result<Option<Self>, String> {
        if !is_emulated(url) {
            return Ok(None);
        }
        let (mut device, mut link, mut time_scale, mut dirty_limit) = (None, None, 1.0, None);
        for parameter in url.parameters() {
            match parameter.split_once('=') {
                Some(("device", name)) => device = Some(name.to_owned()),
                Some(("link", name)) => link = Some(name.to_owned()),
                Some(("time_scale", factor)) => {
                    time_scale =
                        factor.parse().ok().filter(|f: &f64| f.is_finite() && *f > 0.0).ok_or_else(|| {
                            format!("`{url}`: time_scale must be a positive number, found `{factor}`")
                        })?;
                }
                Some(("dirty_limit", size)) => {
                    let limit = size.parse().ok().filter(|limit| *limit >= MIN_DIRTY_LIMIT).ok_or_else(|| {
                        format!("`{url}`: dirty_limit must be a size of at least {MIN_DIRTY_LIMIT}, found `{size}`")
                    })?;
                    dirty_limit = Some(limit);
                }
                _ => {
                    return Err(format!(
                        "`{url}`: unknown parameter `{parameter}`; known: device, link, time_scale, dirty_limit"
                    ));
                }
            }
        }
        let device = device.ok_or_else(|| format!("`{url}`: an emulated server needs ?device=NAME"))?;
        Ok(Some(Self { device, link, time_scale, dirty_limit }))
    }

    /// The URL of a server with these parameters and its objects in `directory`.
    #[must_use]
    pub fn at(&self, directory: &Path) -> ServerUrl {
        let mut query = format!("device={}", self.device);
        if let Some(link) = &self.link {
            query += &format!("&link={link}");
        }
        if self.time_scale != 1.0 {
            query += &format!("&time_scale={}", self.time_scale);
        }
        if let Some(limit) = self.dirty_limit {
            query += &format!("&dirty_limit={limit}");
        }
        ServerUrl::new(SCHEME, directory).with_query(query)
    }

    /// Device and link of these names, at this time scale.
    ///
    /// # Errors
    ///
    /// [`UnknownName`] of device or link.
    pub fn spec(&self) -> Result<EmulatedSpec, UnknownName> {
        let spec = EmulatedSpec::named(&self.device, self.link.as_deref(), self.time_scale)?;
        Ok(EmulatedSpec { dirty_limit_bytes: self.dirty_limit.map(|limit| limit.0), ..spec })
    }
}

/// Whether the times of the server at `url` are those of a named device instead of the host's own.
#[must_use]
pub fn is_emulated(url: &ServerUrl) -> bool {
    url.scheme() == SCHEME
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_and_written() {
        let of = |text: &str| EmulatedUrl::of(&text.parse().unwrap());
        for text in [
            "emulated:///b?device=nvme",
            "emulated:///b?device=nvme&link=gigabit&time_scale=0.5",
            "emulated:///b?device=nvme&dirty_limit=64MiB",
        ] {
            let url = of(text).unwrap().unwrap();
            assert_eq!(url.at(Path::new("/b")).to_string(), text);
        }
        assert_eq!(of("file:///b"), Ok(None));
        for (parameters, expected) in [
            ("link=gigabit", "needs ?device=NAME"),
            ("device=nvme&speed=2", "unknown parameter `speed=2`; known: device"),
            ("device", "unknown parameter `device`"),
            ("device=nvme&time_scale=0", "time_scale must be a positive number, found `0`"),
            ("device=nvme&dirty_limit=4KiB", "dirty_limit must be a size of at least 1MiB, found `4KiB`"),
            ("device=nvme&dirty_limit=much", "dirty_limit must be a size of at least 1MiB, found `much`"),
        ] {
            let error = of(&format!("emulated:///b?{parameters}")).unwrap_err();
            assert!(error.contains("`emulated:///b?") && error.contains(expected), "{error}");
        }
    }
}
