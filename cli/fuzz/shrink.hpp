// Shrinks a run that fails to the smallest file that still fails in the same way: another model takes the
// place of its own, tables and keys are left out, so that options have their defaults, and numbers are
// halved.
#pragma once

#include <tenon/config.hpp>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace tenon::fuzz {

/// Forms of a run that are smaller by one step, the largest steps first: without a table, an entry of a list
/// or a key; with a number halved.
std::vector<Value> smaller(const Value& root);

struct ShrinkRequest {
  std::string failure;  ///< its kind, which must come again; another one is another finding
  /// The kind of failure of a run, "" = none.
  std::function<std::string(const Value& root)> judge;
  /// Whether there is time for a further try.
  std::function<bool()> goes_on;
  /// Tables, [data] and [model] as a rule, that are tried in the place of the run's own.
  std::vector<Value> models = {};
};

/// The last form that fails alike and of which no smaller one does, or the best when time is over.
Value shrink(Value root, const ShrinkRequest& request);

/// Lines of the file that are not blank.
std::size_t lines_of(const Value& root);

}  // namespace tenon::fuzz
