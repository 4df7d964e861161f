// Reads the core's own tables and keys into plain settings. Problems go to the caller's list; settings are
// filled only while that list is empty, because a resolution made after a problem is incomplete.
#pragma once

#include "config/option_check.hpp"
#include "config/run_schema.hpp"

#include <string>
#include <vector>

TENON_ABI_BEGIN
namespace config {

class CoreReader {
 public:
  CoreReader(CoreSettings& settings, std::vector<std::string>& problems, std::vector<std::string>& warnings)
      : settings_(settings), problems_(problems), warnings_(warnings) {}

  /// Each takes a table as written and returns it resolved: the core's keys only, defaults filled in.
  Value run(const Value& table);
  Value init(const Value& table);
  /// An element of [[evaluate]], without its data.
  Value evaluate(const Value& table);
  /// [tables] without its lists, and an element of either of them without its components.
  Value tables(const Value& table);
  Value table_place(const Value& table);
  Value table_budget(const Value& table);
  Value parallel(const Value& table);
  Value device(const Value& table);
  Value sync(const Value& table);
  Value recovery(const Value& table);
  Value power(const Value& table);
  /// With link, clock and stragglers; to be called after parallel().
  Value transport(const Value& table);
  Value plugins(const Value& table);
  /// The list [[fault]]; to be called after parallel(), whose world bounds the ranks.
  Value faults(const Value& list);
  /// [emulate] with its list of failures; to be called after run(), whose seed is the default.
  Value emulate(const Value& table);
  /// An element of [[model.layer]], [[model.override]], [[model.remove]] or [[model.insert]]: checks the
  /// core's keys of it; the first, second and last also have options of a layer.
  void model_edit(const Value& table, const std::string& path);

 private:
  Resolution resolve(const Value& table, const std::string& path, bool shared);
  template <typename Read>
  Value read(const Value& table, const std::string& path, bool shared, Read settings);
  template <typename Read>
  Value read_list(const Value& list, const std::string& path, Read settings);
  void clock_costs(const Member* table, const Options& options);
  void straggler(const Value& table, const Options& options);
  void fault(const Value& table, const Options& options);
  EmulatedFailure emulated_failure(const Value& table, const Options& options,
                                   const EmulateSettings& emulated);

  CoreSettings& settings_;
  std::vector<std::string>& problems_;
  std::vector<std::string>& warnings_;
};

}  // namespace config
TENON_ABI_END
