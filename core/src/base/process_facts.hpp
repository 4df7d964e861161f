// Facts about this process and machine, read from the operating system when asked.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tenon {

/// Largest resident set of this process so far in MiB; 0 where the system does not tell.
double peak_rss_mb();
/// Resident pages of this process without those that files back, in MiB: now, and at most so far (exact to
/// what the file-backed part changed since the maximum); 0 where the system does not tell.
double anonymous_rss_mb();
double peak_anonymous_rss_mb();
/// Memory that this process may use: the machine's, or less if one of its control groups says so; 0 where the
/// system does not tell.
std::int64_t usable_memory_bytes();
/// "Intel(R) Xeon(R) ...", "unknown" where the system does not tell.
std::string cpu_model();
/// Processors that this process may keep busy: those that it may run on, or fewer if one of its control
/// groups limits the time it gets (a limit of 1.5 processors counts as 2).
int usable_cores();
/// "2024-05-01T12:00:00.123Z"; and now.
std::string utc_text(std::chrono::system_clock::time_point at);
std::string utc_now();
/// Variables that change numbers or speed (OMP_*, TENON_* and the like), sorted; nothing else, so that no
/// secret and no name of a machine or person gets into a manifest.
std::vector<std::pair<std::string, std::string>> relevant_environment();

/// Parser of peak_rss_mb and cpu_model, for tests: returns the value after "key<blanks>:" on its own line, or
/// "".
std::string proc_field(const std::string& text, const std::string& key);
/// The folders of the control groups of a process, from its own to the root: those of version 2, then those
/// of version 1 that have `controller`. `text` is /proc/self/cgroup.
std::vector<std::string> control_group_folders(const std::string& text, const std::string& controller);
/// Parser of usable_cores: "150000 100000" is 2; 0 where the text sets no limit.
int quota_cores(const std::string& cpu_max);

}  // namespace tenon
