// Identities that components state (<tenon/identities.hpp>): their texts read and checked, the two runs that
// they are about, and the comparison of those. Serves `tenon fuzz`, the conformance kit and tests; trains
// nothing itself.
#pragma once

#include <tenon/config.hpp>
#include <tenon/files.hpp>
#include <tenon/host.hpp>
#include <tenon/registry.hpp>
#include <tenon/runtime.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace tenon::identities {

/// An identity with its texts read.
struct Stated {
  std::string why;
  Value own, other;  ///< tables of a component, with `type`
  Value given;       ///< tables of a run
  double within = 0;
};

/// The identities of a component of `kind` ("sync/1"), as an object made from `table` states them; `table`
/// has its type and may have keys of the core. Empty: it states none. Throws Error(kConfig) where the object
/// cannot be made; Error(kPlugin) for one that is none: a text that is no TOML, an option or a table that
/// there is not, two sides that are the same, a bound that is negative or not finite.
std::vector<Stated> stated_by(Registry& registry, Host& host, std::string_view kind, const Value& table);

/// A table of `type` with its mandatory options: the least number, the first choice, the first component that
/// can be made. Throws Error(kConfig) for an option with no such value: a path, a text, a list.
Value needed_options(Registry& registry, std::string_view kind, std::string_view type);

struct Sides {
  Config own, other;
};

/// The two runs of an identity: `base` with either table at `place` ("sync", "sync.inner"), where it has one,
/// and with what the identity gives over both. Runs that are compared within a bound save at their ends.
Sides sides_of(const Config& base, const std::string& place, const Stated& identity);

/// How the two runs differ, "" if they are as the identity says. Bits are compared by weights_hash, and
/// bounds by the weights of the newest checkpoints.
std::string difference(FileSystem& files, const RunResult& own, const RunResult& other, double within);

}  // namespace tenon::identities
