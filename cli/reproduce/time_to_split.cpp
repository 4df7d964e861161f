// The account of a run's time, from its summary.json; see time_to_results.hpp.
#include "ab/run_record.hpp"
#include "reproduce/time_to_results.hpp"

#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

namespace tenon::reproduce {
namespace {

double number(const std::map<std::string, std::string>& flat, const std::string& key) {
  const auto found = flat.find(key);
  if (found == flat.end()) return 0;
  std::istringstream in(found->second);
  double value = 0;
  return in >> value ? value : 0;
}

}  // namespace

std::optional<TimeSplit> read_split(const std::string& folder) {
  const std::filesystem::path path = std::filesystem::path(folder) / "summary.json";
  std::ifstream in(path);
  if (!in) return std::nullopt;
  std::ostringstream text;
  text << in.rdbuf();
  const std::map<std::string, std::string> flat = ab::flatten_json(text.str(), path.string());
  TimeSplit sum;
  int ranks = 0;
  for (;; ++ranks) {
    const std::string rank = fmt::format("communication[{}].", ranks);
    if (!flat.contains(rank + "total_s")) break;
    sum.total += number(flat, rank + "total_s");
    sum.compute += number(flat, rank + "compute_s");
    sum.exposed += number(flat, rank + "exposed_s");
    sum.late += number(flat, rank + "late_s");
    sum.data += number(flat, rank + "data_s");
    for (const char* part : {"evaluate_s", "save_s", "other_s"}) sum.other += number(flat, rank + part);
    sum.overlapped += number(flat, rank + "overlapped_s");
  }
  if (ranks == 0) return std::nullopt;
  for (double TimeSplit::*part :
       {&TimeSplit::total, &TimeSplit::compute, &TimeSplit::exposed, &TimeSplit::late, &TimeSplit::data,
        &TimeSplit::other, &TimeSplit::overlapped})
    sum.*part /= ranks;
  return sum;
}

}  // namespace tenon::reproduce
