//! What the system tells of the machine and of this process.

use std::path::{Path, PathBuf};
use zen_edge_core::bench::{Device, MemoryUse, Meter};

/// The device, as its record states it.
pub fn device(name: Option<String>) -> Device {
    let platform = sysinfo::System::long_os_version().unwrap_or_else(|| std::env::consts::OS.to_owned());
    let mut system = sysinfo::System::new();
    system.refresh_memory();
    system.refresh_cpu_all();
    let brand = system.cpus().first().map(|cpu| cpu.brand().trim().to_owned());
    Device {
        name: name.unwrap_or_else(|| "this device".to_owned()),
        platform: platform.trim().to_owned(),
        cpu: brand.filter(|brand| !brand.is_empty()),
        arch: Some(std::env::consts::ARCH.to_owned()),
        browser: None,
        cores: std::thread::available_parallelism().ok().and_then(|n| u32::try_from(n.get()).ok()),
        memory_bytes: Some(system.total_memory()).filter(|bytes| *bytes > 0),
        cross_origin_isolated: None,
        adapter: None,
    }
}

/// Bytes that a buffer of this program may take: a quarter of what is free, and all of it where that is not known.
pub fn spare_memory() -> usize {
    let mut system = sysinfo::System::new();
    system.refresh_memory();
    match system.available_memory() {
        0 => usize::MAX,
        free => usize::try_from(free / 4).unwrap_or(usize::MAX).max(1 << 20),
    }
}

/// Asks the system to forget the pages of a file that it has read; whether it took the request. A page that somebody
/// maps stays.
pub fn drop_pages(path: &Path) -> bool {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{Advice, fadvise};
        std::fs::File::open(path).is_ok_and(|file| fadvise(&file, 0, None, Advice::DontNeed).is_ok())
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = path;
        false
    }
}

/// Bytes that this process has had from the disk, where the system counts them.
pub fn disk_bytes() -> Option<u64> {
    field(&std::fs::read_to_string("/proc/self/io").ok()?, "read_bytes:")
}

/// The number behind a word at the start of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

/// This process's memory by Linux's own account, else the resident bytes alone.
fn memory() -> Option<MemoryUse> {
    if let Ok(text) = std::fs::read_to_string("/proc/self/status") {
        return status(&text);
    }
    let pid = sysinfo::get_current_pid().ok()?;
    let mut system = sysinfo::System::new();
    system.refresh_processes(sysinfo::ProcessesToUpdate::Some(&[pid]), false);
    let resident_bytes = system.process(pid)?.memory();
    Some(MemoryUse { resident_bytes, ..MemoryUse::default() })
}

fn status(text: &str) -> Option<MemoryUse> {
    let kib = |name| field(text, name).map(|kib| kib * 1024);
    Some(MemoryUse {
        resident_bytes: kib("VmRSS:")?,
        peak_bytes: kib("VmHWM:"),
        anonymous_bytes: kib("RssAnon:"),
        file_bytes: kib("RssFile:"),
    })
}

/// The counters of the system.
#[derive(Default)]
pub struct System {
    energy: std::cell::RefCell<Option<Counter>>,
}

impl Meter for System {
    fn joules(&self) -> Option<(&'static str, f64)> {
        let mut energy = self.energy.borrow_mut();
        let counter = energy.get_or_insert_with(|| Counter::find(Path::new("/sys/class")));
        counter.read()
    }

    fn memory(&self) -> Option<MemoryUse> {
        memory()
    }
}

/// A counter of energy that was found.
enum Counter {
    /// The processor packages of Intel's RAPL, and what each counted since they were first read.
    Rapl(Vec<Package>),
    /// Batteries that discharge: what they still hold, in microwatt-hours.
    Battery(Vec<PathBuf>),
    None,
}

struct Package {
    file: PathBuf,
    /// Where the counter begins anew, in microjoules.
    range: u64,
    last: u64,
    sum: u64,
}

impl Counter {
    /// Looks for a counter under `/sys/class`.
    fn find(class: &Path) -> Self {
        let entries = |folder: &str| {
            let read = std::fs::read_dir(class.join(folder)).into_iter().flatten().flatten();
            let mut paths: Vec<PathBuf> = read.map(|entry| entry.path()).collect();
            paths.sort();
            paths
        };
        // `intel-rapl:0` is a package; `intel-rapl:0:0` a part of it.
        let package = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
            name.starts_with("intel-rapl:")
                && name.matches(':').count() == 1
                && text(path, "name").is_some_and(|name| name.starts_with("package"))
        };
        let packages: Vec<Package> = entries("powercap")
            .iter()
            .filter(|path| package(path))
            .filter_map(|path| {
                let (last, range) = (number(path, "energy_uj")?, number(path, "max_energy_range_uj")?);
                Some(Package { file: path.clone(), range, last, sum: 0 })
            })
            .collect();
        if !packages.is_empty() {
            return Self::Rapl(packages);
        }
        let batteries: Vec<PathBuf> = entries("power_supply")
            .into_iter()
            .filter(|path| text(path, "status").is_some_and(|status| status == "Discharging"))
            .filter(|path| number(path, "energy_now").is_some())
            .collect();
        if batteries.is_empty() { Self::None } else { Self::Battery(batteries) }
    }

    /// Joules since some moment, rising.
    fn read(&mut self) -> Option<(&'static str, f64)> {
        match self {
            Self::Rapl(packages) => {
                let mut sum = 0;
                for package in packages {
                    let now = number(&package.file, "energy_uj")?;
                    let more = match now.checked_sub(package.last) {
                        Some(more) => more,
                        None => (package.range - package.last.min(package.range)) + now,
                    };
                    (package.last, package.sum) = (now, package.sum + more);
                    sum += package.sum;
                }
                Some(("rapl", sum as f64 / 1e6))
            }
            Self::Battery(batteries) => {
                let left: u64 =
                    batteries.iter().map(|path| number(path, "energy_now")).sum::<Option<u64>>()?;
                Some(("battery", -(left as f64) * 3600.0 / 1e6))
            }
            Self::None => None,
        }
    }
}

fn text(folder: &Path, file: &str) -> Option<String> {
    Some(std::fs::read_to_string(folder.join(file)).ok()?.trim().to_owned())
}

fn number(folder: &Path, file: &str) -> Option<u64> {
    text(folder, file)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(folder: &Path, files: &[(&str, &str)]) {
        std::fs::create_dir_all(folder).unwrap();
        for (name, text) in files {
            std::fs::write(folder.join(name), text).unwrap();
        }
    }

    #[test]
    fn memory_is_read_by_its_parts() {
        let text =
            "Name:\tx\nVmHWM:\t    3000 kB\nVmRSS:\t    2000 kB\nRssAnon:\t 500 kB\nRssFile:\t 1500 kB\n";
        let memory = status(text).unwrap();
        assert_eq!(memory.resident_bytes, 2000 * 1024);
        assert_eq!(memory.peak_bytes, Some(3000 * 1024));
        assert_eq!((memory.anonymous_bytes, memory.file_bytes), (Some(500 * 1024), Some(1500 * 1024)));
        assert_eq!(status("Name:\tx\n"), None);
    }

    #[test]
    fn packages_are_added_and_a_counter_that_begins_anew_goes_on() {
        let class = tempfile::tempdir().unwrap();
        let domain = |name: &str| class.path().join("powercap").join(name);
        for (at, energy) in [(0, "100000000"), (1, "5000000")] {
            let name = format!("package-{at}\n");
            let files =
                [("name", name.as_str()), ("energy_uj", energy), ("max_energy_range_uj", "262000000")];
            put(&domain(&format!("intel-rapl:{at}")), &files);
        }
        // Parts of a package and the whole platform are counted already.
        put(&domain("intel-rapl:0:0"), &[("name", "core"), ("energy_uj", "1"), ("max_energy_range_uj", "9")]);
        put(&domain("intel-rapl:2"), &[("name", "psys"), ("energy_uj", "1"), ("max_energy_range_uj", "9")]);
        let mut counter = Counter::find(class.path());
        assert_eq!(counter.read(), Some(("rapl", 0.0)));
        put(&domain("intel-rapl:0"), &[("energy_uj", "103000000")]);
        put(&domain("intel-rapl:1"), &[("energy_uj", "5500000")]);
        assert_eq!(counter.read(), Some(("rapl", 3.5)));
        put(&domain("intel-rapl:0"), &[("energy_uj", "1000000")]);
        assert_eq!(counter.read(), Some(("rapl", 3.5 + 159.0 + 1.0)));
    }

    #[test]
    fn a_battery_counts_while_it_discharges_and_nothing_is_no_energy() {
        let class = tempfile::tempdir().unwrap();
        assert_eq!(Counter::find(class.path()).read(), None);
        let battery = class.path().join("power_supply/BAT0");
        put(&battery, &[("status", "Charging\n"), ("energy_now", "50000000\n")]);
        assert_eq!(Counter::find(class.path()).read(), None);
        put(&battery, &[("status", "Discharging\n")]);
        let mut counter = Counter::find(class.path());
        let (_, before) = counter.read().unwrap();
        put(&battery, &[("energy_now", "49999000")]);
        let (source, after) = counter.read().unwrap();
        assert_eq!(source, "battery");
        // A thousandth of a watt-hour is 3.6 joules.
        assert!((after - before - 3.6).abs() < 1e-6, "{}", after - before);
    }
}
