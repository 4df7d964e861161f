// Reading and table of stage_results.hpp. A stage is a folder NN-NAME of an attempt, or a link to one.
#include "reproduce/stage_results.hpp"

#include "ab/format.hpp"
#include "ab/run_record.hpp"
#include "base/file_descriptor.hpp"
#include "reproduce/render.hpp"
#include "reproduce/results.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

namespace tenon::reproduce {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLongestHeader = std::uint64_t{1} << 30;

/// Folders "NN-NAME" of an attempt, ascending.
std::vector<fs::path> stage_folders(const std::string& attempt) {
  std::vector<fs::path> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(attempt, none)) {
    const std::string name = entry.path().filename().string();
    if (name.size() > 3 && std::isdigit(static_cast<unsigned char>(name[0])) != 0 &&
        std::isdigit(static_cast<unsigned char>(name[1])) != 0 && name[2] == '-')
      found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::optional<double> finite(std::optional<double> value) {
  return value && std::isfinite(*value) ? value : std::nullopt;
}

/// The value before the first update.
std::optional<double> first_value(const ab::RunRecord& run, const std::string& metric) {
  const auto series = run.series.find(metric);
  if (series == run.series.end() || series->second.empty() || series->second.front().step != 0)
    return std::nullopt;
  return finite(series->second.front().value);
}

/// Mean and range over the seeds.
std::string over_seeds(const std::vector<double>& values) {
  if (values.empty()) return kNoValue;
  double sum = 0;
  for (const double value : values) sum += value;
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const std::string mean = ab::fixed(sum / static_cast<double>(values.size()), 4);
  return values.size() == 1 ? mean
                            : fmt::format("{} ({} to {})", mean, ab::fixed(*low, 4), ab::fixed(*high, 4));
}

std::string known(std::int64_t number) {
  return number > 0 ? count(static_cast<double>(number)) : kNoValue;
}

}  // namespace

StoredWeights weights_in(const std::string& model_folder) {
  StoredWeights out;
  for (const auto& entry : fs::directory_iterator(model_folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    std::ifstream in(entry.path(), std::ios::binary);
    std::uint64_t length = 0;
    in.read(reinterpret_cast<char*>(&length), sizeof length);
    const auto bad = [&](const std::string& what) {
      fail_run(fmt::format("{} is no safetensors file: {}", entry.path().string(), what));
    };
    if (!in || length > kLongestHeader) bad("its first 8 bytes are not the length of a header");
    std::string header(length, '\0');
    in.read(header.data(), static_cast<std::streamsize>(length));
    const auto json = nlohmann::json::parse(header, nullptr, false);
    if (!in || !json.is_object()) bad("its header is not a JSON object");
    for (const auto& [name, tensor] : json.items()) {
      if (name == "__metadata__") continue;
      const auto offsets = tensor.find("data_offsets");
      const auto shape = tensor.find("shape");
      if (offsets == tensor.end() || shape == tensor.end() || offsets->size() != 2)
        bad(fmt::format("tensor '{}' has no shape or no data_offsets", name));
      std::int64_t elements = 1;
      for (const auto& extent : *shape) elements *= extent.get<std::int64_t>();
      out.parameters += elements;
      out.bytes += (*offsets)[1].get<std::int64_t>() - (*offsets)[0].get<std::int64_t>();
    }
  }
  return out;
}

std::vector<StageResult> read_stages_of(const std::string& attempt, const std::vector<std::string>& metrics) {
  std::vector<StageResult> out;
  for (const fs::path& folder : stage_folders(attempt)) {
    StageResult stage;
    stage.name = folder.filename().string().substr(3);
    std::error_code none;
    const fs::path target = fs::is_symlink(folder, none) ? fs::read_symlink(folder, none) : folder;
    stage.shared = target.filename().string();
    stage.folder = folder.string();
    stage.transforms = fs::exists(folder / "model.toml");
    if (stage.transforms) {
      const StoredWeights weights = weights_in(folder.string());
      stage.parameters = weights.parameters;
      stage.weight_bytes = weights.bytes;
      out.push_back(std::move(stage));
      continue;
    }
    const int newest = ab::newest_attempt(folder.string());
    if (newest == 0) break;
    stage.folder = (folder / std::to_string(newest)).string();
    try {
      const ab::RunRecord run = ab::read_run(stage.folder, ab::RunState::kAny);
      if (run.status != "completed") break;
      const auto metric = std::find_if(metrics.begin(), metrics.end(), [&](const std::string& name) {
        return run.final_value(name).has_value();
      });
      if (metric != metrics.end()) {
        stage.begin = first_value(run, *metric);
        stage.end = finite(run.final_value(*metric));
      }
      stage.updates = run.steps;
      stage.tokens = run.tokens;
      stage.wall_s = run.wall_s;
    } catch (const Error&) {
      break;  // it was killed before its first line
    }
    for (StageResult& before : out)
      if (before.transforms && !before.end) before.end = stage.begin;
    out.push_back(std::move(stage));
  }
  return out;
}

void count_parameters(StudyResult& result, const Resolver& resolve) {
  std::map<std::string, std::int64_t> known_counts;  // by shared folder
  for (ArmResult& arm : result.arms) {
    for (RunResult& run : arm.runs) {
      for (StageResult& stage : run.stages) {
        if (stage.transforms || !resolve) continue;
        auto known_count = known_counts.find(stage.shared);
        if (known_count == known_counts.end()) {
          const ResolvedRun built = resolve(stage.folder + "/config.resolved.toml", {});
          const std::string text = parameters_of(built);
          known_count = known_counts.emplace(stage.shared, text.empty() ? 0 : std::stoll(text)).first;
        }
        stage.parameters = known_count->second;
      }
      if (!run.stages.empty() && run.stages.back().parameters > 0)
        arm.parameters = std::to_string(run.stages.back().parameters);
    }
  }
}

std::string stages_markdown(const StudyResult& r) {
  std::string rows;
  std::set<std::string> printed;  // shared folders of the first seed
  for (std::size_t a = 0; a < r.arms.size(); ++a) {
    const ArmResult& arm = r.arms[a];
    if (arm.runs.empty()) continue;
    for (std::size_t i = 0; i < arm.runs.front().stages.size(); ++i) {
      const StageResult& first = arm.runs.front().stages[i];
      if (!printed.insert(first.shared).second) continue;
      std::vector<double> begins, ends;
      for (const RunResult& run : arm.runs) {
        if (i >= run.stages.size()) continue;
        if (run.stages[i].begin) begins.push_back(*run.stages[i].begin);
        if (run.stages[i].end) ends.push_back(*run.stages[i].end);
      }
      rows += row({r.study.arms[a].arm.name, first.name + (first.transforms ? " (transform)" : ""),
                   known(first.parameters), first.transforms ? kNoValue : count(first.updates),
                   first.transforms ? kNoValue : count(first.tokens), over_seeds(begins), over_seeds(ends)});
    }
  }
  if (rows.empty()) return "";
  return "\n## After each stage\n\n" +
         head({"arm", "stage", "parameters", "updates", "tokens", r.study.metric + " before its first update",
               "after it"}) +
         rows +
         "\nMean and range over the seeds. A stage that arms share is trained once per seed and stands at "
         "the "
         "first of them; the value of a transform is that with which the next stage begins.\n";
}

}  // namespace tenon::reproduce
