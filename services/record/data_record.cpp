// "data/<i>" = "<sha256> <path>".
#include "record/data_record.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

namespace tenon::train {
namespace {

constexpr const char* kAdvice =
    "Nothing was changed: bring the old data back, or start a new attempt without --resume";

std::vector<DataSource> recorded_data(const CheckpointReader& reader) {
  std::vector<DataSource> found;
  while (const std::string* text = reader.meta(fmt::format("data/{}", found.size()))) {
    const std::size_t space = text->find(' ');
    if (space == std::string::npos) break;
    found.push_back({text->substr(space + 1), text->substr(0, space)});
  }
  return found;
}

}  // namespace

void record_data(std::span<const DataSource> sources, std::vector<MetaBlock>& meta) {
  for (std::size_t i = 0; i < sources.size(); ++i) {
    meta.push_back({fmt::format("data/{}", i), sources[i].sha256 + " " + sources[i].path});
  }
}

void check_data(const CheckpointReader& reader, std::span<const DataSource> sources,
                const std::string& folder) {
  const std::vector<DataSource> recorded = recorded_data(reader);
  if (recorded.empty()) return;
  const std::string checkpoint = fmt::format("{}/step-{}", folder, reader.step());
  if (recorded.size() != sources.size()) {
    fail_config(fmt::format("{} was trained on other data: on {} files, and this run has {}. {}", checkpoint,
                            recorded.size(), sources.size(), kAdvice));
  }
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const DataSource &then = recorded[i], &now = sources[i];
    if (then.sha256 == now.sha256) continue;
    fail_config(fmt::format("{} was trained on other data: '{}' had SHA-256 {}, and {} has {}. {}",
                            checkpoint, then.path, then.sha256,
                            then.path == now.path ? "now it" : "'" + now.path + "'", now.sha256, kAdvice));
  }
}

}  // namespace tenon::train
