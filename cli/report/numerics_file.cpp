// Reads numerics.jsonl.
#include "report/numerics.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <limits>

namespace tenon::report {
namespace {

using nlohmann::json;

constexpr std::int64_t kLargestFile = std::int64_t{4} << 30;

double figure(const json& object, const char* key) {
  const json& value = object.at(key);
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

NumericsLine line_of(const json& object) {
  NumericsLine line;
  line.step = object.at("step");
  line.layer = object.at("layer");
  line.site = object.at("site");
  line.gemm = object.at("gemm");
  line.operand = object.at("operand");
  line.first_row = object.at("first_row");
  line.rows = object.at("rows");
  line.columns = object.at("columns");
  line.dtype = object.at("dtype");
  line.format = object.at("format");
  line.reason = object.at("reason");
  line.hash = object.at("hash");
  line.amax = figure(object, "amax");
  line.underflow = figure(object, "underflow");
  line.saturated = figure(object, "saturated");
  line.sqnr_db = figure(object, "sqnr_db");
  line.mean_relative_error = figure(object, "mean_relative_error");
  line.scale_binades = figure(object, "scale_binades");
  if (const auto choices = object.find("choices"); choices != object.end()) {
    constexpr const char* kNames[] = {"kept", "e4m3", "e5m2", "e2m3"};
    for (std::size_t i = 0; i < line.choices.size(); ++i) line.choices[i] = choices->at(kNames[i]);
  }
  return line;
}

}  // namespace

std::string NumericsLine::name() const {
  std::string text = fmt::format("{} {} {}", layer, gemm, operand);
  if (site != 0) text += fmt::format(" (site {})", site);
  if (first_row != 0) text += fmt::format(" (from row {})", first_row);
  return text;
}

std::optional<std::vector<NumericsLine>> read_numerics(FileSystem& files, const std::string& attempt) {
  const std::string path = attempt + "/numerics.jsonl";
  if (!files.exists(path)) return std::nullopt;
  const std::string text = read_text(files, path, kLargestFile);
  std::vector<NumericsLine> lines;
  std::size_t begin = 0;
  for (std::int64_t number = 1; begin < text.size(); ++number) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;  // torn
    try {
      lines.push_back(line_of(json::parse(text.begin() + static_cast<std::ptrdiff_t>(begin),
                                          text.begin() + static_cast<std::ptrdiff_t>(end))));
    } catch (const json::exception& error) {
      fail_run(fmt::format("{}:{}: not a line of the observer numerics: {}; only the last line may be torn",
                           path, number, error.what()));
    }
    begin = end + 1;
  }
  return lines;
}

}  // namespace tenon::report
